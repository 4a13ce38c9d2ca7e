"""Workers that race, are killed and are paused: what is due happens once for every note, and nothing due is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from typing import Any, NamedTuple

import pytest
from tests.support import PATIENCE_S, Fleet, wait_until

from amnesiad import AsyncClient
from amnesiad.store.keys import LIFECYCLE, Keys
from amnesiad.store.queue import PREFIX, QUEUE

BATCH = 500


async def fill(client: AsyncClient, count: int, *, start: int = 0) -> Keys:
    """Write that many perishables which are due a moment later; the workspace's keys."""
    await client.policy({"max_store_bytes": "1GiB"})
    for first in range(start, start + count, BATCH):
        bodies = [{"content": f"due {number}", "ttl_ms": 1} for number in range(first, first + BATCH)]
        told = await client.batch([("remember", body) for body in bodies])
        assert all(answer["created"] for answer in told.answers)
    return Keys((await client.workspaces()).rows[0].ws)


async def events(client: AsyncClient) -> Counter[tuple[str, ...]]:
    """How many notes have which history."""
    lines = [line async for line in client.export()]
    return Counter(tuple(event["type"] for event in line["events"]) for line in lines if line["line"] == "note")


@pytest.mark.timeout(120)
async def test_four_passes_at_once(fleet: Fleet) -> None:
    """V02: 8000 notes are due, and four workers settle them in four passes at once that two daemons asked for: each
    note expires once and is forgotten once, and the counts add up, at both."""
    await fleet.store()
    await asyncio.gather(fleet.daemon("a"), fleet.daemon("b"))
    workers = await asyncio.gather(*(fleet.worker() for _ in range(4)))
    client, other = fleet.client(role="human"), fleet.client("b", role="human")
    redis, notes, met = fleet.redis(), 0, 0
    for _ in range(5):  # On a busy machine the first may be through before the others have begun.
        for worker in workers:
            worker.signal(signal.SIGSTOP)
        await fill(client, 8000, start=notes)
        notes += 8000
        passes = [asyncio.create_task(asked.settle()) for asked in (client, other) * 2]
        await wait_until(lambda: _handed_out(redis, len(workers)))
        for worker in workers:
            worker.signal(signal.SIGCONT)
        met += sum([(await one).figures.get("conflicts", 0) for one in passes])
        if met:
            break
    assert met > 0, "the passes did meet"

    async def settled() -> bool:
        return {(await asked.status()).counts.forgotten for asked in (client, other)} == {notes}

    await wait_until(settled, PATIENCE_S)
    assert await events(client) == {("created", "expired", "forgotten"): notes}
    assert (await client.verify()).problems == ()


async def _handed_out(redis: Any, count: int) -> bool:
    """Whether that many jobs are asked for: those that lie in the queue, and those that a waiting worker was given."""
    queue = f"{PREFIX}:queue:{QUEUE}"
    return bool(await redis.llen(queue) + await redis.llen(f"{queue}:intermediate") >= count)


class Halted(NamedTuple):
    """A pass that was stopped in the middle: how many notes there are in all, and where they are kept."""

    notes: int
    keys: Keys


async def halt_midway(client: AsyncClient, redis: Any, worker: int) -> Halted:
    """Give a worker thousands of due notes at once and stop it (SIGSTOP) while it is at them."""
    notes = 0
    for _ in range(5):  # On a busy machine it may be through before we are told that it has begun.
        os.kill(worker, signal.SIGSTOP)
        keys = await fill(client, 6000, start=notes)
        os.kill(worker, signal.SIGCONT)
        await wait_until(lambda keys=keys, notes=notes: _more_than(redis, keys, notes), PATIENCE_S)  # type: ignore[misc]
        os.kill(worker, signal.SIGSTOP)
        notes += 6000
        if await redis.hlen(keys.tomb) < notes:
            return Halted(notes, keys)
        os.kill(worker, signal.SIGCONT)
    raise AssertionError("the worker was never met in the middle of a pass")


async def _more_than(redis: Any, keys: Keys, count: int) -> bool:
    """Whether more notes are forgotten."""
    return bool(await redis.hlen(keys.tomb) > count)


@pytest.mark.timeout(120)
async def test_a_worker_killed_in_the_middle(fleet: Fleet) -> None:
    """C36: the worker of ``up`` is killed with SIGKILL in the middle of a pass over 6000 due notes: without anybody's
    help each note then expires once, and nothing due is left behind."""
    up = await fleet.up()
    client, redis = fleet.client(role="human"), fleet.redis()
    (worker,) = fleet.worker_pids()
    notes, keys = await halt_midway(client, redis, worker)
    os.kill(worker, signal.SIGKILL)
    await wait_until(lambda: _more_than(redis, keys, notes - 1), PATIENCE_S)
    assert await redis.zcount(keys.due, 0, 1_000 * int((await redis.time())[0])) == 0
    assert await events(client) == {("created", "expired", "forgotten"): notes}
    assert (await client.verify()).problems == ()
    assert await up.stop() == 0


@pytest.mark.timeout(120)
async def test_a_worker_paused_in_the_middle(fleet: Fleet) -> None:
    """C37: a worker is paused in the middle of a pass, another one does the work that another daemon asks for, and the
    first goes on with what it had read: no note is touched twice."""
    await fleet.store()
    await asyncio.gather(fleet.daemon("a"), fleet.daemon("b"))
    sleepy = await fleet.worker()
    client, redis = fleet.client(role="human"), fleet.redis()
    notes, keys = await halt_midway(client, redis, sleepy.pid)
    brisk = await fleet.worker()
    await fleet.client("b", role="human").settle()
    assert await redis.hlen(keys.tomb) == notes
    sleepy.signal(signal.SIGCONT)
    await brisk.stop()
    # Nobody but the one that slept is left to do this, and it finishes what it was at first.
    await client.settle()
    assert await events(client) == {("created", "expired", "forgotten"): notes}
    assert (await client.verify()).problems == ()
    assert await sleepy.stop() == 0


@pytest.mark.timeout(120)
async def test_one_event_delivered_twice(fleet: Fleet) -> None:
    """C35: the same end event arrives twice by the API and twice by XADD, is read by two daemons and worked on by two
    workers: each note of the agent is forgotten once."""
    await fleet.store()
    await asyncio.gather(fleet.daemon("a"), fleet.daemon("b"), fleet.worker(), fleet.worker())
    who = {"session": "s", "agent": "child", "agent_kind": "subagent"}
    child, human, redis = fleet.client("a", **who), fleet.client("b", role="human"), fleet.redis()
    for number in range(200):
        await child.remember(f"scratch {number}")
    event = {"event": "subagent-end", "workspace": "w", "id": "the-one", **who}
    raw = json.dumps(event)
    await asyncio.gather(
        child.call("events", event),
        human.call("events", {"events": [event]}),
        redis.xadd(LIFECYCLE, {"e": raw}),
        redis.xadd(LIFECYCLE, {"e": raw}),
    )

    async def handled() -> bool:
        (group,) = await redis.xinfo_groups(LIFECYCLE)
        return bool(group["entries-read"] == 4 and group["pending"] == 0)

    await wait_until(handled, PATIENCE_S)
    # Both workers finish what they have before they stop; what is left of the queue is for these two questions.
    for _ in range(4):
        await human.settle()
    assert (await human.status()).counts.forgotten == 200
    assert await events(human) == {("created", "forgotten"): 200}
    assert (await human.verify()).problems == ()
