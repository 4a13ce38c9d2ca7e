"""Asking through either client by a method's name, and a daemon that misbehaves as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class Asker(Protocol):
    """One client, whichever it is, asked by method name and awaited."""

    async def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any: ...


Connect = Callable[..., Awaitable[Asker]]


class Faulty:
    """A daemon that drops connections after reading, answers garbage, or never answers; counts what it was sent."""

    def __init__(self, *replies: bytes | None) -> None:
        self.replies = list(replies)
        self.bodies: list[bytes] = []
        self.release = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length")
                    ),
                    0,
                )
                self.bodies.append(await reader.readexactly(length))
                reply = self.replies.pop(0) if self.replies else ok(b'{"seq": "1-0"}')
                if reply is None:
                    await self.release.wait()
                    return
                writer.write(reply)
                if not reply.startswith(b"HTTP/1.1 200 OK\r\n") or not reply.endswith(b"}"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
