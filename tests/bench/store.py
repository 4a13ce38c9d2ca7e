"""The store: writing through the script beside bare XADD of the same bytes, and reading the log back."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from redis.asyncio import Redis
from tests.bench.figures import ROUNDS, Figure, seconds, side_by_side
from tests.contract.driver import KEYRING, POLICY, Driver

from amnesiad.store.connect import connect
from amnesiad.store.log import MAX_UNITS_PER_CALL, Unit
from amnesiad.store.server import EmbeddedServer
from amnesiad.store.verify import verify

NOTES = 3000
"""Notes a round: long enough for a tenth of a second, short enough for a coffee."""
SINGLES = 300
PIPELINE = 100
CONTENT = "x" * 190
ROOMY = msgspec.structs.replace(POLICY, max_store_bytes=2**40)


async def figures() -> list[Figure]:
    """All figures of the store, against an embedded server of its own."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder))
        await server.start()
        try:
            redis = await connect(server.url)
            try:
                return [await measure(redis) for measure in MEASURES]
            finally:
                await redis.aclose()
        finally:
            await server.stop()


def born(driver: Driver, count: int) -> list[Unit]:
    """Units that create notes of about 200 bytes of words."""
    return [driver.birth(f"{driver.new_id()} {CONTENT}")[0] for _ in range(count)]


async def xadd_all(redis: Redis, units: list[Unit]) -> None:
    """Append the events and words of these units to one stream, a hundred in a pipeline."""
    for start in range(0, len(units), PIPELINE):
        pipe = redis.pipeline(transaction=False)
        for unit in units[start : start + PIPELINE]:
            pipe.xadd("plain", {"e": unit.notes[0].events[0], "w": unit.words[0][1]})
        await pipe.execute()


async def batched(redis: Redis) -> Figure:
    """Creates a second, ready units in calls of 500."""
    driver = await Driver.open(redis, "batched", ROOMY)
    rounds = [born(driver, NOTES) for _ in range(ROUNDS)]

    async def ours(number: int) -> None:
        for start in range(0, NOTES, MAX_UNITS_PER_CALL):
            for outcome in await driver.log.commit_now(rounds[number][start : start + MAX_UNITS_PER_CALL]):
                assert outcome.status == "ok"

    mine, bare = await side_by_side(ours, lambda number: xadd_all(redis, rounds[number]))
    return Figure("creates, 500 a call", NOTES / mine, "XADD pipelined x100", NOTES / bare, "/s")


async def concurrent(redis: Redis) -> Figure:
    """Creates a second from 500 writers at once, with the building of their units."""
    driver = await Driver.open(redis, "concurrent", ROOMY)

    async def ours(_: int) -> None:
        for _start in range(0, NOTES, MAX_UNITS_PER_CALL):
            await asyncio.gather(*[driver.log.commit(unit) for unit in born(driver, MAX_UNITS_PER_CALL)])

    units = born(driver, NOTES)
    mine, bare = await side_by_side(ours, lambda _: xadd_all(redis, units))
    return Figure("creates, 500 writers, built too", NOTES / mine, "XADD pipelined x100", NOTES / bare, "/s")


async def single(redis: Redis) -> Figure:
    """One create after another, each awaited."""
    driver = await Driver.open(redis, "single", ROOMY)
    rounds = [born(driver, SINGLES) for _ in range(ROUNDS)]

    async def ours(number: int) -> None:
        for unit in rounds[number]:
            await driver.log.commit(unit)

    async def theirs(number: int) -> None:
        for unit in rounds[number]:
            await redis.xadd("plain", {"e": unit.notes[0].events[0], "w": unit.words[0][1]})

    mine, bare = await side_by_side(ours, theirs)
    return Figure("one create", mine / SINGLES * 1e6, "one XADD", bare / SINGLES * 1e6, "µs")


async def proof(redis: Redis) -> Figure:
    """Notes a second that ``verify`` proves, beside entries a second that XRANGE hands over."""
    driver = await Driver.open(redis, "proof", ROOMY)
    await driver.log.commit_now(born(driver, NOTES))

    async def read() -> None:
        assert len([entry async for entry in driver.log.entries()]) == NOTES

    best = [float("inf"), float("inf")]
    for _ in range(3):
        best = [min(best[0], await seconds(lambda: prove(driver))), min(best[1], await seconds(read))]
    return Figure("notes verified", NOTES / best[0], "entries read", NOTES / best[1], "/s")


async def prove(driver: Driver) -> None:
    """Verify, and find nothing."""
    assert (await verify(driver.redis, driver.keys, KEYRING, ROOMY)).clean


MEASURES: tuple[Callable[[Redis], Awaitable[Figure]], ...] = (batched, concurrent, single, proof)
