"""Agents' lifecycle events, and what each asks for. Pure: an event in, effects out.

Real fleets lose, repeat and reorder these events, so nothing here pairs a stop with a start. Which incarnation an end
reaches is decided where the owner's cell is known (``store.owners``); running the effects is the bridge's and the
worker's business. Specification, section 9.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from amnesiad.core.callers import CHILD_KINDS, AgentKind
from amnesiad.core.errors import Invalid
from amnesiad.core.intake import check_id, check_paths
from amnesiad.core.policy import Policy

EventName = Literal[
    "session-start",
    "session-end",
    "turn-end",
    "pre-step",
    "subagent-start",
    "subagent-end",
    "workflow-agent-end",
    "agent-disposed",
    "heartbeat",
    "file-changed",
    "compacted",
]

MAX_PATHS: Final = 256
"""Paths in one file-changed event; a larger change is sent as several."""
MAX_WORKSPACE_BYTES: Final = 4096
"""A workspace name is often a path: PATH_MAX on Linux."""


class LifecycleEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One inbound event as any process may XADD it. ``at`` is the producer's epoch ms, ``source`` names the
    producer."""

    event: EventName
    workspace: str
    id: str | None = None
    session: str | None = None
    agent: str | None = None
    agent_kind: AgentKind | None = None
    team: str | None = None
    parent: str | None = None
    paths: tuple[str, ...] = ()
    at: int | None = None
    source: str | None = None


class Open(msgspec.Struct, frozen=True, tag=True):
    """An owner began or gave a sign of life by a start event."""

    owner: str
    agent_kind: AgentKind


class Touch(msgspec.Struct, frozen=True, tag=True):
    """An owner gave a sign of life."""

    owner: str


class End(msgspec.Struct, frozen=True, tag=True):
    """An owner ended, with every owner below it (``owner/…``) if ``children``."""

    owner: str
    children: bool
    agent_kind: AgentKind


class Settle(msgspec.Struct, frozen=True, tag=True):
    """Run the workspace's due transitions now."""


class Check(msgspec.Struct, frozen=True, tag=True):
    """Look at the files notes are anchored to."""


class Compacted(msgspec.Struct, frozen=True, tag=True):
    """A session's context, or a child's, was compacted: what it was shown is gone from it."""

    context: str


Effect = Open | Touch | End | Settle | Check | Compacted

_ENDS: Final = frozenset({"session-end", "subagent-end", "workflow-agent-end", "agent-disposed"})
_STARTS: Final = frozenset({"session-start", "subagent-start"})


def check_event(event: LifecycleEvent) -> LifecycleEvent:
    """The event if its ids and paths are well-formed. Raises ``Invalid`` naming the field."""
    if not event.workspace or len(event.workspace.encode("utf-8", "surrogatepass")) > MAX_WORKSPACE_BYTES:
        raise Invalid(f"workspace must be 1 to {MAX_WORKSPACE_BYTES} bytes", field="workspace")
    for field in ("id", "session", "agent", "team", "parent", "source"):
        value = getattr(event, field)
        if value is not None:
            check_id(value, field)
    if len(event.paths) > MAX_PATHS:
        raise Invalid(f"paths has {len(event.paths)} items, the limit is {MAX_PATHS}", field="paths")
    check_paths(event.paths)
    return event


def kind_of(event: LifecycleEvent) -> AgentKind:
    """The agent kind an event speaks of, from what it says or from its name."""
    if event.agent_kind is not None:
        return event.agent_kind
    if event.event == "workflow-agent-end":
        return "workflow"
    if event.event.startswith("subagent-"):
        return "subagent"
    return "subagent" if event.agent is not None and event.event == "agent-disposed" else "main"


def owner_of(event: LifecycleEvent) -> str | None:
    """The owner an event speaks of, or ``None`` where it does not say enough. A teammate's is its team."""
    kind = kind_of(event)
    if kind == "fresh":
        return None
    if kind in CHILD_KINDS:
        return f"{event.session}/{event.agent}" if event.session and event.agent else None
    return event.team if kind == "teammate" else event.session


def leaves_kind_open(event: LifecycleEvent) -> bool:
    """Whether the event ends a child without saying of which kind: then what its owner's cell knows decides."""
    return event.agent_kind is None and event.event in ("subagent-end", "agent-disposed") and event.agent is not None


def effects(event: LifecycleEvent, policy: Policy) -> list[Effect]:
    """What the event asks for, in order; ``[]`` where it asks for nothing.

    An end that names no agent ends nothing unless it is the session's own; a teammate's end leaves the team's notes,
    the lead's (its session *is* the team) takes them along; a continuable child is kept by policy; a workflow's agent
    goes on after a subagent-end.
    """
    owner = owner_of(event)
    kind = kind_of(event)
    alive: list[Effect] = [] if owner is None else [Touch(owner)]
    if event.event in _ENDS:
        return _end(event, owner, kind, policy)
    if event.event in _STARTS:
        # A team begins and ends with its lead: what a member starts is no new life of the team.
        return alive if owner is None or kind == "teammate" else [Open(owner, kind)]
    if event.event == "turn-end":
        return [*alive, Settle(), Check()]
    if event.event == "file-changed":
        return [*alive, Check()]
    if event.event == "compacted" and event.session is not None:
        return [*alive, Compacted(_context_of(event, kind))]
    return alive


def _context_of(event: LifecycleEvent, kind: AgentKind) -> str:
    """The context window of a compacted session's agent, as ``Caller.context`` names it."""
    inner = event.agent is not None and kind not in ("main", "fresh")
    return f"{event.session}/{event.agent}" if inner else str(event.session)


def _end(event: LifecycleEvent, owner: str | None, kind: AgentKind, policy: Policy) -> list[Effect]:
    if owner is None or kind == "teammate":
        return []
    if kind in CHILD_KINDS:
        paused = event.event == "subagent-end"
        kept = paused and (kind == "workflow" or (kind == "continuable" and policy.continuable_end == "keep"))
        return [] if kept else [End(owner, children=False, agent_kind=kind)]
    disposed = event.event == "agent-disposed" and event.agent_kind == "main"
    return [End(owner, children=True, agent_kind=kind)] if disposed or event.event == "session-end" else []
