"""The MCP server as others' programs see it: the official client, the inspector, and the conformance suite's
judgment."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from tests import node_tools
from tests.support import PATIENCE_S, Fleet, Process

import amnesiad
from amnesiad.mcp.table import load_table
from amnesiad.shims import connect
from amnesiad.tasks import end

SHIM: Final = ["-I", "-S", str(Path(amnesiad.__file__).parent / "shims" / "mcp.py")]
TOOLS: Final = sorted(load_table().tools)
CALL_ID: Final = "claudecode/toolUseId"


class Served(NamedTuple):
    """A running ``amnesia up`` that also listens on loopback."""

    url: str
    token: str
    socket: str
    pid: int


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """``amnesia up`` with ``http`` on, for the tests of this file."""
    with tempfile.TemporaryDirectory(prefix="amnesia-mcp-") as directory:
        fleet, home = Fleet(Path(directory)), Path(directory)
        address = f"127.0.0.1:{free_port()}"
        environ = fleet.environ("a", AMNESIA_HTTP=address)
        process = Process([sys.executable, "-m", "amnesiad.cli", "up"], environ, home / "up.log")
        try:
            asyncio.run(process.ready("amnesia is up"))
            token = (home / "state" / "http.token").read_text().strip()
            # Loading the server may take longer on a busy machine than a shim waits.
            with connect.Connection(str(fleet.socket())) as line:
                ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
                line.exchange("/mcp", ping, headers=[("accept", "application/json")], deadline_s=PATIENCE_S)
            yield Served(f"http://{address}/mcp", token, str(fleet.socket()), process.pid)
        finally:
            process.end()
        assert process.code == 0, process.said
        assert "Traceback" not in process.said
        assert "lint before" not in process.said, "a note's words are in the log"


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@asynccontextmanager
async def connected(served: Served, face: str, mode: str) -> AsyncIterator[Client]:
    """The official client, over HTTP or by the shim, beginning with a handshake (``legacy``) or without one."""
    if face == "shim":
        environ = {"AMNESIA_SOCKET": served.socket, "AMNESIA_WORKSPACE": f"{face}-{mode}"}
        async with Client(StdioServerParameters(command=sys.executable, args=SHIM, env=environ), mode=mode) as client:
            yield client
        return
    headers = {"authorization": f"Bearer {served.token}", "x-amnesia-workspace": f"{face}-{mode}"}
    async with httpx2.AsyncClient(headers=headers) as http:
        transport: Any = streamable_http_client(served.url, http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


def text_of(result: Any) -> str:
    """The one text of a result that is no error."""
    [content] = result.content
    assert not result.is_error, content.text
    return str(content.text)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("face", ["http", "shim"])
class TestOfficialClient:
    """The SDK's own client, by both ways and in both ages of the protocol."""

    async def test_it_lists_and_calls(self, served: Served, face: str, mode: str) -> None:
        """All tools are listed with their annotations, and a note lives and ends through them."""
        async with connected(served, face, mode) as client:
            tools = (await client.list_tools()).tools
            assert sorted(tool.name for tool in tools) == TOOLS
            assert {tool.name: tool.annotations.read_only_hint for tool in tools if tool.annotations}["amnesia_recall"]
            told = text_of(
                await client.call_tool("amnesia_remember", {"content": "Run lint before tests.", "ttl": "2h"})
            )
            note = told.split()[1].rstrip(";")
            assert f"[{note}]" in text_of(await client.call_tool("amnesia_recall", {"query": "lint"}))
            assert "1 active" in text_of(await client.call_tool("amnesia_status", {}))
            assert "forgotten" in text_of(await client.call_tool("amnesia_forget", {"id": note}))

    async def test_refusals_are_results(self, served: Served, face: str, mode: str) -> None:
        """What a tool refuses is a result that is marked as an error; a tool that does not exist is the protocol's."""
        async with connected(served, face, mode) as client:
            refused = await client.call_tool("amnesia_remember", {"content": "Too short.", "ttl": "-1s"})
            assert refused.is_error
            assert "hint: " in refused.content[0].text  # type: ignore[union-attr]
            with pytest.raises(MCPError, match="amnesia_recall"):
                await client.call_tool("amnesia_recal", {})

    async def test_a_call_named_by_claude_code_without_hooks(self, served: Served, face: str, mode: str) -> None:
        """Where no hook was ever heard, the id of a call in its ``_meta`` changes nothing."""
        async with connected(served, face, mode) as client:
            text_of(await client.call_tool("amnesia_status", {}, meta=cast("Any", {CALL_ID: "toolu_x"})))


class TestClaudeCode:
    """Claude Code tells an MCP server nothing of who calls; its hooks do, just before."""

    def hook(self, served: Served, call: str, **more: str) -> None:
        """What its hook before a tool sends."""
        payload = {
            "hook_event_name": "PreToolUse", "session_id": "s1", "cwd": "/nowhere", "transcript_path": "/nowhere/t",
            "tool_name": "mcp__amnesiad__amnesia_remember", "tool_input": {}, "tool_use_id": call, **more,
        }  # fmt: skip
        with connect.Connection(served.socket) as line:
            target = "/v1/hooks/claude-code?workspace=hooked"
            answer = line.exchange(target, json.dumps(payload).encode(), deadline_s=PATIENCE_S)
        assert answer.status == 200, answer.body

    async def test_a_subagent_writes_for_itself(self, served: Served) -> None:
        """An announced call of a subagent's is its own, its parent's is the parent's, and one that no hook announced is
        refused."""
        self.hook(served, "toolu_child", agent_id="a1", agent_type="explorer")
        self.hook(served, "toolu_main")
        async with connected(served, "shim", "legacy") as client:

            async def call(tool: str, call_id: str, **arguments: str) -> Any:
                meta: Any = {CALL_ID: call_id}
                return await client.call_tool(f"amnesia_{tool}", {"workspace": "hooked", **arguments}, meta=meta)

            text_of(await call("remember", "toolu_child", content="The child's own note.", ttl="1h"))
            assert "The child's own note." in text_of(await call("recall", "toolu_child"))
            assert text_of(await call("recall", "toolu_main")) == "nothing found"
            refused = await call("recall", "toolu_unheard_of")
            assert refused.is_error
            assert refused.content[0].text.startswith("refused: no hook announced this call")


async def test_without_the_token_nobody_enters(served: Served) -> None:
    """On loopback, where every user of the machine comes by, the token is asked for."""
    async with httpx2.AsyncClient() as http:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            reply = await http.post(served.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
            assert reply.status_code == 403
            assert "http.token" in reply.json()["error"]["hint"]


class TestInspector:
    """``@modelcontextprotocol/inspector --cli`` in front of the shim."""

    def inspect(self, served: Served, tmp_path: Path, *arguments: str) -> Any:
        """What it prints for a method."""
        node, inspector = node_tools.tool("node"), node_tools.tool("inspector")
        config = tmp_path / "mcp.json"
        environ = {"AMNESIA_SOCKET": served.socket, "AMNESIA_WORKSPACE": "inspected"}
        server = {"command": sys.executable, "args": SHIM, "env": environ}
        config.write_text(json.dumps({"mcpServers": {"amnesiad": server}}))
        done = subprocess.run(
            [node, inspector, "--cli", "--config", str(config), "--server", "amnesiad", *arguments],
            env={**os.environ, "HOME": str(tmp_path), "MCP_INSPECTOR_SECRET_STORE": "memory"},
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def test_it_lists_the_tools(self, served: Served, tmp_path: Path) -> None:
        """All tools are listed, and it finds no fault with their schemas."""
        listed = self.inspect(served, tmp_path, "--method", "tools/list", "--strict")
        assert sorted(tool["name"] for tool in listed["tools"]) == TOOLS

    def test_it_calls_them(self, served: Served, tmp_path: Path) -> None:
        """A note that it writes is found by its next call."""
        call = ("--method", "tools/call", "--tool-name")
        self.inspect(served, tmp_path, *call, "amnesia_remember", "--tool-arg", "content=Inspectors look.", "ttl=1h")
        recalled = self.inspect(served, tmp_path, *call, "amnesia_recall", "--tool-arg", "query=inspectors")
        assert "Inspectors look." in recalled["content"][0]["text"]


NO_FIXTURES: Final = "it calls a tool that the suite wants a server under test to have, and ours are no test tools"
TOOLS_ONLY: Final = "the server has tools and nothing else: no resources, prompts, completion or log level"
NO_SESSIONS: Final = "the server keeps no sessions and opens no streams: it says so by 405 and by giving no session id"
NO_PARAM_HEADERS: Final = "no tool of ours has an argument that is repeated in a header"

NOT_OURS: Final[Mapping[str, str]] = {
    "completion-complete": TOOLS_ONLY,
    "logging-set-level": TOOLS_ONLY,
    "prompts-": TOOLS_ONLY,
    "resources-": TOOLS_ONLY,
    "sep-2164-": TOOLS_ONLY,
    "sep-2549-prompts-list-": TOOLS_ONLY,
    "sep-2549-resources-": TOOLS_ONLY,
    "sep-2322-non-tool-": TOOLS_ONLY,
    "elicitation-": NO_FIXTURES,
    "json-schema-2020-12-tool-found": NO_FIXTURES,
    "sep-2322-": NO_FIXTURES,
    "tools-call-": NO_FIXTURES,
    "sep-2575-server-rejects-undeclared-capability": NO_FIXTURES,
    "sep-2575-missing-capability-http-400": NO_FIXTURES,
    "sep-2575-http-server-no-independent-requests-on-stream": NO_FIXTURES,
    "sep-2575-server-no-log-without-loglevel": NO_FIXTURES,
    "server-sse-": NO_SESSIONS,
    "sep-2243-server-no-xmcp-tool": NO_PARAM_HEADERS,
    "sep-2243-server-decode-base64": NO_PARAM_HEADERS,
    "sep-2243-server-validate-param-match": NO_PARAM_HEADERS,
    "sep-2243-server-reject-invalid-param-chars": NO_PARAM_HEADERS,
    "sep-2243-server-reject-param-mismatch": NO_PARAM_HEADERS,
}
"""The checks that need not pass, by the beginning of their ids, and why they say nothing about this server."""

PASSING: Final[Mapping[str, tuple[frozenset[str], int]]] = {
    "2025-06-18": (frozenset({"server-initialize", "ping", "tools-list"}), 25),
    "2025-11-25": (frozenset({"server-initialize", "ping", "tools-list", "dns-rebinding-protection"}), 30),
    "2026-07-28": (frozenset({"tools-list", "dns-rebinding-protection", "http-header-validation"}), 75),
}
"""Of each revision the scenarios that are to pass as a whole (of the others every check that is not in ``NOT_OURS``),
and how many checks pass at least: far fewer would mean that the suite did not get anywhere."""


_RUN_AT: Final = re.compile(r"-\d{4}-\d\d-\d\dT[^T]*$")
"""How the suite ends the name of a scenario's folder: a date, and a time whose parts may look like a year's
beginning."""


class TestConformance:
    """``@modelcontextprotocol/conformance`` against the HTTP face, every scenario of every revision that we speak."""

    @pytest.mark.parametrize("revision", PASSING)
    async def test_what_applies_passes(self, served: Served, tmp_path: Path, revision: str) -> None:
        """Each check passes, or is one of those that are listed with the reason why they do not apply."""
        node, suite = node_tools.tool("node"), node_tools.tool("conformance")
        whole, least = PASSING[revision]
        async with admitting(served) as url:
            command = [node, suite, "server", "--url", url, "--suite", "all", "--spec-version", revision]
            done = await asyncio.create_subprocess_exec(
                *command, "-o", str(tmp_path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            said, _ = await asyncio.wait_for(done.communicate(), PATIENCE_S)
        checks = judged(tmp_path)
        assert checks, said.decode()
        wrong = [
            f"{scenario} {check['id']}: {check.get('errorMessage')}"
            for scenario, check in checks
            if check["status"] in ("FAILURE", "WARNING")
            and (scenario in whole or not check["id"].startswith(tuple(NOT_OURS)))
        ]
        assert wrong == []
        passed = [scenario for scenario, check in checks if check["status"] == "SUCCESS"]
        assert whole <= set(passed)
        assert len(passed) >= least


def judged(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Every check that the suite has written down, with the scenario it belongs to."""
    found = []
    for path in sorted(folder.glob("server-*/checks.json")):
        scenario = _RUN_AT.sub("", path.parent.name.removeprefix("server-"))
        found += [(scenario, check) for check in json.loads(path.read_text())]
    return found


@asynccontextmanager
async def admitting(served: Served) -> AsyncIterator[str]:
    """The URL of a gate that adds the token to every request: the suite has no way to be given one."""
    host, _, port = served.url.removeprefix("http://").removesuffix("/mcp").partition(":")
    token = f"authorization: Bearer {served.token}\r\n".encode()

    async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner = await asyncio.open_connection(host, int(port))

        async def inward() -> None:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                inner.write(head[:-2] + token + b"\r\n" + await reader.readexactly(length))
                await inner.drain()

        async def outward() -> None:
            while data := await inner_reader.read(65536):
                writer.write(data)
                await writer.drain()

        ways = [asyncio.create_task(inward()), asyncio.create_task(outward())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        await end(*ways)
        for one in (writer, inner):
            one.close()
        await asyncio.gather(writer.wait_closed(), inner.wait_closed(), return_exceptions=True)

    gate = await asyncio.start_server(admit, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{gate.sockets[0].getsockname()[1]}/mcp"
    finally:
        gate.close()
        await gate.wait_closed()
