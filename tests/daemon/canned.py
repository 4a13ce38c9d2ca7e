"""A daemon that answers what the test says, and the command line as a process of its own, on a terminal if need be."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socketserver
import subprocess
import sys
import termios
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from amnesiad import __version__

SILENCE_S = 30.0
"""How long a process on a terminal may show nothing before it is given up."""

SILENT = object()
"""An answer that never comes."""

NOTE: dict[str, Any] = {
    "id": "7f3k2m9qx0",
    "workspace": "w",
    "kind": "fact",
    "regime": "perishable",
    "state": "active",
    "state_at": 1_760_000_000_000,
    "scope": "workspace",
    "tags": ["tea"],
    "anchors": [],
    "triggers": [],
    "provenance": "agent",
    "pinned": False,
    "curve": "ebbinghaus",
    "ttl_ms": None,
    "expires_at": None,
    "stale_at": None,
    "strength": 1.0,
    "rank": 1.0,
    "trust": 0.7,
    "access_count": 0,
    "created_at": 1_760_000_000_000,
    "content": "oolong",
}
REMEMBERED: dict[str, Any] = {
    "id": "7f3k2m9qx0",
    "created": True,
    "ttl_ms": 600_000,
    "expires_at": 4_000_000_000_000,
    "stale_at": None,
    "superseded": [],
    "warnings": [],
    "seq": "1-0",
}
DRY: dict[str, Any] = {
    "forgotten": 0,
    "ids": ["7f3k2m9qx0"],
    "summary": "1 note would be forgotten",
    "scrub": "done",
    "would": [{"id": "7f3k2m9qx0", "kind": "fact", "state": "active", "content": "oolong"}],
    "seq": "1-0",
}
STATUS: dict[str, Any] = {
    "counts": dict.fromkeys(("active", "stale", "expired", "revoked", "superseded", "forgotten"), 0),
    "tokens": 0,
    "recent": [],
    "refusals": {},
    "worker": {"alive": True, "lag_ms": 0},
    "store": {"version": "9.1", "policy": "noeviction"},
    "seq": "1-0",
}


def error(status: int, code: str, **more: Any) -> tuple[int, dict[str, Any]]:
    """A refusal as the daemon sends it."""
    return status, {"error": {"code": code, "message": f"said {code}", "hint": "do otherwise", **more}}


class Canned(socketserver.ThreadingUnixStreamServer):
    """Answers each verb with what ``answers`` has for it, and keeps the requests."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.released = threading.Event()
        self.version = __version__
        super().__init__(str(path), CannedHandler)

    @property
    def body(self) -> dict[str, Any]:
        """The last request's own fields."""
        return {k: v for k, v in self.requests[-1][1].items() if k not in ("workspace", "caller", "request_id")}

    @property
    def caller(self) -> dict[str, Any]:
        """Who the last request says is calling."""
        caller: dict[str, Any] = self.requests[-1][1].get("caller", {})
        return caller


class CannedHandler(BaseHTTPRequestHandler):
    """One request of the test."""

    protocol_version = "HTTP/1.1"
    server: Canned

    def do_GET(self) -> None:
        """The health page."""
        self.reply(200, {"pid": 1, "version": self.server.version})

    def do_POST(self) -> None:
        """Keep the request and give its answer."""
        verb = self.path.removeprefix("/v1/").partition("?")[0]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests.append((verb, json.loads(raw)))
        answer = self.server.answers[verb]
        if answer is SILENT:
            self.server.released.wait()
            return
        self.reply(*(answer if isinstance(answer, tuple) else (200, answer)))

    def reply(self, status: int, body: dict[str, Any]) -> None:
        """Send one JSON object."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        """A Unix socket's peer has no address."""
        return "local"

    def log_message(self, *_: Any) -> None:
        """Keep the test's output to itself."""


def amnesia(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "amnesiad.cli", *arguments], **options)


def on_terminal(
    arguments: list[str], typed: str = "", environ: dict[str, str] | None = None, *, answering: str = ""
) -> tuple[str, int]:
    """Run a command on a terminal of its own, type, and return all that the terminal showed and the exit code.

    Of a question that is named in ``answering`` it is waited for: a key like Ctrl-C is not kept for whoever reads
    later. One that comes just before the process begins to read is lost all the same, and so, like a person, it is
    pressed again.
    """
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", **(environ or {})}
    if "NO_COLOR" not in (environ or {}):
        variables.pop("NO_COLOR", None)
    process = amnesia(
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables,
        start_new_session=True,
        preexec_fn=_sit_down,
    )
    os.close(theirs)
    shown = b""
    while answering.encode() not in shown:
        shown += os.read(ours, 65536)
    presses = 15 if answering else 1
    for _ in range(presses):
        os.write(ours, typed.encode())
        more, ended = _shown_next(ours, SILENCE_S / presses)
        shown += more
        if not ended and more.replace(b"^C", b"").strip():
            # It was heard, for this is more than the terminal's own echo: now it only has to end.
            shown += _shown_next(ours, SILENCE_S)[0]
            ended = True
        if ended:
            break
    os.close(ours)
    return shown.decode().replace("\r\n", "\n"), process.wait()


def _shown_next(terminal: int, silence_s: float) -> tuple[bytes, bool]:
    """What a terminal shows until it is silent for so long, or its process has ended, and whether it has."""
    shown = b""
    while select.select([terminal], [], [], silence_s)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux reports the other side's end as an error
            return shown, True
        if not data:
            return shown, True
        shown += data
    return shown, False


def _sit_down() -> None:
    """Make standard input the terminal that controls us, so that its keys interrupt, and heed them: a test in the
    background of a script inherits that they are ignored."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
