"""The asyncio client: a small pool of kept connections, each parsed by httptools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar
from urllib.parse import urlencode

import httptools
import msgspec

from amnesiad import wire
from amnesiad.client import verbs
from amnesiad.client.identity import (
    ATTEMPTS,
    DEFAULT_TIMEOUT_S,
    FEED_SILENCE_S,
    Body,
    Identity,
    hung_up,
    no_answer,
    raise_refusal,
    unreachable,
)
from amnesiad.client.streams import feed_items, request_head, streamed
from amnesiad.client.verb import Verb

P = ParamSpec("P")
A = TypeVar("A")

POOL_SIZE: Final = 8
"""Connections of one client; further concurrent calls wait for one. The daemon serves hundreds of clients."""


class _Connection(asyncio.Protocol):
    """One kept connection with at most one request under way."""

    def __init__(self) -> None:
        self.reusable = False
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._chunks: list[bytes] = []

    async def request(self, data: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises ``ConnectionError`` when the connection breaks first."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError
        self.reusable = False
        self._chunks = []
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return await self._answer

    def abort(self) -> None:
        """Drop the connection at once."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport is an asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        assert self._parser is not None  # noqa: S101 - set in connection_made, before any data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._break()
            self.abort()

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None  # noqa: S101
        if self._answer is None or self._answer.done():
            return
        self.reusable = self._parser.should_keep_alive()
        chunks = self._chunks
        self._answer.set_result((self._parser.get_status_code(), chunks[0] if len(chunks) == 1 else b"".join(chunks)))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self.reusable = False
        self._break()

    def _break(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())


def _method(verb: Verb[P, A]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, A]]:
    head = request_head(f"/v1/{verb.name}")

    @wraps(verb.signature)
    async def ask(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> A:
        return verb.decode(await client._exchange(verb.name, head, verb.build(*args, **kwargs)))

    return ask


class AsyncClient:
    """Connections to the daemon for one caller in one workspace, within one event loop. See ``amnesiad.client``.

    Every argument but the timeout defaults to its ``AMNESIA_*`` environment variable. Nothing is sent before the first
    request. ``timeout_s`` bounds each request, waiting for a free connection included.
    """

    def __init__(
        self,
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        team: str | None = None,
        agent_kind: str | None = None,
        role: str | None = None,
        on_behalf: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._identity = Identity(
            socket,
            workspace=workspace,
            session=session,
            agent=agent,
            team=team,
            agent_kind=agent_kind,
            role=role,
            on_behalf=on_behalf,
        )
        self._timeout_s = timeout_s
        self._idle: list[_Connection] = []
        self._free = asyncio.Semaphore(POOL_SIZE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the idle connections; a later request opens a new one."""
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)  # lets the transports go before the loop may close

    async def call(self, verb: str, body: Body) -> dict[str, Any]:
        """The answer object to one request, as plain values. Raises the errors of ``amnesiad.errors``."""
        answer: dict[str, Any] = msgspec.json.decode(await self._exchange(verb, request_head(f"/v1/{verb}"), body))
        return answer

    async def hook(self, agent: str, payload: Body, *, workspace: str | None = None) -> dict[str, Any]:
        """An agent's own hook payload, answered in that agent's own form."""
        query = urlencode({"workspace": workspace} if workspace else {})
        head = request_head(f"/v1/hooks/{agent}?{query}".rstrip("?"))
        raw = await self._send(head, msgspec.json.encode(dict(payload)), repeatable=False)
        answer: dict[str, Any] = msgspec.json.decode(raw)
        return answer

    async def export(self, *, after: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """The objects of an export, one at a time, over a connection of its own. ``after`` resumes behind a ``seq``."""
        data = self._identity.prepare("export", {} if after is None else {"after": after}).data
        async with streamed(self._identity.socket, "/v1/export", data, self._timeout_s) as lines:
            async for line in lines:
                yield msgspec.json.decode(line)

    async def feed(self, *, after: str | None = None) -> AsyncIterator[wire.FeedItem]:
        """Transitions as they happen, from now or from behind a stream id. Ends when the daemon stops.

        Raises ``Deadline`` where not even a heartbeat came for ``FEED_SILENCE_S``.
        """
        target = "/v1/feed?" + urlencode(self._identity.query({"after": after}))
        silence_s = max(self._timeout_s, FEED_SILENCE_S)
        async with streamed(self._identity.socket, target, None, self._timeout_s, silence_s) as lines:
            async for item in feed_items(lines):
                yield item

    async def import_notes(
        self, lines: Iterable[bytes] | AsyncIterator[bytes], *, dry_run: bool = False
    ) -> wire.ImportAnswer:
        """Send an export's lines, each a JSON object; a line needs no line break. Never repeated."""
        query = urlencode(self._identity.query({"dry_run": dry_run}))
        async with streamed(self._identity.socket, f"/v1/import?{query}", lines, self._timeout_s) as answer:
            return msgspec.json.decode(b"".join([line async for line in answer]), type=wire.ImportAnswer)

    async def _exchange(self, verb: str, head: bytes, body: Body) -> bytes:
        prepared = self._identity.prepare(verb, body)
        return await self._send(head, prepared.data, prepared.repeatable)

    async def _send(self, head: bytes, data: bytes, repeatable: bool) -> bytes:
        request = b"%scontent-length: %d\r\n\r\n%s" % (head, len(data), data)
        try:
            async with asyncio.timeout(self._timeout_s), self._free:
                status, raw = await self._over_a_connection(request, ATTEMPTS if repeatable else 1)
        except TimeoutError:
            raise no_answer(self._timeout_s) from None
        if status != 200:
            raise_refusal(status, raw)
        return raw

    async def _over_a_connection(self, request: bytes, attempts: int) -> tuple[int, bytes]:
        for attempt in range(attempts):
            connection = await self._connection()
            try:
                answer = await connection.request(request)
            except ConnectionError as failure:
                if attempt + 1 == attempts:
                    raise hung_up(self._identity.socket) from failure
                continue
            except BaseException:
                connection.abort()  # cancelled: an answer that still comes must not meet the next request
                raise
            if connection.reusable:
                self._idle.append(connection)
            return answer
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        try:
            _, connection = await asyncio.get_running_loop().create_unix_connection(_Connection, self._identity.socket)
        except OSError as failure:
            raise unreachable(self._identity.socket, failure) from failure
        return connection

    remember = _method(verbs.remember)
    recall = _method(verbs.recall)
    inject = _method(verbs.inject)
    preview = _method(verbs.preview)
    fire = _method(verbs.fire)
    why_not = _method(verbs.why_not)
    list_notes = _method(verbs.list_notes)
    inspect = _method(verbs.inspect)
    history = _method(verbs.history)
    forget = _method(verbs.forget)
    revoke = _method(verbs.revoke)
    flag = _method(verbs.flag)
    supersede = _method(verbs.supersede)
    reinstate = _method(verbs.reinstate)
    pin = _method(verbs.pin)
    unpin = _method(verbs.unpin)
    renew = _method(verbs.renew)
    done = _method(verbs.done)
    promote = _method(verbs.promote)
    edit = _method(verbs.edit)
    restore = _method(verbs.restore)
    undo = _method(verbs.undo)
    mirror = _method(verbs.mirror)
    status = _method(verbs.status)
    audit = _method(verbs.audit)
    ledger = _method(verbs.ledger)
    exposure = _method(verbs.exposure)
    policy = _method(verbs.policy)
    events = _method(verbs.events)
    batch = _method(verbs.batch)
    settle = _method(verbs.settle)
    scrub = _method(verbs.scrub)
    verify = _method(verbs.verify)
    rebuild = _method(verbs.rebuild)
    check = _method(verbs.check)
    owners = _method(verbs.owners)
    dead = _method(verbs.dead)
    workspaces = _method(verbs.workspaces)

    plug = remember
    unplug = forget
    plugs = list_notes
    touch = renew
