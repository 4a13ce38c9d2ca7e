"""Lexical search over notes, in memory: terms, the index of one set of notes, and how alike two texts are.

Nothing here reads state, visibility or time, and nothing is ever written to disk: an index is derived from words that
the vault holds, and a note dropped from it leaves nothing behind.
"""

from amnesiad.search.index import Index
from amnesiad.search.similar import overlap, similar

__all__ = ["Index", "overlap", "similar"]
