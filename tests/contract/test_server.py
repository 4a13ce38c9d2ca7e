"""The embedded server: its life and death, one to a directory and socket, and what it is told; all with real
processes."""

# ruff: noqa: ASYNC240 - a test may block its own event loop for a file of a few bytes.

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from tests.contract.files import unowned
from tests.support import wait_until

import amnesiad
from amnesiad.errors import ConfigError, StoreUnavailable
from amnesiad.limits import SUN_PATH_BYTES
from amnesiad.store.connect import connect
from amnesiad.store.server import EmbeddedServer

# A program that owns a server until it is killed. It says which processes it has, and waits.
OWNER = """
import asyncio, sys, threading
from pathlib import Path
from amnesiad.store.server import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
asyncio.run(server.start())
print(server.pid, server._guard.pid, flush=True)
threading.Event().wait()
"""


def owner(data_dir: Path) -> subprocess.Popen[str]:
    """Another process that owns a server on this directory."""
    source = Path(amnesiad.__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data_dir)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )


def pids(process: subprocess.Popen[str]) -> tuple[int, int]:
    """The server's and the guard's pid, once the owner has said them."""
    assert process.stdout is not None
    server, guard = process.stdout.readline().split()
    return int(server), int(guard)


# -- life and death ----------------------------------------------------------------------------------------------------


async def test_acknowledged_writes_survive_sigkill(data_dir: Path) -> None:
    """Everything the server acknowledged is there again after it was killed and the same object started it anew."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        for number in range(300):
            await client.xadd("log", {"n": number})
        await client.aclose()
        killed = server.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        await wait_until(lambda: not server.alive)
        assert await server.start() == server.url
        assert server.pid != killed
        client = await connect(server.url)
        entries = cast(Any, await client.xrange("log"))
        assert [int(fields[b"n"]) for _, fields in entries] == list(range(300))
        await client.aclose()


async def test_a_clean_stop_keeps_the_data_and_leaves_nothing_running(data_dir: Path) -> None:
    """After stop the process, the guard and the socket are gone, and the next start finds the data."""
    server = EmbeddedServer(data_dir)
    url = await server.start()
    assert await server.start() == url
    client = await connect(url)
    await client.set("k", "v")
    await client.aclose()
    guard = server._guard
    assert guard is not None
    await server.stop()
    await server.stop()
    assert not server.alive
    assert server.pid is None
    assert guard.returncode is not None
    assert not server.socket_path.exists()
    assert unowned(data_dir)
    async with EmbeddedServer(data_dir, durability="always") as again:
        client = await connect(again.url)
        assert await client.get("k") == b"v"
        assert (await client.config_get("appendfsync"))["appendfsync"] == "always"
        await client.aclose()


async def test_a_stop_ends_even_a_server_that_does_not_answer(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs is killed when the time for a clean shutdown is over, and loses no write for it."""
    monkeypatch.setattr("amnesiad.store.server.ASK_TIMEOUT_S", 0.05)
    monkeypatch.setattr("amnesiad.store.server.STOP_TIMEOUT_S", 0.05)
    server = EmbeddedServer(data_dir)
    client = await connect(await server.start())
    await client.set("k", "v")
    await client.aclose()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    await server.stop()
    assert unowned(data_dir)
    assert not server.socket_path.exists()
    monkeypatch.undo()
    async with EmbeddedServer(data_dir) as again:
        client = await connect(again.url)
        assert await client.get("k") == b"v"
        await client.aclose()


async def test_no_server_outlives_a_killed_owner(data_dir: Path) -> None:
    """When the owner is SIGKILLed the server ends by itself, in good order: its socket goes with it."""
    with owner(data_dir) as process:
        pids(process)
        assert not unowned(data_dir)
        process.kill()
    await wait_until(lambda: unowned(data_dir))
    assert not (data_dir / "store.sock").exists()


async def test_a_server_left_behind_is_taken_over(data_dir: Path) -> None:
    """When the guard is killed together with the owner, the next start shuts the server down and keeps its data."""
    with owner(data_dir) as process:
        left, guard = pids(process)
        client = await connect(f"unix://{data_dir}/store.sock")
        await client.set("k", "v")
        await client.aclose()
        os.kill(guard, signal.SIGKILL)
        process.kill()
    assert not unowned(data_dir)
    async with EmbeddedServer(data_dir) as server:
        assert server.pid != left
        client = await connect(server.url)
        assert await client.get("k") == b"v"
        await client.aclose()


async def test_a_deaf_server_left_behind_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that neither answers nor goes is not worked around: the start fails and says which process it is."""
    monkeypatch.setattr("amnesiad.store.server.ASK_TIMEOUT_S", 0.05)
    monkeypatch.setattr("amnesiad.store.server.STOP_TIMEOUT_S", 0.05)
    with owner(data_dir) as process:
        left, guard = pids(process)
        os.kill(guard, signal.SIGKILL)
        os.kill(left, signal.SIGSTOP)
        process.kill()
    try:
        with pytest.raises(StoreUnavailable, match=f"process {left}\\b"):
            await EmbeddedServer(data_dir).start()
    finally:
        os.kill(left, signal.SIGKILL)
    await wait_until(lambda: unowned(data_dir))


# -- one server per directory and socket -------------------------------------------------------------------------------


async def test_a_second_server_on_a_directory_is_refused_by_name(data_dir: Path) -> None:
    """A second owner is told the first one's pid, and the first one's server goes on undisturbed."""
    async with EmbeddedServer(data_dir) as server:
        with pytest.raises(ConfigError, match=f"process {os.getpid()}\\b") as refused:
            await EmbeddedServer(data_dir, data_dir / "other.sock").start()
        assert refused.value.field == "state_dir"
        assert refused.value.hint
        client = await connect(server.url)
        await client.aclose()
    with owner(data_dir) as process:
        pids(process)
        with pytest.raises(ConfigError, match=f"process {process.pid}\\b"):
            await EmbeddedServer(data_dir).start()
        process.kill()
    await wait_until(lambda: unowned(data_dir))


async def test_a_socket_that_answers_is_refused(data_dir: Path, redis_server: EmbeddedServer) -> None:
    """A server of another directory keeps its socket."""
    with pytest.raises(ConfigError, match="another server answers"):
        await EmbeddedServer(data_dir, redis_server.socket_path).start()
    client = await connect(redis_server.url)
    await client.aclose()
    assert unowned(data_dir)


async def test_a_regular_file_at_the_socket_path_is_refused(data_dir: Path) -> None:
    """What is not a socket is left alone, and the directory is free again."""
    data_dir.mkdir(mode=0o700)
    path = data_dir / "store.sock"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="not a socket"):
        await EmbeddedServer(data_dir).start()
    assert path.read_text() == "mine"
    path.unlink()
    async with EmbeddedServer(data_dir) as server:
        assert server.alive


async def test_a_fault_of_the_machine_is_told_in_one_sentence(data_dir: Path) -> None:
    """C41: what the system refuses while the server is started is an error that ``up`` tries again, and leaves
    nothing."""
    (data_dir / "server.log").mkdir(parents=True)
    data_dir.chmod(0o700)
    server = EmbeddedServer(data_dir)
    with pytest.raises(StoreUnavailable, match="cannot be started"):
        await server.start()
    assert server.pid is None
    assert unowned(data_dir)
    (data_dir / "server.log").rmdir()
    async with server:
        assert server.alive


async def test_a_socket_left_behind_is_cleaned(data_dir: Path) -> None:
    """A socket file on which nobody listens does not stop the next start."""
    data_dir.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(data_dir / "store.sock"))
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        await client.aclose()


async def test_a_socket_path_beyond_the_limit_is_refused(data_dir: Path) -> None:
    """The limit of the operating system is told before it would be met."""
    path = data_dir / ("s" * SUN_PATH_BYTES)
    with pytest.raises(ConfigError, match=f"limit is {SUN_PATH_BYTES}"):
        await EmbeddedServer(data_dir, path).start()
    assert not data_dir.exists()


async def test_a_directory_others_can_write_to_is_refused(data_dir: Path) -> None:
    """Whoever can write to the directory could choose the engine."""
    data_dir.mkdir()
    data_dir.chmod(0o770)
    with pytest.raises(ConfigError, match="nobody else"):
        await EmbeddedServer(data_dir).start()


async def test_a_path_with_odd_characters_works(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Spaces, quotes, hashes and letters beyond ASCII survive the configuration and the URL."""
    data_dir = tmp_path_factory.mktemp("d") / "a b\"c'd\\e#f?g%h ü"
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        assert (await client.config_get("dir"))["dir"] == str(data_dir)
        await client.aclose()


# -- configuration and engines -----------------------------------------------------------------------------------------


async def test_the_configuration_is_in_force(redis: Redis, redis_server: EmbeddedServer) -> None:
    """The server persists plainly, evicts nothing, listens on no port and keeps arguments in no log."""
    expected = {
        "port": "0",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "no",  # its owner syncs once a second
        "aof-use-rdb-preamble": "no",
        "maxmemory-policy": "noeviction",
        "slowlog-log-slower-than": "-1",
        "crash-log-enabled": "no",
        "unixsocketperm": "700",
    }
    engine = redis_server.engine
    assert engine is not None
    if engine.name == "valkey" and engine.version >= (8, 1, 0):
        expected |= {"commandlog-request-larger-than": "-1", "commandlog-reply-larger-than": "-1"}
    found = {name: (await redis.config_get(name))[name] for name in expected}
    assert found == expected
    marker = secrets.token_hex(16)
    await redis.set("large", marker * 100_000)
    assert await redis.slowlog_get() == []
    assert redis_server.data_dir.stat().st_mode & 0o777 == 0o700
    assert redis_server.socket_path.stat().st_mode & 0o777 == 0o700
    files = [path for path in redis_server.data_dir.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if path.stat().st_mode & 0o022]
    assert redis_server.pid is not None
    assert os.getpgid(redis_server.pid) == redis_server.pid != os.getpgid(0)
