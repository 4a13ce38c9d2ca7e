"""Governing a workspace rather than a note: its status, its policy, its name, and its end; and who may do that.

What is heard of agents is ``hearing``'s business, what the worker is asked to do ``maintaining``'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, TypeVar, cast

from amnesiad import wire
from amnesiad.core.callers import OWN_SETTINGS, Caller, check_policy, governs
from amnesiad.core.errors import Forbidden, Invalid, NotFound, Refused
from amnesiad.core.events import PolicyChanged, Provenance, encode
from amnesiad.core.policy import LIVE_RULES, apply_overrides, parse_setting
from amnesiad.errors import Conflict, StoreUnavailable
from amnesiad.service.reading.looking import Looking
from amnesiad.service.writing.change import Change
from amnesiad.service.writing.guarding import Guarding
from amnesiad.service.writing.loop import MAX_ATTEMPTS
from amnesiad.settings import show_setting
from amnesiad.store import lifecycle, vault, workspaces
from amnesiad.store.connect import describe
from amnesiad.store.copies import drop_copies
from amnesiad.store.policies import read_policy, write_policy
from amnesiad.store.units import UNSCRUBBED
from amnesiad.workspace import Workspace

A = TypeVar("A")


class Governing(Looking, Guarding):
    """The verbs about workspaces and their policy."""

    async def status(self, request: wire.StatusRequest) -> wire.StatusAnswer:
        """A small scalar view: counts as settled now, tokens, what ended last, who said no, whether a worker lives."""
        workspace, degraded = await self.reading(request)
        caller = request.caller.to_core()
        worker = await self.jobs.worker_status()
        store: dict[str, Any] = {} if degraded else await describe(self.redis)
        standing: wire.LifecycleStatus | None = None
        if governs(caller) and not degraded:
            standing = wire.LifecycleStatus(**(await lifecycle.backlog(self.redis))._asdict())
        store |= self.meaning.figures(workspace if governs(caller) else None)
        if workspace is None:
            empty = wire.Counts(active=0, stale=0, expired=0, revoked=0, superseded=0, forgotten=0)
            return wire.StatusAnswer(
                counts=empty,
                tokens=0,
                recent=(),
                refusals=self.refusals(request.workspace),
                worker=worker,
                store=store,
                lifecycle=standing,
                seq="0-0",
            )
        now = self.clock.now_ms()
        counts, tokens, next_expiry = await self.counts(workspace, caller, now)
        if governs(caller):
            store |= {
                "perishable_bytes": workspace.bytes["perishable"],
                "record_bytes": workspace.bytes["record"],
                "unscrubbed": (await vault.totals(self.redis, workspace.keys)).get(UNSCRUBBED, 0),
            }
        return wire.StatusAnswer(
            counts=counts,
            tokens=tokens,
            recent=await self.recent_ends(workspace, caller),
            refusals=self.refusals(request.workspace),
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
        """Show the effective settings and where each comes from, those of the process too; set or reset overrides of
        this workspace first."""
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

    async def _check_policy(
        self, name: str, workspace: Workspace | None, caller: Caller, names: Collection[str]
    ) -> None:
        """``check_policy`` by what the workspace holds: its notes, and what the audit keeps of those that were."""
        reaching = caller.role != "human" and not OWN_SETTINGS.issuperset(names)
        held = await self._provenances(workspace, kept=True) if workspace is not None and reaching else set()
        with self.counting_refusals(name):
            check_policy(caller, names, held)

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
        # What is no setting is told to anybody: a refusal of the role would send an agent to its user for a typing
        # error.
        changes = {name: parse_setting(name, value) for name, value in request.set.items()}
        for name in request.reset:
            if name not in LIVE_RULES:
                parse_setting(name, None)
        known = await self.caught_up(request.workspace)
        if caller.role != "human" and (
            known is None or await self._replayed(known, request, wire.PolicyAnswer) is None
        ):
            await self._check_policy(request.workspace, known, caller, names)

        bare = -1
        for _ in range(MAX_ATTEMPTS):
            with contextlib.suppress(_CopiesLeft):
                decide = partial(_overriding, caller, request, changes, bare)
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
        workspace, _ = await self._renewed_view(cast(Workspace, await self.open(name, create=True)))
        held = await read_policy(self.redis, workspace.keys, workspace.base)
        done = not held.policy.restorable and await drop_copies(workspace.log, self.keyring, held, self.clock.now_ms())
        return held.version if done else -1

    # -- workspaces ----------------------------------------------------------------------------------------------

    async def _dispose(
        self, name: str, caller: Caller, verb: str, act: Callable[[workspaces.Seen | None], Awaitable[A]]
    ) -> A:
        """Do something to a whole workspace, while it is what it was when its holdings were looked through.

        One that holds notes of a human's or the user's, or the audit of one, is a human's. Raises ``Forbidden``.
        """
        self.require_governor(name, caller, f"{verb} a workspace", "workspace-role")
        if caller.role == "human":
            return await act(None)
        for _ in range(MAX_ATTEMPTS):
            workspace = await self.caught_up(name)
            if workspace is None:
                return await act(None)
            seen = workspaces.Seen(workspace.ws, workspace.position)
            guarded = sorted(await self._provenances(workspace, kept=False) & {"human", "user-stated"})
            if guarded:
                with self.counting_refusals(name):
                    raise Forbidden(
                        f"the workspace holds what is {' or '.join(guarded)}: an agent may not {verb} it",
                        rule="provenance",
                        field=verb,
                        hint="ask the user to do it",
                    )
            with contextlib.suppress(workspaces.MovedOn):
                return await act(seen)
        raise Conflict(f"others kept writing while it was to {verb} the workspace", field=verb, hint="try again")

    async def workspaces(self, request: wire.WorkspacesRequest) -> wire.WorkspacesAnswer:
        """Every workspace; first renames one, or drops one with all it holds (needs ``confirm``).

        A child, teammate or fresh agent sees none of them and changes none (``Forbidden``).
        """
        changed, caller = 0, request.caller.to_core()
        if request.rename is not None and request.drop is not None:  # the second may be refused when the first is done
            raise Invalid("rename and drop at once", field="drop", hint="one at a time")
        if request.rename is None and request.to is not None:
            raise Invalid("to is a new name, and rename names no workspace", field="rename", hint="the old name")
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
        self.scrub_soon()


class _CopiesLeft(Exception):
    """Copies are to be kept again, and it is not known that none is left from before."""


def _overriding(
    caller: Caller,
    request: wire.PolicyRequest,
    changes: dict[str, object],
    bare: int,
    workspace: Workspace,
    change: Change,
) -> wire.PolicyAnswer:
    """Decide a change of overrides, ``changes`` being what is set, in canonical form. Raises ``_CopiesLeft`` where
    copies are kept from here on and ``bare`` is not the version of the policy under which none was left."""
    check_policy(caller, (*request.set, *request.reset), {note.provenance for note in workspace.notes.values()})
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


def _scalar(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool) else None
