"""Governing a workspace rather than a note: policy, lifecycle events, workspaces, owners, status, and running passes.

What the worker does is asked of it here and its figures are handed on; nothing is done twice.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from amnesiad import wire
from amnesiad.core.callers import Caller, check_authority
from amnesiad.core.errors import Invalid, NotFound, Refused
from amnesiad.core.events import PolicyChanged, encode
from amnesiad.core.policy import LIVE_RULES, apply_overrides, parse_setting
from amnesiad.service.change import Change
from amnesiad.service.explaining import Explaining
from amnesiad.settings import show_setting
from amnesiad.store import lifecycle, vault, verify, workspaces
from amnesiad.store.connect import describe
from amnesiad.store.keys import Keys
from amnesiad.store.log import Log
from amnesiad.store.owners import all_owners
from amnesiad.store.policies import write_policy
from amnesiad.store.units import UNSCRUBBED
from amnesiad.workspace import Workspace

MAX_PROBLEMS: Final = 50
"""Problems that verify and rebuild name; the rest are counted."""


class Governing(Explaining):
    """The verbs about workspaces, policy, owners and passes."""

    async def status(self, request: wire.StatusRequest) -> wire.StatusAnswer:
        """A small scalar view: counts as settled now, tokens, what ended last, who said no, whether a worker lives."""
        workspace, degraded = await self.reading(request)
        worker = await self.jobs.worker_status()
        store: dict[str, Any] = {} if degraded else await describe(self.redis)
        store |= self.meaning.figures(workspace)
        if workspace is None:
            empty = wire.Counts(active=0, stale=0, expired=0, revoked=0, superseded=0, forgotten=0)
            return wire.StatusAnswer(
                counts=empty, tokens=0, recent=(), refusals=dict(self.refusals), worker=worker, store=store, seq="0-0"
            )
        now = self.clock.now_ms()
        counts, tokens, next_expiry = await self.counts(workspace, request.caller.to_core(), now)
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
            seq=workspace.position,
            degraded=degraded,
        )

    # -- policy --------------------------------------------------------------------------------------------------

    async def policy(self, request: wire.PolicyRequest) -> wire.PolicyAnswer:
        """Show the effective settings and where each comes from; set or reset overrides of this workspace first."""
        if request.set or request.reset:
            await self._change_policy(request)
        workspace, degraded = await self.reading(request)
        policy = self.settings.policy if workspace is None else workspace.policy
        overrides = {} if workspace is None else workspace.overrides
        values = {
            name: wire.PolicyValue(
                value=cast(Any, show_setting(name, getattr(policy, name))),
                origin="workspace" if name in overrides else self.settings.origin(name),
            )
            for name in LIVE_RULES
        }
        return wire.PolicyAnswer(
            values=values, seq="0-0" if workspace is None else workspace.position, degraded=degraded
        )

    async def _change_policy(self, request: wire.PolicyRequest) -> None:
        caller = request.caller.to_core()
        both = sorted(set(request.set) & set(request.reset))
        if both:
            raise Invalid(f"{both[0]} is both set and reset", field=both[0], hint="do one of them")
        changes = {name: parse_setting(name, value) for name, value in request.set.items()}
        for name in request.reset:
            if name not in LIVE_RULES:
                parse_setting(name, None)

        def decide(workspace: Workspace, change: Change) -> wire.PolicyAnswer:
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

        await self.write(request, wire.PolicyAnswer, decide)
        workspace = await self.open(request.workspace, create=False)
        if workspace is not None:
            await workspace.reload_policy()
            await self.jobs.refile(workspace.ws)

    # -- lifecycle -----------------------------------------------------------------------------------------------

    async def events(self, request: wire.EventsRequest) -> wire.EventsAnswer:
        """Put agents' lifecycle events on the stream that the bridge reads; acknowledged once they are stored."""
        ids = await lifecycle.append(self.redis, [msgspec.json.encode(event) for event in request.events])
        return wire.EventsAnswer(accepted=len(ids), ids=tuple(ids))

    async def owners(self, request: wire.OwnersRequest) -> wire.OwnersAnswer:
        """Owners of scoped notes: open or closed, last seen, how much they hold. ``close`` ends one."""
        workspace, degraded = await self.reading(request)
        if workspace is None:
            return wire.OwnersAnswer(rows=(), seq="0-0")
        closed = 0
        if request.close is not None:
            if request.caller.role != "human" and request.close not in request.caller.to_core().owners:
                raise Refused("an agent may only end itself", rule="close-own", field="close")
            await self.jobs.end_owner(workspace.ws, request.close)
            closed = 1
        rows = [
            wire.OwnerRow(
                owner=held.name,
                state="open" if held.owner.open else "closed",
                incarnation=held.owner.incarnation,
                notes=held.notes,
                agent_kind=cast(Any, held.owner.agent_kind),
                last_seen_at=held.last_seen_at,
            )
            for held in await all_owners(self.redis, workspace.keys)
        ]
        rows.sort(key=lambda row: (row.state == "closed", -(row.last_seen_at or 0), row.owner))
        return wire.OwnersAnswer(rows=tuple(rows), changed=closed, seq=workspace.position, degraded=degraded)

    async def dead(self, request: wire.DeadRequest) -> wire.DeadAnswer:
        """Lifecycle events that could not be handled; ``retry`` puts some back on the stream, ``drop`` deletes some."""
        changed = 0
        for seq in request.retry:
            changed += await lifecycle.retry_dead(self.redis, seq)
        for seq in request.drop:
            changed += await lifecycle.drop_dead(self.redis, seq)
        return wire.DeadAnswer(
            rows=tuple(
                wire.DeadRow(id=dead.seq, at=dead.at, error=dead.error)
                for dead in await lifecycle.dead(self.redis, request.limit)
            ),
            changed=changed,
        )

    # -- workspaces ----------------------------------------------------------------------------------------------

    async def _check_owner_of(self, name: str, caller: Caller, verb: str) -> None:
        """A workspace that holds a human's or user-stated notes is a human's to drop or rename. Raises ``Forbidden``."""
        workspace = await self.open(name, create=False)
        if workspace is not None:
            await self.follow(workspace)
            for note in workspace.notes.values():
                check_authority(note, caller, f"{verb} the workspace of", None)

    async def workspaces(self, request: wire.WorkspacesRequest) -> wire.WorkspacesAnswer:
        """Every workspace; first renames one, or drops one with all it holds (needs ``confirm``)."""
        changed, caller = 0, request.caller.to_core()
        if request.rename is not None:
            if request.to is None:
                raise Invalid("to is missing", field="to", hint="the new name")
            await self._check_owner_of(request.rename, caller, "rename")
            await workspaces.rename(self.redis, request.rename, request.to)
            self.close(request.rename)
            changed = 1
        if request.drop is not None:
            if not request.confirm:
                raise Refused(
                    "dropping a workspace erases all its notes and their history",
                    rule="unconfirmed",
                    field="confirm",
                    hint="send confirm: true",
                )
            await self._check_owner_of(request.drop, caller, "drop")
            if not await workspaces.drop(self.redis, request.drop):
                raise NotFound("there is no such workspace", field="drop", hint="amnesia workspaces lists them")
            self.close(request.drop)
            self.background(self.jobs.scrub())
            changed = 1
        names = await workspaces.all_workspaces(self.redis)
        counts = await workspaces.sizes(self.redis, list(names.values()))
        rows = [
            wire.WorkspaceRow(name=name, ws=ws, notes=count)
            for (name, ws), count in zip(names.items(), counts, strict=True)
        ]
        return wire.WorkspacesAnswer(rows=tuple(rows), changed=changed)

    # -- passes and proofs ---------------------------------------------------------------------------------------

    async def settle(self, request: wire.SettleRequest) -> wire.SettleAnswer:
        """Have the worker run the workspace's due transitions now, and wait for its figures."""
        workspace = await self._known(request)
        figures = await self.jobs.run("settle", workspace.ws)
        await self.follow(workspace)
        return _figures(figures, workspace)

    async def scrub(self, request: wire.ScrubRequest) -> wire.ScrubAnswer:
        """Have the worker rewrite the store's files so that erased words are absent from them, and wait for it."""
        workspace = await self._known(request)
        figures = await self.jobs.run("scrub")
        await self.follow(workspace)
        return _figures(figures, workspace)

    async def check(self, request: wire.CheckRequest) -> wire.CheckAnswer:
        """Have the worker compare anchors with the files they name; drifted notes are flagged."""
        workspace = await self._known(request)
        figures = await self.jobs.run("check_anchors", workspace.ws)
        await self.follow(workspace)
        return _figures(figures, workspace)

    async def verify(self, request: wire.VerifyRequest) -> wire.VerifyAnswer:
        """Prove that the heads and all that follows from them are what the log says. Problems carry no words."""
        keys = await self._keys(request)
        report = await verify.verify(self.redis, keys, self.keyring, self.settings.policy)
        problems = tuple(str(one) for one in report.differences[:MAX_PROBLEMS])
        return wire.VerifyAnswer(figures=report.figures, problems=problems, seq=await Log(self.redis, keys).last_id())

    async def rebuild(self, request: wire.RebuildRequest) -> wire.RebuildAnswer:
        """Make heads, cells, members, due times and totals anew from log and vault."""
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


def _scalar(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool) else None


def _figures(figures: dict[str, Any], workspace: Workspace) -> wire.FiguresAnswer:
    counts = {name: value for name, value in figures.items() if isinstance(value, int)}
    problems = tuple(str(problem) for problem in figures.get("unreadable", ()))[:MAX_PROBLEMS]
    return wire.FiguresAnswer(figures=counts, problems=problems, seq=workspace.position)
