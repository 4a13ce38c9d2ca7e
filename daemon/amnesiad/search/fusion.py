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

DEPTHS: Final = (256, 2048, None)
"""Notes by words, and as many by meaning, that are ranked at first, and for a reader who reads past them."""


def fused(
    words: Iterator[tuple[str, float]], vectors: Vectors, query: Matrix, admit: Callable[[str], bool]
) -> Iterator[tuple[str, float]]:
    """Notes that share a word with the query or its meaning, with their relevance, best first, then by id.

    ``words`` are scores by words, best first. ``admit`` tells which notes the reader may have; it is asked only until
    one is found on each side, so filter what comes. Read it before the vectors change. Scores are above 0.
    """
    near = _Near(vectors, query, admit)
    seen: set[str] = set()
    best, last = 0.0, 1.0 + MEANING
    for depth in DEPTHS:
        by_words = dict(islice(words, depth))
        best = best or next((score for id_, score in by_words.items() if admit(id_)), 0.0)
        chosen = (by_words.keys() | near.first(depth)) - seen
        scored = []
        for id_ in chosen:
            share = min(1.0, by_words.get(id_, 0.0) / best) if best else 0.0
            if (score := share + MEANING * near.share(id_)) > 0:
                scored.append((-score, id_))
        for score, id_ in sorted(scored):
            # What is found late is not set above what was read before it.
            last = min(last, -score)
            yield id_, last
        seen |= chosen


class _Near:
    """Notes above the floor, with how far they are from the mean to the closest that the reader may have, in [0, 1].

    Where most notes are about what is asked, as in a small workspace, the mean lies above the floor, and says nothing;
    then the floor is what counts.
    """

    def __init__(self, vectors: Vectors, query: Matrix, admit: Callable[[str], bool]) -> None:
        self._vectors = vectors
        self._cosines = cosines = vectors.cosines(query)
        rows = np.flatnonzero(cosines > vectors.floor)
        self._rows = rows = rows[np.argsort(-cosines[rows], kind="stable")]
        closest = next((row for row in rows.tolist() if admit(vectors.ids[row])), None)
        if closest is None:
            self._rows = rows[:0]
            return
        self._base = min(float(cosines.mean()), vectors.floor)
        self._reach = float(cosines[closest]) - self._base

    def first(self, most: int | None) -> set[str]:
        """The ids of the closest."""
        return {self._vectors.ids[row] for row in self._rows[:most].tolist()}

    def share(self, id_: str) -> float:
        """0 for a note below the floor."""
        row = self._vectors.row(id_)
        if row is None or not len(self._rows) or self._cosines[row] <= self._vectors.floor:
            return 0.0
        return min(1.0, (float(self._cosines[row]) - self._base) / self._reach)
