"""Governing a workspace rather than a note: policy, lifecycle events, workspaces, owners, status, and running passes.

What the worker does is asked of it here and its figures are handed on; nothing is done twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, TypeVar, cast

import msgspec

from amnesiad import wire
from amnesiad.core import intake
from amnesiad.core.callers import OWN_SETTINGS, Caller, check_governor, check_policy, governs
from amnesiad.core.errors import AmnesiaError, Forbidden, Invalid, NotFound, Refused
from amnesiad.core.events import PolicyChanged, Provenance, encode
from amnesiad.core.lifecycle import owner_of
from amnesiad.core.policy import LIVE_RULES, apply_overrides, parse_setting
from amnesiad.errors import Conflict, StoreUnavailable
from amnesiad.service.base import MAX_ATTEMPTS
from amnesiad.service.change import Change
from amnesiad.service.explaining import Explaining
from amnesiad.settings import show_setting
from amnesiad.store import lifecycle, vault, verify, workspaces
from amnesiad.store.connect import describe
from amnesiad.store.copies import drop_copies
from amnesiad.store.keys import Keys
from amnesiad.store.log import Log
from amnesiad.store.owners import all_owners
from amnesiad.store.policies import read_policy, write_policy
from amnesiad.store.units import UNSCRUBBED
from amnesiad.workspace import Workspace

MAX_PROBLEMS: Final = 50
"""Problems that verify and rebuild name; the rest are counted."""
MAX_CHECKED: Final = 500
"""Notes that a check of some paths names to the worker, 5 kB of ids in a job; for more of them it looks at all there are."""
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

A = TypeVar("A")


class Governing(Explaining):
    """The verbs about workspaces, policy, owners and passes."""

    async def status(self, request: wire.StatusRequest) -> wire.StatusAnswer:
        """A small scalar view: counts as settled now, tokens, what ended last, who said no, whether a worker lives."""
        workspace, degraded = await self.reading(request)
        worker = await self.jobs.worker_status()
        store: dict[str, Any] = {} if degraded else await describe(self.redis)
        standing: wire.LifecycleStatus | None = None
        if governs(request.caller.to_core()) and not degraded:
            standing = wire.LifecycleStatus(**(await lifecycle.backlog(self.redis))._asdict())
        store |= self.meaning.figures(workspace if governs(request.caller.to_core()) else None)
        if workspace is None:
            empty = wire.Counts(active=0, stale=0, expired=0, revoked=0, superseded=0, forgotten=0)
            return wire.StatusAnswer(
                counts=empty,
                tokens=0,
                recent=(),
                refusals=dict(self.refusals),
                worker=worker,
                store=store,
                lifecycle=standing,
                seq="0-0",
            )
        now = self.clock.now_ms()
        counts, tokens, next_expiry = await self.counts(workspace, request.caller.to_core(), now)
        if governs(request.caller.to_core()):
            store |= {
                "perishable_bytes": workspace.bytes["perishable"],
                "record_bytes": workspace.bytes["record"],
                "unscrubbed": (await vault.totals(self.redis, workspace.keys)).get(UNSCRUBBED, 0),
            }
        return wire.StatusAnswer(
            counts=counts,
            tokens=tokens,
            recent=await self.recent_ends(workspace, request.caller.to_core()),
            refusals=dict(self.refusals),
            worker=worker,
            store=store,
            next_expiry_at=next_expiry,
            injection=None
            if workspace.last_injection is None
            else wire.InjectionStatus(
                count=workspace.last_injection[0], tokens=workspace.last_injection[1], at=workspace.last_injection[2]
            ),
            lifecycle=standing,
            seq=workspace.position,
            degraded=degraded,
        )

    # -- policy --------------------------------------------------------------------------------------------------

    async def policy(self, request: wire.PolicyRequest) -> wire.PolicyAnswer:
        """Show the effective settings and where each comes from, those of the process too; set or reset overrides of this
        workspace first."""
        if request.set or request.reset:
            await self._change_policy(request)
        workspace, degraded = await self.reading(request)
        policy = self.settings.policy if workspace is None else workspace.policy
        overrides = {} if workspace is None else workspace.overrides
        values = {
            row.name: wire.PolicyValue(value=cast(Any, row.value), origin=row.origin, live=row.name in LIVE_RULES)
            for row in self.settings.describe()
        }
        for name in overrides:
            values[name] = wire.PolicyValue(
                value=cast(Any, show_setting(name, getattr(policy, name))), origin="workspace"
            )
        return wire.PolicyAnswer(
            values=values, seq="0-0" if workspace is None else workspace.position, degraded=degraded
        )

    async def _check_policy(self, workspace: Workspace | None, caller: Caller, names: Collection[str]) -> None:
        """``check_policy`` by what the workspace holds: its notes, and what the audit keeps of those that were."""
        reaching = caller.role != "human" and not OWN_SETTINGS.issuperset(names)
        held = await self._provenances(workspace, kept=True) if workspace is not None and reaching else set()
        try:
            check_policy(caller, names, held)
        except AmnesiaError as error:
            self.refused(error)
            raise

    async def _provenances(self, workspace: Workspace, *, kept: bool) -> set[Provenance]:
        """Whose words the workspace holds. The notes first: one forgotten meanwhile is then found among the graves.

        What cannot be read may be a human's. With ``kept`` only the forgotten count of which hash or copy is kept.
        """
        held: set[Provenance] = {note.provenance for note in workspace.notes.values()}
        if workspace.unreadable:
            held.add("human")
        async for grave in vault.graves(self.redis, workspace.keys):
            tomb = grave.tomb
            if not kept or tomb.kept is not None or tomb.content_hash is not None:
                held.add(tomb.note.provenance)
        return held

    async def _change_policy(self, request: wire.PolicyRequest) -> None:
        caller = request.caller.to_core()
        names = (*request.set, *request.reset)
        both = sorted(set(request.set) & set(request.reset))
        if both:
            raise Invalid(f"{both[0]} is both set and reset", field=both[0], hint="do one of them")
        # What is no setting is told to anybody: a refusal of the role would send an agent to its user for a typing error.
        changes = {name: parse_setting(name, value) for name, value in request.set.items()}
        for name in request.reset:
            if name not in LIVE_RULES:
                parse_setting(name, None)
        known = await self.caught_up(request.workspace)
        if caller.role != "human" and (
            known is None or await self._replayed(known, request, wire.PolicyAnswer) is None
        ):
            await self._check_policy(known, caller, names)

        bare = -1

        def decide(workspace: Workspace, change: Change) -> wire.PolicyAnswer:
            check_policy(caller, names, {note.provenance for note in workspace.notes.values()})
            answer = wire.PolicyAnswer(values={}, seq="")
            wanted = {name: value for name, value in workspace.overrides.items() if name not in request.reset} | changes
            after = apply_overrides(workspace.base, wanted)
            sets = {
                name: value
                for name, value in changes.items()
                if name not in workspace.overrides or workspace.overrides[name] != value
            }
            resets = tuple(name for name in request.reset if name in workspace.overrides)
            if not sets and not resets:
                return answer
            if after.restorable and not workspace.policy.restorable and workspace.policy_version != bare:
                raise _CopiesLeft
            unit, version = change.builder.unit, workspace.policy_version
            for name in (*sets, *resets):
                event = PolicyChanged(
                    at=change.now,
                    actor=caller.actor,
                    name=name,
                    old=_scalar(getattr(workspace.policy, name)),
                    new=_scalar(getattr(after, name)),
                    reset=name in resets,
                    policy_version=version + 1,
                )
                unit.events.append(encode(event))
            write_policy(unit, workspace.keys, version, sets, resets)
            return answer

        for _ in range(MAX_ATTEMPTS):
            with contextlib.suppress(_CopiesLeft):
                await self.write(request, wire.PolicyAnswer, decide)
                break
            bare = await self._without_copies(request.workspace)
        else:
            raise Conflict("the policy kept changing", field="set", hint="try again")
        workspace = await self.open(request.workspace, create=False)
        if workspace is not None:
            await workspace.reload_policy()
            # The change stands whether or not this is heard: the timer sees where one has not been filed.
            with contextlib.suppress(StoreUnavailable):
                await self.jobs.refile(workspace.ws)

    async def _without_copies(self, name: str) -> int:
        """Take out the copies that are left from an earlier time when they were kept, so that switching them on again
        brings none back, and return the version of the policy under which there are none; -1 where it moved."""
        workspace = cast(Workspace, await self.open(name, create=True))
        held = await read_policy(self.redis, workspace.keys, workspace.base)
        done = not held.policy.restorable and await drop_copies(workspace.log, self.keyring, held, self.clock.now_ms())
        return held.version if done else -1

    # -- lifecycle -----------------------------------------------------------------------------------------------

    async def events(self, request: wire.EventsRequest) -> wire.EventsAnswer:
        """Put agents' lifecycle events on the stream that the bridge reads; acknowledged once they are stored.

        All or none: raises ``Invalid`` for one that says nothing for want of a session, ``Refused`` for an id that
        looks like a secret.
        """
        for number, event in enumerate(request.events):
            _check_says_who(event, f"events[{number}]")
            named = {f"events[{number}].{name}": getattr(event, name) for name in _EVENT_IDS}
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
                closed = 1
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
        if request.retry or request.drop or request.show:
            self._check_governor(caller, "treat parked events", "dead-role")
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

    # -- workspaces ----------------------------------------------------------------------------------------------

    def _check_governor(self, caller: Caller, what: str, rule: str) -> None:
        try:
            check_governor(caller, what, rule)
        except AmnesiaError as error:
            self.refused(error)
            raise

    async def _dispose(
        self, name: str, caller: Caller, verb: str, act: Callable[[workspaces.Seen | None], Awaitable[A]]
    ) -> A:
        """Do something to a whole workspace, while it is what it was when its holdings were looked through.

        One that holds notes of a human's or the user's, or the audit of one, is a human's. Raises ``Forbidden``.
        """
        self._check_governor(caller, f"{verb} a workspace", "workspace-role")
        if caller.role == "human":
            return await act(None)
        for _ in range(MAX_ATTEMPTS):
            workspace = await self.caught_up(name)
            if workspace is None:
                return await act(None)
            seen = workspaces.Seen(workspace.ws, workspace.position)
            guarded = sorted(await self._provenances(workspace, kept=False) & {"human", "user-stated"})
            if guarded:
                error = Forbidden(
                    f"the workspace holds what is {' or '.join(guarded)}: an agent may not {verb} it",
                    rule="provenance",
                    field=verb,
                    hint="ask the user to do it",
                )
                self.refused(error)
                raise error
            with contextlib.suppress(workspaces.MovedOn):
                return await act(seen)
        raise Conflict(f"others kept writing while it was to {verb} the workspace", field=verb, hint="try again")

    async def workspaces(self, request: wire.WorkspacesRequest) -> wire.WorkspacesAnswer:
        """Every workspace; first renames one, or drops one with all it holds (needs ``confirm``).

        A child, teammate or fresh agent sees none of them and changes none (``Forbidden``).
        """
        changed, caller = 0, request.caller.to_core()
        if request.rename is not None:
            if request.to is None:
                raise Invalid("to is missing", field="to", hint="the new name")
            await self._rename(request.rename, request.to, caller)
            changed = 1
        if request.drop is not None:
            if not request.confirm:
                raise Refused(
                    "dropping a workspace erases all its notes and their history",
                    rule="unconfirmed",
                    field="confirm",
                    hint="send confirm: true",
                )
            await self._drop(request.drop, caller)
            changed = 1
        if not governs(caller):
            return wire.WorkspacesAnswer(rows=(), changed=changed)
        names = await workspaces.all_workspaces(self.redis)
        counts = await workspaces.sizes(self.redis, list(names.values()))
        rows = [
            wire.WorkspaceRow(name=name, ws=ws, notes=count)
            for (name, ws), count in zip(names.items(), counts, strict=True)
        ]
        return wire.WorkspacesAnswer(rows=tuple(rows), changed=changed)

    async def _rename(self, name: str, to: str, caller: Caller) -> None:
        async def act(seen: workspaces.Seen | None) -> None:
            await workspaces.rename(self.redis, name, to, seen=seen)

        await self._dispose(name, caller, "rename", act)
        self.close(name)

    async def _drop(self, name: str, caller: Caller) -> None:
        async def act(seen: workspaces.Seen | None) -> bool:
            return await workspaces.drop(self.redis, name, seen=seen)

        if not await self._dispose(name, caller, "drop", act):
            raise NotFound("there is no such workspace", field="drop", hint="amnesia workspaces lists them")
        self.close(name)
        self.background(self.jobs.scrub())

    # -- passes and proofs ---------------------------------------------------------------------------------------

    async def settle(self, request: wire.SettleRequest) -> wire.SettleAnswer:
        """Have the worker run the workspace's due transitions now, and wait for its figures."""
        workspace = await self._known(request)
        figures = await self.jobs.run("settle", workspace.ws)
        await self.follow(workspace)
        return _figures(figures, workspace, request.caller.to_core())

    async def scrub(self, request: wire.ScrubRequest) -> wire.ScrubAnswer:
        """Have the worker rewrite the store's files so that erased words are absent from them, and wait for it."""
        workspace = await self._known(request)
        figures = await self.jobs.run("scrub")
        await self.follow(workspace)
        return _figures(figures, workspace, request.caller.to_core())

    async def check(self, request: wire.CheckRequest) -> wire.CheckAnswer:
        """Have the worker compare anchors with the files they name; drifted notes are flagged.

        With ``paths``, those of notes anchored at or below one of them, and no work where there are none. A job's arguments
        are kept in clear: it is told which notes, never which paths.
        """
        paths = [intake.check_path(path, f"paths[{n}]") for n, path in enumerate(request.paths)]
        workspace = await self._known(request)
        notes = sorted(workspace.pathed.anchored(paths))
        if paths and not notes:
            return _figures({"stale": 0}, workspace, request.caller.to_core())
        named = notes if len(notes) <= MAX_CHECKED else ()
        figures = await self.jobs.run("check_anchors", workspace.ws, *named)
        await self.follow(workspace)
        return _figures(figures, workspace, request.caller.to_core())

    async def verify(self, request: wire.VerifyRequest) -> wire.VerifyAnswer:
        """Prove that the heads and all that follows from them are what the log says. Problems carry no words, but ids:
        a child, teammate or fresh agent is refused (``Forbidden``)."""
        self._check_governor(request.caller.to_core(), "verify a workspace", "proof-role")
        keys = await self._keys(request)
        report = await verify.verify(self.redis, keys, self.keyring, self.settings.policy)
        problems = tuple(str(one) for one in report.differences[:MAX_PROBLEMS])
        return wire.VerifyAnswer(figures=report.figures, problems=problems, seq=await Log(self.redis, keys).last_id())

    async def rebuild(self, request: wire.RebuildRequest) -> wire.RebuildAnswer:
        """Make heads, cells, members, due times and totals anew from log and vault; not for those below the main agent."""
        self._check_governor(request.caller.to_core(), "rebuild a workspace", "proof-role")
        keys = await self._keys(request)
        rebuilt = await verify.rebuild(self.redis, keys, self.keyring, self.settings.policy)
        self.close(request.workspace)
        return wire.RebuildAnswer(figures=rebuilt.figures, seq=await Log(self.redis, keys).last_id())

    async def _keys(self, request: wire.Request) -> Keys:
        """The workspace's keys, without a projection: what these two mend may be what a projection cannot load."""
        ws = await workspaces.find(self.redis, request.workspace)
        if ws is None:
            raise NotFound("there is no such workspace", field="workspace", hint="amnesia workspaces lists them")
        return Keys(ws)

    async def _known(self, request: wire.Request) -> Workspace:
        workspace, _ = await self.reading(request)
        if workspace is None:
            raise NotFound("there is no such workspace", field="workspace", hint="amnesia workspaces lists them")
        return workspace


class _CopiesLeft(Exception):
    """Copies are to be kept again, and it is not known that none is left from before."""


def _check_says_who(event: wire.LifecycleEvent, where: str) -> None:
    """Raises ``Invalid`` for an event about an owner that names none: it would be taken, and do nothing."""
    if event.event not in _ABOUT_OWNERS or event.session is not None or event.agent_kind == "fresh":
        return
    if owner_of(event) is None:
        raise Invalid(
            f"{event.event} without a session says nothing", field=f"{where}.session", hint="say whose it is: session"
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


def _scalar(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool) else None


def _figures(figures: dict[str, Any], workspace: Workspace, caller: Caller) -> wire.FiguresAnswer:
    """What a pass did, to those who see the whole workspace; others learn that it is done."""
    if not governs(caller):
        return wire.FiguresAnswer(figures={}, problems=(), seq=workspace.position)
    counts = {name: value for name, value in figures.items() if isinstance(value, int)}
    problems = tuple(str(problem) for problem in figures.get("unreadable", ()))[:MAX_PROBLEMS]
    return wire.FiguresAnswer(figures=counts, problems=problems, seq=workspace.position)
