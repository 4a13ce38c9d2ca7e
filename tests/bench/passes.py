"""The passes: their cost follows the number of notes due, and nothing else."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import msgspec
from redis.asyncio import Redis
from tests.bench.figures import Figure
from tests.workers.seeding import POLICY, World

from amnesiad.store import workspaces
from amnesiad.store.connect import connect
from amnesiad.store.server import EmbeddedServer
from amnesiad_workers.passes import settle

SMALL, LARGE = 1_000, 100_000
QUIET_RUNS = 31
"""Passes over notes of which none is due; each takes a millisecond, so the median of many is needed."""
PAGE = 2_000
DAY = 86_400_000


async def figures() -> list[Figure]:
    """Settling, against an embedded server of its own."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder))
        await server.start()
        try:
            redis = await connect(server.url)
            try:
                small, large = await _world(redis, "small", SMALL), await _world(redis, "large", LARGE)
                return [await _quiet(small, large), await _due(large)]
            finally:
                await redis.aclose()
        finally:
            await server.stop()


async def _world(redis: Redis, name: str, count: int) -> World:
    policy = msgspec.structs.replace(POLICY, max_store_bytes=2**40)
    world = World(redis, await workspaces.find_or_create(redis, name), policy=policy)
    for start in range(0, count, PAGE):
        ids = [f"{number:010d}" for number in range(start, min(count, start + PAGE))]
        await world.remember(*ids, ttl_ms=30 * DAY)
    return world


async def _quiet(small: World, large: World) -> Figure:
    """Medians taken in turns, in microseconds."""
    took: dict[str, list[float]] = {small.ws: [], large.ws: []}
    for _ in range(QUIET_RUNS):
        for world in (small, large):
            started = time.perf_counter()
            await settle(world.context, world.ws)
            took[world.ws].append((time.perf_counter() - started) * 1e6)
    over_large, over_small = statistics.median(took[large.ws]), statistics.median(took[small.ws])
    return Figure(f"pass, none due of {LARGE:,}", over_large, f"of {SMALL:,}", over_small, "us")


async def _due(world: World) -> Figure:
    """All of the large workspace falls due at once; every note expires and is erased."""
    world.now += 31 * DAY
    started = time.perf_counter()
    done = 0
    while done < LARGE:
        figures = await settle(world.context, world.ws)
        assert figures.due, "a pass must go on until nothing is due"
        done += figures.due
    return Figure(f"settle {LARGE:,} due notes", done / (time.perf_counter() - started), "limit", 10_000, "/s")
