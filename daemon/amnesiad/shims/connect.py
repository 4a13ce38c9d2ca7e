"""HTTP/1.1 over the daemon's Unix socket, as much of it as a shim needs: one exchange, or many on a kept connection.

The whole of an exchange has one deadline and the answer one limit, so that a stuck or broken daemon can neither hold an
agent up nor fill its memory. Written on bare sockets because ``http.client`` takes 25 ms to import, more than the rest
of a hook. Everything that can go wrong is an ``OSError``.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

from amnesiad import places
from amnesiad.limits import MAX_REQUEST_BYTES

DEADLINE_S: Final = 1.0
"""For a hook: an agent that waits longer for its memory is better off without it."""
MAX_ANSWER_BYTES: Final = 8 * MAX_REQUEST_BYTES
"""An answer; the largest page of whole notes is far below."""
MAX_HEAD_BYTES: Final = 64 * 1024
"""The status line and all headers, and the line that tells a chunk's length."""
MAX_MESSAGE_CHARS: Final = 500
"""Of a refusal's message; ours are far shorter, and another program may listen there."""
_READ_BYTES: Final = 64 * 1024

_NO_BODY: Final = frozenset({204, 304})


class BadAnswer(OSError):
    """What answers there speaks no HTTP, broke off, or says more than a shim takes."""


class Answer(NamedTuple):
    """The status, the headers (names in lower case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def socket_path(given: str | None = None) -> str:
    """Where the daemon listens: as given, else as environment and configuration file say."""
    return given or places.configured_socket(os.environ)


def refusal_of(answer: Answer) -> str:
    """Why the daemon did not do it, in one line: the message of its envelope, which quotes nobody's words."""
    import json  # here: who is not refused need not wait for it

    said = f"the daemon answered with status {answer.status}"
    try:
        message = json.loads(answer.body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return said
    line = "".join(letter if letter.isprintable() else " " for letter in str(message)[:MAX_MESSAGE_CHARS])
    return f"{said}: {line}"


class Connection:
    """A connection to the socket at ``path``, opened at the first exchange and kept. Not safe to share by threads."""

    def __init__(self, path: str, *, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._path = path
        self._limit = max_answer_bytes
        self._socket: socket.socket | None = None
        self._rest = b""
        self._deadline = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the next exchange connects anew."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def exchange(
        self,
        target: str,
        body: bytes = b"",
        *,
        method: str = "POST",
        headers: Iterable[tuple[str, str]] = (),
        deadline_s: float = DEADLINE_S,
    ) -> Answer:
        """Send one request and read the whole answer, within ``deadline_s`` seconds altogether.

        ``target`` is the path with its query string, quoted already. A connection that was kept and has been closed by
        the daemon meanwhile is opened again, once, if nothing of an answer came. Raises ``OSError``, and hangs up then.
        """
        self._deadline = time.monotonic() + deadline_s
        head = [f"{method} {target} HTTP/1.1", "host: amnesiad", f"content-length: {len(body)}"]
        if not any(name.lower() == "content-type" for name, _ in headers):
            head.append("content-type: application/json")
        head += [f"{name}: {value}" for name, value in headers]
        request = "\r\n".join([*head, "", ""]).encode("latin-1") + body
        kept = self._socket is not None
        try:
            try:
                return self._ask(request)
            except (ConnectionError, BadAnswer):
                if not kept or self._rest:
                    raise
                self.close()
                return self._ask(request)
        except BaseException:
            self.close()
            raise

    def _ask(self, request: bytes) -> Answer:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._hurry()
            self._socket.connect(self._path)
        self._hurry()
        self._socket.sendall(request)
        answer = self._read_answer()
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def _hurry(self) -> socket.socket:
        """The socket, with what is left of the deadline as its time-out. Raises ``TimeoutError`` if nothing is."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the daemon did not answer in time")
        if self._socket is None:
            raise BadAnswer("there is no connection")
        self._socket.settimeout(left)
        return self._socket

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read_answer(self) -> Answer:
        while True:
            lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            version, _, rest = lines[0].partition(" ")
            if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
                raise BadAnswer("what listens there does not speak HTTP")
            status = int(rest[:3])
            if status >= 200:  # what comes before is "100 Continue" and the like
                break
        pairs = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return Answer(status, headers, self._read_body(status, headers))

    def _read_body(self, status: int, headers: Mapping[str, str]) -> bytes:
        if status in _NO_BODY:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            raise BadAnswer("the answer does not say how long it is")
        return self._exactly(int(length))

    def _read_chunks(self) -> bytes:
        whole = bytearray()
        while True:
            word = self._until(b"\r\n").partition(b";")[0].strip()
            try:
                size = int(word, 16)
            except ValueError:
                raise BadAnswer("a chunk of the answer does not say how long it is") from None
            if size == 0:
                while self._until(b"\r\n"):
                    pass  # a trailer
                return bytes(whole)
            if size < 0 or len(whole) + size > self._limit:
                raise BadAnswer(f"the answer exceeds {self._limit} bytes")
            whole += self._exactly(size)
            self._until(b"\r\n")

    def _until(self, end: bytes) -> bytes:
        """What comes before ``end``, which is read as well."""
        while end not in self._rest:
            if len(self._rest) > MAX_HEAD_BYTES:
                raise BadAnswer(f"the head of the answer exceeds {MAX_HEAD_BYTES} bytes")
            self._rest += self._receive()
        found, _, self._rest = self._rest.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        if size > self._limit:
            raise BadAnswer(f"the answer exceeds {self._limit} bytes")
        parts, have = [self._rest], len(self._rest)
        while have < size:
            parts.append(self._receive())
            have += len(parts[-1])
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]

    def _receive(self) -> bytes:
        data = self._hurry().recv(_READ_BYTES)
        if not data:
            raise BadAnswer("the daemon hung up before it answered")
        return data
