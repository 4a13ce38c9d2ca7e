"""The tools as agents are told of them: name, description, input schema and annotations, from ``tools.json``.

A file of data, because the shim answers with the same table while no daemon runs. The verb of a tool is its name
without ``amnesia_``; a property of a schema is a field of that verb's request, ``ttl`` for ``ttl_ms``, or one of
``WHO``. Every word here is paid for by every agent at every step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

PREFIX: Final = "amnesia_"
WHO: Final = frozenset({"workspace", "session", "agent", "on_behalf"})
"""Arguments about the caller; the rest is the verb's."""
ALIASES: Final[Mapping[str, str]] = {"ttl": "ttl_ms"}
"""Arguments that the request knows by another name: agents write ``7d``, and no milliseconds."""


class Tool(NamedTuple):
    """One tool: the verb behind it, the names of its arguments, and what agents are told of it."""

    verb: str
    arguments: tuple[str, ...]
    told: Mapping[str, Any]


class Table(NamedTuple):
    """``instructions`` say in a few sentences what all tools are for."""

    instructions: str
    tools: Mapping[str, Tool]


@cache
def load_table() -> Table:
    """The table, read once."""
    read = json.loads(files("amnesiad.mcp").joinpath("tools.json").read_text(encoding="utf-8"))
    tools = {
        told["name"]: Tool(told["name"].removeprefix(PREFIX), tuple(told["inputSchema"]["properties"]), told)
        for told in read["tools"]
    }
    return Table(read["instructions"], tools)
