"""Small programs that agents start many times a day: they forward to the daemon, fail open, and cost milliseconds.

The standard library alone, ``places`` and ``limits``: each also runs as a bare file, without site-packages, where
nothing but Python is sure to be there. No rule about notes lives here; every question goes to the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

SHIMS: Final[Mapping[str, str]] = {
    "hook": "amnesiad.shims.hook",
    "statusline": "amnesiad.shims.statusline",
    "mcp": "amnesiad.shims.mcp",
}
"""Commands of ``amnesia`` that are programs of their own, and the module of each, whose ``main(arguments)`` returns the
exit code."""


def dispatch(arguments: Sequence[str]) -> int | None:
    """Run the shim that these arguments name and return its exit code; ``None`` where they name none or ask for
    help."""
    if not arguments or arguments[0] not in SHIMS or {"-h", "--help"} & set(arguments[1:]):
        return None
    code: int = import_module(SHIMS[arguments[0]]).main(arguments[1:])
    return code
