"""Claude Code. A session of Cursor may come through here too: Cursor reads Claude Code's files as well as its own."""

from __future__ import annotations

from typing import Final

from amnesiad.agents.dialect import Dialect, specific

CLAUDE_CODE: Final = Dialect(
    name="claude-code",
    listens=frozenset({"SessionStart", "SubagentStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"}),
    answer=specific,
    watches=frozenset({"SessionStart", "FileChanged"}),
    session=("session_id", "conversation_id"),
)
