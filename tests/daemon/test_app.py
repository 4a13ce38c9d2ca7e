"""The door over a real socket: limits, envelopes, and connections that stay correct whatever is sent."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.daemon.door import WORDS, Clerk, Wire, remember, request, still_answers
from tests.support import wait_until

from amnesiad import errors, wire
from amnesiad.api import app as app_module
from amnesiad.api import serve as serve_module
from amnesiad.api.app import App, Readiness
from amnesiad.api.serve import ApiServer, serve
from amnesiad.limits import MAX_LINE_BYTES, MAX_PAYLOAD_BYTES, MAX_REQUEST_BYTES


async def test_fifty_connections_at_once(server: ApiServer) -> None:
    """C01: fifty connections each write at once; fifty distinct notes, every answer parses."""

    async def write(number: int) -> str:
        connection = await Wire.to(server.socket_path)
        await connection.send(remember(f"note {number}"))
        reply = await connection.reply()
        await connection.close()
        assert reply.status == 200
        return str(reply.json["id"])

    assert len(set(await asyncio.gather(*(write(number) for number in range(50))))) == 50


async def test_a_request_in_three_pieces(line: Wire) -> None:
    """C03: a request split over three sends, in its head and in its body, is answered once."""
    whole = remember("in pieces")
    for piece in (whole[:20], whole[20:-9], whole[-9:]):
        await line.send(piece)
        await asyncio.sleep(0)
    assert (await line.reply()).status == 200


async def test_two_requests_in_one_send(line: Wire, clerk: Clerk) -> None:
    """C03: two requests in one send are answered in order."""
    await line.send(remember("first") + remember("second"))
    ids = [(await line.reply()).json["id"] for _ in range(2)]
    assert [clerk.texts[note_id] for note_id in ids] == ["first", "second"]


async def test_the_last_line_of_an_import_needs_no_line_break(line: Wire, clerk: Clerk) -> None:
    """C03: an import loses nothing, whatever its chunks, blank lines and missing last line break."""
    await line.send(
        b"POST /v1/import?workspace=/src/app&dry_run=true HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    for piece in (b'{"a":1}\n{"a"', b":2}\r\n", b"\n", b'{"a":3}'):
        await line.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    await line.send(b"0\r\n\r\n")
    assert (await line.reply()).json["lines"] == 3
    assert clerk.lines == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
    assert clerk.seen[0].dry_run is True


@pytest.mark.parametrize("length", [MAX_LINE_BYTES + 1, 8 * MAX_LINE_BYTES])
@pytest.mark.parametrize("end", [b"\n", b""])
async def test_an_endless_import_line_costs_no_other_line(length: int, end: bytes, line: Wire, clerk: Clerk) -> None:
    """V25: of a line past its limit no more is kept than tells so, and the lines around it arrive whole."""
    await line.send(b"POST /v1/import?workspace=/src/app HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    for piece in (
        b'{"a":1}\n  ',
        *[b" " * MAX_LINE_BYTES] * (length // MAX_LINE_BYTES),
        b'x\n{"a":2}\n',
        b"y" * length,
        end,
    ):
        if piece:
            await line.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    await line.send(b"0\r\n\r\n")
    assert (await line.reply()).json["lines"] == 4
    assert clerk.lines[0::2] == [b'{"a":1}', b'{"a":2}']
    assert [len(kept) for kept in clerk.lines[1::2]] == [MAX_LINE_BYTES + 1] * 2
    assert (await line.ask("/healthz", method="GET")).status == 200


async def test_an_import_line_of_just_the_limit_arrives(line: Wire, clerk: Clerk) -> None:
    """V25: the longest line there may be is taken as it is."""
    reply = await line.ask("/v1/import?workspace=/src/app", b"x" * MAX_LINE_BYTES + b"\n")
    assert (reply.status, clerk.lines) == (200, [b"x" * MAX_LINE_BYTES])


@pytest.mark.parametrize("size", [2 * MAX_REQUEST_BYTES, 50_000_000, 1_000_000_000])
async def test_a_body_past_the_limit_is_refused_unread(size: int, line: Wire, place: Path) -> None:
    """V25, V26: two megabytes, fifty, or a declared gigabyte get 413 at once, and the daemon is unharmed."""
    await line.send(f"POST /v1/remember HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode())
    reply = await line.reply()
    assert (reply.status, reply.error["code"], reply.error["field"]) == (413, "too_large", "body")
    assert await still_answers(place / "a.sock")


async def test_fifty_megabytes_really_sent(server: ApiServer) -> None:
    """V25: a client that sends its fifty megabytes regardless still gets to read why not."""

    def send() -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(20)
            sock.connect(str(server.socket_path))
            with suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(request("/v1/remember", b"x" * 50_000_000))
            return sock.recv(64)

    assert (await asyncio.to_thread(send)).startswith(b"HTTP/1.1 413 ")
    assert await still_answers(server.socket_path)


async def test_a_chunked_body_is_counted(line: Wire) -> None:
    """V26: a body of unannounced length is refused where it passes the limit, and the connection closed."""
    await line.send(b"POST /v1/remember HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    piece = b"x" * 65_536
    for _ in range(MAX_REQUEST_BYTES // len(piece) + 1):
        await line.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    reply = await line.reply()
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert await line.closed()


async def test_a_refused_request_leaves_the_connection_usable(line: Wire) -> None:
    """After a 400, a 404, a 405 and a 413 the next request on the same connection is answered for itself."""
    for target, body, status in (
        ("/v1/remember", b"{", 400),
        ("/v1/nonsense", b'{"a": 1}' * 1000, 404),
        ("/healthz", b"{}", 405),
        ("/v1/remember", b"x" * (2 * MAX_REQUEST_BYTES), 413),
    ):
        assert (await line.ask(target, body)).status == status
        await line.send(remember("after"))
        assert (await line.reply()).status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"[" * 100_000, "body"),
        (b'{"workspace": "/x", "content": "a\\u0000"}', "content"),
        (b'{"workspace": "/x", "content": "a\\ud800"}', "content"),
        (b'{"workspace": "/x", "content": "a", "ttl_ms": NaN}', "ttl_ms"),
        (b'{"workspace": "/x", "content": "a", "expires_at": "tomorrow"}', "expires_at"),
        (b'{"workspace": "/x", "content": "a", "mood": 1}', "mood"),
    ],
)
async def test_a_wrong_body_is_a_400_that_names_the_field(body: bytes, field: str, line: Wire) -> None:
    """C07, V25, V26: what cannot be a request is refused at the door by field, never a 500."""
    reply = await line.ask("/v1/remember", body)
    assert (reply.status, reply.error["code"], reply.error["field"]) == (400, "invalid", field)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("HEAD", "/", 404),
        ("GET", "/v1/", 405),
        ("POST", "/v1/", 404),
        ("POST", "/v1", 404),
        ("POST", "/v1/remember/more", 404),
        ("POST", "/v1/" + "x" * 5000, 404),
        ("POST", "/v1/%00%ff", 404),
        ("POST", "/v1/remember?content=x", 400),
        ("HEAD", "/v1/remember", 405),
        ("GET", "/v1/remember", 405),
        ("OPTIONS", "/v1/remember", 405),
        ("DELETE", "/healthz", 405),
        ("HEAD", "/healthz", 200),
        ("HEAD", "/readyz", 200),
        ("GET", "/v1/feed", 400),
        ("GET", "/v1/feed?workspace=/x&workspace=/y", 400),
        ("GET", "/v1/feed?workspace=%ff", 400),
        ("GET", "/v1/feed?workspace=/x&after=yesterday", 400),
        ("POST", "/v1/import", 400),
        ("POST", "/v1/hooks/", 400),
        ("POST", "/v1/hooks/two%20words", 400),
        ("POST", "/../etc/passwd", 404),
    ],
)
async def test_the_wrong_place_is_never_a_500(method: str, target: str, status: int, line: Wire) -> None:
    """V26: any method on any path is answered with a 4xx and an envelope."""
    reply = await line.ask(target, method=method)
    assert reply.status == status
    if status != 200 and method != "HEAD":
        assert set(reply.error) >= {"code", "message"}


async def test_an_unknown_verb_gets_the_near_ones(line: Wire) -> None:
    """A misspelt verb is answered with the right one."""
    reply = await line.ask("/v1/rember")
    assert (reply.error["code"], reply.error["hint"]) == ("not_found", "did you mean remember?")


async def test_a_wrong_method_is_told_the_right_one(line: Wire) -> None:
    """405 carries Allow."""
    assert (await line.ask("/v1/remember", method="PUT")).headers["allow"] == "POST"
    assert (await line.ask("/readyz", method="POST")).headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00junk\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/status HTTP/1.1\r\ncontent-length: -1\r\n\r\n"])  # fmt: skip
async def test_what_is_not_http_gets_an_envelope_and_a_closed_connection(junk: bytes, line: Wire, place: Path) -> None:
    """V26: broken HTTP is answered with 400 in our form, and only that connection suffers."""
    await line.send(junk)
    reply = await line.reply()
    assert (reply.status, reply.error["code"]) == (400, "invalid")
    assert await line.closed()
    assert await still_answers(place / "a.sock")


async def test_endless_headers_are_cut_off(line: Wire) -> None:
    """A head that never ends is refused instead of being kept in memory."""
    await line.send(b"GET /healthz HTTP/1.1\r\nx: ")
    await line.send(b"y" * (serve_module.MAX_HEAD_BYTES + 1))
    reply = await line.reply()
    assert (reply.status, reply.error["field"]) == (413, "headers")
    assert await line.closed()


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (errors.Invalid("x", field="a"), 400, "invalid"),
        (errors.Forbidden("x", rule="provenance"), 403, "forbidden"),
        (errors.NotFound("x"), 404, "not_found"),
        (errors.Ambiguous("x", choices=("a", "b")), 409, "ambiguous"),
        (errors.Conflict("x"), 409, "conflict"),
        (errors.TooLarge("x"), 413, "too_large"),
        (errors.Refused("x", rule="cycle"), 422, "refused"),
        (errors.IllegalTransition("x", rule="revoked"), 422, "refused"),
        (errors.Busy("x"), 429, "busy"),
        (errors.StoreUnavailable("x"), 503, "store_unavailable"),
        (errors.StoreUnfit("x"), 503, "store_unavailable"),
        (errors.Deadline("x"), 504, "deadline"),
        (errors.StoreFull("x"), 507, "store_full"),
        (errors.Bug("x"), 500, "internal"),
        (errors.ConfigError("x"), 500, "internal"),
        (errors.AmnesiaError("x"), 500, "internal"),
        (TimeoutError("x"), 500, "internal"),
        (RecursionError("x"), 500, "internal"),
    ],
)
async def test_each_error_has_its_status(fault: Exception, status: int, code: str, line: Wire, clerk: Clerk) -> None:
    """The closed set of codes: each error leaves with its status, and nothing else is invented."""
    clerk.fault = fault
    with capture_logs():
        reply = await line.ask("/v1/inspect", b'{"workspace": "/x", "id": "abcdefghjk"}')
    assert (reply.status, reply.error["code"]) == (status, code)
    if isinstance(fault, errors.CallerError):
        assert reply.error.get("choices", []) == list(fault.choices)
        assert reply.error.get("rule") == fault.rule


async def test_a_bug_is_reported_by_an_id_and_without_words(line: Wire, clerk: Clerk) -> None:
    """A crash holding a note's words puts none of them into the answer or the log; the id leads from one to the
    other."""
    try:
        try:
            raise KeyError(WORDS)
        except KeyError as cause:
            raise ValueError(f"cannot handle {WORDS!r}") from cause
    except ValueError as error:
        clerk.fault = error
    with capture_logs() as logs:
        reply = await line.ask("/v1/inspect", b'{"workspace": "/x", "id": "abcdefghjk"}')
    assert reply.status == 500
    (entry,) = logs
    assert entry["id"] in reply.error["hint"]
    assert "ValueError at" in entry["exception"][0]
    assert "door.py" in entry["exception"][0]
    assert "KeyError at" in entry["exception"][1]
    assert WORDS not in str(logs) + reply.body.decode()


async def test_a_slow_answer_meets_the_deadline(line: Wire, clerk: Clerk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that hangs costs one 504; its work is cancelled and the connection goes on."""
    monkeypatch.setattr(app_module, "DEADLINE_S", 0.05)
    clerk.gate.clear()
    reply = await line.ask("/v1/recall", b'{"workspace": "/x"}')
    assert (reply.status, reply.error["code"]) == (504, "deadline")
    assert clerk.waiting == 0
    clerk.gate.set()
    assert (await line.ask("/v1/recall", b'{"workspace": "/x"}')).status == 200


async def test_a_slow_body_meets_the_deadline(line: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops in the middle of its body is answered, not waited for."""
    monkeypatch.setattr(app_module, "DEADLINE_S", 0.05)
    await line.send(b"POST /v1/remember HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
    assert (await line.reply()).status == 504


async def test_more_than_the_bound_in_flight_is_busy(
    line: Wire, clerk: Clerk, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the bound a request is refused at once; health is answered all the same."""
    monkeypatch.setattr(app_module, "MAX_IN_FLIGHT", 1)
    clerk.gate.clear()
    await line.send(request("/v1/recall", b'{"workspace": "/x"}'))
    await wait_until(lambda: clerk.waiting)
    other = await Wire.to(place / "a.sock")
    reply = await other.ask("/v1/recall", b'{"workspace": "/x"}')
    assert (reply.status, reply.error["code"]) == (429, "busy")
    assert (await other.ask("/healthz", method="GET")).json["in_flight"] == 1
    clerk.gate.set()
    assert (await line.reply()).status == 200
    await other.close()


@pytest.mark.parametrize("verb", ["import", "export"])
async def test_a_stream_takes_a_place_among_the_requests_in_flight(
    verb: str, line: Wire, clerk: Clerk, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that sends nothing and an export that nobody reads count as any request, and past the bound are
    busy."""
    monkeypatch.setattr(app_module, "MAX_IN_FLIGHT", 1)
    clerk.texts = {f"{number:0>10}": "x" * 100_000 for number in range(100)}
    stream = _STREAMS[verb]
    await line.send(stream)
    other = await Wire.to(place / "a.sock")

    async def in_flight() -> bool:
        return bool((await other.ask("/healthz", method="GET")).json["in_flight"] == 1)

    await wait_until(in_flight)
    await other.send(stream)
    assert (await other.reply()).status == 429
    await other.close()


async def test_an_import_whose_lines_stop_coming_is_ended(
    line: Wire, clerk: Clerk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stops in the middle of an import is told so; what it had sent stays."""
    monkeypatch.setattr(app_module, "IDLE_S", 0.05)
    await line.send(_STREAMS["import"] + b'8\r\n{"a":1}\n\r\n')
    reply = await line.reply()
    assert (reply.status, reply.error["code"]) == (504, "deadline")
    assert "no line came" in reply.error["message"]
    assert clerk.lines == [b'{"a":1}']


async def test_an_export_that_nobody_reads_is_ended(
    line: Wire, clerk: Clerk, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stops reading an export loses it, and it does not look complete."""
    monkeypatch.setattr(app_module, "IDLE_S", 0.05)
    clerk.texts = {f"{number:0>10}": "x" * 100_000 for number in range(100)}
    other = await Wire.to(place / "a.sock")
    with capture_logs() as logs:
        await line.send(_STREAMS["export"])
        await wait_until(lambda: logs)
    assert [(entry["event"], entry["code"]) for entry in logs] == [("stream-broken", "deadline")]
    assert (await other.ask("/healthz", method="GET")).json["in_flight"] == 0
    assert not (await line.reader.read()).endswith(b"0\r\n\r\n")
    await other.close()


_STREAMS = {
    "import": b"POST /v1/import?workspace=/src/app HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
    "export": request("/v1/export", b'{"workspace": "/x"}'),
}


async def test_more_connections_than_the_bound_are_turned_away(
    line: Wire, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the bound a connection gets 429 and is closed; those that were there stay."""
    assert (await line.ask("/healthz", method="GET")).status == 200
    monkeypatch.setattr(serve_module, "MAX_CONNECTIONS", 1)
    other = await Wire.to(place / "a.sock")
    assert (await other.reply()).status == 429
    assert await other.closed()
    assert (await line.ask("/healthz", method="GET")).status == 200
    await other.close()


async def test_a_client_that_hangs_up_disturbs_nobody(server: ApiServer) -> None:
    """A connection broken in the middle of a body leaves nothing in flight and logs nothing."""
    with capture_logs() as logs:
        connection = await Wire.to(server.socket_path)
        await connection.send(b"POST /v1/remember HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
        await connection.close()
        line = await Wire.to(server.socket_path)

        async def idle() -> bool:
            return bool((await line.ask("/healthz", method="GET")).json["in_flight"] == 0)

        await wait_until(idle)
        await line.close()
    assert logs == []


async def test_readiness_tells_how_far_the_start_has_come(clerk: Clerk, place: Path) -> None:
    """/readyz is 503 with the progress until the daemon is ready; /healthz answers from the first moment."""
    state = Readiness(ready=False, stage="loading", done=1, total=3)
    running = await serve(App(clerk, readiness=lambda: state), place / "a.sock")
    line = await Wire.to(place / "a.sock")
    reply = await line.ask("/readyz", method="GET")
    assert (reply.status, reply.json) == (503, {"ready": False, "stage": "loading", "done": 1, "total": 3})
    assert (await line.ask("/healthz", method="GET")).json["pid"] == os.getpid()
    state = Readiness(ready=True)
    assert (await line.ask("/readyz", method="GET")).status == 200
    await line.close()
    await running.stop()


async def test_a_hook_payload_is_answered_in_the_agents_own_form(line: Wire) -> None:
    """The payload reaches the service whole, and its answer leaves as it is."""
    reply = await line.ask("/v1/hooks/claude-code?workspace=/src/app", b'{"cwd": "/src/app", "deep": {"x": [1]}}')
    assert reply.json == {
        "agent": "claude-code", "workspace": "/src/app", "cwd": "/src/app", "deep": {"x": [1]},
    }  # fmt: skip


async def test_a_hook_that_hangs_up_is_noticed(line: Wire, clerk: Clerk) -> None:
    """Agents wait a second, and what comes later is told to nobody."""
    body = b'{"prompt": "wait"}'
    await line.send(b"POST /v1/hooks/codex HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    await line.close()
    await wait_until(lambda: clerk.left == 1)


async def test_a_hook_payload_may_hold_a_whole_file_and_more(line: Wire) -> None:
    """After an edit an agent sends the file as it was and as it is; the daemon's own requests are never so long."""
    body = b'{"tool_response": "%s"}' % (b"x" * 4 * MAX_REQUEST_BYTES)
    assert len((await line.ask("/v1/hooks/claude-code", body)).json["tool_response"]) == 4 * MAX_REQUEST_BYTES
    await line.send(b"POST /v1/hooks/codex HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (MAX_PAYLOAD_BYTES + 1))
    assert (await line.reply()).status == 413


async def test_an_export_streams_lines(line: Wire, clerk: Clerk) -> None:
    """Each object on a line of its own, the last one ended as well."""
    clerk.texts = {"a": "one", "b": "two"}
    await line.send(request("/v1/export", b'{"workspace": "/x"}', headers="connection: close\r\n"))
    whole = await line.reader.read()
    assert b"application/x-ndjson" in whole
    assert b'"content": "two"}\n' in whole
    assert whole.endswith(b"0\r\n\r\n")


async def test_an_export_refused_at_its_start_keeps_its_status(line: Wire, clerk: Clerk) -> None:
    """What goes wrong before the first line is an ordinary error."""
    clerk.fault = errors.NotFound("no such workspace")
    assert (await line.ask("/v1/export", b'{"workspace": "/nowhere"}')).status == 404


async def test_an_export_that_breaks_does_not_look_complete(line: Wire, clerk: Clerk) -> None:
    """What goes wrong after the first line ends the connection without the end of the stream."""
    clerk.texts = {"a": WORDS}
    clerk.export_fault = ValueError(WORDS)
    with capture_logs() as logs:
        await line.send(request("/v1/export", b'{"workspace": "/x"}'))
        whole = await line.reader.read()
    assert WORDS.encode() in whole
    assert not whole.endswith(b"0\r\n\r\n")
    assert WORDS not in str(logs)


async def test_a_feed_that_is_refused_gets_its_own_status(line: Wire, clerk: Clerk) -> None:
    """A feed refused before its first item is answered like any other request, and the connection goes on."""

    async def refuse(request: wire.FeedRequest) -> AsyncIterator[wire.FeedItem]:  # noqa: ARG001
        raise errors.NotFound("there is no such workspace", field="workspace")
        yield  # makes it a generator

    clerk.feed = refuse  # type: ignore[method-assign]
    reply = await line.ask("/v1/feed?workspace=/x", method="GET")
    assert (reply.status, reply.error["field"]) == (404, "workspace")
    assert (await line.ask("/healthz", method="GET")).status == 200


async def test_the_feed_sends_events_and_ends_with_its_client(line: Wire, clerk: Clerk) -> None:
    """Items arrive as server-sent events with their ids; when the client hangs up the source is closed."""
    await line.send(b"GET /v1/feed?workspace=/x HTTP/1.1\r\nhost: x\r\nlast-event-id: 5-0\r\n\r\n")
    text = await line.reader.readuntil(b"forgotten\ndata: ")
    assert b'id: 1-0\nevent: written\ndata: {"id":"0000000000","text":"a\\nb"}\n\n' in text
    assert clerk.seen[0].after == "5-0"
    await line.close()
    await wait_until(clerk.feed_closed.is_set)


async def test_a_batch_answers_each_request_for_itself(line: Wire) -> None:
    """One bad item leaves the others answered, in order."""
    items: list[dict[str, Any]] = [
        {"verb": "remember", "body": {"content": "one"}},
        {"verb": "remember", "body": {"content": 2}},
        {"verb": "remember", "body": {"content": "three"}},
    ]
    reply = await line.ask("/v1/batch", json.dumps({"workspace": "/x", "requests": items}).encode())
    first, second, third = reply.json["answers"]
    assert (first["created"], second["error"]["field"], third["created"]) == (True, "content", True)
