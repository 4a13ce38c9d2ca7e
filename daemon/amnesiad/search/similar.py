"""Whether a text says what an ended note already said: the measure behind the warnings of ``remember``.

The measure is containment: the share of the shorter text's words that the longer one has too. It is a reason to warn
and to show the note, never to refuse, merge or drop anything: it knows no negation and no numbers' meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from amnesiad.search.index import Index
from amnesiad.search.terms import STOPWORDS, query_terms

SIMILAR: Final = 0.6
"""From here on a text shares *most* of its words with another: two of three, three of five, never one of two."""

MIN_SHARED: Final = 2
"""One word in common says what two texts are about, not what they say."""

CANDIDATES: Final = 16
"""Notes looked at, by relevance: a write must not read an archive."""

CANDIDATE_TERMS: Final = 12
"""Rarest terms by which candidates are found, for the same reason."""


def overlap(a: str, b: str) -> float:
    """The share, in [0, 1], of the smaller word set that the larger one holds; 1.0 for texts of the same words.

    0.0 where fewer than ``MIN_SHARED`` words are shared, unless the texts have the very same words.
    """
    return _overlap(_word_set(a), _word_set(b))


def similar(
    text: str,
    index: Index,
    content: Callable[[str], str],
    allow: Callable[[str], bool] | None = None,
    among: Callable[[Any], bool] | None = None,
    *,
    looked_at: int | None = None,
) -> list[tuple[str, float]]:
    """The notes of the index whose content equals the text or shares most of its words, with the overlap, best first.

    ``content(id)`` is a note's text; ``allow`` tells whether a note may be looked at, and is asked for few; ``among``
    is what ``Index.score`` takes; ``looked_at`` is how many of the closest are, where few may be allowed. Equal texts
    are always found, unless more than ``CANDIDATES`` notes are as close; a much shorter note that shares only common
    words may be missed.
    """
    if not index:
        return []
    mine = _word_set(text)
    query = " ".join(sorted(mine))
    ranked = (id_ for id_, _ in index.score(query, among, max_terms=CANDIDATE_TERMS))
    # Asked one by one until there are enough: what may be seen costs more to tell than what is relevant.
    allowed = islice(ranked, looked_at) if allow is None else filter(allow, islice(ranked, looked_at))
    found = [
        (id_, share)
        for id_ in islice(allowed, CANDIDATES)
        if (share := _overlap(mine, _word_set(content(id_)))) >= SIMILAR
    ]
    found.sort(key=lambda one: (-one[1], one[0]))
    return found


def _word_set(text: str) -> frozenset[str]:
    every = frozenset(query_terms(text))
    return every - STOPWORDS or every


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    if a == b:
        return 1.0 if a else 0.0
    shared = len(a & b)
    return shared / min(len(a), len(b)) if shared >= MIN_SHARED else 0.0
