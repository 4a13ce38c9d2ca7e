"""What agents' hooks are answered: lifecycle events go where all of them go, and what matters now comes back as text.

An agent's own payload comes in and its own answer goes out; the translation is ``amnesiad.agents``'. A context is told
everything that may matter when it begins, and from then on what a prompt, a file about to be changed or a command about
to be run asks for, each note once until the context is compacted. A workspace that nobody has written to is left alone:
a hook creates nothing. Of prompts and commands nothing is kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from amnesiad import agents, tasks, wire
from amnesiad.agents import Occurrence
from amnesiad.core.callers import Caller
from amnesiad.core.intake import MAX_QUERY_CHARS
from amnesiad.repository import Place
from amnesiad.service.base import Jobs
from amnesiad.service.hearing import Hearing
from amnesiad.service.hooks.announced import Announced
from amnesiad.service.hooks.presence import Presence
from amnesiad.service.hooks.twins import WINDOW_MS, Twins
from amnesiad.service.hooks.whereabouts import Whereabouts
from amnesiad.service.reading.injecting import Injecting
from amnesiad.service.reading.listening import Listener
from amnesiad.settings import Settings
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import Store
from amnesiad.store.contexts import forget_shown
from amnesiad.store.keyring import Keyring
from amnesiad.workspace import Workspace

HungUp = Callable[[], Awaitable[None]]

EVENTS: Final = {"start": "session-start", "prompt": "pre-step", "edit": "pre-edit", "run": "pre-run"}
"""What a trigger's ``event`` is compared with, by moment."""
CHILD_START: Final = "subagent-start"
MAX_WATCHED: Final = 200
"""Files that an agent is asked to watch: each costs it a handle, and anchors are checked at the end of a turn
anyway."""
IN_ORDER: Final = frozenset(
    {
        "SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "StopFailure", "SubagentStart", "SubagentStop",
        "CwdChanged", "PreCompact", "PostCompact",
    }
)  # fmt: skip
"""Hooks that an agent waits for before its context goes on. A session that ends, is resumed and ends again within
seconds has ended twice."""
ENDS: Final = frozenset({"session-end", "subagent-end", "workflow-agent-end", "agent-disposed"})
"""Events that concern every workspace in which the session was heard of."""
_ID_CHARS: Final = 32
"""Of a keyed hash, for an event's id: a collision among the events of a week is out of reach."""


class Hooking(Hearing, Injecting):
    """The verb that agents' hooks call."""

    def __init__(self, redis: Store, keyring: Keyring, settings: Settings, clock: StoreClock, jobs: Jobs) -> None:
        super().__init__(redis, keyring, settings, clock, jobs)
        self.announced = Announced(clock.now_ms)
        self.whereabouts = Whereabouts(os.environ, store_is_local=settings.store_is_local)
        self._twins = Twins()
        self._presence = Presence()

    async def hooks(self, request: wire.HooksRequest, *, hung_up: HungUp | None = None) -> dict[str, Any]:
        """The agent's own output for its own payload; ``{}`` where there is nothing to say, or nobody to hear it.

        ``hung_up`` returns once the agent does not wait for the answer any more, as a hook does after a second. What it
        said counts all the same.
        Raises ``NotFound`` for an agent whose hooks are not known, ``Invalid`` naming a field, ``StoreUnavailable``.
        """
        seen = agents.read(request.agent_name, request.payload, named=request.workspace is not None)
        place = await self._place(request, seen)
        name, now = place.workspace, self.clock.now_ms()
        caller = wire.CallerSpec(
            session=seen.session, agent=seen.agent, agent_kind=seen.agent_kind, team=seen.team_of(seen.agent_kind)
        )
        self.announced.heard(name, request.agent_name, now)
        if seen.ours and seen.tool_use_id is not None:
            self.announced.announce(seen.tool_use_id, name, caller, now)
        key = self._key(name, seen)
        if seen.hook in IN_ORDER:
            key = self._twins.in_order(f"{seen.session} {seen.agent or ''} {name}", key, now)
        if self._twins.told_before(key, now):
            return {}
        try:
            return await self._answer(request.agent_name, seen, place, caller, key, now, hung_up)
        except BaseException:  # also a deadline: what this one was not told, its twin may still hear
            self._twins.take_back(key)
            raise

    async def _answer(
        self,
        agent_name: str,
        seen: Occurrence,
        place: Place,
        caller: wire.CallerSpec,
        key: str,
        now: int,
        hung_up: HungUp | None,
    ) -> dict[str, Any]:
        workspace = await self.open(place.workspace, create=False)
        if workspace is not None:
            self._presence.heard(seen.session, place.workspace)
        await self._tell(place, seen, key, now, here=workspace is not None)
        if workspace is None:
            return {}
        self._show_life(workspace, caller.to_core(), seen, now)
        text = await _while_heard(self._bring(workspace, caller, place, seen), hung_up)
        watch = self._anchored(workspace, caller, place, now) if agents.watches(agent_name, seen) else ()
        return agents.answer(agent_name, seen, text, watch)

    async def _place(self, request: wire.HooksRequest, seen: Occurrence) -> Place:
        if seen.cwd is not None:
            return await self.whereabouts.of(seen.cwd, request.workspace)
        name = request.workspace or ""
        return Place(name, (name,) if name.startswith("/") else ())

    def _key(self, name: str, seen: Occurrence) -> str:
        """What two calls have in common that say the same: keyed, since a prompt is in it. The payloads themselves may
        differ, where an agent reads another's files beside its own."""
        said = (
            name, seen.hook or seen.said, seen.session, seen.agent, seen.turn, seen.tool_use_id, seen.detail,
            seen.prompt, seen.command, seen.paths, seen.events,
        )  # fmt: skip
        return self.keyring.digest("hook", msgspec.json.encode(said).decode())

    async def _tell(self, place: Place, seen: Occurrence, key: str, now: int, *, here: bool) -> None:
        """Put the lifecycle events on the stream, those of this workspace if it is one, and ends wherever the session
        was heard of. Their ids are the same for twins, whichever daemon each came to."""
        told = []
        for number, event in enumerate(seen.events):
            paths = agents.relative_paths(event.paths, seen.cwd, place.roots)
            if event.paths and not paths:
                continue  # of files that are not this workspace's
            elsewhere = self._presence.others(seen.session, place.workspace) if event.event in ENDS else ()
            for name in ((place.workspace,) if here else ()) + elsewhere:
                same = self.keyring.digest("lifecycle", key, str(number), str(now // WINDOW_MS), name)
                told.append(
                    wire.LifecycleEvent(
                        event=event.event,
                        workspace=name,
                        id=same[:_ID_CHARS],
                        session=seen.session,
                        agent=event.agent,
                        agent_kind=event.agent_kind,
                        team=seen.team_of(event.agent_kind),
                        paths=paths,
                    )
                )
        if told:
            await self.events(wire.EventsRequest(events=tuple(told)))

    def _show_life(self, workspace: Workspace, caller: Caller, seen: Occurrence, now: int) -> None:
        """A hook is a sign of life, of a child and of the session it works for; only owners that are open have one."""
        if not seen.events:
            self.alive(workspace, caller, now)
        if caller.child:
            self.alive(workspace, Caller(session=caller.session), now)

    def _anchored(self, workspace: Workspace, caller: wire.CallerSpec, place: Place, now: int) -> Sequence[str]:
        """The files that live notes are anchored to, the newest notes' first, as paths of the tree that the agent is
        in."""
        if not place.roots:
            return ()
        anchored = workspace.visible_live(caller.to_core(), now, workspace.pathed.anchored())
        notes = sorted(anchored, key=lambda note: (note.created_at, note.id), reverse=True)
        paths = dict.fromkeys(anchor.path for note in notes for anchor in workspace.words[note.id].anchors)
        return [f"{place.roots[0].rstrip('/')}/{path}" for path in islice(paths, MAX_WATCHED)]

    async def _bring(self, workspace: Workspace, caller: wire.CallerSpec, place: Place, seen: Occurrence) -> str:
        """What this context is told now."""
        context = caller.to_core().context
        if context is None:
            return ""
        if seen.anew:
            await forget_shown(self.redis, workspace.keys, context)
        paths = agents.relative_paths(seen.paths, seen.cwd, place.roots)
        if seen.moment is None or (seen.moment == "edit" and not paths):
            return ""
        once = await workspace.witness.once(context, seen.turn or "", self.context_kept(caller.to_core()))
        # A context that was told nothing yet, or nothing since it was compacted, is told all at its next prompt.
        whole = seen.moment == "start" or (seen.moment == "prompt" and not once.marks)
        asked = wire.InjectRequest(
            workspace=place.workspace,
            caller=caller,
            query=None if seen.prompt is None else _as_query(seen.prompt),
            paths=paths,
            event=CHILD_START if seen.moment == "start" and caller.agent is not None else EVENTS[seen.moment],
        )
        command = None if seen.command is None else seen.command[:MAX_QUERY_CHARS]
        listener = Listener(once, agents.MAX_CONTEXT_UNITS, whole=whole, command=command)
        return (await self.inject(asked, listener=listener)).text


async def _while_heard(bring: Coroutine[Any, Any, str], hung_up: HungUp | None) -> str:
    """What the coroutine brings; ``""`` if the agent has hung up before: what was marked as shown to one that is gone
    would never be told to it. Where nobody can tell whether it has, it counts as there."""
    if hung_up is None:
        return await bring
    work, watch = asyncio.ensure_future(bring), asyncio.ensure_future(hung_up())
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not watch.cancelled() and watch.exception() is None:
            return ""
        return await work
    finally:
        await tasks.end(work, watch)


def _as_query(prompt: str) -> str:
    """A prompt as a query: of a long one its beginning and its end, where people say what they want."""
    if len(prompt) <= MAX_QUERY_CHARS:
        return prompt
    half = MAX_QUERY_CHARS // 2
    return prompt[: half - 1] + " " + prompt[-half:]
