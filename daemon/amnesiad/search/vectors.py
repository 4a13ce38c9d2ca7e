"""The vectors of one set of notes, in memory: put, drop, and how close each is to a query.

There is no index over them: one product of the whole matrix with the query takes 2 ms for 10 000 notes. A note first
waits to be given its vector; until then words alone find it. What is dropped leaves neither a vector nor an id behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]

GROWTH: Final = 4
"""The matrix grows by the fourth part: copying it costs little a note, and little memory lies idle."""
FIRST_ROWS: Final = 64


class Vectors:
    """Vectors of length 1 by note id. ``wake`` is called when a note begins to wait for one.

    Below the cosine ``floor`` two texts have nothing to do with each other; from ``close`` on they hardly ever do not.
    """

    def __init__(self, dimensions: int, floor: float, close: float, wake: Callable[[], None]) -> None:
        self.dimensions = dimensions
        self.floor = floor
        self.close = close
        self._wake = wake
        self.clear()

    def clear(self) -> None:
        """Drop everything."""
        self._waiting: dict[str, None] = {}
        self._rows: dict[str, int] = {}
        self.ids: list[str] = []
        """By row."""
        self._matrix: Matrix = np.zeros((0, self.dimensions), np.float32)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._rows

    @property
    def waiting(self) -> int:
        """How many notes wait for their vector."""
        return len(self._waiting)

    def expect(self, id_: str) -> None:
        """The note is new or has other words: let it wait for a vector, and forget the one it had."""
        self.drop(id_)
        self._waiting[id_] = None
        self._wake()

    def take(self, most: int) -> list[str]:
        """Up to ``most`` notes that wait, the newest first; they no longer count as waiting."""
        return [self._waiting.popitem()[0] for _ in range(min(most, len(self._waiting)))]

    def put(self, id_: str, vector: npt.ArrayLike) -> None:
        """Give the note its vector, in place of the one it had."""
        row = self._rows.get(id_)
        if row is None:
            row = self._rows[id_] = len(self.ids)
            self.ids.append(id_)
            if row == len(self._matrix):
                more = max(FIRST_ROWS, row // GROWTH)
                self._matrix = np.concatenate((self._matrix, np.zeros((more, self.dimensions), np.float32)))
        self._matrix[row] = vector

    def drop(self, id_: str) -> None:
        """Forget the note. An unknown id is no error: it is out already."""
        self._waiting.pop(id_, None)
        row = self._rows.pop(id_, None)
        if row is None:
            return
        # The last row moves into the gap.
        last = self.ids.pop()
        if last != id_:
            self.ids[row] = last
            self._rows[last] = row
            self._matrix[row] = self._matrix[len(self.ids)]
        self._matrix[len(self.ids)] = 0

    def cosines(self, query: Matrix) -> Matrix:
        """How close each note is to the query, in the order of ``ids``."""
        found: Matrix = self._matrix[: len(self.ids)] @ query
        return found
