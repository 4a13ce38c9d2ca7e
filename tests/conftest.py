"""Fixtures for every test: a real store, started once and emptied before each test that uses it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings as hypothesis_settings
from redis.asyncio import Redis

from amnesiad.store.connect import connect
from amnesiad.store.server import EmbeddedServer

# A busy machine must not fail a property, and what CI ran must be repeatable.
hypothesis_settings.register_profile("house", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis_settings.load_profile("house")


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
