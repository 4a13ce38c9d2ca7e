"""Relevance by words and by meaning in one figure: ``bm25 / max + 0.5 * clip((cos - mean) / (max - mean))``.

The weight and the form are measured (LoCoMo evidence recall at 10: words .567, this with USE .586, with e5 .624); ranks
fused with equal weights were worse than words alone. A cosine below the model's floor counts nothing, so that a query
that means nothing here finds nothing. The maxima are those of notes the reader may have: what cannot be shown lowers
nobody's relevance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import numpy as np

from amnesiad.search.vectors import Matrix, Vectors

MEANING: Final = 0.5
"""What the closest note gets beside its words, of which the best are worth 1."""

DEPTH: Final = 2000
"""Notes by words, and as many by meaning, that are ranked at first; the rest only for a reader who reads past them."""


def fused(
    words: Iterator[tuple[str, float]], vectors: Vectors, query: Matrix, admit: Callable[[str], bool]
) -> Iterator[tuple[str, float]]:
    """Notes that share a word with the query or its meaning, with their relevance, best first, then by id.

    ``words`` are scores by words, best first. ``admit`` tells which notes the reader may have; it is asked only until
    one is found on each side, so filter what comes. Read it before the vectors change. Scores are above 0.
    """
    near = _near(vectors, query, admit)
    closeness = dict(near)
    seen: set[str] = set()
    best, last = 0.0, 1.0 + MEANING
    for reach in (DEPTH, None):
        by_words = dict(islice(words, reach))
        best = best or next((score for id_, score in by_words.items() if admit(id_)), 0.0)
        chosen = (by_words.keys() | dict(near[:reach])) - seen
        scored = []
        for id_ in chosen:
            share = min(1.0, by_words.get(id_, 0.0) / best) if best else 0.0
            if (score := share + MEANING * closeness.get(id_, 0.0)) > 0:
                scored.append((-score, id_))
        for score, id_ in sorted(scored):
            # What is found late is not set above what was read before it.
            last = min(last, -score)
            yield id_, last
        seen |= chosen


def _near(vectors: Vectors, query: Matrix, admit: Callable[[str], bool]) -> list[tuple[str, float]]:
    """Notes above the floor with how far they are from the mean to the closest, in [0, 1], best first.

    Where most notes are about what is asked, as in a small workspace, the mean lies above the floor, and says nothing;
    then the floor is what counts.
    """
    if not len(vectors):
        return []
    cosines = vectors.cosines(query)
    base = min(float(cosines.mean()), vectors.floor)
    rows = np.flatnonzero(cosines > vectors.floor)
    rows = rows[np.argsort(-cosines[rows], kind="stable")]
    ids = [vectors.ids[row] for row in rows.tolist()]
    best = next((n for n, id_ in enumerate(ids) if admit(id_)), None)
    if best is None:
        return []
    shares = np.clip((cosines[rows] - base) / (cosines[rows[best]] - base), 0, 1)
    return list(zip(ids, shares.tolist(), strict=True))
