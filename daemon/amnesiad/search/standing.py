"""Where each note of an index stands beside its words: in numbers, by slot, so that many are told apart at once.

What a standing means, only those who give it know. Notes of one *class* differ in nothing but when they were made.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from amnesiad.search.foremost import Flags
from amnesiad.search.groups import Groups

Instants = npt.NDArray[np.float64]


class Standing(NamedTuple):
    """``until`` is the instant from which the note is of another class than this or, where it ``ends`` then, is not
    there any more; ``None`` is never. Both are epoch milliseconds."""

    class_: Hashable = None
    created_at: int = 0
    until: int | None = None
    ends: bool = False


NO_STANDING: Final = Standing()


class Standings:
    """By slot. Whoever reads them knows which slots are alive."""

    def __init__(self) -> None:
        self.classes = Groups()
        self.numbers: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.created_at: Instants = np.zeros(0, np.float64)
        self.until: Instants = np.zeros(0, np.float64)
        self.ends: Flags = np.zeros(0, np.bool_)

    def grow(self, more: int) -> None:
        """Make room for so many slots more."""
        self.numbers = np.concatenate((self.numbers, np.zeros(more, np.int32)))
        self.created_at = np.concatenate((self.created_at, np.zeros(more, np.float64)))
        self.until = np.concatenate((self.until, np.zeros(more, np.float64)))
        self.ends = np.concatenate((self.ends, np.zeros(more, np.bool_)))

    def put(self, slots: Sequence[int], standings: Sequence[Standing]) -> None:
        """Let the notes of these slots, which have none, stand there."""
        self.numbers[slots] = [self.classes.join(standing.class_) for standing in standings]
        self.created_at[slots] = [standing.created_at for standing in standings]
        self.until[slots] = [math.inf if standing.until is None else standing.until for standing in standings]
        self.ends[slots] = [standing.ends for standing in standings]

    def change(self, slot: int, standing: Standing) -> None:
        """Let the note of this slot stand there from now on."""
        self.classes.leave(int(self.numbers[slot]))
        self.put([slot], [standing])

    def drop(self, slot: int) -> None:
        """The note of this slot is gone."""
        self.classes.leave(int(self.numbers[slot]))
