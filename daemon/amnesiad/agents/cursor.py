"""Cursor: hooks of its own names, a flat answer, and nothing taken in before a tool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from amnesiad.agents.dialect import Dialect


def _flat(_said: str, text: str, _watch: Sequence[str]) -> dict[str, Any]:
    return {"additional_context": text} if text else {}


CURSOR: Final = Dialect(
    name="cursor",
    listens=frozenset({"SessionStart", "UserPromptSubmit", "PostToolUse"}),
    answer=_flat,
    hooks={
        "sessionStart": "SessionStart",
        "sessionEnd": "SessionEnd",
        "beforeSubmitPrompt": "UserPromptSubmit",
        "stop": "Stop",
        "subagentStart": "SubagentStart",
        "subagentStop": "SubagentStop",
        "preToolUse": "PreToolUse",
        "postToolUse": "PostToolUse",
        "afterFileEdit": "FileChanged",
        "preCompact": "PreCompact",
    },
    session=("conversation_id", "session_id"),
    agent=("subagent_id", "agent_id"),
    turn=("generation_id",),
    names_agents=False,
)
