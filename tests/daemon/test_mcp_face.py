"""What the API mounts at ``/mcp``: loaded when it is asked for, told apart from its absence, ended with the daemon."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.daemon.door import Reply, Wire

from amnesiad.api import app as app_module
from amnesiad.api.app import App
from amnesiad.api.errors import answerable
from amnesiad.api.serve import ApiServer
from amnesiad.limits import MAX_REQUEST_BYTES
from amnesiad.mcp import McpFace, server
from amnesiad.service import Service

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
HEADERS = "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"


@pytest.fixture
async def line(service: Service, tmp_path: Path) -> AsyncIterator[Wire]:
    """A connection to a door behind which the service's tools stand."""
    face = McpFace(service, answerable=answerable)
    door = ApiServer(App(service, mounts={"/mcp": face}), _private(tmp_path) / "s")
    await door.start()
    line = await Wire.to(door.socket_path)
    yield line
    await line.close()
    await door.stop()
    await face.close()


def _private(directory: Path) -> Path:
    directory.chmod(0o700)
    return directory


async def ask(line: Wire, body: bytes, *, method: str = "POST", host: str = "localhost", more: str = "") -> Reply:
    """What ``/mcp`` answers."""
    head = f"{method} /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n{HEADERS}{more}\r\n"
    await line.send(head.encode() + body)
    return await line.reply()


def test_a_daemon_that_nobody_asks_has_no_sdk() -> None:
    """Importing everything a daemon starts with imports nothing of the SDK, which would cost time and memory."""
    program = "import amnesiad.daemon.serving, sys; print([m for m in sys.modules if m.split('.')[0] in sys.argv[1:]])"
    absent = ["mcp", "mcp_types", "starlette", "sse_starlette", "jsonschema", "httpx2"]
    done = subprocess.run([sys.executable, "-c", program, *absent], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_the_first_requests_share_one_start(line: Wire) -> None:
    """Whoever asks first has the server started; all are answered by it."""
    assert (await ask(line, PING)).json == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (await ask(line, PING)).status == 200


async def test_a_start_that_fails_is_tried_again(line: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot start is an error at once, and no wait; the next to ask has it started."""

    @asynccontextmanager
    async def broken(*_: object) -> AsyncIterator[None]:
        raise RuntimeError("not today")
        yield

    with monkeypatch.context() as meanwhile, capture_logs():
        meanwhile.setattr(server, "serving", broken)
        assert (await ask(line, PING)).error["code"] == "internal"
    assert (await ask(line, PING)).json["result"] == {}


async def test_a_missing_extra_is_named(line: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the SDK every request gets an error with what to install, under its own id; installed, it works at
    once."""
    with monkeypatch.context() as without:
        for name in [name for name in sys.modules if name.split(".")[0] == "mcp" or name == "amnesiad.mcp.server"]:
            without.delitem(sys.modules, name)
        without.setitem(sys.modules, "mcp", None)
        for request_id in (1, "one"):
            reply = await ask(line, json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "ping"}).encode())
            assert reply.status == 501
            assert reply.json["id"] == request_id
            assert "pip install 'amnesiad[mcp]'" in reply.json["error"]["message"]
    assert (await ask(line, PING)).json["result"] == {}


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        ("", -32700, "not JSON"),
        ("\ud800", -32700, "not JSON"),
        ('{"jsonrpc":"2.0","id":1,"method":"SECRET\\ud800"}', -32700, "not JSON"),
        ('{"jsonrpc":"2.0","id":NaN,"method":"SECRET"}', -32700, "not JSON"),
        ("[" * 90_000, -32700, "not JSON"),
        ('[{"jsonrpc":"2.0","id":1,"method":"SECRET"}]', -32600, "no batches"),
        ('"SECRET"', -32600, "no JSON-RPC message"),
        ('{"id":1,"method":"SECRET"}', -32600, "jsonrpc has to be"),
        ('{"jsonrpc":"1.0","id":1,"method":"SECRET"}', -32600, "jsonrpc has to be"),
        ('{"jsonrpc":"2.0","id":1.5,"method":"SECRET"}', -32600, "id has to be text or a whole number"),
        ('{"jsonrpc":"2.0","id":true,"method":"SECRET"}', -32600, "id has to be text or a whole number"),
        ('{"jsonrpc":"2.0","id":null,"method":"SECRET"}', -32600, "id has to be text or a whole number"),
        ('{"jsonrpc":"2.0","id":1,"method":{"SECRET":1}}', -32600, "method has to be text"),
        ('{"jsonrpc":"2.0","id":1}', -32600, "method has to be text"),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["SECRET"]}', -32602, "params has to be an object"),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602, "params.name has to be text"),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}', -32602, "params.name has to be text"),
        (
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"amnesia_status","arguments":"SECRET"}}',
            -32602,
            "params.arguments has to be an object",
        ),
        (
            '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":"SECRET"}}',
            -32602,
            "params._meta has to be an object",
        ),
        (
            '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":["SECRET"]}}}',
            -32602,
            "params._meta.progressToken has to be text or a whole number",
        ),
    ],
    ids=range(20),
)
async def test_what_is_no_message_is_told_which_field(line: Wire, message: str, code: int, words: str) -> None:
    """The error names the field and what it has to be, has the id where there is one, and quotes nothing that was
    sent."""
    reply = await ask(line, message.encode("utf-8", "surrogatepass"))
    assert reply.status == 400
    assert reply.json["error"]["code"] == code
    assert words in reply.json["error"]["message"]
    assert "SECRET" not in reply.body.decode()
    assert reply.json["id"] == (1 if re.match(r'\{.*"id":1[,}]', message) and code != -32700 else None)
    assert (await ask(line, PING)).json["result"] == {}


@pytest.mark.parametrize(
    "message", ['{"jsonrpc":"2.0","method":"notifications/initialized"}', '{"jsonrpc":"2.0","id":1,"result":{}}']
)
async def test_what_needs_no_answer_gets_none(line: Wire, message: str) -> None:
    """Notifications, and answers to what was never asked, are taken and forgotten."""
    reply = await ask(line, message.encode())
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_there_are_no_streams_and_no_sessions(line: Wire, method: str) -> None:
    """Only POST is taken: a stream that waits for nothing would hold a connection for ever."""
    reply = await ask(line, b"", method=method)
    assert reply.status == 405
    assert reply.headers["allow"] == "POST"


async def test_the_limits_of_the_api_hold(line: Wire) -> None:
    """A body past the limit is refused before the server sees it, with our envelope, and the connection goes on."""
    reply = await ask(line, b"x" * (MAX_REQUEST_BYTES + 1))
    assert reply.error["code"] == "too_large"
    assert (await ask(line, PING)).status == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("origin: https://evil.example\r\n", 403),
        ("origin: http://localhost:8080\r\n", 200),
        ("origin: http://localhost.evil.example\r\n", 403),
    ],
)
async def test_other_sites_are_kept_out(line: Wire, header: str, status: int) -> None:
    """A browser's request says from which site it comes, and only those of this machine are answered."""
    assert (await ask(line, PING, more=header)).status == status


async def test_a_name_that_is_not_ours_is_refused(line: Wire) -> None:
    """A request under a name that somebody made point to this machine is refused."""
    assert (await ask(line, PING, host="evil.example")).status == 421


async def test_a_slow_body_meets_the_deadline(line: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops in the middle of its body is answered here as everywhere, and holds no place for ever."""
    monkeypatch.setattr(app_module, "DEADLINE_S", 0.05)
    await line.send(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{")
    assert (await line.reply()).status == 504


async def test_closing_ends_what_was_started(service: Service) -> None:
    """A face that was asked leaves no task behind when it is closed, and one that never was has none."""
    before = asyncio.all_tasks()
    face = McpFace(service, answerable=answerable)
    await face.close()
    face = McpFace(service, answerable=answerable)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"accept", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers}
    await face(scope, PING, receive, send)
    assert json.loads(sent[1]["body"])["result"] == {}
    await face.close()
    assert asyncio.all_tasks() == before
