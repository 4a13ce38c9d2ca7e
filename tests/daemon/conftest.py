"""Fixtures of the tests of one process: services on the session's real store with a clock that a test can move, the
real door with a clerk behind it, both clients, and a daemon of canned answers for the command line."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from tests.daemon.asking import Asker, Connect
from tests.daemon.canned import Canned
from tests.daemon.desk import ManualClock, Recorder
from tests.daemon.door import Clerk, Wire

from amnesiad import AsyncClient, Client, embedding
from amnesiad.api.app import App
from amnesiad.api.serve import ApiServer
from amnesiad.api.serve import serve as open_doors
from amnesiad.service import Service
from amnesiad.settings import load_settings
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import connect as connect_store
from amnesiad.store.keyring import Keyring


@pytest.fixture(scope="session")
def encoder() -> embedding.Encoder:
    """The model ``use``, loaded."""
    return embedding.load("use")


@pytest.fixture
async def clock(redis: Redis) -> ManualClock:
    """The time all services of a test share. It begins at the store's own."""
    seconds, micros = await redis.time()
    return ManualClock(seconds * 1000 + micros // 1000)


@pytest.fixture
async def service(redis: Redis, clock: ManualClock) -> AsyncIterator[Service]:
    """A daemon's service on the session's store, which is empty when the test begins."""
    made = serve(redis, clock)
    yield made
    await made.quiesce()


@pytest.fixture
async def second(service: Service, redis_url: str, clock: ManualClock) -> AsyncIterator[Service]:  # noqa: ARG001
    """Another daemon's service on the same store, with a connection and a projection of its own."""
    client = await connect_store(redis_url)
    made = serve(client, clock)
    yield made
    await made.quiesce()
    await client.aclose()


def serve(redis: Redis, clock: ManualClock) -> Service:
    """A service with the default settings."""
    settings = load_settings(environ={})
    return Service(redis, Keyring(b"k" * 32), settings, cast(StoreClock, clock), Recorder())


@pytest.fixture
def canned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canned]:
    """A daemon of the test's own making, and an environment that leads the command line to it."""
    for name in list(os.environ):
        if name.startswith(("AMNESIA_", "CLAUDE", "CODEX_")):
            monkeypatch.delenv(name)
    server = Canned(tmp_path / "a.sock")
    monkeypatch.setenv("AMNESIA_SOCKET", str(server.path))
    monkeypatch.setenv("AMNESIA_WORKSPACE", "w")
    monkeypatch.setenv("AMNESIA_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def place() -> Iterator[Path]:
    """A short private directory: the test's own may be too long for a socket."""
    with TemporaryDirectory(prefix="amn") as directory:
        yield Path(directory)


@pytest.fixture
async def clerk() -> Clerk:
    return Clerk()


@pytest.fixture
async def server(clerk: Clerk, place: Path) -> AsyncIterator[ApiServer]:
    running = await open_doors(App(clerk), place / "a.sock")
    yield running
    await running.stop()


@pytest.fixture
async def line(server: ApiServer) -> AsyncIterator[Wire]:
    connection = await Wire.to(server.socket_path)
    yield connection
    await connection.close()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test speaks for whoever runs it."""
    for name in ("SOCKET", "WORKSPACE", "SESSION", "AGENT", "TEAM", "AGENT_KIND", "CONFIG", "STATE_DIR"):
        monkeypatch.delenv(f"AMNESIA_{name}", raising=False)


@pytest.fixture(params=["blocking", "asyncio"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Opens clients of either sort, so that every promise is kept by both."""
    opened: list[Client | AsyncClient] = []

    async def open_one(path: Path, workspace: str | None = "/src/app", **options: Any) -> Asker:
        kind = Client if request.param == "blocking" else AsyncClient
        client = kind(path, workspace=workspace, **options)
        opened.append(client)

        async def ask(method: str, *args: Any, **kwargs: Any) -> Any:
            bound = getattr(client, method)
            if isinstance(client, AsyncClient):
                return await bound(*args, **kwargs)
            return await asyncio.to_thread(bound, *args, **kwargs)

        return ask

    yield open_one
    for client in opened:
        if isinstance(client, AsyncClient):
            await client.aclose()
        else:
            client.close()
