"""The pure core: kinds, events, the fold, both clocks, decisions, selection, rendering.

Standard library and msgspec only. No clock, no I/O, no logging, no randomness: time and identifiers are arguments,
so that every rule here can be tested by property and replayed from the log.
"""
