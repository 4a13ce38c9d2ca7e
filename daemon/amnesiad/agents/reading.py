"""From a hook's payload to an ``Occurrence``: what each hook means, once for all agents.

Ends are unreliable in the field: they are lost, come twice, or come with the id of nobody. So no stop is paired with a
start here, and nothing is ended by guess: what an agent says has finished is an end, what it says is running is a sign
of life, and about whatever it does not name its lease decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from amnesiad.agents.dialect import Dialect
from amnesiad.agents.occurrence import Occurrence, Told
from amnesiad.agents.payload import MAX_ID_CHARS, MAX_PATH_CHARS, MAX_PATHS, Payload
from amnesiad.agents.tools import command_run, files_changed, is_ours
from amnesiad.core.callers import AgentKind
from amnesiad.core.errors import Invalid
from amnesiad.core.lifecycle import EventName

WORKFLOW_AGENT: Final = "workflow-subagent"
"""The agent type by which Claude Code calls a workflow's agents."""
TEAMMATE: Final = re.compile(r"a(.+)-[0-9a-f]{16}")
"""The id that Claude Code gives to a member of a team that runs in its lead's process: the member's name is in it, and
is its agent type too. Its hooks name the lead's session. A member in a process of its own is a session like any
other."""
MAX_TASKS: Final = 100
"""Background tasks looked at in one payload: as many events of ours may come of it."""
_GOES_ON: Final = frozenset({"resume", "fork"})
"""Beginnings of a session whose context is one it had before."""
_FINISHED: Final = frozenset({"completed", "failed", "killed", "stopped", "cancelled", "canceled"})
"""States of a background task that will not run again. Any other counts as running."""

_Facts = dict[str, Any]


def read(dialect: Dialect, fields: Mapping[str, Any], *, named: bool) -> Occurrence:
    """The occurrence in a payload. Raises ``Invalid`` naming the field that is missing or wrong.

    Where the agent stands must be in it unless the workspace is ``named``. A hook that nobody here has heard of is an
    occurrence that stands for nothing.
    """
    payload = Payload(fields)
    said = payload.text(dialect.event)
    hook = dialect.hooks.get(said, "")
    agent = payload.own_identity(dialect.agent)
    about = Occurrence(
        said=said,
        hook=hook,
        session=payload.identity(dialect.session),
        cwd=_cwd(dialect, payload, named=named),
        agent=agent,
        agent_kind="main" if agent is None else _kind(agent, payload),
        turn=payload.any_id(dialect.turn),
        tool_use_id=_short(payload.any_text("tool_use_id")),
        detail=payload.any_text("source", "reason", "trigger", "status", "task_id", "worktree_path", "new_cwd"),
    )
    reader = _READERS.get(hook)
    if reader is None:
        return about
    facts = reader(_Reading(dialect, payload, about))
    if hook not in dialect.listens:
        facts["moment"] = None
    return about.but(**facts)


def _kind(agent: str, payload: Payload) -> AgentKind:
    """What kind of child the agent with this id is."""
    type_ = payload.any_text("agent_type")
    if type_ == WORKFLOW_AGENT:
        return "workflow"
    member = TEAMMATE.fullmatch(agent)
    return "teammate" if member is not None and member[1] == type_ else "subagent"


def _cwd(dialect: Dialect, payload: Payload, *, named: bool) -> str | None:
    """Where the agent stands. Raises ``Invalid`` for a relative directory: it does not say relative to what."""
    name, value = payload.value(dialect.cwd)
    directory = None
    if value in (None, ""):
        directory = next(iter(payload.any_texts("workspace_roots")), None)
        if directory is None and named:
            return None
    directory = directory or payload.text(dialect.cwd)
    if not directory.startswith("/") or "\x00" in directory or len(directory) > MAX_PATH_CHARS:
        raise Invalid(f"{name} must be an absolute path of at most {MAX_PATH_CHARS} characters", field=name)
    return directory


def _short(text: str | None) -> str | None:
    return text if text is not None and len(text) <= MAX_ID_CHARS else None


class _Reading:
    """One payload of a known hook; a method per hook says what it adds to the occurrence."""

    def __init__(self, dialect: Dialect, payload: Payload, about: Occurrence) -> None:
        self._dialect = dialect
        self._payload = payload
        self._about = about

    def session_start(self) -> _Facts:
        source = self._about.detail
        # A compacted session is the one it was: no life of its owner begins with it.
        event = self._told("heartbeat" if source == "compact" else "session-start")
        return {"moment": "start", "anew": source not in _GOES_ON, "events": (event,)}

    def session_end(self) -> _Facts:
        if self._about.agent is not None:
            return self.disposed()
        return {"events": (Told(event="session-end"),)}

    def prompt(self) -> _Facts:
        prompt = self._payload.text(self._dialect.prompt)
        return {"moment": "prompt", "prompt": prompt, "events": (self._told("pre-step"),)}

    def stop(self) -> _Facts:
        return {"events": (self._told("turn-end"), *_background(self._payload))}

    def subagent_start(self) -> _Facts:
        self._check_named()
        if self._about.agent is None:
            return self.alive()
        return {"moment": "start", "anew": True, "events": (self._told("subagent-start"),)}

    def subagent_stop(self) -> _Facts:
        self._check_named()
        if self._about.agent is None:  # of whom it is not said, and nothing is ended by guess
            return self.alive()
        # Its own task counts as running until this hook is over.
        others = (told for told in _background(self._payload) if told.agent != self._about.agent)
        # A member of a team stops at the end of each of its turns, and waits for the next.
        member = self._about.agent_kind == "teammate"
        own = self._told("turn-end") if member else _end(self._about.agent, self._about.agent_kind)
        return {"events": (own, *others)}

    def pre_tool(self) -> _Facts:
        tool, given = self._tool()
        return {"ours": True} if is_ours(tool) else _about_to(tool, given)

    def post_tool(self) -> _Facts:
        tool, given = self._tool()
        changed = files_changed(tool, given)
        facts: _Facts = {"events": (self._told("file-changed", changed),) if changed else ()}
        # An agent that takes nothing in before a tool runs is told along with what the tool answers.
        return facts if "PreToolUse" in self._dialect.listens else facts | _about_to(tool, given)

    def post_batch(self) -> _Facts:
        changed: list[str] = []
        for call in self._payload.any_objects("tool_calls"):
            changed += files_changed(call.any_text("tool_name") or "", call.any_object("tool_input"))
        events = [self._told("pre-step")]
        if changed:
            events.append(self._told("file-changed", tuple(changed[:MAX_PATHS])))
        return {"events": tuple(events)}

    def file_changed(self) -> _Facts:
        return {"events": (self._told("file-changed", (self._payload.text(("file_path",)),)),)}

    def pre_compact(self) -> _Facts:
        return {"anew": True, "events": (self._told("compacted"),)}

    def post_compact(self) -> _Facts:
        # What is said of it now may be told again before the event was handled, so that is left to what came before it.
        return self.alive() | {"anew": True}

    def alive(self) -> _Facts:
        return {"events": (self._told("heartbeat"),)}

    def disposed(self) -> _Facts:
        # Of a child, if it says which; a session that loses one worktree has not ended.
        if self._about.agent is None:
            return self.alive()
        return {"events": (Told(event="agent-disposed", agent=self._about.agent),)}

    def _tool(self) -> tuple[str, Payload]:
        return self._payload.text(("tool_name",)), self._payload.any_object("tool_input")

    def _check_named(self) -> None:
        """Raises ``Invalid`` where the agent always says which child it is about, and does not."""
        if self._dialect.names_agents:
            self._payload.identity(self._dialect.agent)

    def _told(self, event: EventName, paths: tuple[str, ...] = ()) -> Told:
        return Told(event=event, agent=self._about.agent, agent_kind=self._about.agent_kind, paths=paths)


def _background(payload: Payload) -> list[Told]:
    """What an agent says of its background tasks. Only its subagents are its children: a teammate has a session."""
    told = []
    for task in payload.any_objects("background_tasks")[:MAX_TASKS]:
        if task.any_text("type") != "subagent" or (agent := task.any_id(("id",))) is None:
            continue
        kind = _kind(agent, task)
        over = task.any_text("status") in _FINISHED
        told.append(_end(agent, kind) if over else Told(event="heartbeat", agent=agent, agent_kind=kind))
    return told


def _end(agent: str, kind: AgentKind) -> Told:
    if kind == "workflow":
        return Told(event="workflow-agent-end", agent=agent, agent_kind=kind)
    # Whether it was one that comes back, its owner knows and the hook does not say.
    return Told(event="subagent-end", agent=agent)


def _about_to(tool: str, given: Payload) -> _Facts:
    if paths := files_changed(tool, given):
        return {"moment": "edit", "paths": paths}
    if command := command_run(tool, given):
        return {"moment": "run", "command": command}
    return {}


_READERS: Final[Mapping[str, Callable[[_Reading], _Facts]]] = {
    "SessionStart": _Reading.session_start,
    "SessionEnd": _Reading.session_end,
    "UserPromptSubmit": _Reading.prompt,
    "Stop": _Reading.stop,
    "StopFailure": _Reading.stop,
    "SubagentStart": _Reading.subagent_start,
    "SubagentStop": _Reading.subagent_stop,
    "PreToolUse": _Reading.pre_tool,
    "PostToolUse": _Reading.post_tool,
    "PostToolBatch": _Reading.post_batch,
    "FileChanged": _Reading.file_changed,
    "CwdChanged": _Reading.alive,
    "PreCompact": _Reading.pre_compact,
    "PostCompact": _Reading.post_compact,
    "TeammateIdle": _Reading.alive,
    "TaskCompleted": _Reading.alive,
    "WorktreeRemove": _Reading.disposed,
}
