"""Running a shim as an agent does, and a stand-in for the daemon that answers as a test wants."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

PATIENCE_S: Final = 30.0
"""How long a process may take on a machine that is busy with something else."""
START: Final = {"session_id": "s-1", "cwd": "/src", "hook_event_name": "SessionStart", "source": "startup"}
"""Claude Code's payload at the start of a session."""


class Ran(NamedTuple):
    """How a process ended: its code, what it printed, and how long it took (seconds)."""

    code: int
    out: bytes
    err: bytes
    took_s: float


def run(argv: Sequence[str], payload: object = START, **environ: str) -> Ran:
    """Run a hook to its end in an environment without anything of this machine's own amnesiad."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AMNESIA_", "XDG_", "CLAUDE_"))}
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    began = time.monotonic()
    done = subprocess.run(argv, input=data, env=kept | environ, capture_output=True, timeout=PATIENCE_S)
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def run_on_terminal(argv: Sequence[str], **environ: str) -> Ran:
    """The same with a terminal as standard input, at which nobody types."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AMNESIA_", "XDG_", "CLAUDE_"))}
    ours, theirs = pty.openpty()
    began = time.monotonic()
    try:
        done = subprocess.run(argv, stdin=theirs, env=kept | environ, capture_output=True, timeout=PATIENCE_S)
    finally:
        os.close(ours)
        os.close(theirs)
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


@contextmanager
def served(path: Path, answer: Callable[[bytes], bytes | None]) -> Iterator[list[bytes]]:
    """A stand-in for the daemon: what ``answer`` says to each request, ``None`` for silence. Yields the requests."""
    seen: list[bytes] = []
    closing = threading.Event()

    def talk(line: socket.socket) -> None:
        with line:
            request = b""
            while b"\r\n\r\n" not in request:
                request += line.recv(65536)
            head, _, body = request.partition(b"\r\n\r\n")
            lengths = [
                part.split(b":")[1] for part in head.lower().split(b"\r\n") if part.startswith(b"content-length")
            ]
            while len(body) < int(lengths[0]):
                body += line.recv(65536)
            seen.append(head + b"\r\n\r\n" + body)
            said = answer(seen[-1])
            if said is None:
                closing.wait(PATIENCE_S)
            else:
                line.sendall(said)

    def listen() -> None:
        with ThreadPoolExecutor() as pool:
            while True:
                line, _ = door.accept()
                if closing.is_set():
                    line.close()
                    return
                pool.submit(talk, line)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(path))
        door.listen(64)
        listener = threading.Thread(target=listen)
        listener.start()
        try:
            yield seen
        finally:
            closing.set()
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
                knock.connect(str(path))
            listener.join(PATIENCE_S)


def http(body: bytes, status: str = "200 OK") -> bytes:
    """An answer of a server that goes on listening."""
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)
