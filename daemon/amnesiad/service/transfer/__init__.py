"""Whole workspaces, out and in, as lines of JSON.

``shapes`` says what a line holds, ``exporting`` writes them, ``importing`` reads them, and ``arriving`` decides what
becomes of each.
"""
