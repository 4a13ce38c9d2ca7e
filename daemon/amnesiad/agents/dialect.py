"""How one agent speaks: what it calls its hooks and fields, which hooks take in context, and how an answer is put.

Claude Code's names are taken for the common ones, since most agents took over its format. What a hook means is
``reading``'s business, once for all of them; here are only the differences, as data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

COMMON_HOOKS: Final = (
    "SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "StopFailure", "SubagentStart", "SubagentStop",
    "PreToolUse", "PostToolUse", "PostToolBatch", "FileChanged", "CwdChanged", "PreCompact", "PostCompact",
    "TeammateIdle", "TaskCompleted", "WorktreeRemove",
)  # fmt: skip
"""Hooks that say something to us, by their common names. Any other is answered with nothing."""

AS_THEY_ARE: Final[Mapping[str, str]] = {name: name for name in COMMON_HOOKS}
"""The names of an agent that calls its hooks as Claude Code does."""


class Dialect(NamedTuple):
    """One agent's way of speaking. The tuples of names are alternatives for one field, the agent's own word first."""

    name: str
    listens: frozenset[str]
    """Common names of the hooks whose answer enters the agent's context. Never ``Stop`` or ``SubagentStop``: context
    given there makes an agent go on that was about to stop."""
    answer: Callable[[str, str, Sequence[str]], dict[str, Any]]
    """The hook in the agent's words, a text for its context (``""`` none), and files to watch → its own output."""
    watches: frozenset[str] = frozenset()
    """Common names of the hooks whose answer may name files to watch: of those the agent then tells every change."""
    hooks: Mapping[str, str] = AS_THEY_ARE
    """The agent's names of hooks → the common ones."""
    event: tuple[str, ...] = ("hook_event_name",)
    session: tuple[str, ...] = ("session_id",)
    cwd: tuple[str, ...] = ("cwd",)
    prompt: tuple[str, ...] = ("prompt",)
    agent: tuple[str, ...] = ("agent_id",)
    turn: tuple[str, ...] = ("prompt_id", "turn_id", "generation_id")
    names_agents: bool = True
    """Whether a child's start and end always say which child."""


def specific(said: str, text: str, watch: Sequence[str]) -> dict[str, Any]:
    """The output that Claude Code, and those who took over its format, read. These keys and no other."""
    output: dict[str, Any] = {"hookEventName": said}
    if text:
        output["additionalContext"] = text
    if watch:
        output["watchPaths"] = list(watch)
    return {"hookSpecificOutput": output} if len(output) > 1 else {}
