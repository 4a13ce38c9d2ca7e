"""The store contract holds for two stores: fakeredis in the process, and a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakeredis import FakeAsyncRedis, FakeServer
from redis.asyncio import Redis
from tests.contract.driver import Driver

from amnesiad.store.connect import connect


@pytest.fixture(params=["fakeredis", "embedded"])
async def store(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Redis]:
    """An empty store: once the one in the process, once the session's real server."""
    client = FakeAsyncRedis(server=FakeServer()) if request.param == "fakeredis" else await connect(redis_url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
async def driver(store: Redis) -> Driver:
    """A workspace of its own."""
    return await Driver.open(store)


@pytest.fixture
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a short name, because socket paths have a limit."""
    return tmp_path_factory.mktemp("d") / "store"
