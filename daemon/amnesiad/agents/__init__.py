"""The dialects of agents' hooks, pure: a payload in, one occurrence out; a text in, that agent's own answer out.

``read`` and ``answer`` are all that is needed. One module per agent says how it differs from the common format; the
field names are the agents' contracts. Nothing here knows notes, time or the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from amnesiad.agents import reading
from amnesiad.agents.claude_code import CLAUDE_CODE
from amnesiad.agents.codex import CODEX
from amnesiad.agents.cursor import CURSOR
from amnesiad.agents.dialect import Dialect
from amnesiad.agents.gemini import GEMINI
from amnesiad.agents.occurrence import Moment, Occurrence, Told
from amnesiad.agents.openhands import OPENHANDS
from amnesiad.agents.paths import relative_paths
from amnesiad.agents.vscode import VSCODE
from amnesiad.core.errors import NotFound

__all__ = [
    "DIALECTS",
    "MAX_CONTEXT_UNITS",
    "Moment",
    "Occurrence",
    "Told",
    "answer",
    "read",
    "relative_paths",
    "watches",
]

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect for dialect in (CLAUDE_CODE, CODEX, VSCODE, GEMINI, CURSOR, OPENHANDS)
}
"""Every agent by the name it has in ``POST /v1/hooks/<name>``."""

MAX_CONTEXT_UNITS: Final = 10_000
"""The longest text that an agent takes in from one hook, in UTF-16 units; of a longer one it shows only a part."""


def read(name: str, payload: Mapping[str, Any], *, named: bool = False) -> Occurrence:
    """What an agent's hook says. Raises ``NotFound`` for an agent nobody knows, ``Invalid`` naming a field.

    Unless the workspace is ``named`` beside it, the payload must say where the agent stands.
    """
    return reading.read(_dialect(name), payload, named=named)


def answer(name: str, seen: Occurrence, text: str, watch: Sequence[str] = ()) -> dict[str, Any]:
    """The text for the context, and the absolute paths of files to watch, in that agent's own output format.

    What nobody would listen to is left out; ``{}`` where there is nothing to say.
    """
    dialect = _dialect(name)
    heard = text if seen.hook in dialect.listens else ""
    return dialect.answer(seen.said, heard, watch if seen.hook in dialect.watches else ())


def watches(name: str, seen: Occurrence) -> bool:
    """Whether the answer may name files to watch."""
    return seen.hook in _dialect(name).watches


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        raise NotFound(
            f"there is no agent {name[:64]!r} whose hooks are known",
            field="agent_name",
            hint=f"known are {', '.join(DIALECTS)}",
        )
    return DIALECTS[name]
