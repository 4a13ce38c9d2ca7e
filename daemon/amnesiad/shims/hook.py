"""``amnesia hook NAME``: hands the payload that an agent's hook gets on standard input to the daemon, prints the
answer.

Also started as a bare file, ``python -I -S …/shims/hook.py NAME``. It fails open: whatever is wrong, with the payload,
the daemon or itself, the exit code is 0 and standard output stays empty, since an agent that cannot remember must still
work. Set ``AMNESIA_HOOK_DEBUG`` to see one line on standard error about why, in the daemon's words where it refused; it
never quotes the payload. What a payload means is the daemon's to say; the one thing looked at here is the session id at
Claude Code's start of a session, which no later command of that session would know otherwise.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Final

TIMEOUT_S: Final = 1.0
"""From the start of ``main`` to the answer, the reading of standard input included."""


def main(arguments: Sequence[str]) -> int:
    """Run one hook. ``arguments``: the agent's name, and ``--workspace W``, ``--socket S``. Always returns 0."""
    deadline = time.monotonic() + TIMEOUT_S
    try:
        _run(arguments, deadline)
    except (Exception, KeyboardInterrupt) as error:
        # Of errors that are not ours only the kind: a message may quote what was read.
        _say(str(error) if isinstance(error, OSError | _Unusable) else type(error).__name__)
    return 0


class _Unusable(Exception):
    """An argument or an answer that nothing can be done with; the message quotes neither."""


def _run(arguments: Sequence[str], deadline: float) -> None:
    from amnesiad.limits import MAX_PAYLOAD_BYTES
    from amnesiad.shims import connect, intake

    options = intake.options_of(arguments)
    name = options.get("", "")
    if not name.isascii() or not name.replace("-", "").isalnum():
        raise _Unusable("name the agent, such as claude-code")
    if os.isatty(0):
        sys.stderr.write("amnesia hook takes an agent's JSON from a pipe, and a terminal is none: agents start it\n")
        return
    payload = intake.read_input(deadline, MAX_PAYLOAD_BYTES)
    if (env_file := os.environ.get("CLAUDE_ENV_FILE")) and name == "claude-code" and b"SessionStart" in payload:
        _announce(env_file, payload, intake.workspace_of(options))
    target = f"/v1/hooks/{name}{intake.workspace_query(options)}"
    with connect.Connection(connect.socket_path(options.get("--socket"))) as connection:
        answer = connection.exchange(target, payload, deadline_s=deadline - time.monotonic())
    if answer.status != 200:
        raise _Unusable(connect.refusal_of(answer))
    text = answer.body.strip()
    if not (text.startswith(b"{") and text.endswith(b"}")):
        raise _Unusable("the daemon answered with something else than an object")
    intake.write_output(text + b"\n")


def _announce(env_file: str, payload: bytes, workspace: str | None) -> None:
    """Tell the session's shells who they speak for. Where that fails, the daemon is told of the session all the
    same."""
    from amnesiad.shims import envfile

    try:
        envfile.announce(env_file, payload, workspace)
    except (OSError, ValueError, RecursionError) as error:
        _say(f"CLAUDE_ENV_FILE is left as it is: {type(error).__name__}")


def _say(why: str) -> None:
    if os.environ.get("AMNESIA_HOOK_DEBUG"):
        sys.stderr.write(f"amnesia hook: {why}\n")


if __name__ == "__main__":
    # As a bare file, without site-packages: the package is what this file stands in.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
    sys.exit(main(sys.argv[1:]))
