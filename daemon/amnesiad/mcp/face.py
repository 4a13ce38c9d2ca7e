"""What the API mounts at ``/mcp``: starts the MCP server when the first client comes, and stops it with the daemon.

The SDK takes a second to import and tens of megabytes to keep, so it is loaded in a thread and only on demand: a daemon
that nobody asks for MCP has neither. Where it is not installed, every request is told so, and asked again it looks
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any, Final

import msgspec

from amnesiad.core.errors import AmnesiaError
from amnesiad.mcp.calling import Desk
from amnesiad.mcp.envelope import Fault, error_answer, find_fault
from amnesiad.service import Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MISSING: Final = "this daemon has no MCP tools: the extra is not installed"
MISSING_HINT: Final = "pip install 'amnesiad[mcp]' where the daemon runs"
INTERNAL_ERROR: Final = -32603
"""JSON-RPC's code for a server that cannot answer."""


class McpFace:
    """The MCP server as an ASGI application for requests whose body is read already. ``close`` ends it; requests under
    way should have ended before."""

    def __init__(self, service: Service, *, answerable: Callable[[Exception, str], AmnesiaError]) -> None:
        self._desk = Desk(service, answerable=answerable)
        self._listens_at = service.settings.http_address and service.settings.http_address[0]
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._running: asyncio.Future[Application] | None = None

    async def __call__(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            # There are neither sessions to delete nor streams to open.
            await _answer(send, 405, b"", ((b"allow", b"POST"),))
            return
        if (fault := find_fault(body)) is not None:
            await _answer(send, 400, error_answer(fault, "invalid"))
            return
        try:
            serve = await self._server()
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
                raise
            request_id = msgspec.json.decode(body).get("id")
            missing = Fault(INTERNAL_ERROR, request_id, MISSING, MISSING_HINT)
            await _answer(send, 501, error_answer(missing, "internal"))
            return
        # Blanks around a header's value are no part of it (RFC 9110), and the SDK compares values.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await serve({**scope, "headers": headers}, _again(body, receive), send)

    async def close(self) -> None:
        """Stop the server, if it was ever started. Nothing must come after."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _server(self) -> Application:
        """The running server; the first to ask has it started. Raises why it cannot start, such as ``ImportError``; who
        asks then has it tried anew."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._running), name="mcp")
        return await asyncio.shield(self._running)

    async def _run(self, running: asyncio.Future[Application]) -> None:
        """Everything the SDK starts belongs to this task: it must be left where it was entered."""
        try:
            module = await asyncio.to_thread(import_module, "amnesiad.mcp.server")
            async with module.serving(self._desk, self._listens_at) as application:
                running.set_result(application)
                await self._closing.wait()
        except Exception as error:
            if running.done():
                raise
            self._running = None
            running.set_exception(error)
            running.exception()  # whoever waited may have hung up, and asyncio would complain that nobody looked


def _again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` for the SDK, which reads by itself: first the body, then what is still to come."""
    whole: list[bytes] = [body]

    async def replay() -> MutableMapping[str, Any]:
        if whole:
            return {"type": "http.request", "body": whole.pop(), "more_body": False}
        return await receive()

    return replay


async def _answer(send: Send, status: int, body: bytes, extra: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
