"""The timer: what is due is asked for on time, once, and of somebody."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from redis.asyncio import Redis
from tests.support import wait_until
from tests.workers.seeding import MINUTE, POLICY, set_policy
from tests.workers.yard import Yard, pretend_worker

from amnesiad.bridge import Timer
from amnesiad.bridge.timer import SWEEP_S
from amnesiad.errors import AmnesiaError, Bug, StoreUnavailable
from amnesiad.store.due import earliest
from amnesiad.store.keys import META
from amnesiad.store.queue import PREFIX, QUEUE, worker_alive
from amnesiad.store.units import UNSCRUBBED
from amnesiad.tasks import end
from amnesiad_workers.passes import refile, settle


@pytest.fixture
async def timers(yard: Yard) -> AsyncIterator[list[Timer]]:
    """Two daemons' timers, running."""
    found = [Timer(yard.redis, yard.clock, yard.jobs, POLICY, erase_within=60_000) for _ in range(2)]
    tasks = [asyncio.create_task(timer.run()) for timer in found]
    yield found
    await end(*tasks)


async def hinted(timer: Timer, ws: str) -> None:
    """Tell the timer that something is due, and wait until it has dealt with that."""
    timer.hint(ws, 0)
    await wait_until(lambda: timer._due.get(ws) != 0)


async def settles(yard: Yard) -> int:
    """How many settle jobs are queued."""
    return sum(name == "settle" for name, _ in await yard.queued())


async def test_a_ttl_of_a_millisecond_is_asked_for_within_the_second(
    yard: Yard, timers: list[Timer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no other traffic and no hint, a note that is due at once is settled by the next sweep but one at the latest,
    and two are within a second. They are counted: how long they take is the machine's business."""
    sweeps: Counter[Timer] = Counter()
    sweep = Timer._sweep

    async def counted(timer: Timer) -> None:
        sweeps[timer] += 1
        await sweep(timer)

    await pretend_worker(yard.redis)
    yard.world.now = yard.clock.now_ms()
    await yard.world.remember("a", ttl_ms=1)
    monkeypatch.setattr(Timer, "_sweep", counted)
    await wait_until(lambda: settles(yard))
    assert max(sweeps[timer] for timer in timers) <= 2
    assert 2 * SWEEP_S <= 1
    yard.world.now = yard.clock.now_ms()
    assert (await settle(yard.world.context, yard.world.ws)).expired == 1


async def test_many_reasons_to_settle_are_one_job(yard: Yard, timers: list[Timer]) -> None:
    """While a settle waits in the queue, hints, sweeps and other daemons add no second one."""
    await pretend_worker(yard.redis)
    yard.world.now = yard.clock.now_ms() - MINUTE
    await yard.world.remember("a")
    for _ in range(50):
        await hinted(timers[0], yard.world.ws)
    # Two buckets of time at most: the test may run across an edge.
    assert 1 <= await settles(yard) <= 2


async def test_ticks_and_scrubs_are_asked_for_once(yard: Yard, timers: list[Timer]) -> None:
    """Two daemons: each periodic job is queued once, and a scrub only when something was erased."""
    assert timers
    await yard.redis.hset(META, UNSCRUBBED, "damaged")  # a count that is none must not end the timer
    await pretend_worker(yard.redis)
    await wait_until(lambda: has(yard, {"reconcile", "trim", "purge_audit"}))
    names = [name for name, _ in await yard.queued()]
    assert "scrub" not in names
    assert names.count("purge_audit") == 1
    yard.world.now = yard.clock.now_ms() - MINUTE
    await yard.world.remember("a")
    yard.world.now += MINUTE
    await settle(yard.world.context, yard.world.ws)
    await wait_until(lambda: has(yard, {"scrub"}))


async def has(yard: Yard, names: set[str]) -> bool:
    """Whether jobs of all these names are queued."""
    return names <= {name for name, _ in await yard.queued()}


@pytest.mark.parametrize("trouble", [None, StoreUnavailable("no answer"), Bug("the store rejected a command")])
async def test_nothing_is_asked_of_nobody(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, trouble: AmnesiaError | None
) -> None:
    """While no worker lives, the store is away or anything else fails, no jobs pile up and the timer rests between two
    tries, whatever is due and hinted; when that is over, what is due is asked for."""
    turns: list[float] = []

    async def asked(redis: Redis) -> bool:
        turns.append(time.monotonic())
        for _ in range(20):
            timer.hint(yard.world.ws, 0)
        if trouble is not None and len(turns) <= 3:
            raise trouble
        return await worker_alive(redis)

    monkeypatch.setattr("amnesiad.bridge.timer.worker_alive", asked)
    yard.world.now = yard.clock.now_ms() - MINUTE
    await yard.world.remember("a")
    timer = Timer(yard.redis, yard.clock, yard.jobs, POLICY, erase_within=60_000)
    running = asyncio.create_task(timer.run())
    try:
        await wait_until(lambda: len(turns) >= 3)
        assert turns[2] - turns[0] >= 2 * SWEEP_S * 0.9
        assert await yard.queued() == []
        await pretend_worker(yard.redis)
        await wait_until(lambda: settles(yard))
    finally:
        await end(running)


async def test_a_change_of_policy_whose_job_was_lost_is_filed_all_the_same(yard: Yard, timers: list[Timer]) -> None:
    """C36: the daemon dies between a change of policy and the job it asks for; the next sweep of anybody sees it."""
    assert timers
    world = yard.world
    await world.remember("a", kind="finding", ttl_ms=None)
    await refile(world.context, world.ws)
    await set_policy(world, 0, record_ttl=MINUTE)
    await pretend_worker(yard.redis)
    await wait_until(lambda: refiles(yard))
    await refile(world.context, world.ws)
    assert await yard.redis.zscore(world.keys.due, "a") == world.now + MINUTE
    assert (await earliest(yard.redis, [world.ws]))[0].filed.current


async def test_an_operator_who_changed_the_defaults_has_them_filed(yard: Yard) -> None:
    """A daemon that starts over another policy than everything is filed by asks for that once, however that ends: two
    that disagree must not file to and fro."""
    await pretend_worker(yard.redis)
    changed = msgspec.structs.replace(POLICY, record_ttl=MINUTE)
    for base, wanted in ((POLICY, 1), (POLICY, 0), (changed, 1)):
        await yard.redis.delete(f"{PREFIX}:queue:{QUEUE}")
        timer = Timer(yard.redis, yard.clock, yard.jobs, base, erase_within=60_000)
        for _ in range(3):
            timer._next_sweep = 0.0
            await timer._turn()
        assert await refiles(yard) == wanted
        yard.world.policy = POLICY
        await refile(yard.world.context, yard.world.ws)
        for name in [job_id async for job_id in yard.redis.scan_iter(match=f"{PREFIX}:job:refile-*")]:
            await yard.redis.delete(name)


async def refiles(yard: Yard) -> int:
    """How many jobs to file anew are queued."""
    return sum(name == "refile" for name, _ in await yard.queued())
