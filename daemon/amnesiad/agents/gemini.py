"""Gemini CLI: hooks of its own names. It takes nothing in before a tool, and says nothing once it has compressed."""

from __future__ import annotations

from typing import Final

from amnesiad.agents.dialect import Dialect, specific

GEMINI: Final = Dialect(
    name="gemini",
    listens=frozenset({"SessionStart", "UserPromptSubmit", "PostToolUse"}),
    answer=specific,
    hooks={
        "SessionStart": "SessionStart",
        "SessionEnd": "SessionEnd",
        "BeforeAgent": "UserPromptSubmit",
        "AfterAgent": "Stop",
        "BeforeTool": "PreToolUse",
        "AfterTool": "PostToolUse",
        "PreCompress": "PreCompact",
    },
)
