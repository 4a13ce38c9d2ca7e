"""The file named by ``CLAUDE_ENV_FILE``, which Claude Code runs before each command of a session: who is calling.

Its shells are not told the session's id in any other way, and a call of ``amnesia`` that does not say it would speak
for nobody's session. Lines are only ever added, the last one counts, and nothing is added that the file says already.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from typing import Final

MAX_FILE_BYTES: Final = 1024 * 1024
"""Larger than any script of exports; a file beyond is not read and not added to."""
LOCK_S: Final = 0.25
"""For another hook to add its lines, which takes it a millisecond; the agent waits for this one."""
MAX_ID_CHARS: Final = 128
_MARKS: Final = "._:@#+=-"
"""What an id may hold beside letters and digits, as the daemon has it."""


def announce(path: str, payload: bytes, workspace: str | None) -> None:
    """Add the exports of ``AMNESIA_SESSION``, and of ``AMNESIA_WORKSPACE`` where one is given, to the file at ``path``.

    Nothing is added for a payload that is no start of a main session, or whose session id is no token. A file that does
    not exist is made, readable for its owner. Raises ``OSError`` and ``ValueError``.
    """
    told = json.loads(payload)
    if not isinstance(told, dict) or told.get("hook_event_name") != "SessionStart" or told.get("agent_id"):
        return
    session = told.get("session_id")
    if not isinstance(session, str) or not _is_token(session):
        return
    wanted = {"AMNESIA_SESSION": session}
    if workspace and workspace.isprintable():
        wanted["AMNESIA_WORKSPACE"] = workspace
    # Without O_NONBLOCK a path that is a pipe would hold the agent up.
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError("CLAUDE_ENV_FILE is no file")
        _lock(file)
        if os.fstat(file).st_size > MAX_FILE_BYTES:
            raise ValueError("CLAUDE_ENV_FILE is too large")
        have = os.pread(file, MAX_FILE_BYTES, 0)
        lines = [f"export {name}={_quoted(value)}" for name, value in wanted.items()]
        missing = [line for line in lines if not _stands(have, line)]
        if missing:
            opening = "" if not have or have.endswith(b"\n") else "\n"
            os.write(file, (opening + "\n".join(missing) + "\n").encode())
    finally:
        os.close(file)  # which also lets go of the lock


def _lock(file: int) -> None:
    """Be the only one who writes. Raises ``BlockingIOError`` where somebody else holds the file for longer than it
    takes."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(LOCK_S / 50)


def _stands(have: bytes, line: str) -> bool:
    """Whether the last line that sets the same variable is this one."""
    start = line.partition("=")[0].encode() + b"="
    last = [candidate.strip() for candidate in have.splitlines() if candidate.strip().startswith(start)][-1:]
    return last == [line.encode()]


def _is_token(text: str) -> bool:
    plain = text.isascii() and all(letter.isalnum() or letter in _MARKS for letter in text)
    return plain and 0 < len(text) <= MAX_ID_CHARS and text[0].isalnum()


def _quoted(value: str) -> str:
    """As one word of a POSIX shell."""
    return "'" + value.replace("'", "'\\''") + "'"
