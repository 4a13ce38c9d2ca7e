"""One HTTP request and its answer, over the bare ASGI callables: bodies within their limits, one way to answer.

It knows HTTP and nothing of verbs. Whatever it refuses, the connection stays correct: what the client still sends of a
short body is read and dropped; a long or endless one costs the connection, but only after a moment of listening on, for
a client that is cut off while it sends may never read why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl

from amnesiad.errors import Invalid, TooLarge
from amnesiad.limits import MAX_LINE_BYTES, MAX_REQUEST_BYTES

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_DISCARD_BYTES: Final = 4 * 1024 * 1024
"""A refused body up to this size is read and dropped to keep the connection; a longer one costs the connection."""
LINGER_S: Final = 1.0
"""How long a client that is being hung up on may go on sending: long enough to notice an answer on the same machine."""
MAX_QUERY_FIELDS: Final = 32
"""Fields of a query string: more than any request has."""


class ClientGone(ConnectionError):
    """The client hung up before its request was complete; there is nobody to answer."""


class Exchange:
    """One request on its way to one answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.started = False
        self.status = 0
        self._query: bytes = scope["query_string"]
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._send = send
        self._body_read = False

    def header(self, name: bytes) -> bytes | None:
        """The first header of that name (lower case)."""
        return next((value for key, value in self._headers if key == name), None)

    def query(self) -> dict[str, str]:
        """The query string. Raises ``Invalid`` for a repeated field or one that is not UTF-8."""
        if not self._query:
            return {}
        try:
            pairs = parse_qsl(
                self._query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS
            )
        except ValueError:
            raise Invalid("the query string cannot be read", field="query", hint="name=value&… in UTF-8") from None
        for name, _ in pairs:
            if sum(other == name for other, _ in pairs) > 1:
                raise Invalid(f"{name[:64]!r} is given more than once", field=name[:64])
        return dict(pairs)

    def _declared_bytes(self) -> int | None:
        """The length of the body as announced; ``None`` for one sent in chunks."""
        if self.header(b"transfer-encoding") is not None:
            return None
        length = self.header(b"content-length")
        return int(length) if length is not None else 0  # the parser has refused anything but digits

    async def body(self, limit: int = MAX_REQUEST_BYTES) -> bytes:
        """The whole body. Raises ``TooLarge`` as soon as it is known to pass the limit in bytes, ``ClientGone``."""
        if (self._declared_bytes() or 0) > limit:
            raise _body_too_large(limit)
        chunks: list[bytes] = []
        total = 0
        async for chunk in self._chunks():
            total += len(chunk)
            if total > limit:
                raise _body_too_large(limit)
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def lines(self) -> AsyncGenerator[bytes]:
        """The body's lines as they come, without their ends; the last one needs none. Empty lines are left out.

        Of a line past ``MAX_LINE_BYTES`` the first ``MAX_LINE_BYTES + 1`` come, and the rest is dropped unkept: whoever
        reads it can tell, and nothing before or behind it is lost.
        """
        rest = bytearray()
        async for chunk in self._chunks():
            *complete, tail = chunk.split(b"\n")
            for line in complete:
                _lengthen(rest, line)
                if whole := _line(rest):
                    yield whole
                rest.clear()
            _lengthen(rest, tail)
        if whole := _line(rest):
            yield whole

    async def _chunks(self) -> AsyncIterator[bytes]:
        while not self._body_read:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._body_read = not message.get("more_body", False)
            if chunk := message.get("body", b""):
                yield chunk

    async def hang_up(self) -> None:
        """Returns once the client has hung up. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(
        self,
        status: int,
        body: bytes,
        *,
        extra: tuple[tuple[bytes, bytes], ...] = (),
        kind: bytes = b"application/json",
    ) -> None:
        """The whole answer at once."""
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *extra]
        if await self._start(status, headers):
            await self._send({"type": "http.response.body", "body": body})
            return
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        with suppress(TimeoutError, ClientGone):
            async with asyncio.timeout(LINGER_S):
                async for _ in self._chunks():
                    pass
        await self._send({"type": "http.response.body", "body": b""})

    async def start_stream(self, kind: bytes) -> None:
        """Begin an answer of unknown length; ``write`` and ``finish`` follow."""
        await self._start(200, [(b"content-type", kind), (b"cache-control", b"no-store")])

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        """Send the head; whether the connection can be kept."""
        declared = self._declared_bytes()
        keep = self._body_read or (declared is not None and declared <= MAX_DISCARD_BYTES)
        if not keep:
            headers.append((b"connection", b"close"))
        self.started = True
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        return keep

    async def write(self, chunk: bytes) -> None:
        """A piece of a streamed answer; waits while the client is slow."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self) -> None:
        """The end of a streamed answer. Leaving it out breaks the connection, and so tells of a failure."""
        await self._send({"type": "http.response.body", "body": b""})


def _body_too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body exceeds {limit} bytes", field="body", hint="send several requests, or a stream to import"
    )


def _lengthen(line: bytearray, piece: bytes) -> None:
    line += piece[: MAX_LINE_BYTES + 1 - len(line)]


def _line(raw: bytearray) -> bytes:
    """The line without the blanks around it, unless it is too long: that must still be told from its length."""
    return bytes(raw) if len(raw) > MAX_LINE_BYTES else bytes(raw).strip()
