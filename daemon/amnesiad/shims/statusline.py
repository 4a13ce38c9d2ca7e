"""``amnesia statusline``: reads what an agent hands its status line, prints one line about the memory of its directory.

Also started as a bare file, ``python -I -S …/shims/statusline.py``. The line is the daemon's own. Without a daemon it
prints nothing, unless one should be there: then ``memory off``, for hooks fail open and nothing else would tell. The
exit code is 0 whatever happens.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Final

TIMEOUT_S: Final = 1.0
"""From the start of ``main`` to the answer; an agent draws its line without waiting for it, and soon again."""
OFF: Final = "🧠 memory off"


def main(arguments: Sequence[str]) -> int:
    """Print the line. ``arguments``: ``--workspace W``, ``--socket S``. Always returns 0."""
    deadline = time.monotonic() + TIMEOUT_S
    try:
        from amnesiad.shims import intake

        try:
            line = _ask(arguments, deadline)
        except OSError:
            line = OFF.encode() if _expected() else b""
        if line:
            intake.write_output(line + b"\n")
    except (Exception, KeyboardInterrupt) as error:
        _say(type(error).__name__)
    return 0


def _say(why: str) -> None:
    if os.environ.get("AMNESIA_HOOK_DEBUG"):
        sys.stderr.write(f"amnesia statusline: {why}\n")


def _ask(arguments: Sequence[str], deadline: float) -> bytes:
    """The daemon's line; empty where it has none to give. Raises ``OSError`` where no daemon answers."""
    from amnesiad.shims import connect, intake

    options = intake.options_of(arguments)
    try:
        if os.isatty(0):
            sys.stderr.write(
                "amnesia statusline takes an agent's JSON from a pipe, and goes on without on a terminal\n"
            )
        payload = b"" if os.isatty(0) else intake.read_input(deadline)
    except (OSError, ValueError):
        payload = b""  # an agent that hands over nothing; what the arguments name is still known
    target = "/v1/statusline" + intake.workspace_query(options)
    with connect.Connection(connect.socket_path(options.get("--socket"))) as connection:
        answer = connection.exchange(target, payload or b"{}", deadline_s=deadline - time.monotonic())
    if answer.status == 503:  # a daemon that has lost its store remembers nothing either
        raise ConnectionError
    if answer.status != 200:
        _say(connect.refusal_of(answer))
        return b""
    return answer.body.strip()


def _expected() -> bool:
    """Whether a daemon should be there: it was said so, or a service was set up."""
    from amnesiad import places

    return bool(os.environ.get("AMNESIA_EXPECTED")) or places.service_file(os.environ).is_file()


if __name__ == "__main__":
    # As a bare file, without site-packages: the package is what this file stands in.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
    sys.exit(main(sys.argv[1:]))
