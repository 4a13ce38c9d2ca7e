"""The end of owners: their notes are erased, whether their end was heard or their lease ran out.

The owner's cell is closed first, so that from there on no write of the ended life can land; then its notes are ended.
A run that is killed in between is finished by the next, or by reconciliation, which finds the owner among the leases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from amnesiad.core import clocks, decisions
from amnesiad.core.events import AnyNoteEvent
from amnesiad.core.notes import apply
from amnesiad.errors import AmnesiaError, Conflict, NotFound
from amnesiad.store.due import DueNote, read_items
from amnesiad.store.keys import Keys
from amnesiad.store.log import Log, Unit
from amnesiad.store.owners import (
    MAX_ATTEMPTS,
    UNFINISHED,
    close_owners,
    finish_owner,
    lapsed_owners,
    last_seen,
    leases_may_lapse,
    members_of,
)
from amnesiad.store.policies import Effective, read_policy
from amnesiad.store.units import Builder
from amnesiad.store.vault import Unreadable
from amnesiad_workers.passes.context import Context, Figures

PAGE: Final = 500
"""Notes per read and per write, as in settling."""


async def unplug(
    context: Context,
    ws: str,
    owner: str,
    *,
    heard_at: int,
    at: int | None = None,
    source: str | None = None,
    children: bool = False,
) -> Figures:
    """End an owner, and with ``children`` every owner below it: close its cell, then erase its notes, pinned ones too.

    ``heard_at`` is when the store heard of the end, ``at`` the producer's own time of it; which lives of the owner
    they reach is ``store.owners.end_owner``'s to say. Does nothing in a dropped workspace. Raises ``StoreUnavailable``
    or ``Conflict``; running it again finishes it.
    """
    figures, log = Figures(), Log(context.redis, Keys(ws))
    try:
        reach = await close_owners(log, owner, children=children, heard_at=heard_at, at=at, source=source)
        for name, through in reach.items():
            await _end_notes(context, log, name, through, figures)
            await finish_owner(log, name)
    except NotFound:
        pass  # Dropped meanwhile, notes and all.
    return figures


async def reconcile(context: Context, ws: str) -> Figures:
    """End the owners whose lease ran out, once, and finish those whose end was cut short.

    Nobody's lease lapses within a quarter of an hour after reconciliation itself was away, see ``leases_may_lapse``.
    """
    redis, keys, now, figures = context.redis, Keys(ws), context.now(), Figures()
    lapsing = await leases_may_lapse(redis, now)
    for owner, seen in await lapsed_owners(redis, keys, now - min(context.child_lease, context.session_lease)):
        child = "/" in owner
        if seen == UNFINISHED:
            # Heard before everything: that ends what is closed and never closes what was opened again.
            figures.add(await unplug(context, ws, owner, heard_at=UNFINISHED))
        elif (
            lapsing
            and seen <= now - (context.child_lease if child else context.session_lease)
            # Ending those before it may have taken a while, in which it can have shown itself.
            and await last_seen(redis, keys, owner) == seen
        ):
            figures.add(await unplug(context, ws, owner, heard_at=now, children=not child))
    return figures


async def _end_notes(context: Context, log: Log, owner: str, through: int, figures: Figures) -> None:
    """Erase the owner's notes up to that incarnation. Raises ``Conflict`` when some kept changing under our hands."""
    left = await members_of(context.redis, log.keys, owner)
    for _ in range(MAX_ATTEMPTS):
        if not left:
            return
        policy = await read_policy(context.redis, log.keys, context.base)
        pages = [left[at : at + PAGE] for at in range(0, len(left), PAGE)]
        left = []
        for page in pages:
            left += await _end_page(context, log, policy, page, through, figures)
    raise Conflict("notes of the ended owner kept changing", hint="the job is tried again")


async def _end_page(
    context: Context, log: Log, policy: Effective, ids: Sequence[str], through: int, figures: Figures
) -> list[str]:
    """Erase some notes; returns those that somebody else was faster with."""
    now, units = context.now(), list[tuple[str, list[AnyNoteEvent], Unit]]()
    for item in await read_items(context.redis, log.keys, ids):
        if isinstance(item, Unreadable):
            figures.report(item)
        elif isinstance(item, DueNote) and (item.note.incarnation or 0) <= through:
            try:
                events = _ending_events(item, policy, now)
                builder = Builder(log.keys, context.keyring, policy.policy, policy.version)
                builder.change(item.note, events, item.words)
                units.append((item.note.id, events, builder.build()))
            except AmnesiaError as error:
                figures.report(Unreadable(item.note.id, f"cannot be ended: {error.message}"))
    left = []
    outcomes = await log.commit_now([unit for _, _, unit in units]) if units else []
    for (note_id, events, _), outcome in zip(units, outcomes, strict=True):
        if outcome.status in ("ok", "own"):
            figures.count(events)
        else:
            figures.conflicts += 1
            left.append(note_id)
    return left


def _ending_events(item: DueNote, policy: Effective, now: int) -> list[AnyNoteEvent]:
    """What time owes the note already, then its erasure if that has not erased it."""
    note, events = item.note, clocks.due_events(item.note, policy.policy, now)
    for event in events:
        note = apply(note, event)
    return [*events, *decisions.erase(note, now, "agent-disposed")]
