"""Codex. It takes Claude Code's names, adds ``Interrupt``, and refuses an answer with any key that it does not know."""

from __future__ import annotations

from typing import Final

from amnesiad.agents.dialect import AS_THEY_ARE, Dialect, specific

CODEX: Final = Dialect(
    name="codex",
    listens=frozenset({"SessionStart", "SubagentStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"}),
    answer=specific,
    hooks={**AS_THEY_ARE, "Interrupt": "Stop"},
    turn=("turn_id", "prompt_id"),
)
