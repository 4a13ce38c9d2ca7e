"""What every pass is given, and the figures every pass gives back.

No queue and no process lives here: a pass is an async function of a context and ids, so that a test, a job and an
operator's command run the very same code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from redis.asyncio import Redis

from amnesiad.core.events import AnyNoteEvent, Expired, Forgotten, StaleFlagged
from amnesiad.core.policy import Policy
from amnesiad.store.keyring import Keyring
from amnesiad.store.vault import Unreadable

MAX_REPORTED: Final = 100
"""Unreadable notes named in one run's figures; what is wrong with the first hundred is wrong with the rest."""


@dataclass(frozen=True, slots=True)
class Context:
    """The way to the store, the operator's policy and the clock (store ms) a pass runs by."""

    redis: Redis
    keyring: Keyring
    base: Policy
    now: Callable[[], int]
    session_lease: int
    child_lease: int
    rewrite_timeout_s: float = 60.0


@dataclass(slots=True)
class Figures:
    """What a run did. Every note that fell due is counted once in ``due`` by the run that dealt with it."""

    due: int = 0
    expired: int = 0
    stale: int = 0
    forgotten: int = 0
    purged: int = 0
    refiled: int = 0
    conflicts: int = 0
    unreadable: list[str] = field(default_factory=list)
    unfinished: bool = False

    def count(self, events: list[AnyNoteEvent]) -> None:
        """Count one note's committed events."""
        for event in events:
            if isinstance(event, Forgotten):
                self.forgotten += 1
            elif isinstance(event, Expired):
                self.expired += 1
            elif isinstance(event, StaleFlagged):
                self.stale += 1

    def add(self, other: Figures) -> None:
        """Count another run's figures in."""
        for name in ("due", "expired", "stale", "forgotten", "purged", "refiled", "conflicts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unreadable += other.unreadable[: MAX_REPORTED - len(self.unreadable)]
        self.unfinished = self.unfinished or other.unfinished

    def report(self, item: Unreadable) -> None:
        """Name a note that could not be read or settled; its id and what is wrong, never its words."""
        if len(self.unreadable) < MAX_REPORTED:
            self.unreadable.append(f"{item.id}: {item.problem}")

    def as_dict(self) -> dict[str, Any]:
        """The figures as a job returns them."""
        return {
            "due": self.due,
            "expired": self.expired,
            "stale": self.stale,
            "forgotten": self.forgotten,
            "purged": self.purged,
            "refiled": self.refiled,
            "conflicts": self.conflicts,
            "unreadable": self.unreadable,
            "unfinished": int(self.unfinished),
        }
