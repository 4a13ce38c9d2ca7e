"""Workers that race, are killed and are paused: what is due happens once for every note, and nothing due is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from typing import Any

import pytest
from tests.support import PATIENCE_S, Fleet, wait_until

from amnesiad import AsyncClient
from amnesiad.store.keys import LIFECYCLE, Keys
from amnesiad.store.queue import PREFIX, QUEUE

BATCH = 500


async def fill(client: AsyncClient, count: int) -> Keys:
    """Write that many perishables which are due a moment later; the workspace's keys."""
    await client.policy({"max_store_bytes": "1GiB"})
    for start in range(0, count, BATCH):
        bodies = [{"content": f"due {number}", "ttl_ms": 1} for number in range(start, start + BATCH)]
        told = await client.batch([("remember", body) for body in bodies])
        assert all(answer["created"] for answer in told.answers)
    return Keys((await client.workspaces()).rows[0].ws)


async def events(client: AsyncClient) -> Counter[tuple[str, ...]]:
    """How many notes have which history."""
    lines = [line async for line in client.export()]
    return Counter(tuple(event["type"] for event in line["events"]) for line in lines if line["line"] == "note")


@pytest.mark.timeout(120)
async def test_four_passes_at_once(fleet: Fleet) -> None:
    """V02: 8000 notes are due and four workers settle them in four passes at once: each note expires once and is
    forgotten once, and the counts add up."""
    await fleet.store()
    await fleet.daemon()
    workers = await asyncio.gather(*(fleet.worker() for _ in range(4)))
    client = fleet.client(role="human")
    for worker in workers:
        worker.signal(signal.SIGSTOP)
    await fill(client, 8000)
    passes = [asyncio.create_task(client.settle()) for _ in workers]
    redis = fleet.redis()
    await wait_until(lambda: _handed_out(redis, len(workers)))
    for worker in workers:
        worker.signal(signal.SIGCONT)
    figures = [(await one).figures for one in passes]
    assert sum(one.get("conflicts", 0) for one in figures) > 0, "the passes did meet"

    async def settled() -> bool:
        return (await client.status()).counts.forgotten == 8000

    await wait_until(settled, PATIENCE_S)
    assert await events(client) == {("created", "expired", "forgotten"): 8000}
    assert (await client.verify()).problems == ()


async def _handed_out(redis: Any, count: int) -> bool:
    """Whether that many jobs are asked for: those that lie in the queue, and those that a waiting worker was given."""
    queue = f"{PREFIX}:queue:{QUEUE}"
    return bool(await redis.llen(queue) + await redis.llen(f"{queue}:intermediate") >= count)


@pytest.mark.timeout(120)
async def test_a_worker_killed_in_the_middle(fleet: Fleet) -> None:
    """C36: the worker of ``up`` is killed with SIGKILL in the middle of a pass over 6000 due notes: without anybody's
    help each note then expires once, and nothing due is left behind."""
    up = await fleet.up()
    client, redis = fleet.client(role="human"), fleet.redis()
    (worker,) = fleet.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    keys = await fill(client, 6000)
    os.kill(worker, signal.SIGCONT)
    await wait_until(lambda: redis.hlen(keys.tomb), PATIENCE_S)
    os.kill(worker, signal.SIGKILL)
    assert 0 < int(await redis.hlen(keys.tomb)) < 6000
    await wait_until(lambda: _buried(redis, keys, 6000), PATIENCE_S)
    assert await redis.zcount(keys.due, 0, 1_000 * int((await redis.time())[0])) == 0
    assert await events(client) == {("created", "expired", "forgotten"): 6000}
    assert (await client.verify()).problems == ()
    assert await up.stop() == 0


async def _buried(redis: Any, keys: Keys, count: int) -> bool:
    return bool(await redis.hlen(keys.tomb) == count)


@pytest.mark.timeout(120)
async def test_a_worker_paused_in_the_middle(fleet: Fleet) -> None:
    """C37: a worker is paused in the middle of a pass, another one does the work, and the first goes on with what it
    had read: no note is touched twice."""
    await fleet.store()
    await fleet.daemon()
    sleepy = await fleet.worker()
    client, redis = fleet.client(role="human"), fleet.redis()
    sleepy.signal(signal.SIGSTOP)
    keys = await fill(client, 6000)
    sleepy.signal(signal.SIGCONT)
    await wait_until(lambda: redis.hlen(keys.tomb), PATIENCE_S)
    sleepy.signal(signal.SIGSTOP)
    assert 0 < int(await redis.hlen(keys.tomb)) < 6000
    brisk = await fleet.worker()
    await client.settle()
    assert await redis.hlen(keys.tomb) == 6000
    sleepy.signal(signal.SIGCONT)
    await brisk.stop()
    # Nobody but the one that slept is left to do this, and it finishes what it was at first.
    await client.settle()
    assert await events(client) == {("created", "expired", "forgotten"): 6000}
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
