"""The HTTP server over the sockets that ``listen`` opened: uvicorn's protocol, our sockets, our shutdown.

uvicorn parses and writes HTTP; it neither handles signals, logs, nor polls here. Shutdown, in this order: stop
accepting and remove the socket, end the feeds, let requests in flight finish within ``GRACE_S``, cancel the rest.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from amnesiad.api.app import App
from amnesiad.api.errors import refusal
from amnesiad.api.exchange import Exchange, Receive, Scope, Send
from amnesiad.api.listen import BACKLOG, Listener, bearer_token, open_socket, peer_uid
from amnesiad.errors import AmnesiaError, Busy, ConfigError, Forbidden, Invalid, TooLarge

GRACE_S: Final = 5
"""For requests in flight at shutdown; the longest write takes far less, and service managers wait longer."""
KEEP_ALIVE_S: Final = 120
"""An idle connection is kept this long: an agent's steps are seconds to minutes apart."""
MAX_CONNECTIONS: Final = 512
"""Through all doors together: half of the usual limit of 1024 descriptors, so that the store's connections find
room."""
MAX_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers of one request. No client of ours sends more than a few hundred bytes."""


class DoorProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with our envelope for broken HTTP, a bounded head, and a bounded number of
    connections."""

    _head_open = True
    _head_bytes = 0

    def admit(self, transport: asyncio.Transport) -> AmnesiaError | None:  # noqa: ARG002 - for subclasses
        """Why this connection is turned away, if it is."""
        if len(self.connections) > MAX_CONNECTIONS:
            return Busy(f"{MAX_CONNECTIONS} connections are open, as many as are kept", hint="close idle ones")
        return None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if refused := self.admit(transport):
            self._turn_away(refused)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        # A chunk that ends inside a head counts as a whole; one that ends behind it resets the count.
        self._head_bytes = self._head_bytes + len(data) if self._head_open else 0
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._turn_away(TooLarge(f"the head of the request exceeds {MAX_HEAD_BYTES} bytes", field="headers"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open = True

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._head_open = False

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's sentence names nothing useful
        """Answer what is not HTTP with our envelope, and hang up."""
        self._turn_away(Invalid("this is not a valid HTTP/1.1 request", field="request"))

    def _turn_away(self, error: AmnesiaError) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # An earlier request of this connection is still being answered; a second answer would be taken for its.
            self.transport.close()
            return
        status, body = refusal(error)
        head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


class UnixDoor(DoorProtocol):
    """The door for Unix sockets: the kernel tells whose process is at the other end, and only this user's may enter."""

    def admit(self, transport: asyncio.Transport) -> AmnesiaError | None:
        """Also turns away every user but this one and root, who could take the memory anyway."""
        uid = _uid_of(transport)
        if uid not in (os.geteuid(), 0):
            return Forbidden("this memory belongs to another user", hint="run your own daemon")
        return super().admit(transport)


def _uid_of(transport: asyncio.Transport) -> int | None:
    # The event loop's own socket object may not know getsockopt; a duplicate of its descriptor does.
    handle = transport.get_extra_info("socket")
    try:
        with socket.socket(fileno=os.dup(handle.fileno())) as sock:
            return peer_uid(sock)
    except OSError:  # the peer is gone already
        return None


class TokenDoor:
    """Lets through what carries the bearer token; the loopback interface is open to every user of the machine."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        scheme, _, given = (exchange.header(b"authorization") or b"").partition(b" ")
        # The scheme's name is no secret and is written in any case (RFC 9110); the token is compared in constant time.
        if hmac.compare_digest(given.strip(b" "), self._expected) and scheme.lower() == b"bearer":
            await self._app(scope, receive, send)
            return
        status, body = refusal(
            Forbidden("the bearer token is missing or wrong", hint="it stands in http.token in the state directory")
        )
        await exchange.answer(status, body)


class ApiServer:
    """The running API. ``started`` is set once connections are accepted; ``stop`` may be called twice."""

    def __init__(
        self, app: App, socket_path: Path, *, http: tuple[str, int] | None = None, state_dir: Path | None = None
    ) -> None:
        self.started = asyncio.Event()
        self.http_address: tuple[str, int] | None = None
        self._app = app
        self.socket_path = socket_path
        self._http = http
        self._state_dir = state_dir
        self._listener: Listener | None = None
        self._servers: list[_Server] = []
        # uvicorn keeps the open connections here; one of the doors' own each would let in as many again.
        self._shared = ServerState()

    async def start(self) -> None:
        """Open the socket and accept. Raises ``ConfigError`` (see ``listen.open_socket``); leaves nothing open then."""
        try:
            self._listener = open_socket(self.socket_path)
            await self._accept(self._app, UnixDoor, self._listener.sock)
            if self._http is not None:
                await self._accept_http(self._http)
        except BaseException:
            await self.stop()
            raise
        self.started.set()

    async def _accept_http(self, address: tuple[str, int]) -> None:
        if self._state_dir is None:
            raise ConfigError("http needs a state directory for its token", field="http")
        app = TokenDoor(self._app, bearer_token(self._state_dir))
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            sock = socket.create_server(address, family=family, backlog=BACKLOG)
        except OSError as failure:
            # What create_server says repeats the address; a name that is not found has a number of another kind.
            found = not isinstance(failure, socket.gaierror)
            reason = os.strerror(failure.errno or 0) if found else failure.strerror
            raise ConfigError(
                f"http cannot listen on {address[0]}:{address[1]}: {reason}",
                field="http",
                hint="set http to another port, or stop what listens there",
            ) from failure
        sock.setblocking(False)
        self.http_address = sock.getsockname()[:2]
        await self._accept(app, DoorProtocol, sock)

    async def _accept(self, app: App | TokenDoor, door: type[DoorProtocol], sock: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            http=door,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # uvicorn would log exceptions with their messages, which may hold words
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        server = _Server(config, sock, self._shared)
        self._servers.append(server)
        await server.open()

    async def stop(self) -> None:
        """Stop accepting, remove the socket if it is still ours, finish or cancel what is in flight."""
        self._app.close()
        listener, self._listener = self._listener, None
        servers, self._servers = self._servers, []
        for server in servers:
            server.stop_accepting()
        if listener is not None:
            listener.close()
        await asyncio.gather(*(server.close() for server in servers))
        self.started.clear()


class _Server(uvicorn.Server):
    """uvicorn's server without its main loop and signal handlers: both are the daemon's."""

    def __init__(self, config: uvicorn.Config, sock: socket.socket, shared: ServerState) -> None:
        super().__init__(config)
        self.server_state = shared
        self._sock = sock

    async def open(self) -> None:
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        door: Any = self.config.http_protocol_class
        protocol = partial(door, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        loop = asyncio.get_running_loop()
        listen: Any = loop.create_unix_server if self._sock.family == socket.AF_UNIX else loop.create_server
        self.servers = [await listen(protocol, sock=self._sock, backlog=BACKLOG)]
        self.started = True

    def stop_accepting(self) -> None:
        for server in getattr(self, "servers", ()):
            server.close()

    async def close(self) -> None:
        if not self.started:
            self._sock.close()
            return
        self.started = False
        await self.shutdown()
        # What outlived the grace was cancelled: wait for it, so that nothing runs on into the store's closing.
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


async def serve(
    app: App, socket_path: Path, *, http: tuple[str, int] | None = None, state_dir: Path | None = None
) -> ApiServer:
    """Open the doors and return the running server. Raises ``ConfigError`` (see ``listen.open_socket``)."""
    server = ApiServer(app, socket_path, http=http, state_dir=state_dir)
    await server.start()
    return server
