"""Which perishables give way when a workspace is full: the ended ones first, then the weakest that is not pinned.

A full workspace stays full, so every write of a perishable asks. Working out the strength of thousands of notes for
each would make such a write twenty times as slow; so the order is kept for a moment, in which strengths barely move.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

from amnesiad.core import clocks
from amnesiad.workspace import Workspace

KEPT_MS: Final = 1000
"""How long an order is used: in a second a note with the default shelf life loses a millionth of its strength."""


class Order:
    """The live, unpinned perishables of a workspace as ordered at ``made_at`` (store ms) under one policy."""

    def __init__(self, workspace: Workspace, now: int) -> None:
        self.made_at = now
        self.policy = workspace.policy
        rows = []
        for note in workspace.notes.values():
            if note.regime != "perishable" or note.pinned or not note.live:
                continue
            settled = workspace.settled(note.id, now)
            # One that time has ended already, though no pass has said so, goes before any that lives.
            lives = settled is not None and settled.live
            rows.append((lives, clocks.strength(note, workspace.policy, now), note.created_at, note.id, note.version))
        rows.sort()
        self._queue = deque((note_id, version) for *_, note_id, version in rows)

    def holds(self, workspace: Workspace, now: int) -> bool:
        """Whether it may still be used."""
        return workspace.policy is self.policy and 0 <= now - self.made_at < KEPT_MS

    def ids(self, workspace: Workspace) -> Iterator[str]:
        """Those that stand as they did, weakest first. What was used since is stronger now and left out."""
        queue = self._queue
        while queue and not _stands(workspace, *queue[0]):
            queue.popleft()
        for note_id, version in queue:
            if _stands(workspace, note_id, version):
                yield note_id


_orders: Final[WeakKeyDictionary[Workspace, Order]] = WeakKeyDictionary()


def _stands(workspace: Workspace, note_id: str, version: int) -> bool:
    note = workspace.notes.get(note_id)
    return note is not None and note.version == version


def giving_way(workspace: Workspace, now: int) -> Iterator[str]:
    """The ids of all perishables that may be evicted, in the order in which they go; each once."""
    yield from workspace.ended_perishables
    order = _orders.get(workspace)
    known: set[str] = set()
    if order is not None and order.holds(workspace, now):
        for note_id in order.ids(workspace):
            known.add(note_id)
            yield note_id
    order = _orders[workspace] = Order(workspace, now)
    for note_id in order.ids(workspace):
        if note_id not in known:
            yield note_id
