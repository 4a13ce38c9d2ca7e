"""What the checks of a store found: differences from the log by structure, and the commands that would mend them."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

MAX_DIFFERENCES: Final = 200
"""Differences listed one by one; all are counted. A store with more of them is past reading."""

Command = tuple[str | bytes | int, ...]


class Difference(NamedTuple):
    """One thing that is not as the log has it: the note's id (or the key's own name), the structure, what is wrong."""

    id: str
    field: str
    problem: str

    def __str__(self) -> str:
        return f"{self.field} of {self.id}: {self.problem}"


class Report(NamedTuple):
    """What ``verify`` found. ``counts`` is exact by structure, ``differences`` lists the first of them."""

    seq: str
    """Up to where the log was read."""
    entries: int
    notes: int
    forgotten: int
    counts: dict[str, int]
    differences: tuple[Difference, ...]

    @property
    def clean(self) -> bool:
        """Whether everything is as the log has it."""
        return not self.counts

    @property
    def figures(self) -> dict[str, int]:
        """Counts for an answer: entries, notes, forgotten, differences, and differences by structure."""
        by_structure = {f"differences_{field}": count for field, count in sorted(self.counts.items())}
        total = sum(self.counts.values())
        return {
            "entries": self.entries,
            "notes": self.notes,
            "forgotten": self.forgotten,
            "differences": total,
            **by_structure,
        }


class Findings:
    """Differences as they are found: all of them counted by structure, the first ones listed, and every mend."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.mends: list[Command] = []

    def differs(self, id_: str, field: str, problem: str, *mends: Command) -> None:
        """One thing is not as the log has it; ``mends`` would make it so, where log and vault know enough."""
        self.counts[field] += 1
        if len(self.differences) < MAX_DIFFERENCES:
            self.differences.append(Difference(id_, field, problem))
        self.mends += mends
