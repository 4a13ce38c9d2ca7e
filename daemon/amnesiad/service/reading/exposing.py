"""Who was shown a note, and what they wrote afterwards: for whoever finds that a note was wrong, or should not be
known.

It is read from the ledger, backwards and no further than ``MAX_SCANNED`` entries, and says where it stopped. What
somebody wrote is told by the bare facts of the notes that stand; whether it was written *because of* the note nobody
can tell, and nothing here claims it. Nothing is marked, renewed or counted as a use.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from amnesiad import wire
from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import NotFound
from amnesiad.service.reading.ledger import MAX_SCANNED, Ledger, Shown, read_shown
from amnesiad.service.reading.looking import Looking
from amnesiad.workspace import Workspace

NOTES_AT_ONCE: Final = 5000
"""Notes looked at without letting others be answered in between."""
MAX_WROTE: Final = 50
"""Notes named that one of them wrote, the earliest; the count is exact."""


class _Who(NamedTuple):
    """Whom something was shown to."""

    session: str | None
    owner: str | None
    actor: str


class _Seen:
    """How one of them was shown the note."""

    def __init__(self) -> None:
        self.first_at = self.last_at = 0
        self.kinds: Counter[str] = Counter()
        self.versions: set[int] = set()

    def add(self, at: int, kind: str, version: int) -> None:
        """One showing; the latest come first."""
        self.first_at = at if not self.kinds else min(self.first_at, at)
        self.last_at = max(self.last_at, at)
        self.kinds[kind] += 1
        self.versions.add(version)


class Exposing(Looking, Ledger):
    """The verb that asks who was shown a note."""

    async def exposure(self, request: wire.ExposureRequest) -> wire.ExposureAnswer:
        """Sessions and owners that were shown the note, the latest first; when, how often, by which kind of read and at
        which versions; and the notes they wrote after they had first been shown it.

        ``cut`` where the ledger goes back further than was looked: to ``since``. Of what they wrote only notes are told
        that the caller may see and that are not forgotten. Raises ``Forbidden`` (rule ``exposure-role``) for a child,
        teammate or fresh agent, ``NotFound``, ``StoreUnavailable``.
        """
        caller = request.caller.to_core()
        self.require_governor(request.workspace, caller, "ask who was shown a note", "exposure-role")
        workspace = await self.caught_up(request.workspace)
        if workspace is None:
            raise NotFound(f"there is no note {request.id}", field="id")
        note, _, _ = await self._find(workspace, caller, request.id)
        found, since, cut = await self._showings(workspace, note.id)
        latest = sorted(found.items(), key=lambda item: (-item[1].last_at, item[0].actor))
        page = latest[: request.limit]
        wrote = await self._wrote(workspace, caller, dict(page))
        rows = [
            wire.ExposureRow(
                session=who.session,
                owner=who.owner,
                actor=who.actor,
                first_at=seen.first_at,
                last_at=seen.last_at,
                times=seen.kinds.total(),
                kinds=dict(seen.kinds),
                versions=tuple(sorted(seen.versions)),
                wrote=tuple(ids[:MAX_WROTE]),
                wrote_count=len(ids),
            )
            for (who, seen), ids in zip(page, wrote, strict=True)
        ]
        return wire.ExposureAnswer(
            id=note.id, rows=tuple(rows), total=len(found), cut=cut, since=since, seq=workspace.position
        )

    async def _showings(self, workspace: Workspace, note_id: str) -> tuple[dict[_Who, _Seen], int | None, bool]:
        """Who was shown it, how far back (epoch ms) was looked, and whether the ledger goes back further."""
        found: dict[_Who, _Seen] = {}
        needle, since, looked = note_id.encode(), None, 0
        async for seq, raw in self._entries(workspace):
            if looked == MAX_SCANNED:
                return found, since, True
            looked += 1
            since = int(seq.partition("-")[0])
            # Most entries have nothing to do with it, and need not be decoded to know that.
            if needle in raw and (shown := read_shown(raw)) is not None:
                for kind, version in _ways(shown, note_id):
                    who = _Who(shown.session, shown.owner, shown.actor)
                    found.setdefault(who, _Seen()).add(shown.at, kind, version)
        return found, since, False

    async def _wrote(self, workspace: Workspace, caller: Caller, seen: dict[_Who, _Seen]) -> list[list[str]]:
        """For each of them the notes it wrote since, the earliest first."""
        by_author: dict[str, list[tuple[int, _Who]]] = {}
        for number, who in enumerate(seen):
            by_author.setdefault(who.actor.removeprefix("agent:"), []).append((number, who))
        wrote: list[list[tuple[int, str]]] = [[] for _ in seen]
        firsts = [one.first_at for one in seen.values()]
        for number, note_id in enumerate(list(workspace.notes)):
            if number % NOTES_AT_ONCE == NOTES_AT_ONCE - 1:
                await asyncio.sleep(0)
            note = workspace.notes.get(note_id)
            if note is None or note.author is None or note.author not in by_author:
                continue
            for place, who in by_author[note.author]:
                # An agent's id may be another agent's in another session: where the owner tells, it decides.
                theirs = note.owner is None or note.owner in (who.owner, who.session)
                if theirs and note.created_at > firsts[place] and visible(note, caller, workspace.policy):
                    wrote[place].append((note.created_at, note_id))
        return [[id_ for _, id_ in sorted(ids)] for ids in wrote]


def _ways(shown: Shown, note_id: str) -> Iterator[tuple[str, int]]:
    """In which ways an entry shows the note, and at which version: by its kind of read as it stood, as a deterrent, or
    as a correction."""
    for id_, version, _ in shown.ids:
        if id_ == note_id:
            yield shown.kind, version
    for id_, version in shown.deterrents:
        if id_ == note_id:
            yield "deterrent", version
    for id_, version, _ in shown.corrections:
        if id_ == note_id:
            yield "correction", version
