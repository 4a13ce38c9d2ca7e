"""The queue between daemon and workers: its names, and what may be read of it without RQ.

The names are wire format: daemons and workers of different versions share a queue.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from redis.asyncio import Redis

from amnesiad.errors import Bug
from amnesiad.store.faults import store_errors

QUEUE: Final = "amnesia"
"""The one queue: a worker on two that dies after a pop loses the job for good."""
PREFIX: Final = "rq:amnesia"
"""RQ's keys, apart from those of another application on the same server."""
MODULE: Final = "amnesiad_workers.jobs"
"""Where the entry points of jobs are; the daemon names them and never imports them."""

WORKER_TTL_S: Final = 30
"""An idle worker gives a sign of life twice in this time."""
RQ_GRACE_S: Final = 60
"""What RQ adds to it before a silent worker's record expires."""


def use_prefix() -> None:
    """Have RQ use our keys. RQ reads the prefix when it is imported, so this comes first.

    Raises ``Bug`` where RQ was imported with another prefix before.
    """
    os.environ["RQ_KEY_PREFIX"] = PREFIX
    imported = sys.modules.get("rq.defaults")
    if imported is not None and imported.RQ_KEY_PREFIX != PREFIX:
        raise Bug("rq was imported before amnesiad could set its key prefix", hint="set RQ_KEY_PREFIX=" + PREFIX)


class QueueHealth(NamedTuple):
    """Whether a worker lives, and how long the job that waits longest has been waiting, in ms; ``None`` without one."""

    alive: bool
    lag_ms: int | None


async def worker_alive(redis: Redis) -> bool:
    """Whether any worker gave a sign of life within ``WORKER_TTL_S``, or is busy with a job it is still allowed to run.

    By the store's clock alone: a worker's record expires when it stays silent, and its remaining life tells its age.
    """
    client = cast(Any, redis)
    with store_errors():
        names = await client.smembers(f"{PREFIX}:workers:{QUEUE}")
        if not names:
            return False
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.pttl(name)
            pipe.hmget(name, ["state", "death"])
        rows = await pipe.execute()
    for left_ms, (state, death) in zip(rows[0::2], rows[1::2], strict=True):
        if left_ms > 0 and death is None and (state == b"busy" or left_ms > RQ_GRACE_S * 1000):
            return True
    return False


async def queue_health(redis: Redis) -> QueueHealth:
    """Whether a worker lives and how far the queue is behind. The lag is by our wall clock, the enqueuing daemon's."""
    client = cast(Any, redis)
    with store_errors():
        oldest = await client.lindex(f"{PREFIX}:queue:{QUEUE}", 0)
        raw = None if oldest is None else await client.hget(f"{PREFIX}:job:{oldest.decode()}", "created_at")
    lag = None
    if raw is not None:
        created = datetime.fromisoformat(raw.decode().removesuffix("Z")).replace(tzinfo=UTC)
        lag = max(0, int((time.time() - created.timestamp()) * 1000))
    return QueueHealth(await worker_alive(redis), lag)
