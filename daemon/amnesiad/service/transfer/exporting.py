"""A workspace as a stream of lines, out: export.

Whoever asks gets what they may see; a human gets everything. Each note stands at the place in the log where it last
changed, with its whole history, so that an export that was cut off goes on behind any of its lines. The log is read in
pages, and what changes meanwhile is neither lost nor waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from amnesiad import wire
from amnesiad.core import clocks
from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import NotFound
from amnesiad.core.events import AnyNoteEvent, PolicyChanged, Scrubbed
from amnesiad.core.notes import Note
from amnesiad.service.base import Base
from amnesiad.service.transfer import shapes
from amnesiad.store import vault
from amnesiad.store.log import START, Entry, at_or_past
from amnesiad.store.owners import Owner, all_owners
from amnesiad.wire.lines import EndLine, FactLine, Header, NoteLine, OwnerLine, PolicyLine
from amnesiad.workspace import Workspace

PAUSE_EVERY: Final = 50
"""Entries written out without a pause; others wait no longer than a few milliseconds."""


class Exporting(Base):
    """The verb that gives a workspace away."""

    async def export(self, request: wire.ExportRequest) -> AsyncIterator[bytes]:
        """Lines with everything that the caller may see, in the order of the log, up to its end as it stands now.

        ``after`` goes on behind a ``seq`` of an earlier export: every note that changed since comes, whole. Raises
        ``NotFound`` for an unknown workspace, and for one that is dropped on the way.
        """
        workspace = await self.existing(request)
        caller, keys = request.caller.to_core(), workspace.keys
        mine = caller.owners
        through = await workspace.log.last_id()
        start = request.after or START
        yield shapes.encode_line(
            Header(
                format=shapes.FORMAT,
                workspace=workspace.name,
                through=through,
                key=self.keyring.fingerprint,
                at=self.clock.now_ms(),
                after=request.after,
            )
        )
        yield shapes.encode_line(PolicyLine(values=dict(workspace.overrides)))  # type: ignore[arg-type]
        for held in await all_owners(self.redis, keys):
            if caller.role == "human" or held.name in mine:
                yield shapes.encode_line(_owner_line(held.name, held.owner))
        moved: set[str] = set()
        count, position = 0, start
        while not at_or_past(position, through):
            page = [entry for entry in await workspace.log.read(position) if at_or_past(through, entry.seq)]
            if not page:
                break
            async for line in self._page(workspace, caller, page, through, moved):
                if isinstance(line, NoteLine):
                    count += 1
                    for part in shapes.note_lines(line):
                        yield part
                else:
                    yield shapes.encode_line(line)
            position = page[-1].seq
        if not at_or_past(await workspace.log.last_id(), through):
            # Nothing else shortens a log. Without a closing line nobody takes what has come for the whole.
            raise NotFound("the workspace was dropped while it was exported", field="workspace")
        yield shapes.encode_line(EndLine(through=through, notes=count))

    async def _page(
        self, workspace: Workspace, caller: Caller, page: Sequence[Entry], through: str, moved: set[str]
    ) -> AsyncIterator[NoteLine | FactLine]:
        """The lines of one page of the log: each note at its last event, or, if it moved on meanwhile, at its first."""
        seen: dict[str, list[Entry]] = {}
        for entry in page:
            if not isinstance(entry.event, PolicyChanged | Scrubbed):
                seen.setdefault(entry.event.note, []).append(entry)
        stands = await vault.find_many(self.redis, workspace.keys, list(seen))
        standing = dict(zip(seen, stands, strict=True))
        for index, entry in enumerate(page):
            if index % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            event = entry.event
            if isinstance(event, PolicyChanged | Scrubbed):
                yield FactLine(seq=entry.seq, event=event)
                continue
            place = standing[event.note].place
            if place is None or isinstance(place, vault.Unreadable):
                continue
            if not at_or_past(through, place.seq) and event.note not in moved:
                moved.add(event.note)
            elif place.seq != entry.seq:
                continue
            note = place.note if isinstance(place, vault.Head) else place.tomb.note
            if visible(note, caller, workspace.policy):
                entries = seen[event.note]
                if len(entries) < note.version or entries[-1].seq != place.seq:
                    entries = list(reversed(await workspace.log.history(place.seq, shapes.MAX_EVENTS)))
                yield self._note_line(workspace, entry.seq, entries, standing[event.note])

    def _note_line(self, workspace: Workspace, seq: str, entries: Sequence[Entry], found: vault.Found) -> NoteLine:
        events: tuple[AnyNoteEvent, ...] = tuple(entry.event for entry in entries)  # type: ignore[misc]
        place, words = found.place, found.words
        content_hash: str | None = None
        if isinstance(place, vault.Grave):
            words, content_hash = None, place.tomb.content_hash
        elif isinstance(place, vault.Head) and words and is_over(place.note, workspace, self.clock.now_ms()):
            content_hash, words = self.keyring.content_hash(words.content), None
        return NoteLine(id=events[0].note, seq=seq, events=events, words=words, content_hash=content_hash)


def is_over(note: Note, workspace: Workspace, now: int) -> bool:
    """Whether time has erased it, be it that no pass has run yet: its words go nowhere any more."""
    return clocks.settle(note, workspace.policy, now).state == "forgotten"


def _owner_line(name: str, owner: Owner) -> OwnerLine:
    kind: Any = owner.agent_kind
    return OwnerLine(owner=name, incarnation=owner.incarnation, open=owner.open, agent_kind=kind)
