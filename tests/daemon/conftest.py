"""Fixtures of the service's tests: services on the session's real store, and a clock that a test can move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from redis.asyncio import Redis
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
