"""Looking without using: list, inspect, history, audit, and what status counts. Nothing here renews a note."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final, cast

import msgspec

from amnesiad import wire
from amnesiad.core import clocks, render
from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import Invalid, NotFound
from amnesiad.core.events import AnyNoteEvent, event_type
from amnesiad.core.notes import LIVE, Note, State, Words, apply, fold
from amnesiad.projection import Class, Group, Use
from amnesiad.search import newest
from amnesiad.service.base import Base
from amnesiad.service.reading.answers import view, view_fields
from amnesiad.service.reading.counting import losses, tally
from amnesiad.store import vault
from amnesiad.store.log import Entry, seq_key
from amnesiad.store.units import FORGOTTEN, left_of
from amnesiad.workspace import Workspace

GRAVES: Final = "forgotten"
"""How a cursor among the forgotten notes, which a list shows last, begins."""
RECENT: Final = 5
"""Ends that status names."""


class Looking(Base):
    """The verbs that only look."""

    async def list_notes(self, request: wire.ListRequest) -> wire.ListAnswer:
        """Notes the caller may see, newest first, in pages. Default states: the live ones.

        It looks at the notes of a page and at those that its filters leave in doubt, not at all there are.
        """
        workspace, degraded = await self.reading(request)
        if workspace is None:
            return wire.ListAnswer(notes=(), seq="0-0")
        caller, now = request.caller.to_core(), self.clock.now_ms()
        states = frozenset(request.states) or frozenset({"active", "stale"})
        after = _cursor(request.cursor)
        among_graves = request.cursor is not None and request.cursor.startswith(f"{GRAVES}:")
        found: list[Note] = []
        for note_id in () if among_graves else _candidates(workspace, caller, request, states, after, now):
            note = workspace.settled(note_id, now)
            if note is None or note.state not in states or not visible(note, caller, workspace.policy):
                continue
            if not _listed(note, request) or not set(request.tags) <= set(workspace.words[note_id].tags):
                continue
            found.append(note)
            if len(found) > request.limit:
                break
        page = found[: request.limit]
        cursor = f"{page[-1].created_at}:{page[-1].id}" if len(found) > len(page) else None
        views = tuple(view(workspace, note, now, content=request.with_content) for note in page)
        if "forgotten" in states and cursor is None and not degraded:
            gone, cursor = await self._forgotten(workspace, caller, request, request.limit - len(views))
            views += tuple(self._bare_view(workspace, note, now) for note in gone)
        return wire.ListAnswer(notes=views, cursor=cursor, seq=workspace.position, degraded=degraded)

    async def _forgotten(
        self, workspace: Workspace, caller: Caller, request: wire.ListRequest, room: int
    ) -> tuple[list[Note], str | None]:
        """Forgotten notes for the end of a list that asks for them, latest first, and the cursor behind them.

        They have no tags any more, so a list by tags finds none.
        """
        if request.tags:
            return [], None
        found: list[Note] = []
        async for tomb in self._tombs(workspace, caller, behind=_grave_cursor(request.cursor)):
            if not _listed(tomb.note, request):
                continue
            if len(found) == room:
                last = found[-1] if found else None
                return found, f"{GRAVES}:{last.state_at}:{last.id}" if last else f"{GRAVES}:"
            found.append(tomb.note)
        return found, None

    async def _tombs(
        self,
        workspace: Workspace,
        caller: Caller,
        *,
        since: int | None = None,
        behind: tuple[int, str] | None = None,
    ) -> AsyncIterator[vault.Tomb]:
        """The forgotten notes that the caller may see, the latest first, each once; from ``since`` on, and those that
        stand behind this time and id."""
        until = None if behind is None else behind[0]
        async for grave in vault.graves(self.redis, workspace.keys, since=since, until=until):
            note = grave.tomb.note
            if (behind is None or (note.state_at, note.id) < behind) and visible(note, caller, workspace.policy):
                yield grave.tomb

    def _bare_view(self, workspace: Workspace, note: Note, now: int) -> wire.NoteView:
        fields = view_fields(note, None, workspace.policy, Use(), workspace.name, now)
        return wire.NoteView(**fields)  # type: ignore[arg-type]

    async def inspect(self, request: wire.InspectRequest) -> wire.InspectAnswer:
        """One note, whole, in whatever state it is: the explicit expansion. ``at`` folds the log to that time."""
        workspace, degraded = await self.reading(request)
        if workspace is None:
            raise NotFound(f"there is no note {request.id}", field="id")
        caller, now = request.caller.to_core(), self.clock.now_ms()
        note, tomb, last = await self._find(workspace, caller, request.id)
        length = note.version
        if request.at is not None:
            now = request.at
            note = _fold_to(await workspace.log.history(last), now)
            note = clocks.settle(note, workspace.policy, now)
        elif tomb is None:
            note = clocks.settle(note, workspace.policy, now)
        words = None if note.state == "forgotten" else workspace.words.get(note.id)
        use = workspace.use.get(note.id, Use()) if tomb is None else Use()
        fields = view_fields(note, words, workspace.policy, use, workspace.name, now)
        content_hash = None if tomb is None else tomb.content_hash
        if note.state == "forgotten" and tomb is None and note.id in workspace.words:
            content_hash = self.keyring.content_hash(workspace.words[note.id].content)
        # What is erased is told as it is now: its words of then are gone as well.
        left = note if tomb is None else tomb.note
        text = render.expansion(left, words, workspace.policy, now, content_hash=content_hash)
        return wire.InspectAnswer(
            note=wire.NoteView(**fields),  # type: ignore[arg-type]
            history_length=length,
            text=text,
            seq=workspace.position,
            degraded=degraded,
        )

    async def _find(self, workspace: Workspace, caller: Caller, text: str) -> tuple[Note, vault.Tomb | None, str]:
        """A note by address: as folded, its tomb if it is forgotten, and the stream id of its last event."""
        note_id = await self.address(workspace, caller, text)
        found = await vault.find(self.redis, workspace.keys, note_id)
        if isinstance(found, vault.Unreadable):
            raise NotFound(
                f"note {note_id} cannot be read: {found.problem}", field="id", hint="amnesia verify tells more"
            )
        if isinstance(found, vault.Head) and visible(found.note, caller, workspace.policy):
            return found.note, None, found.seq
        if isinstance(found, vault.Grave) and visible(found.tomb.note, caller, workspace.policy):
            return found.tomb.note, found.tomb, found.seq
        raise NotFound(f"there is no note {note_id}", field="id", hint="amnesia list shows what there is")

    async def history(self, request: wire.HistoryRequest) -> wire.HistoryAnswer:
        """A note's events, oldest first: who, when, why, from what to what. Works for forgotten notes, without
        words."""
        workspace, degraded = await self.reading(request)
        if workspace is None:
            raise NotFound(f"there is no note {request.id}", field="id")
        note, tomb, last = await self._find(workspace, request.caller.to_core(), request.id)
        entries = list(reversed(await workspace.log.history(last)))
        words = None if tomb is not None else workspace.words.get(note.id)
        events = list(_told(entries, words))
        start = _offset(request.cursor)
        page = events[start : start + request.limit]
        rest = start + len(page) < len(events)
        return wire.HistoryAnswer(
            events=tuple(page),
            cursor=str(start + len(page)) if rest else None,
            seq=workspace.position,
            degraded=degraded,
        )

    async def audit(self, request: wire.AuditRequest) -> wire.AuditAnswer:
        """What was forgotten, newest first: who, when, why by code, and a keyed hash while it is kept. Never words."""
        workspace, _ = await self.reading(request)
        if workspace is None:
            return wire.AuditAnswer(entries=(), seq="0-0")
        shown = await self._latest_tombs(workspace, request.caller.to_core(), request.limit, since=request.since)
        now = self.clock.now_ms()
        entries = tuple(
            wire.AuditEntry(
                id=tomb.note.id,
                kind=tomb.note.kind,
                reason=tomb.note.state_reason or "",
                actor=tomb.actor,
                at=tomb.note.state_at,
                restorable=left_of(tomb, workspace.policy, now).kept is not None and tomb.note.restored_to is None,
                content_hash=tomb.content_hash,
            )
            for tomb in shown
        )
        return wire.AuditAnswer(entries=entries, seq=workspace.position)

    async def _latest_tombs(
        self, workspace: Workspace, caller: Caller, limit: int, *, since: int | None = None
    ) -> list[vault.Tomb]:
        """The latest forgotten notes that the caller may see, newest first: what it may not see costs it no place."""
        if caller.role != "human":
            # Whoever sees few or none of many must not have them all read to find out.
            seen, _ = (await losses(workspace)).seen(workspace.audience(caller))
            limit = min(limit, seen)
        found: list[vault.Tomb] = []
        if limit:
            async for tomb in self._tombs(workspace, caller, since=since):
                found.append(tomb)
                if len(found) == limit:
                    break
        return found

    async def counts(self, workspace: Workspace, caller: Caller, now: int) -> tuple[wire.Counts, int, int | None]:
        """Visible notes by state as settled at ``now``, tokens of all live ones (``Projection.cost_of_all``), and the
        next expiry.

        Notes that time has ended but no pass has erased yet count as forgotten here already.
        """
        seen = (await tally(workspace, now)).seen(workspace.audience(caller))
        if caller.role == "human":
            forgotten = (await vault.totals(self.redis, workspace.keys)).get(FORGOTTEN, 0)
        else:
            forgotten, _ = (await losses(workspace)).seen(workspace.audience(caller))
        seen.by_state["forgotten"] += forgotten
        return wire.Counts(**seen.by_state), seen.tokens, seen.next_expiry

    async def recent_ends(self, workspace: Workspace, caller: Caller) -> tuple[wire.RecentEnd, ...]:
        """The latest forgotten notes the caller may see, newest first."""
        return tuple(
            wire.RecentEnd(id=tomb.note.id, reason=tomb.note.state_reason or "", at=tomb.note.state_at)
            for tomb in await self._latest_tombs(workspace, caller, RECENT)
        )


def _candidates(
    workspace: Workspace,
    caller: Caller,
    request: wire.ListRequest,
    states: frozenset[State],
    after: tuple[int, str] | None,
    now: int,
) -> Iterator[str]:
    """The ids among which the notes of a list are, newest first, those behind ``after``; some that are not wanted
    too."""
    sees = workspace.audience(caller)

    def among(group: Group) -> bool:
        scope, owner, kind = group
        return (
            (not request.kinds or kind in request.kinds)
            and (request.scope is None or scope == request.scope)
            and (request.owner is None or owner == request.owner)
            and sees(group)
        )

    def classes(class_: Class) -> bool:
        _, _, _, state = class_
        return state in states

    # What has ended does not live again by itself.
    indexes = (workspace.live,) if states <= LIVE else (workspace.live, workspace.ended)
    orders = [
        newest(
            index,
            among=among,
            classes=classes,
            now=now,
            only=index.narrowed(request.tags) if request.tags else None,
            before=after,
        )
        for index in indexes
    ]
    return heapq.merge(*orders, key=lambda id_: (workspace.notes[id_].created_at, id_), reverse=True)


def _listed(note: Note, request: wire.ListRequest) -> bool:
    """Whether the note passes the filters of a list that need no words."""
    if request.kinds and note.kind not in request.kinds:
        return False
    if request.scope is not None and note.scope != request.scope:
        return False
    return request.owner is None or note.owner == request.owner


def _cursor(text: str | None) -> tuple[int, str] | None:
    """Creation time and id of the last note shown; ``None`` at the start and among the forgotten."""
    if text is None or text.startswith(f"{GRAVES}:"):
        return None
    created, _, note_id = text.partition(":")
    if not (created.isascii() and created.isdigit()) or not note_id:
        raise Invalid("cursor is not one that list gave out", field="cursor")
    return int(created), note_id


def _grave_cursor(text: str | None) -> tuple[int, str] | None:
    """When the last forgotten note shown was forgotten, and its id; ``None`` where none was shown yet."""
    if text is None or not text.startswith(f"{GRAVES}:") or text == f"{GRAVES}:":
        return None
    at, _, note_id = text.removeprefix(f"{GRAVES}:").partition(":")
    if not (at.isascii() and at.isdigit()) or not note_id:
        raise Invalid("cursor is not one that list gave out", field="cursor")
    return int(at), note_id


def _offset(text: str | None) -> int:
    """How many of a note's events were shown already."""
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise Invalid("cursor is not one that history gave out", field="cursor")
    return int(text)


def _fold_to(entries: list[Entry], at: int) -> Note:
    """The fold of the events recorded up to ``at`` (store time of recording). Raises ``NotFound`` before its birth."""
    events = [cast(AnyNoteEvent, entry.event) for entry in reversed(entries) if seq_key(entry.seq)[0] <= at]
    if not events:
        raise NotFound("the note did not exist at that time", field="at")
    return fold(events)


def _told(entries: Iterable[Entry], words: Words | None) -> Iterable[wire.HistoryEvent]:
    note: Note | None = None
    for entry in entries:
        event = cast(AnyNoteEvent, entry.event)
        after = apply(note, event)
        facts: dict[str, Any] = msgspec.to_builtins(event)
        for common in ("type", "note", "version", "at", "actor", "on_behalf", "reason"):
            facts.pop(common, None)
        yield wire.HistoryEvent(
            seq=entry.seq,
            type=event_type(event),
            at=event.at,
            actor=event.actor,
            frm=None if note is None else note.state,
            to=after.state,
            reason=getattr(event, "reason", None),
            reason_text=None if words is None else words.reasons.get(str(event.version)),
            on_behalf=event.on_behalf,
            facts=facts,
        )
        note = after
