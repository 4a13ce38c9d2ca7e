"""A bridge with its queue and clock beside a workspace, and the record by which a worker is known to live."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from tests.workers.seeding import POLICY, World

from amnesiad.bridge import Bridge, Jobs
from amnesiad.secretscan import SecretScan
from amnesiad.store.clock import StoreClock
from amnesiad.store.keys import BRIDGE_GROUP, LIFECYCLE
from amnesiad.store.queue import PREFIX, QUEUE
from amnesiad_workers.passes import unplug

SECRETS = SecretScan(None)


class Yard:
    """A bridge with its clock and jobs, and the world it works for."""

    def __init__(self, world: World, clock: StoreClock, jobs: Jobs) -> None:
        self.world, self.clock, self.jobs = world, clock, jobs
        self.redis: Any = world.redis
        self.bridge = Bridge(world.redis, jobs, POLICY, SECRETS)

    async def send(self, event: str, **fields: object) -> str:
        """Put an event on the stream, as any process may."""
        body = {"event": event, "workspace": "w", **fields}
        seq: bytes = await self.redis.xadd(LIFECYCLE, {"e": json.dumps(body)})
        return seq.decode()

    async def handle(self) -> int:
        """One turn of the bridge."""
        with contextlib.suppress(Exception):
            await self.redis.xgroup_create(LIFECYCLE, BRIDGE_GROUP, id="0", mkstream=True)
        return await self.bridge.turn(block_ms=1)

    async def queued(self) -> list[tuple[str, list[Any]]]:
        """The jobs in the queue: name and arguments."""
        found = []
        for job_id in await self.redis.lrange(f"{PREFIX}:queue:{QUEUE}", 0, -1):
            raw = await self.redis.hget(f"{PREFIX}:job:{job_id.decode()}", "data")
            name, _, args, _ = json.loads(__import__("zlib").decompress(raw))
            found.append((name.rpartition(".")[2], args))
        return found

    async def work(self) -> None:
        """Run the unplug jobs in the queue, as a worker would."""
        for name, args in await self.queued():
            if name == "unplug":
                ws, owner, heard_at, at, source, children = args
                await unplug(self.world.context, ws, owner, heard_at=heard_at, at=at, source=source, children=children)

    async def pending(self) -> int:
        """Events that were delivered and not acknowledged."""
        return int((await self.redis.xpending(LIFECYCLE, BRIDGE_GROUP))["pending"])


async def pretend_worker(redis: Any) -> None:
    """The record that a living worker keeps."""
    key = f"{PREFIX}:worker:somebody"
    await redis.sadd(f"{PREFIX}:workers:{QUEUE}", key)
    await redis.hset(key, mapping={"state": "idle", "birth": "now"})
    await redis.expire(key, 90)
