"""What an agent hands a shim: arguments, and standard input, read to its end within a limit and a deadline.

An agent that forgets to close the pipe, or a terminal where nobody types, must not hold a shim up. Arguments are read
by hand: ``argparse`` costs as much as a whole exchange with the daemon, and ends the process for wrong usage.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import Final

from amnesiad.limits import MAX_REQUEST_BYTES

_READ_BYTES: Final = 64 * 1024
_STDIN: Final = 0


def options_of(arguments: Sequence[str]) -> dict[str, str]:
    """Options by their name, ``--name value`` or ``--name=value``; the first other word under the name ``""``."""
    options: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            options[name] = value if equals else next(rest, "")
        else:
            options.setdefault("", word)
    return options


def workspace_of(options: Mapping[str, str]) -> str | None:
    """The workspace that the arguments or the environment name; without one the daemon finds the directory's."""
    return options.get("--workspace") or os.environ.get("AMNESIA_WORKSPACE") or None


def workspace_query(options: Mapping[str, str]) -> str:
    """The query string that names the workspace, empty where none is named."""
    workspace = workspace_of(options)
    if workspace is None:
        return ""
    from urllib.parse import quote

    return f"?workspace={quote(workspace, safe='')}"


def read_input(deadline: float, limit: int = MAX_REQUEST_BYTES) -> bytes:
    """Standard input up to its end. ``deadline`` is on the monotonic clock, in seconds.

    Raises ``TimeoutError`` where the end does not come in time, and ``ValueError`` past ``limit`` bytes, which the
    daemon would refuse.
    """
    parts: list[bytes] = []
    total = 0
    while True:
        ready, _, _ = select.select([_STDIN], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("standard input did not end in time")
        data = os.read(_STDIN, _READ_BYTES)
        if not data:
            return b"".join(parts)
        parts.append(data)
        total += len(data)
        if total > limit:
            raise ValueError(f"standard input exceeds {limit} bytes")


def write_output(data: bytes) -> None:
    """All of it to standard output, at once and unbuffered, so that nothing is left to fail at the exit."""
    while data:
        data = data[os.write(1, data) :]
