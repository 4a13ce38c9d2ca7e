"""OpenHands: Claude Code's names of hooks, fields of its own, and a flat answer that only a prompt takes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from amnesiad.agents.dialect import Dialect


def _flat(_said: str, text: str, _watch: Sequence[str]) -> dict[str, Any]:
    return {"additionalContext": text} if text else {}


OPENHANDS: Final = Dialect(
    name="openhands",
    listens=frozenset({"UserPromptSubmit"}),
    answer=_flat,
    event=("event_type",),
    cwd=("working_dir",),
    prompt=("message", "prompt"),
)
