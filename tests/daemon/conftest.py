"""Fixtures of the tests of one process: services on the session's real store with a clock that a test can move, and a
daemon of canned answers for the command line."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
from redis.asyncio import Redis
from tests.daemon.canned import Canned
from tests.daemon.desk import ManualClock, Recorder

from amnesiad import embedding
from amnesiad.service import Service
from amnesiad.settings import load_settings
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import connect
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
    client = await connect(redis_url)
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
