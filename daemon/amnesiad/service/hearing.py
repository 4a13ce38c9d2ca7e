"""What is heard of agents: their lifecycle events, the owners these are about, and the events that nobody could handle.

Events are only put on the stream here; what they do is the bridge's and the worker's business.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from amnesiad import wire
from amnesiad.core.callers import governs
from amnesiad.core.errors import Invalid, NotFound, Refused
from amnesiad.core.lifecycle import owner_of
from amnesiad.service.writing.guarding import Guarding
from amnesiad.store import lifecycle
from amnesiad.store.owners import all_owners

_EVENT_IDS: Final = ("id", "session", "agent", "team", "parent", "source")
_ABOUT_OWNERS: Final = frozenset(
    {
        "session-start",
        "session-end",
        "subagent-start",
        "subagent-end",
        "workflow-agent-end",
        "agent-disposed",
        "heartbeat",
        "compacted",
    }
)
"""Lifecycle events that are about an owner and nothing else."""


class Hearing(Guarding):
    """The verbs about agents and their events."""

    async def events(self, request: wire.EventsRequest) -> wire.EventsAnswer:
        """Put agents' lifecycle events on the stream that the bridge reads; acknowledged once they are stored.

        All or none: raises ``Invalid`` for one that says nothing for want of a session, ``Refused`` for an id that
        looks like a secret.
        """
        for number, event in enumerate(request.events):
            where = "" if isinstance(request, wire.OneEvent) else f"events[{number}]."
            _check_says_who(event, where)
            named = {f"{where}{name}": getattr(event, name) for name in _EVENT_IDS}
            await self.guard_ids(event.workspace, {name: id_ for name, id_ in named.items() if id_ is not None})
        ids = await lifecycle.append(self.redis, [msgspec.json.encode(event) for event in request.events])
        return wire.EventsAnswer(accepted=len(ids), ids=tuple(ids))

    async def owners(self, request: wire.OwnersRequest) -> wire.OwnersAnswer:
        """Owners of scoped notes: open or closed, last seen, how much they hold. ``close`` ends one.

        A main agent and a human see all of them, any other only those it answers for. ``changed`` is 1 where there was
        something to end. Raises ``Refused`` (rule ``close-own``), ``NotFound`` for an owner nobody has heard of.
        """
        workspace, degraded = await self.reading(request)
        caller = request.caller.to_core()
        if request.close is not None and caller.role != "human" and request.close not in caller.owners:
            raise Refused("an agent may only end itself", rule="close-own", field="close")
        held = [] if workspace is None else await all_owners(self.redis, workspace.keys)
        closed = 0
        if request.close is not None:
            below = f"{request.close}/"
            meant = [one for one in held if one.name == request.close or one.name.startswith(below)]
            if workspace is None or not meant:
                raise NotFound(
                    "no such owner has notes here, or had any", field="close", hint="amnesia owners lists them"
                )
            if any(one.owner.open or one.notes for one in meant):
                await self.jobs.end_owner(workspace.ws, request.close)
                held, closed = await all_owners(self.redis, workspace.keys), 1
        if workspace is None:
            return wire.OwnersAnswer(rows=(), seq="0-0")
        rows = [
            wire.OwnerRow(
                owner=one.name,
                state="open" if one.owner.open else "closed",
                incarnation=one.owner.incarnation,
                notes=one.notes,
                agent_kind=cast(Any, one.owner.agent_kind),
                last_seen_at=one.last_seen_at,
            )
            for one in held
            if governs(caller) or one.name in caller.owners
        ]
        rows.sort(key=lambda row: (row.state == "closed", -(row.last_seen_at or 0), row.owner))
        return wire.OwnersAnswer(rows=tuple(rows), changed=closed, seq=workspace.position, degraded=degraded)

    async def dead(self, request: wire.DeadRequest) -> wire.DeadAnswer:
        """Lifecycle events that could not be handled; ``retry`` puts some back on the stream, ``drop`` deletes some.
        ``show`` gives one of them as it came.

        They are of every workspace: a child, teammate or fresh agent sees none and treats none (``Forbidden``). Raises
        ``NotFound`` for one to be shown that is not there.
        """
        changed, caller = 0, request.caller.to_core()
        asked = [name for name in ("retry", "drop", "show") if getattr(request, name)]
        if len(asked) > 1:  # the second may be refused when the first is done
            raise Invalid(f"{asked[0]} and {asked[1]} at once", field=asked[1], hint="one at a time")
        if asked:
            self.require_governor(request.workspace or "", caller, "treat parked events", "dead-role")
        for seq in request.retry:
            changed += await lifecycle.retry_dead(self.redis, seq)
        for seq in request.drop:
            changed += await lifecycle.drop_dead(self.redis, seq)
        if request.show is not None:
            found = await lifecycle.parked(self.redis, request.show)
            if found is None:
                raise NotFound(
                    f"no event is parked at {request.show}", field="show", hint="amnesia dead lists those there are"
                )
            row = msgspec.structs.replace(_dead_row(found), raw=found.raw.decode(errors="replace"))
            return wire.DeadAnswer(rows=(row,), changed=changed)
        parked = await lifecycle.dead(self.redis, request.limit) if governs(caller) else []
        return wire.DeadAnswer(rows=tuple(map(_dead_row, parked)), changed=changed)


def _check_says_who(event: wire.LifecycleEvent, where: str) -> None:
    """Raises ``Invalid`` for an event about an owner that names none: it would be taken, and do nothing."""
    if event.event not in _ABOUT_OWNERS or event.session is not None or event.agent_kind == "fresh":
        return
    if owner_of(event) is None:
        raise Invalid(
            f"{event.event} without a session says nothing", field=f"{where}session", hint="say whose it is: session"
        )


def _dead_row(dead: lifecycle.Dead) -> wire.DeadRow:
    """A parked event, told as far as it can be read: it is parked because something is wrong with it."""
    told: dict[str, str] = {}
    try:
        body = msgspec.json.decode(dead.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        body = None
    if isinstance(body, dict):
        told = {name: value for name in ("event", "workspace") if isinstance(value := body.get(name), str)}
    return wire.DeadRow(id=dead.seq, at=dead.at, error=dead.error, **told)
