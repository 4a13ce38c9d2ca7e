"""``amnesia mcp`` as agents start it: a real process on pipes, in front of a real daemon, a stuck one, or none."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support import PATIENCE_S, Fleet, children, running, wait_until

import amnesiad
from amnesiad.limits import MAX_REQUEST_BYTES
from amnesiad.mcp.table import load_table
from amnesiad.shims import connect

SHIM: Final = (sys.executable, "-I", "-S", str(Path(amnesiad.__file__).parent / "shims" / "mcp.py"))
HELLO: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
MODERN: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
MAX_RSS_MB: Final = 15
MANY: Final = 12
"""Shims at once; ``tests.bench shims`` has a hundred."""
STATUS: Final = {"name": "amnesia_status", "arguments": {}}


class Shim:
    """One shim, and what a client would say to it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid = process.pid

    @classmethod
    async def start(cls, socket: Path | str, *, cwd: Path | None = None, **environ: str) -> Shim:
        """A shim in front of the daemon at this socket, in workspace ``w`` unless the environment says otherwise."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AMNESIA_")}
        env = {**inherited, "AMNESIA_SOCKET": str(socket), "AMNESIA_WORKSPACE": "w", **environ}
        limit = 8 * MAX_REQUEST_BYTES
        return cls(await asyncio.create_subprocess_exec(*SHIM, env=env, cwd=cwd, stdin=PIPE, stdout=PIPE, limit=limit))

    def say(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S))
        return answer

    def request(self, request_id: object, method: str, params: Any = None) -> None:
        body = {"jsonrpc": "2.0", "id": request_id, "method": method}
        self.say(json.dumps(body if params is None else {**body, "params": params}).encode())

    async def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        self.request(1, method, params)
        answer = await self.hear()
        assert answer["id"] == 1
        return answer

    async def tool(self, name: str, **arguments: Any) -> str:
        answer = await self.ask("tools/call", {"name": f"amnesia_{name}", "arguments": arguments})
        assert not answer["result"]["isError"], answer
        text: str = answer["result"]["content"][0]["text"]
        return text

    async def close(self) -> int:
        """End its input, as a client does that goes; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.ended()

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)


def load(path: Path | str) -> None:
    """Have a daemon load its MCP server: on a busy machine that alone may take longer than a shim waits for a call."""
    with connect.Connection(str(path)) as line:
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        answer = line.exchange("/mcp", body, headers=[("accept", "application/json")], deadline_s=PATIENCE_S)
    assert answer.status == 200, answer.body


@pytest.fixture(scope="module")
def loaded(daemon: str) -> str:
    """The socket of the session's daemon, whose MCP server is loaded."""
    load(daemon)
    return daemon


@pytest.fixture
async def shim(loaded: str) -> AsyncIterator[Shim]:
    """A shim in front of the session's daemon; it has to end by itself when its input ends."""
    found = await Shim.start(loaded)
    yield found
    if found.process.returncode is None:
        assert await found.close() == 0


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Shim]:
    """A shim that finds no daemon."""
    found = await Shim.start(tmp_path / "none.sock")
    yield found
    assert await found.close() == 0


class TestTalking:
    """With a daemon behind it."""

    async def test_a_handshake_and_a_call(self, shim: Shim) -> None:
        """The handshake, the list of tools and calls are the daemon's own; notifications are not answered."""
        told = (await shim.ask("initialize", HELLO))["result"]
        assert told["protocolVersion"] == "2025-11-25"
        assert told["serverInfo"]["name"] == "amnesiad"
        shim.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', b"", b"  ")
        assert len((await shim.ask("tools/list"))["result"]["tools"]) == 11
        assert "remembered" in await shim.tool("remember", content="The shim forwards lines.", ttl="1h")
        assert "The shim forwards lines." in await shim.tool("recall", query="shim")

    async def test_the_stateless_revision(self, shim: Shim) -> None:
        """A client of 2026-07-28 discovers, lists and calls without a handshake."""
        assert (await shim.ask("server/discover", {"_meta": MODERN}))["result"]["supportedVersions"] == ["2026-07-28"]
        told = (await shim.ask("tools/list", {"_meta": MODERN}))["result"]
        assert told["resultType"] == "complete"
        assert told["ttlMs"] > 0
        called = (await shim.ask("tools/call", {**STATUS, "_meta": MODERN}))["result"]
        assert called["content"][0]["text"].startswith("w: ")

    async def test_it_speaks_for_its_environment(self, loaded: str, tmp_path: Path) -> None:
        """Session and agent come from the environment, and the workspace from the directory where none is named."""
        folder = tmp_path / "ein Ordner, größer"
        folder.mkdir()
        shim = await Shim.start(
            loaded,
            cwd=folder,
            AMNESIA_WORKSPACE="",
            AMNESIA_SESSION="s",
            AMNESIA_AGENT="a",
            AMNESIA_AGENT_KIND="subagent",
        )
        await shim.tool("remember", content="Only mine.", ttl="1h")
        assert (await shim.tool("status")).startswith(f"{folder}: 1 active")
        assert await shim.close() == 0
        other = await Shim.start(loaded, cwd=folder, AMNESIA_WORKSPACE="")
        assert (await other.tool("status")).startswith(f"{folder}: 0 active")
        assert await other.close() == 0

    async def test_many_requests_at_once(self, shim: Shim) -> None:
        """Requests under way together are all answered, each under its own id; too many are told to come again."""
        for number in range(60):
            shim.request(f"r{number}", "tools/call", STATUS)
        answers = [await shim.hear() for _ in range(60)]
        assert {answer["id"] for answer in answers} == {f"r{number}" for number in range(60)}
        refused = [answer["error"]["data"]["code"] for answer in answers if "error" in answer]
        assert set(refused) <= {"busy"}
        assert len(refused) < 60

    async def test_answers_come_after_the_end_of_input(self, loaded: str) -> None:
        """Who pipes requests in and closes gets all answers before the shim ends."""
        shim = await Shim.start(loaded)
        for number in range(5):
            shim.request(number, "tools/call", STATUS)
        assert shim.process.stdin is not None
        shim.process.stdin.close()
        assert {(await shim.hear())["id"] for _ in range(5)} == set(range(5))
        assert await shim.ended() == 0

    async def test_wrong_calls_are_answered(self, shim: Shim) -> None:
        """Unknown tools, wrong types and unknown methods are errors that an agent can act on, never a traceback."""
        unknown = (await shim.ask("tools/call", {"name": "amnesia_remenber", "arguments": {}}))["error"]
        assert "did you mean amnesia_remember?" in unknown["message"]
        wrong = (await shim.ask("tools/call", {"name": "amnesia_recall", "arguments": {"limit": "x"}}))["result"]
        assert wrong["isError"]
        assert "limit" in wrong["content"][0]["text"]
        shapes: list[Any] = [
            None,
            [],
            {"name": 5},
            {"name": "amnesia_recall", "arguments": "x"},
            "text",
            {"name": "é" * 50},
        ]
        for params in shapes:
            assert "error" in await shim.ask("tools/call", params)
        assert (await shim.ask("no/such"))["error"]["code"] == -32601

    async def test_huge_arguments(self, shim: Shim) -> None:
        """A message past the limit is refused under its id, wherever the id stands, and the next one is answered."""
        huge = b"x" * MAX_REQUEST_BYTES
        shim.say(b'{"jsonrpc":"2.0","id":"first","method":"tools/call","params":{"a":"' + huge + b'"}}')
        shim.say(b'{"method":"tools/call","params":{"id":7,"a":"' + 3 * huge + b'"},"jsonrpc":"2.0","id":8}')
        shim.say(b'["' + huge + b'"]')
        answers = [await shim.hear() for _ in range(3)]
        assert [answer["id"] for answer in answers] == ["first", 8, None]
        assert {answer["error"]["data"]["code"] for answer in answers} == {"too_large"}
        answer = await shim.ask("tools/call", {"name": "amnesia_remember", "arguments": {"content": "x" * 500_000}})
        assert "too_large" in answer["result"]["content"][0]["text"]

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (b"nonsense", -32700),
            (b"\xff\xfe{", -32700),
            (b"[" * 100_000, -32700),
            (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
            (b"5", -32600),
            (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":1}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"text"}', -32600),
        ],
        ids=lambda value: str(value)[:24],
    )
    async def test_what_is_no_request(self, shim: Shim, line: bytes, code: int) -> None:
        """What is no JSON-RPC request gets the error of that name, and the shim goes on."""
        shim.say(line, b'{"jsonrpc":"2.0","id":9,"result":{}}')
        assert (await shim.hear())["error"]["code"] == code
        assert (await shim.ask("ping"))["result"] == {}

    @pytest.mark.parametrize(
        ("sent", "told"), [("1.5", 1.5), ("1.0", 1.0), ("true", True), ("NaN", None), ("1e999", None)]
    )
    async def test_an_id_that_is_none(self, shim: Shim, sent: str, told: object) -> None:
        """What MCP takes for no id is answered with an error that the client finds again, and always as JSON."""
        shim.say(f'{{"jsonrpc":"2.0","id":{sent},"method":"tools/call","params":{json.dumps(STATUS)}}}'.encode())
        answer = await shim.hear()
        assert answer["id"] == told
        assert answer["error"]["code"] == -32600

    async def test_params_may_be_null(self, shim: Shim) -> None:
        """Some clients write null for parameters that they do not give."""
        shim.say(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}')
        assert len((await shim.hear())["result"]["tools"]) == 11


class TestWithoutADaemon:
    """While none answers, and when it goes."""

    async def test_a_client_that_comes_first_finds_the_tools(self, fleet: Fleet) -> None:
        """Without a daemon the tools are listed all the same, a call says how to start it, and works once it is up."""
        await fleet.store()
        shim = await Shim.start(fleet.socket())
        assert (await shim.ask("initialize", HELLO))["result"]["protocolVersion"] == "2025-11-25"
        offline = (await shim.ask("tools/list"))["result"]["tools"]
        error = (await shim.ask("tools/call", STATUS))["error"]
        assert error["data"]["code"] == "unreachable"
        assert "amnesia up" in error["message"]
        await fleet.daemon()
        await asyncio.to_thread(load, fleet.socket())
        assert (await shim.tool("status")).startswith("w: 0 active")
        online = (await shim.ask("tools/list"))["result"]["tools"]
        assert sorted(online, key=lambda tool: tool["name"]) == sorted(offline, key=lambda tool: tool["name"])
        assert await shim.close() == 0

    async def test_every_revision_is_answered(self, alone: Shim) -> None:
        """The handshake of any revision, discovery and ping are answered without a daemon."""
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            told = (await alone.ask("initialize", {**HELLO, "protocolVersion": version}))["result"]
            assert told["protocolVersion"] == version
        told = (await alone.ask("initialize", {**HELLO, "protocolVersion": "2020-01-01"}))["result"]
        assert told["protocolVersion"] == "2025-11-25"
        assert told["instructions"] == load_table().instructions
        discovered = (await alone.ask("server/discover", {"_meta": MODERN}))["result"]
        assert discovered["supportedVersions"] == ["2026-07-28"]
        assert discovered["resultType"] == "complete"
        assert (await alone.ask("ping"))["result"] == {}

    async def test_a_daemon_killed_in_mid_call(self, fleet: Fleet) -> None:
        """A daemon that is gone before it answered is an error at once, and never a hang."""
        await fleet.store()
        process = await fleet.daemon()
        await asyncio.to_thread(load, fleet.socket())
        shim = await Shim.start(fleet.socket())
        assert (await shim.tool("status")).startswith("w: ")
        process.signal(signal.SIGSTOP)
        shim.request(2, "tools/call", STATUS)
        await asyncio.sleep(0)
        await wait_until(lambda: connections(shim.pid) > 0)
        process.signal(signal.SIGKILL)
        error = (await shim.hear())["error"]
        assert error["data"]["code"] == "unreachable"
        assert "went away" in error["message"]
        assert "amnesia up" in (await shim.ask("tools/call", STATUS))["error"]["message"]
        assert await shim.close() == 0

    async def test_a_daemon_that_never_answers(self, tmp_path: Path) -> None:
        """Whatever is behind the socket, a call ends within its deadline; one that was cancelled is not answered."""
        taken = asyncio.Queue[asyncio.StreamWriter]()
        server = await asyncio.start_unix_server(lambda _reader, writer: taken.put_nowait(writer), tmp_path / "s")
        shim = await Shim.start(tmp_path / "s")
        shim.request("gone", "tools/call", STATUS)
        shim.request("kept", "tools/call", STATUS)
        shim.say(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"gone"}}')
        # The end of the input comes before the calls' deadlines begin, and must not be over before they are.
        assert shim.process.stdin is not None
        shim.process.stdin.close()
        writers = [await taken.get(), await taken.get()]
        started = asyncio.get_running_loop().time()
        answer = await shim.hear()
        assert answer["id"] == "kept"
        assert answer["error"]["data"]["code"] == "deadline"
        assert asyncio.get_running_loop().time() - started < 15
        assert await shim.close() == 0
        assert await shim.process.stdout.read() == b""  # type: ignore[union-attr]
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()

    @pytest.mark.parametrize("path", ["/" + 200 * "x", "/dev/null/x", "~no-such-user/x"])
    async def test_a_path_that_cannot_be(self, path: str) -> None:
        """A path that no socket can have is named; nothing is said of a write that may have landed, for none can
        have."""
        shim = await Shim.start(path)
        error = (await shim.ask("tools/call", STATUS))["error"]
        assert error["data"]["code"] == "unreachable"
        assert path in error["message"]
        assert "landed" not in error["message"]
        assert await shim.close() == 0

    async def test_something_else_behind_the_socket(self, tmp_path: Path) -> None:
        """What does not speak HTTP, or no JSON-RPC, is an error too."""
        replies = [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", b"HTTP/1.1 500 X\r\n\r\n"]

        async def reply(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(replies.pop())
            writer.close()

        server = await asyncio.start_unix_server(reply, tmp_path / "s")
        shim = await Shim.start(tmp_path / "s")
        for _ in range(3):
            assert (await shim.ask("tools/call", STATUS))["error"]["code"] == -32000
        assert await shim.close() == 0
        server.close()
        await server.wait_closed()


class TestProcess:
    """As a process among a hundred others."""

    async def test_it_is_small(self, shim: Shim) -> None:
        """After its first calls a shim has less than fifteen megabytes."""
        await shim.ask("initialize", HELLO)
        await shim.ask("tools/list")
        await shim.tool("status")
        assert resident_mb(shim.pid) < MAX_RSS_MB

    async def test_many_on_one_daemon(self, loaded: str) -> None:
        """Shims started together are all answered, and all end with their clients."""
        shims = await asyncio.gather(*(Shim.start(loaded) for _ in range(MANY)))
        texts = await asyncio.gather(*(shim.tool("status") for shim in shims))
        assert all(text.startswith("w: ") for text in texts)
        assert await asyncio.gather(*(shim.close() for shim in shims)) == [0] * MANY

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    async def test_a_signal_ends_it(self, loaded: str, number: signal.Signals) -> None:
        """Asked to end, it ends at once and well, also while it waits for its client."""
        shim = await Shim.start(loaded)
        await shim.ask("ping")
        shim.process.send_signal(number)
        assert await shim.ended() == 0

    async def test_it_ends_when_nobody_reads(self, loaded: str) -> None:
        """When the reader of its output has gone, the next answer ends it."""
        read, write = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *SHIM, env={**os.environ, "AMNESIA_SOCKET": loaded}, stdin=PIPE, stdout=write, stderr=DEVNULL
        )
        os.close(write)
        os.close(read)
        assert process.stdin is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        process.stdin.close()

    async def test_it_ends_with_its_parent(self, loaded: str) -> None:
        """A parent that is killed leaves no shim behind, even if somebody else still holds the pipe open."""
        read, write = os.pipe()
        command = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", command, *SHIM, env={**os.environ, "AMNESIA_SOCKET": loaded}, stdin=read, stdout=PIPE
        )
        os.write(write, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert parent.stdout is not None
        assert json.loads(await asyncio.wait_for(parent.stdout.readline(), PATIENCE_S))["result"] == {}
        [pid] = children(parent.pid)
        parent.kill()
        await wait_until(lambda: not running(pid))
        await parent.wait()
        os.close(read)
        os.close(write)

    async def test_it_ends_with_its_parent_though_nobody_reads(self, loaded: str) -> None:
        """Also while it waits for somebody to read its answers, who still holds the pipe open and never will."""
        inputs, answers = os.pipe(), os.pipe()
        command = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
        environ = {**os.environ, "AMNESIA_SOCKET": loaded}
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", command, *SHIM, env=environ, stdin=inputs[0], stdout=answers[1]
        )
        # More than the pipe and all requests under way can hold, so that no part of the shim can go on.
        os.write(inputs[1], b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n' * 60)
        await wait_until(lambda: waiting(answers[0]) >= 40_000)
        [pid] = children(parent.pid)
        parent.kill()
        await wait_until(lambda: not running(pid))
        await parent.wait()
        for end in (*inputs, *answers):
            os.close(end)

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
    def test_started_without_pipes(self, loaded: str, closed: str) -> None:
        """Where there is nobody to hear or to answer from the beginning, it ends at once and well."""
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", *SHIM]
        environ = {**os.environ, "AMNESIA_SOCKET": loaded}
        ask = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        done = subprocess.run(command, input=ask, env=environ, capture_output=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    def test_wrong_usage(self) -> None:
        """A person who types it with arguments is told what it is for."""
        done = subprocess.run([*SHIM, "--help-me"], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 2
        assert "agents start it" in done.stderr

    def test_the_command_is_the_shim(self, up: Any) -> None:
        """``amnesia mcp`` is that program."""
        done = subprocess.run(
            [sys.executable, "-c", "from amnesiad.entry import main; import sys; sys.exit(main())", "mcp"],
            input='{"jsonrpc":"2.0","id":1,"method":"ping"}\n', env=up.environ, capture_output=True, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0
        assert json.loads(done.stdout)["result"] == {}


def waiting(pipe: int) -> int:
    """The bytes that a pipe holds."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def connections(pid: int) -> int:
    """The sockets that a process has open."""
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    return sum(link.startswith("socket:") for link in links)


def resident_mb(pid: int) -> float:
    """What a process has in memory, shared pages included."""
    listing = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(listing.stdout) / 1024
