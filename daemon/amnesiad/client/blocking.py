"""The blocking client: the standard library's HTTP over a Unix socket, one kept connection, safe to share by
threads."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import urlencode

from amnesiad.client import verbs
from amnesiad.client.identity import (
    ATTEMPTS,
    DEFAULT_TIMEOUT_S,
    FEED_SILENCE_S,
    READ_BYTES,
    Body,
    Identity,
    hung_up,
    no_answer,
    raise_refusal,
    unreachable,
)
from amnesiad.client.verb import Verb
from amnesiad.errors import TooLarge
from amnesiad.limits import MAX_LINE_BYTES

if TYPE_CHECKING:
    from amnesiad import wire

P = ParamSpec("P")
A = TypeVar("A")

# What http.client raises when the other end goes away in the middle.
_BROKEN = (ConnectionError, http.client.BadStatusLine, http.client.IncompleteRead)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("amnesiad", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except OSError as failure:
            self.close()
            if isinstance(failure, TimeoutError):
                raise
            raise unreachable(self._path, failure) from failure


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The lines of a streamed answer. Raises ``IncompleteRead`` if it stops early, which ``readline`` would hide."""
    rest = b""
    while chunk := response.read1(READ_BYTES):
        *complete, rest = (rest + chunk).split(b"\n")
        yield from complete
        if len(rest) > MAX_LINE_BYTES:
            raise TooLarge(f"a line of the answer exceeds {MAX_LINE_BYTES} bytes", field="line")
    if rest:
        yield rest


def _method(verb: Verb[P, A]) -> Callable[Concatenate[Client, P], A]:
    @wraps(verb.signature)
    def ask(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> A:
        return verb.decode(client._exchange(verb.name, verb.build(*args, **kwargs)))

    return ask


class Client:
    """A connection to the daemon for one caller in one workspace. See ``amnesiad.client``.

    Every argument but the timeout defaults to its ``AMNESIA_*`` environment variable. Nothing is sent before the first
    request. ``timeout_s`` bounds each wait for the daemon.
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
        self._lock = threading.Lock()
        self._connection = _UnixConnection(self._identity.socket, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later request opens a new one."""
        with self._lock:
            self._connection.close()

    def call(self, verb: str, body: Body) -> dict[str, Any]:
        """The answer object to one request, as plain values. Raises the errors of ``amnesiad.errors``."""
        answer: dict[str, Any] = json.loads(self._exchange(verb, body))
        return answer

    def hook(self, agent: str, payload: Body, *, workspace: str | None = None) -> dict[str, Any]:
        """An agent's own hook payload, answered in that agent's own form."""
        query = urlencode({"workspace": workspace} if workspace else {})
        data = json.dumps(dict(payload)).encode()
        raw = self._attempt(f"/v1/hooks/{agent}?{query}".rstrip("?"), data, repeatable=False)
        answer: dict[str, Any] = json.loads(raw)
        return answer

    def export(self, *, after: str | None = None) -> Iterator[dict[str, Any]]:
        """The objects of an export, one at a time, over a connection of its own. ``after`` resumes behind a ``seq``."""
        data = self._identity.prepare("export", {} if after is None else {"after": after}).data
        with closing(_UnixConnection(self._identity.socket, self._timeout_s)) as connection:
            try:
                connection.request("POST", "/v1/export", body=data)
                response = connection.getresponse()
                if response.status != http.client.OK:
                    raise_refusal(response.status, response.read())
                for line in _lines(response):
                    yield json.loads(line)
            except TimeoutError:
                raise no_answer(self._timeout_s) from None
            except _BROKEN as failure:
                raise hung_up(self._identity.socket) from failure

    def feed(self, *, after: str | None = None) -> Iterator[wire.FeedItem]:
        """Transitions as they happen, from now or from behind a stream id, each waited for, over a connection of its
        own.

        ``close()`` of the iterator hangs up. Ends when the daemon stops. Raises ``Deadline`` where not even a heartbeat
        came for ``FEED_SILENCE_S``.
        """
        from amnesiad.client.told import Told

        target = "/v1/feed?" + urlencode(self._identity.query({"after": after}))
        silence_s = max(self._timeout_s, FEED_SILENCE_S)
        told = Told()
        with closing(_UnixConnection(self._identity.socket, silence_s)) as connection:
            try:
                connection.request("GET", target)
                response = connection.getresponse()
                with closing(response):
                    if response.status != http.client.OK:
                        raise_refusal(response.status, response.read())
                    for line in _lines(response):
                        if (item := told.take(line)) is not None:
                            yield item
            except TimeoutError:
                raise no_answer(silence_s) from None
            except _BROKEN as failure:
                raise hung_up(self._identity.socket) from failure

    def import_notes(self, lines: Iterable[bytes], *, dry_run: bool = False) -> wire.ImportAnswer:
        """Send an export's lines, each a JSON object; a line needs no line break. Never repeated."""
        import msgspec

        from amnesiad import wire

        target = "/v1/import?" + urlencode(self._identity.query({"dry_run": dry_run}))
        chunks = (line if line.endswith(b"\n") else line + b"\n" for line in lines)
        with closing(_UnixConnection(self._identity.socket, self._timeout_s)) as connection:
            try:
                with suppress(ConnectionError):  # refused before the end of the upload: the answer says why
                    connection.request("POST", target, body=chunks, headers=_CHUNKED, encode_chunked=True)
                response = connection.getresponse()
                raw = response.read()
            except TimeoutError:
                raise no_answer(self._timeout_s) from None
            except _BROKEN as failure:
                raise hung_up(self._identity.socket) from failure
        if response.status != http.client.OK:
            raise_refusal(response.status, raw)
        return msgspec.json.decode(raw, type=wire.ImportAnswer)

    def _exchange(self, verb: str, body: Body) -> bytes:
        prepared = self._identity.prepare(verb, body)
        return self._attempt(f"/v1/{verb}", prepared.data, repeatable=prepared.repeatable)

    def _attempt(self, target: str, data: bytes, *, repeatable: bool) -> bytes:
        attempts = ATTEMPTS if repeatable else 1
        with self._lock:
            for attempt in range(attempts):
                try:
                    return self._send(target, data)
                except _BROKEN as failure:
                    if attempt + 1 == attempts:
                        raise hung_up(self._identity.socket) from failure
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _send(self, target: str, data: bytes) -> bytes:
        connection = self._connection
        try:
            with suppress(BrokenPipeError):  # turned away at the door: the answer says why
                connection.request("POST", target, body=data, headers=_JSON)
            response = connection.getresponse()
            raw = response.read()
        except TimeoutError:
            connection.close()
            raise no_answer(self._timeout_s) from None
        except BaseException:
            connection.close()  # its state is unknown: the next request needs a fresh one
            raise
        if response.status != http.client.OK:
            raise_refusal(response.status, raw)
        return raw

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


_JSON = {"Content-Type": "application/json"}
_CHUNKED = {"Transfer-Encoding": "chunked", "Content-Type": "application/x-ndjson"}
