"""The ASGI application: its routes on one screen, and what stands between a request and the service.

A request is read within its limit, decoded by ``wire``, given to one method of the service and answered, all within a
deadline and a bound on requests in flight; an import or export may take as long as its lines come, and go, one after
the other. Rules about notes live in the service. Nothing here logs a request; what is
counted is the number of answers by status.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from amnesiad import __version__, wire
from amnesiad.api.errors import answerable, log, refusal
from amnesiad.api.exchange import ClientGone, Exchange, Message, Receive, Scope, Send
from amnesiad.api.feed import stream_feed
from amnesiad.errors import Busy, Deadline, Invalid, NotFound
from amnesiad.limits import MAX_PAYLOAD_BYTES
from amnesiad.wire.openapi import document

DEADLINE_S: Final = 30.0
"""For a request and its answer. The slowest verb rebuilds a large workspace; a hook gives up long before."""
IDLE_S: Final = 600.0
"""For the next line of an import or export. A person may page through one or type the other; who has left his end open
holds a place among the requests in flight no longer than this."""
MAX_IN_FLIGHT: Final = 512
"""Requests at once. The store answers tens of thousands a second, so more waiting ones only wait longer."""
MAX_FEEDS: Final = 64
"""Open feeds; each holds a connection for as long as it likes."""

NDJSON: Final = b"application/x-ndjson"
PLAIN: Final = b"text/plain; charset=utf-8"


_NO_ANSWER: Final = ("there was no answer", "a write may have landed: repeat it with the same request_id")


@asynccontextmanager
async def _within(seconds: float, what: str, hint: str = "") -> AsyncGenerator[None]:
    """Cut off what takes longer, and raise ``Deadline`` saying ``what`` was waited for in vain."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Deadline(f"{what} within {seconds:g} s", hint=hint) from error


async def _prompt(lines: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The lines, as long as each comes within ``IDLE_S`` of being asked for. Raises ``Deadline``."""
    async with aclosing(lines):
        while True:
            async with _within(IDLE_S, "no line came", "import it again: what is there already is left as it is"):
                line = await anext(lines, None)
            if line is None:
                return
            yield line


@cache
def _document() -> bytes:
    return wire.encode(document())


Mounted = Callable[[Scope, bytes, Receive, Send], Awaitable[None]]
"""An ASGI application that answers whatever is sent to one path, within the limits of every request: its body is read
already, and ``receive`` only tells of the client's end."""


class Readiness(NamedTuple):
    """How far the start has come: ``stage`` in words, ``done`` of ``total`` workspaces loaded."""

    ready: bool
    stage: str = ""
    done: int = 0
    total: int = 0


def always_ready() -> Readiness:
    """The readiness of a service that needs no start."""
    return Readiness(ready=True)


class App:
    """The API over a service. ``readiness`` is asked by ``/readyz``; ``mounts`` answer at paths of their own;
    ``close`` ends the feeds before a shutdown."""

    def __init__(
        self,
        service: Any,
        *,
        readiness: Callable[[], Readiness] = always_ready,
        mounts: Mapping[str, Mounted] = MappingProxyType({}),
    ) -> None:
        self._service = service
        self._mounts = mounts
        self._readiness = readiness
        self._in_flight = 0
        self._feeds = 0
        self._closing = asyncio.Event()
        self._answered: Counter[int] = Counter()

    def close(self) -> None:
        """End every open feed; requests in flight go on."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        try:
            if (mounted := self._mounts.get(exchange.path)) is not None:
                await self._mounted(exchange, mounted, scope, receive, send)
            else:
                await self._route(exchange)
        except ClientGone:
            return
        except Exception as error:
            await self._refuse(exchange, error)
        self._answered[exchange.status] += 1

    async def _refuse(self, exchange: Exchange, error: Exception) -> None:
        known = exchange.path in _FIXED or exchange.path in self._mounts
        seen = answerable(error, exchange.path if known else "/v1")
        if exchange.started:
            # The answer is under way and cannot be taken back: ending without its end breaks the connection.
            log.warning("stream-broken", code=seen.code)
            return
        status, body = refusal(seen)
        await exchange.answer(status, body)

    async def _route(self, exchange: Exchange) -> None:
        name, _, rest = exchange.path.removeprefix("/v1/").partition("/")
        handler: Callable[[App, Exchange, str], Awaitable[None]]
        if exchange.path in _FIXED:
            allowed, handler = _FIXED[exchange.path]
        elif not exchange.path.startswith("/v1/") or (rest and name != "hooks"):
            raise NotFound("there is nothing at this path", hint="GET /openapi.json lists what there is")
        elif name == "hooks":
            name, allowed, handler = rest, ("POST",), App._hooks
        else:
            allowed, handler = ("POST",), App._verb
        if exchange.method not in allowed:
            await self._wrong_method(exchange, allowed)
            return
        await handler(self, exchange, name)

    async def _wrong_method(self, exchange: Exchange, allowed: tuple[str, ...]) -> None:
        wanted = ", ".join(allowed)
        _, body = refusal(Invalid(f"this path takes {wanted}, not {exchange.method}", field="method"))
        await exchange.answer(405, body, extra=((b"allow", wanted.encode()),))

    async def _health(self, exchange: Exchange, _name: str) -> None:
        answered = {str(status): count for status, count in self._answered.items()}
        state = wire.HealthAnswer(pid=os.getpid(), version=__version__, in_flight=self._in_flight, answered=answered)
        await exchange.answer(200, wire.encode(state))

    async def _openapi(self, exchange: Exchange, _name: str) -> None:
        await exchange.answer(200, _document())

    async def _ready(self, exchange: Exchange, _name: str) -> None:
        state = wire.ReadyAnswer(**self._readiness()._asdict())
        await exchange.answer(200 if state.ready else 503, wire.encode(state))

    async def _verb(self, exchange: Exchange, verb: str) -> None:
        spec = wire.spec_of(verb)
        method = getattr(self._service, spec.method)
        if spec.stream == "in":
            await self._import(exchange, method)
        elif spec.stream == "out":
            await self._export(exchange, verb, method)
        else:
            await self._within_bounds(exchange, lambda: self._answer(exchange, verb, method))

    async def _answer(self, exchange: Exchange, verb: str, method: Callable[[Any], Awaitable[Any]]) -> bytes:
        for name in exchange.query():
            raise Invalid(f"{name[:64]!r} stands in the query string", field=name[:64], hint="put it into the body")
        return wire.encode(await method(wire.decode(verb, await exchange.body())))

    async def _hooks(self, exchange: Exchange, agent: str) -> None:
        async def answer() -> bytes:
            request = wire.decode_hook(agent, exchange.query(), await exchange.body(MAX_PAYLOAD_BYTES))
            return wire.encode(await self._service.hooks(request, hung_up=exchange.hang_up))

        await self._within_bounds(exchange, answer)

    async def _status_line(self, exchange: Exchange, _name: str) -> None:
        async with self._bounds():
            request = wire.decode_hook("statusline", exchange.query(), await exchange.body())
            line: str = await self._service.glance(request)
        await exchange.answer(200, line.encode(), kind=PLAIN)

    async def _within_bounds(self, exchange: Exchange, work: Callable[[], Awaitable[bytes]]) -> None:
        async with self._bounds():
            body = await work()
        await exchange.answer(200, body)

    @asynccontextmanager
    async def _bounds(self) -> AsyncGenerator[None]:
        """A place among the requests in flight, and the deadline of one. Raises ``Busy`` and ``Deadline``."""
        with self._place():
            async with _within(DEADLINE_S, *_NO_ANSWER):
                yield

    @contextmanager
    def _place(self) -> Generator[None]:
        """A place among the requests in flight. Raises ``Busy``."""
        if self._in_flight >= MAX_IN_FLIGHT:
            raise Busy(f"{self._in_flight} requests are in flight, as many as are taken", hint="try again in a moment")
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def _mounted(self, exchange: Exchange, mounted: Mounted, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request over once its body is read within the limit, keeping track of what is answered."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.started, exchange.status = True, message["status"]
            await send(message)

        async with self._bounds():
            await mounted(scope, await exchange.body(), receive, answer)

    async def _import(
        self,
        exchange: Exchange,
        method: Callable[[wire.ImportRequest, AsyncIterator[bytes]], Awaitable[wire.ImportAnswer]],
    ) -> None:
        request = wire.decode_query(wire.ImportRequest, exchange.query())
        with self._place():
            async with aclosing(_prompt(exchange.lines())) as lines:
                answer = await method(request, lines)
        await exchange.answer(200, wire.encode(answer))

    async def _export(
        self, exchange: Exchange, verb: str, method: Callable[[wire.ExportRequest], AsyncIterator[bytes]]
    ) -> None:
        with self._place():
            async with _within(DEADLINE_S, *_NO_ANSWER):
                source: Any = method(wire.decode(verb, await exchange.body()))
                # The first line is made before the status is sent, so that a refusal still gets its own.
                line = await anext(source, None)
            async with aclosing(source):
                await exchange.start_stream(NDJSON)
                while line is not None:
                    async with _within(IDLE_S, "nobody took the next line"):
                        await exchange.write(line if line.endswith(b"\n") else line + b"\n")
                        line = await anext(source, None)
        await exchange.finish()

    async def _feed(self, exchange: Exchange, _name: str) -> None:
        if self._feeds >= MAX_FEEDS:
            raise Busy(f"{self._feeds} feeds are open, as many as are kept", hint="close one")
        pairs = exchange.query()
        if resumed := exchange.header(b"last-event-id"):
            pairs["after"] = resumed.decode("latin-1")
        request = wire.decode_query(wire.FeedRequest, pairs)
        await exchange.body()
        self._feeds += 1
        try:
            await stream_feed(exchange, self._service.feed(request), self._closing)
        finally:
            self._feeds -= 1


_FIXED: Final[Mapping[str, tuple[tuple[str, ...], Callable[[App, Exchange, str], Awaitable[None]]]]] = {
    "/healthz": (("GET", "HEAD"), App._health),
    "/readyz": (("GET", "HEAD"), App._ready),
    "/openapi.json": (("GET", "HEAD"), App._openapi),
    "/v1/feed": (("GET",), App._feed),
    "/v1/statusline": (("POST",), App._status_line),
}
"""The routes beside ``POST /v1/<verb>`` and ``POST /v1/hooks/<agent>``."""
