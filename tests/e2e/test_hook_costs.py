"""What hooks leave behind in the daemon: nothing. And what a status line shows of a real one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.e2e.conftest import Up
from tests.support import PATIENCE_S, Fleet, children, wait_until

from amnesiad import Client, shims
from amnesiad.install import commands
from amnesiad.shims.connect import Connection

SESSIONS: Final = 200
WARM: Final = 150
"""Sessions before the baseline: a process that has just started loads what it needs, and collects garbage seldom."""
AT_ONCE: Final = 4
"""As many agents as a person has at work, and as many connections as the daemon's pools may differ by."""
GROWTH_KIB: Final = 16 * 1024
"""What an allocator may keep. A session that stayed behind with its connection would show as descriptors first."""


class Held(NamedTuple):
    """What a process holds: descriptors, memory (KiB) and the processes below it."""

    descriptors: int
    memory_kib: int
    processes: int


def of_a_session(name: str, directory: Path) -> tuple[dict[str, object], dict[str, object]]:
    """What Claude Code says at a session's start and at its end."""
    base: dict[str, object] = {"session_id": name, "cwd": str(directory)}
    start: dict[str, object] = {**base, "hook_event_name": "SessionStart", "source": "startup"}
    return start, {**base, "hook_event_name": "SessionEnd", "reason": "exit"}


def held(pid: int) -> Held:
    """What the process holds now."""
    memory = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
    return Held(len(list(Path(f"/proc/{pid}/fd").iterdir())), int(memory), len(children(pid)))


async def hook(line: str, payload: dict[str, object], environ: dict[str, str]) -> bytes:
    """Run one hook as an agent does; what it printed."""
    process = await asyncio.create_subprocess_shell(
        line, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environ
    )
    out, _ = await process.communicate(json.dumps(payload).encode())
    assert process.returncode == 0
    return out


@pytest.mark.timeout(180)
async def test_two_hundred_sessions_leave_the_baseline(fleet: Fleet) -> None:
    """C43: descriptors, memory and processes of the daemon are what they were, and no session is left open."""
    up = await fleet.up()
    source = fleet.home / "src"
    source.mkdir()
    async with fleet.client(workspace=str(source)) as client:
        await client.remember("the tests are slow", kind="directive")
        line = commands.hook_line("claude-code", "curl", socket=str(fleet.socket()))
        environ, free = fleet.environ("a"), asyncio.Semaphore(AT_ONCE)

        def exchange(name: str) -> None:
            with Connection(str(fleet.socket())) as connection:
                for payload in of_a_session(name, source):
                    connection.exchange("/v1/hooks/claude-code", json.dumps(payload).encode(), deadline_s=PATIENCE_S)

        async def warm(name: str) -> None:
            async with free:
                await asyncio.to_thread(exchange, name)

        async def session(name: str) -> bytes:
            async with free:
                start, end = of_a_session(name, source)
                told = await hook(line, start, environ)
                await hook(line, end, environ)
                return told

        async def all_closed() -> bool:
            return all(row.state == "closed" for row in (await client.owners()).rows)

        await asyncio.gather(*(warm(f"warm-{number}") for number in range(WARM)))
        await wait_until(all_closed, PATIENCE_S)
        before = held(up.pid)
        told = await asyncio.gather(*(session(f"s-{number}") for number in range(SESSIONS)))
        await wait_until(lambda: held(up.pid).descriptors <= before.descriptors + AT_ONCE)
        await wait_until(all_closed, PATIENCE_S)
        after = held(up.pid)
    # A hook waits a second for its answer, which a busy machine does not give it every time.
    assert sum(b"the tests are slow" in text for text in told) > SESSIONS // 2
    assert after.processes == before.processes
    assert after.memory_kib - before.memory_kib < GROWTH_KIB


def test_a_status_line(up: Up, tmp_path: Path) -> None:
    """The workspace is that of the directory the agent shows; the line says what lives in it and what went last."""
    (tmp_path / "deep").mkdir()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    shim = [sys.executable, "-I", "-S", str(Path(shims.__file__).with_name("statusline.py")), "--socket", up.socket]
    drawn = json.dumps({"session_id": "s-1", "workspace": {"current_dir": str(tmp_path / "deep")}}).encode()

    def line() -> str:
        return subprocess.run(shim, input=drawn, env=dict(os.environ), capture_output=True, check=True).stdout.decode()

    assert line() == ""
    with Client(up.socket, workspace=str(tmp_path)) as client:
        client.remember("kept")
        client.forget(id=client.remember("gone").id)
    shown = line()
    assert shown.startswith("🧠 1 active · ")
    assert shown.endswith(" tok · last forgotten just now\n")
