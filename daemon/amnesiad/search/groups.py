"""Groups of notes by number: what a reader may see is asked once for each group, not for each note."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt


class Groups:
    """Numbers for those groups that have notes. What a group is, only those who name it know."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        # By number; a free number has no notes.
        self._names: list[Hashable] = []
        self._sizes: list[int] = []
        self._free: list[int] = []

    def join(self, name: Hashable) -> int:
        """Count a note into the group; returns the group's number, which stands until its last note leaves."""
        number = self._numbers.get(name)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = len(self._names)
                self._names.append(name)
                self._sizes.append(0)
            self._numbers[name] = number
        self._sizes[number] += 1
        return number

    def leave(self, number: int) -> None:
        """Count a note out of the group."""
        self._sizes[number] -= 1
        if not self._sizes[number]:
            del self._numbers[self._names[number]]
            self._names[number] = None
            self._free.append(number)

    def each(self, ask: Callable[[Any], Any]) -> dict[int, Any]:
        """What ``ask`` says of every group that has notes, by number."""
        return {number: ask(name) for name, number in self._numbers.items()}

    def wanted(self, among: Callable[[Any], bool]) -> npt.NDArray[np.bool_] | None:
        """By number, whether the group is wanted; ``None`` where all are."""
        numbers = [number for name, number in self._numbers.items() if among(name)]
        if len(numbers) == len(self._numbers):
            return None
        wanted = np.zeros(len(self._names), np.bool_)
        wanted[numbers] = True
        return wanted
