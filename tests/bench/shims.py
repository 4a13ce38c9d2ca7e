"""What an agent pays for its memory's MCP server: the shim's start and size, and a hundred of them on one daemon."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.daemon import up
from tests.bench.figures import Figure, side_by_side

import amnesiad
from amnesiad.api.listen import peer_pid

SHIM = (sys.executable, "-I", "-S", str(Path(amnesiad.__file__).parent / "shims" / "mcp.py"))
BARE = (sys.executable, "-I", "-S", "-c", "import json, socket; input()")
STARTS = 10
FLEET = 100
FLEET_BUDGET_MB = 1536
SHIM_BUDGET_MB = 15
PATIENCE_S = 120.0

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


async def figures() -> list[Figure]:
    """Everything about shims, against a daemon of their own that the first of them has load its MCP server."""
    async with up() as environ:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(environ["AMNESIA_SOCKET"])
            pid = peer_pid(sock)
        assert pid is not None
        before = _megabytes(pid, "VmRSS")
        await _end(await _start(environ))
        return [await _starts(environ), *(await _fleet(environ, pid, before))]


async def _starts(environ: Mapping[str, str]) -> Figure:
    """From the start of the process to the answer of its handshake, beside a Python that only imports what it needs."""

    async def ours(_number: int) -> None:
        for _ in range(STARTS):
            await _end(await _start(environ))

    async def theirs(_number: int) -> None:
        for _ in range(STARTS):
            bare = await asyncio.create_subprocess_exec(*BARE, stdin=PIPE)
            await bare.communicate(b"\n")

    mine, bare = await side_by_side(ours, theirs)
    return Figure("shim, start to answer to end", mine / STARTS * 1000, "bare Python", bare / STARTS * 1000, "ms")


async def _fleet(environ: Mapping[str, str], daemon: int, before: float) -> list[Figure]:
    """A hundred at once, each with a call: one shim's size, and what all of them and the daemon's growth take."""
    shims = await asyncio.gather(*(_start(environ) for _ in range(FLEET)))
    calls = [
        _ask(shim, "tools/call", {"name": "amnesia_status", "arguments": {"workspace": "bench"}}) for shim in shims
    ]
    answers = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
    assert all("active" in answer["result"]["content"][0]["text"] for answer in answers)
    sizes = [_megabytes(shim.pid, "VmRSS") for shim in shims]
    extra = sum(sizes) + _megabytes(daemon, "VmRSS") - before
    await asyncio.gather(*map(_end, shims))
    return [
        Figure("one shim, resident", max(sizes), "its budget", SHIM_BUDGET_MB, "MB"),
        Figure(f"{FLEET} shims and the daemon's growth", extra, "their budget", FLEET_BUDGET_MB, "MB"),
    ]


async def _start(environ: Mapping[str, str]) -> Process:
    """A shim that has answered the handshake."""
    shim = await asyncio.create_subprocess_exec(*SHIM, env=dict(environ), stdin=PIPE, stdout=PIPE, limit=1 << 20)
    assert "result" in await _ask(shim, "initialize", HELLO)
    return shim


async def _ask(shim: Process, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    assert shim.stdin is not None
    assert shim.stdout is not None
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    shim.stdin.write(json.dumps(request).encode() + b"\n")
    answer: dict[str, Any] = json.loads(await asyncio.wait_for(shim.stdout.readline(), PATIENCE_S))
    return answer


async def _end(shim: Process) -> None:
    assert shim.stdin is not None
    shim.stdin.close()
    assert await asyncio.wait_for(shim.wait(), PATIENCE_S) == 0


def _megabytes(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) / 1024
