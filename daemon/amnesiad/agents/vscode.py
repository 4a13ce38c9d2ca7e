"""VS Code and Copilot: the base fields in camelCase, the rest as Claude Code has it."""

from __future__ import annotations

from typing import Final

from amnesiad.agents.dialect import Dialect, specific

VSCODE: Final = Dialect(
    name="vscode",
    listens=frozenset({"SessionStart", "SubagentStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"}),
    answer=specific,
    event=("hookEventName", "hook_event_name"),
    session=("sessionId", "session_id"),
    agent=("agent_id", "agentId"),
)
