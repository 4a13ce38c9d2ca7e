"""Adapters for agent frameworks, one module each; nothing is imported here.

A module imports its framework when it is imported itself, and says in one sentence which extra is missing. None of them
decides anything about notes: they translate between a framework's own shapes and the verbs of ``amnesiad.client``.
"""
