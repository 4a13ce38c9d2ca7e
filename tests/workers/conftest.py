"""Fixtures of the tests of bridge, timer and passes: a workspace at the real time, its queue and its bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from tests.workers.seeding import World, new_world
from tests.workers.yard import Yard

from amnesiad.bridge import Jobs
from amnesiad.store.clock import StoreClock


@pytest.fixture
async def world(redis: Redis) -> World:
    """An empty workspace."""
    return await new_world(redis)


@pytest.fixture
async def clock(redis: Redis) -> StoreClock:
    """The store's time."""
    found = StoreClock()
    await found.sync(redis)
    return found


@pytest.fixture
async def jobs(redis: Redis, redis_url: str) -> AsyncIterator[Jobs]:
    """The daemon's end of the queue."""
    found = Jobs(redis, redis_url)
    yield found
    found.close()


@pytest.fixture
async def yard(redis: Redis, clock: StoreClock, jobs: Jobs) -> Yard:
    """A workspace, and a bridge for it, at the real time."""
    world = await new_world(redis)
    world.now = clock.now_ms()
    return Yard(world, clock, jobs)
