"""``amnesia hook NAME``: hands the payload that an agent's hook gets on standard input to the daemon, prints the answer.

Also started as a bare file, ``python -I -S …/shims/hook.py NAME``. It fails open: whatever is wrong, with the payload,
the daemon or itself, the exit code is 0 and standard output stays empty, since an agent that cannot remember must still
work. Set ``AMNESIA_HOOK_DEBUG`` to see one line on standard error about why; it never quotes the payload. What a payload
means is the daemon's to say; the one thing looked at here is the session id at Claude Code's start of a session, which
no later command of that session would know otherwise.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

TIMEOUT_S: Final = 1.0
"""From the start of ``main`` to the answer, the reading of standard input included."""


class _Ask(NamedTuple):
    name: str
    workspace: str | None
    socket: str | None


def main(arguments: Sequence[str]) -> int:
    """Run one hook. ``arguments``: the agent's name, and ``--workspace W``, ``--socket S``. Always returns 0."""
    deadline = time.monotonic() + TIMEOUT_S
    try:
        _run(_parse(arguments), deadline)
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("AMNESIA_HOOK_DEBUG"):
            # Of errors that are not ours only the kind: a message may quote what was read.
            why = str(error) if isinstance(error, OSError | _Unusable) else type(error).__name__
            sys.stderr.write(f"amnesia hook: {why}\n")
    return 0


class _Unusable(Exception):
    """An argument or an answer that nothing can be done with; the message quotes neither."""


def _parse(arguments: Sequence[str]) -> _Ask:
    """Read by hand: ``argparse`` costs as much as the whole exchange, and ends the process for wrong usage."""
    name, options = "", dict[str, str]()
    rest = iter(arguments)
    for word in rest:
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            options[option] = value if equals else next(rest, "")
        else:
            name = name or word
    if not name or not name.replace("-", "").isalnum() or not name.isascii():
        raise _Unusable("name the agent, such as claude-code")
    return _Ask(name, options.get("--workspace") or os.environ.get("AMNESIA_WORKSPACE"), options.get("--socket"))


def _run(ask: _Ask, deadline: float) -> None:
    from amnesiad.shims import connect, intake

    payload = intake.read_input(deadline)
    if (env_file := os.environ.get("CLAUDE_ENV_FILE")) and ask.name == "claude-code" and b"SessionStart" in payload:
        from amnesiad.shims import envfile

        try:
            envfile.announce(env_file, payload, ask.workspace)
        except (OSError, ValueError) as error:
            # The daemon is told of the session all the same.
            if os.environ.get("AMNESIA_HOOK_DEBUG"):
                sys.stderr.write(f"amnesia hook: CLAUDE_ENV_FILE is left as it is: {type(error).__name__}\n")
    target = f"/v1/hooks/{ask.name}"
    if ask.workspace:
        from urllib.parse import quote

        target += f"?workspace={quote(ask.workspace, safe='')}"
    with connect.Connection(connect.socket_path(ask.socket)) as connection:
        answer = connection.exchange(target, payload, deadline_s=deadline - time.monotonic())
    if answer.status != 200:
        raise _Unusable(f"the daemon answered with status {answer.status}")
    text = answer.body.strip()
    if not (text.startswith(b"{") and text.endswith(b"}")):
        raise _Unusable("the daemon answered with something else than an object")
    intake.write_output(text + b"\n")


if __name__ == "__main__":
    # As a bare file, without site-packages: the package is what this file stands in.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
    sys.exit(main(sys.argv[1:]))
