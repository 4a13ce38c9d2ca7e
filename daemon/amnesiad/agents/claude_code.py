"""Claude Code. Sessions of Cursor, VS Code and OpenHands may come through here too: they read Claude Code's files as
well as their own, and keep some of their own words for the fields."""

from __future__ import annotations

from typing import Final

from amnesiad.agents.dialect import Dialect, specific

CLAUDE_CODE: Final = Dialect(
    name="claude-code",
    listens=frozenset({"SessionStart", "SubagentStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"}),
    answer=specific,
    watches=frozenset({"SessionStart", "CwdChanged", "FileChanged"}),
    event=("hook_event_name", "hookEventName", "event_type"),
    session=("session_id", "conversation_id", "sessionId"),
    cwd=("cwd", "working_dir"),
    prompt=("prompt", "message"),
    agent=("agent_id", "agentId"),
)
