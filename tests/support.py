"""What several test files need and pytest does not have."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis.asyncio import Redis

import amnesiad
import amnesiad_workers
from amnesiad import AsyncClient
from amnesiad.store import keys as keyspace
from amnesiad.store.keys import Keys
from amnesiad.store.location import data_dir
from amnesiad.store.server import EmbeddedServer
from amnesiad.store.workspaces import all_workspaces

#: Between two looks of ``wait_until``.
LOOK_EVERY_S = 0.005
#: How long a process may take to come up, to recover or to end on a machine that is busy with something else.
PATIENCE_S = 45.0


async def wait_until(predicate: Callable[[], object | Awaitable[object]], timeout_s: float = 20.0) -> None:
    """Look until ``predicate`` (plain or async) is true; fail the test when it is not within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = predicate()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {timeout_s} s: {getattr(predicate, '__qualname__', predicate)}")
        await asyncio.sleep(LOOK_EVERY_S)


async def dump(redis: Redis, match: str = "*") -> dict[str, Any]:
    """Everything the store holds under matching keys, read by the type of each: what somebody who took it would
    find."""
    found: dict[str, Any] = {}
    async for raw in redis.scan_iter(match=match):
        key = raw.decode()
        client: Any = redis
        match (await client.type(key)).decode():
            case "hash":
                found[key] = await client.hgetall(key)
            case "set":
                found[key] = await client.smembers(key)
            case "zset":
                found[key] = dict(await client.zrange(key, 0, -1, withscores=True))
            case "stream":
                found[key] = await client.xrange(key)
            case "list":
                found[key] = await client.lrange(key, 0, -1)
            case "string":
                found[key] = await client.get(key)
            case other:
                raise AssertionError(f"{key} is a {other}, which nothing here writes")
    return found


async def foreign_keys(redis: Redis) -> list[str]:
    """Keys that belong neither to the shared keyspace nor to a workspace that has a name; none may be left behind."""
    shared = {keyspace.LIFECYCLE, keyspace.DEAD, keyspace.WORKSPACES, keyspace.META}
    prefixes = tuple(Keys(ws).prefix for ws in (await all_workspaces(redis)).values())
    keys = [raw.decode() async for raw in redis.scan_iter()]
    return sorted(key for key in keys if key not in shared and not key.startswith((*prefixes, "rq:")))


class Process:
    """One running command of ours: its process id, and everything it said."""

    def __init__(self, argv: list[str], environ: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._popen = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.pid = self._popen.pid

    @property
    def said(self) -> str:
        """Everything it and its children have written so far."""
        return self.log.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """Its exit code, ``None`` while it runs."""
        return self._popen.poll()

    async def ready(self, words: str) -> Self:
        """Wait until it says these words. Fails the test when it ends instead."""
        await wait_until(lambda: words in self.said or self.code is not None, PATIENCE_S)
        assert self.code is None, self.said
        return self

    async def ended(self) -> int:
        """Wait for its end; its exit code."""
        return await asyncio.to_thread(self._popen.wait, PATIENCE_S)

    async def stop(self) -> int:
        """Ask it to end, by SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """End it with SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        await self.ended()

    def signal(self, number: int) -> None:
        """Send it a signal; nothing happens when it has ended already."""
        self._popen.send_signal(number)

    def end(self) -> None:
        """Make sure that it has ended, whatever state it is in."""
        for number in (signal.SIGCONT, signal.SIGTERM):
            self.signal(number)
        try:
            self._popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


class Fleet:
    """Real processes that share one state directory, and clients on their sockets.

    Either ``up``, or ``store`` with any number of ``daemon`` and ``worker``. As a context manager it ends all of them.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.state_dir = home / "state"
        self.processes: list[Process] = []
        self._server = EmbeddedServer(data_dir(self.state_dir))
        self._clients: list[AsyncClient] = []
        self._connections: list[Redis] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.aclose()
        for connection in self._connections:
            await connection.aclose()
        for process in reversed(self.processes):
            await asyncio.to_thread(process.end)
        await self._server.stop()

    def environ(self, name: str, **given: str) -> dict[str, str]:
        """The environment of a process here whose socket has this name: nothing of the machine's own amnesiad."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AMNESIA_", "XDG_"))}
        sources = [Path(amnesiad.__file__).parent.parent, Path(amnesiad_workers.__file__).parent.parent]
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(map(str, sources)),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "AMNESIA_STATE_DIR": str(self.state_dir),
            "AMNESIA_SOCKET": str(self.socket(name)),
            **given,
        }

    def socket(self, name: str = "a") -> Path:
        """The socket of the daemon of that name."""
        return self.home / f"{name}.sock"

    def start(self, *argv: str, name: str = "a", **given: str) -> Process:
        """Start a command of ``amnesia``; ``given`` are further environment variables."""
        log = self.home / f"{argv[0]}-{secrets.token_hex(4)}.log"
        command = [sys.executable, "-m", "amnesiad.cli", *argv]
        self.processes.append(Process(command, self.environ(name, **given), log))
        return self.processes[-1]

    # -- the parts -----------------------------------------------------------------------------------------------------

    async def up(self, **given: str) -> Process:
        """``amnesia up``: store, daemon and worker. Returns when it serves and its worker listens."""
        process = await self.start("up", **given).ready("amnesia is up")
        return await process.ready("the worker is ready")

    async def store(self) -> EmbeddedServer:
        """A store where ``up`` would have its own, run by the test, so that it stays away as long as the test wants."""
        await self._server.start()
        return self._server

    async def daemon(self, name: str = "a", **given: str) -> Process:
        """A daemon on the store, serving the socket of that name."""
        return await self.start("daemon", name=name, AMNESIA_REDIS_URL=self.url, **given).ready("the daemon serves")

    async def worker(self, **given: str) -> Process:
        """A worker on the store."""
        return await self.start("worker", AMNESIA_REDIS_URL=self.url, **given).ready("the worker is ready")

    @property
    def url(self) -> str:
        """Where the store is, whoever runs it."""
        return self._server.url

    def client(self, name: str = "a", *, workspace: str = "w", **who: Any) -> AsyncClient:
        """A client on a daemon's socket, closed with the fleet."""
        self._clients.append(AsyncClient(self.socket(name), workspace=workspace, **who))
        return self._clients[-1]

    def redis(self) -> Redis:
        """The store as a foreign process sees it, closed with the fleet."""
        self._connections.append(Redis.from_url(self.url))
        return self._connections[-1]

    # -- what is there ------------------------------------------------------------------------------------------------

    def store_pid(self) -> int:
        """The embedded server's process, as its lock names it."""
        return int(json.loads((data_dir(self.state_dir) / "server.lock").read_text())["pid"])

    def worker_pids(self) -> list[int]:
        """The workers that live, by the names under which they reported themselves."""
        names = [re.findall(r'"worker": "[^"]*-(\d+)-[0-9a-f]+"', process.said) for process in self.processes]
        return [pid for pid in {int(pid) for found in names for pid in found} if running(pid)]

    def sockets(self) -> list[Path]:
        """Every socket file below the home."""
        return sorted(path for path in self.home.rglob("*") if path.is_socket())


def running(pid: int) -> bool:
    """Whether a process runs. One that has ended and is not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        if Path("/proc/self").exists():
            return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def children(pid: int) -> list[int]:
    """Every process below this one, at any depth."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    rows = [[int(number) for number in row.split()] for row in listing.splitlines()]
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in rows if its_parent == parent]
    return found[1:]
