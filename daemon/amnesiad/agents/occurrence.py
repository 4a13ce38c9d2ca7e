"""What an agent's hook told us, in our own words: one shape for every agent.

An ``Occurrence`` says who it is about, which of our lifecycle events it stands for, and what the agent would take in
now. It carries an agent's words (prompt, command) to the selection and nowhere else: they are never logged.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import msgspec

from amnesiad.core.callers import AgentKind
from amnesiad.core.lifecycle import EventName

Moment = Literal["start", "prompt", "edit", "run"]
"""What is injected for: a context that begins, a prompt, a file about to be changed, a command about to be run."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One of our lifecycle events, of the session that the occurrence is about. ``paths`` as the agent wrote them."""

    event: EventName
    agent: str | None = None
    agent_kind: AgentKind | None = None
    paths: tuple[str, ...] = ()


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """One call of one hook.

    ``said`` is the hook's name in the agent's words, ``hook`` the same in Claude Code's. ``agent`` is set for a child
    of the session. ``cwd`` is absolute. ``moment`` is ``None`` where the agent takes nothing in.
    """

    said: str
    hook: str
    session: str
    cwd: str | None = None
    agent: str | None = None
    agent_kind: AgentKind = "main"
    turn: str | None = None
    tool_use_id: str | None = None
    detail: str | None = None
    """What tells two calls of one hook apart beside that: how a session began or ended, what was compacted why."""
    moment: Moment | None = None
    anew: bool = False
    """Whether nothing that was shown before is left in the context."""
    ours: bool = False
    """Whether the tool that is about to be called is one of amnesiad's own."""
    prompt: str | None = None
    command: str | None = None
    paths: tuple[str, ...] = ()
    """Files that a tool is about to change, as the agent wrote them."""
    events: tuple[Told, ...] = ()

    def team_of(self, kind: AgentKind | None) -> str | None:
        """The team of an agent of this kind in the session: a member's is known by its lead's session, which is
        this."""
        return self.session if kind == "teammate" else None

    def but(self, **facts: Any) -> Self:
        """The same occurrence with these facts."""
        return msgspec.structs.replace(self, **facts)
