"""Fixtures for every test: a real store, started once and emptied before each test that uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from amnesiad.store.connect import connect
from amnesiad.store.server import EmbeddedServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A real embedded server in a directory of its own, shared by the session."""
    server = EmbeddedServer(tmp_path_factory.mktemp("store"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(scope="session")
def redis_url(redis_server: EmbeddedServer) -> str:
    """The address of the session's server."""
    return redis_server.url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client on the session's server, which is empty when the test begins."""
    client = await connect(redis_url)
    await client.flushall()
    yield client
    await client.aclose()
