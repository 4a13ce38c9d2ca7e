"""Relevance by words and by meaning in one figure: ``bm25 / max + 0.5 * clip((cos - mean) / (max - mean))``.

The weight and the form are measured (LoCoMo evidence recall at 10: words .567, this with USE .586, with e5 .624); ranks
fused with equal weights were worse than words alone. A cosine below the model's floor counts nothing, so that a query
that means nothing here finds nothing. The maxima are those of notes the reader may have: what cannot be shown lowers
nobody's relevance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from amnesiad.core.recall import Parts
from amnesiad.search.foremost import Numbers, foremost
from amnesiad.search.index import Index, Layer
from amnesiad.search.vectors import Matrix, Vectors

MEANING: Final = 0.5
"""What the closest note gets beside its words, of which the best are worth 1."""

CLOSE_SHARE: Final = 0.5
"""Of the closest note's meaning, what a close one must reach: of many notes some are near to anything."""

TRIED: Final = 64
"""Notes that are tried at first for the best that the reader may have; each time none was, four times as many."""


class Fusion:
    """The notes that share a word with the query, or its meaning. To be read before index or vectors change.

    ``among`` is as ``Index.score`` takes it; ``admit`` tells which notes the reader may have, and is asked for few.
    """

    def __init__(
        self,
        index: Index,
        query: str,
        among: Callable[[Any], bool] | None,
        vectors: Vectors,
        vector: Matrix,
        admit: Callable[[str], bool],
    ) -> None:
        self._index = index
        layers = list(index.layers(query, among))
        self._words = np.zeros(len(index.ids))
        self._meaning = np.zeros(len(index.ids))
        self._close = np.zeros(len(index.ids), np.bool_)

        def best(slots: Any, values: Numbers) -> float | None:
            return next((float(values[at]) for at in _descending(values) if admit(index.ids[slots[at]])), None)

        for layer in layers:
            self._words[layer.slots] = layer.scores
        found = np.flatnonzero(self._words)
        most = best(found, self._words[found])
        self._words = np.minimum(self._words / most, 1.0) if most else np.zeros(len(index.ids))
        cosines = vectors.cosines(vector).astype(np.float64)
        rows = np.flatnonzero(cosines > vectors.floor)
        slots = index.slots([vectors.ids[row] for row in rows.tolist()])
        seen = index.seen(among)[slots]
        near, slots = cosines[rows[seen]], slots[seen]
        closest = best(slots, near)
        if closest is not None:
            # Where most notes are about what is asked, as in a small workspace, the mean lies above the floor, and says
            # nothing; then the floor is what counts.
            base = min(float(cosines.mean()), vectors.floor)
            shares = np.minimum((near - base) / (closest - base), 1.0)
            self._meaning[slots] = MEANING * shares
            self._close[slots] = (near >= vectors.close) & (shares >= CLOSE_SHARE)

    def layers(self) -> Iterator[Layer]:
        """As ``Index.layers``; all in one. Scores are above 0."""
        scores = self._words + self._meaning
        slots = np.flatnonzero(scores)
        yield Layer(slots, scores[slots], 0.0)

    def parts(self, id_: str) -> Parts:
        """What the relevance of a note that was found is made of."""
        slot = int(self._index.slots([id_])[0])
        return Parts(float(self._words[slot]), float(self._meaning[slot]), bool(self._close[slot]))


def _descending(values: Numbers) -> Iterator[int]:
    """Indices by value, the highest first; sorted only as far as they are read."""
    left, size = np.arange(len(values)), TRIED
    while len(left):
        chosen = foremost(values[left], np.zeros(len(left)), size)
        yield from sorted(left[chosen].tolist(), key=lambda at: -values[at])
        left = left[~chosen]
        size *= 4
