"""The outbound feed: every transition that the caller may see, and what was shown to it, as it happens or since then.

It is read from the log and the ledger, never queued: a reader that is slow, or away, goes on where it was. Items hold
ids, codes and numbers; no words. Whether a note may be seen is asked of the note as it stands when the item is told,
as ``history`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, cast

import msgspec

from amnesiad import wire
from amnesiad.core.callers import Caller, child_owner, visible
from amnesiad.core.errors import NotFound
from amnesiad.core.events import Created, Event, PolicyChanged, Scrubbed, decode, event_type
from amnesiad.errors import StoreUnavailable
from amnesiad.service.base import Base
from amnesiad.service.reading.ledger import concerns, read_shown
from amnesiad.store import vault
from amnesiad.store.log import at_or_past
from amnesiad.store.tail import Item, Tails, place_behind
from amnesiad.wire.feeding import (
    CHANGED_FACTS,
    FeedChanged,
    FeedInjected,
    FeedMissed,
    FeedOpened,
    FeedPolicy,
    FeedScrubbed,
    FeedWritten,
)
from amnesiad.workspace import Workspace

RETRY_S: Final = 0.5
"""Between two looks for a store that is away."""
INJECTED: Final = frozenset({"inject", "fire"})
"""What brings notes into a context without being asked for each; a recall is its asker's own business."""


class Feeding(Base):
    """The verb that does not end by itself."""

    _tails: Tails | None = None

    async def stop(self) -> None:
        """Also give up the connections on which feeds wait."""
        await super().stop()
        if self._tails is not None:
            await self._tails.aclose()
            self._tails = None

    async def feed(self, request: wire.FeedRequest) -> AsyncIterator[wire.FeedItem]:
        """Items from now on, or from behind ``after``, until the workspace is dropped or gets another name.

        The first is ``opened``: its ``seq`` resumes the feed even if nothing follows. ``missed`` tells that injections
        between ``after`` and then are no longer on record. While the store is away nothing comes, and nothing is lost.
        Raises ``NotFound`` for a workspace that is not there, ``Refused`` for an unidentified child.
        """
        caller = request.caller.to_core()
        if caller.child:
            child_owner(caller)
        workspace = await self.caught_up(request.workspace)
        if workspace is None:
            raise NotFound(
                "there is no such workspace", field="workspace", hint="it begins with its first note, and its feed then"
            )
        ws, keys, now = workspace.ws, workspace.keys, self.clock.now_ms()
        if self._tails is None:
            self._tails = Tails(self.redis)
        tails = self._tails
        place, cursor = await tails.end(keys)
        if request.after is not None:
            place, cursor = place_behind(request.after), request.after
        yield wire.FeedItem(seq=cursor, type="opened", data=_data(FeedOpened(at=now)))
        kept_since = now - workspace.policy.audit_retention
        if at_or_past(f"{max(0, kept_since)}-0", cursor) and await tails.trimmed(keys, place):
            missed = FeedMissed(types=("injected",), until=kept_since)
            yield wire.FeedItem(seq=cursor, type="missed", data=_data(missed))
        while True:
            try:
                if (workspace := await self._still(request.workspace, ws)) is None:
                    return
                page = await tails.read(keys, place)
                told = await self._items_of(workspace, caller, page.items)
                if not (page.items or page.again_s):
                    await tails.wait(keys, place)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_S)
                continue
            for item in told:
                yield item
            place = page.place
            if page.again_s:
                await asyncio.sleep(page.again_s)

    async def _still(self, name: str, ws: str) -> Workspace | None:
        """The workspace at its log's end, as long as the name means this one."""
        try:
            workspace = await self.caught_up(name)
        except NotFound:
            return None
        return workspace if workspace is not None and workspace.ws == ws else None

    async def _items_of(self, workspace: Workspace, caller: Caller, items: list[Item]) -> list[wire.FeedItem]:
        """The items that this caller may see, in words of the feed."""
        events = {item.cursor: event for item in items if not item.shown and (event := _event(item.raw)) is not None}
        notes = dict.fromkeys(
            event.note for event in events.values() if not isinstance(event, PolicyChanged | Scrubbed)
        )
        seen = await self._visible_notes(workspace, caller, notes)
        told = []
        for item in items:
            if item.shown:
                data = _injected(item.raw, caller)
                if data is not None:
                    told.append(wire.FeedItem(seq=item.cursor, type="injected", data=data))
                continue
            event = events.get(item.cursor)
            if event is None:
                continue
            if isinstance(event, PolicyChanged | Scrubbed):
                if caller.role != "human" and caller.agent_kind != "main":
                    continue
            elif event.note not in seen:
                continue
            told.append(wire.FeedItem(seq=item.cursor, type=_type(event), data=_facts(event)))
        return told

    async def _visible_notes(self, workspace: Workspace, caller: Caller, ids: Iterable[str]) -> set[str]:
        """Those of the notes that the caller may see as they stand now, forgotten ones by what their tombs say."""
        wanted = list(ids)
        heads = await vault.heads(self.redis, workspace.keys, wanted)
        notes = {head.note.id: head.note for head in heads if isinstance(head, vault.Head)}
        # A note only ever goes from its head to its tomb, so reading in this order misses none.
        gone = [id_ for id_, head in zip(wanted, heads, strict=True) if head is None]
        for grave in await vault.tombs(self.redis, workspace.keys, gone):
            if grave is not None:
                notes[grave.tomb.note.id] = grave.tomb.note
        return {id_ for id_, note in notes.items() if visible(note, caller, workspace.policy)}


def _event(raw: bytes | None) -> Event | None:
    """The event in an entry of the log; ``None`` for what is none, which verify names."""
    try:
        return None if raw is None else decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _injected(raw: bytes | None, caller: Caller) -> dict[str, Any] | None:
    """What an injection that concerns the caller brought into a context; ``None`` for any other ledger entry."""
    shown = None if raw is None else read_shown(raw)
    if shown is None or shown.kind not in INJECTED or not concerns(shown, caller):
        return None
    return _data(
        FeedInjected(
            ids=tuple(id_ for id_, _, _ in shown.ids),
            tokens=shown.tokens,
            at=shown.at,
            actor=shown.actor,
            kind=cast(Any, shown.kind),
            deterrents=tuple(id_ for id_, _ in shown.deterrents),
        )
    )


def _type(event: Event) -> str:
    return "written" if isinstance(event, Created) else event_type(event)


def _facts(event: Event) -> dict[str, Any]:
    """What an item tells of an event: never a word of a note, nor anything its writer put into free text."""
    if isinstance(event, PolicyChanged):
        return _data(FeedPolicy(name=event.name, old=event.old, new=event.new, at=event.at, actor=event.actor))
    if isinstance(event, Scrubbed):
        return _data(FeedScrubbed(through=event.through, result=event.result, at=event.at))
    if isinstance(event, Created):
        return _data(FeedWritten(id=event.note, at=event.at, actor=event.actor, kind=event.kind, ttl=event.ttl_ms))
    facts = {name: value for name, value in msgspec.structs.asdict(event).items() if name in CHANGED_FACTS}
    return _data(FeedChanged(id=event.note, at=event.at, actor=event.actor, **facts))


def _data(shape: msgspec.Struct) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(shape)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}
