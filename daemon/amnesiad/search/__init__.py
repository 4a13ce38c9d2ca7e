"""Search over notes, in memory: terms, the index of one set of notes, which of them come first, how alike two texts
are; and, where vectors are given, which notes are close to a query in meaning.

Nothing here reads state, visibility or time, and nothing is ever written to disk: an index is derived from words that
the vault holds, and a note dropped from it leaves nothing behind.
"""

from amnesiad.search.choice import Asked, Worth, by_relevance, by_worth
from amnesiad.search.fusion import Fusion
from amnesiad.search.index import Index, Layer
from amnesiad.search.recency import newest
from amnesiad.search.similar import overlap, similar
from amnesiad.search.standing import Standing
from amnesiad.search.terms import content_words
from amnesiad.search.vectors import Vectors

__all__ = [
    "Asked",
    "Fusion",
    "Index",
    "Layer",
    "Standing",
    "Vectors",
    "Worth",
    "by_relevance",
    "by_worth",
    "content_words",
    "newest",
    "overlap",
    "similar",
]
