"""What several test files need and pytest does not have."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from amnesiad.store import keys as keyspace
from amnesiad.store.keys import Keys
from amnesiad.store.workspaces import all_workspaces

#: Between two looks of ``wait_until``.
LOOK_EVERY_S = 0.005


async def wait_until(predicate: Callable[[], object | Awaitable[object]], timeout_s: float = 20.0) -> None:
    """Look until ``predicate`` (plain or async) is true; fail the test when it is not within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = predicate()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {timeout_s} s: {getattr(predicate, '__qualname__', predicate)}")
        await asyncio.sleep(LOOK_EVERY_S)


async def dump(redis: Redis, match: str = "*") -> dict[str, Any]:
    """Everything the store holds under matching keys, read by the type of each: what somebody who took it would find."""
    found: dict[str, Any] = {}
    async for raw in redis.scan_iter(match=match):
        key = raw.decode()
        client: Any = redis
        match (await client.type(key)).decode():
            case "hash":
                found[key] = await client.hgetall(key)
            case "set":
                found[key] = await client.smembers(key)
            case "zset":
                found[key] = dict(await client.zrange(key, 0, -1, withscores=True))
            case "stream":
                found[key] = await client.xrange(key)
            case "list":
                found[key] = await client.lrange(key, 0, -1)
            case "string":
                found[key] = await client.get(key)
            case other:
                raise AssertionError(f"{key} is a {other}, which nothing here writes")
    return found


async def foreign_keys(redis: Redis) -> list[str]:
    """Keys that belong neither to the shared keyspace nor to a workspace that has a name; none may be left behind."""
    shared = {keyspace.LIFECYCLE, keyspace.DEAD, keyspace.WORKSPACES, keyspace.META}
    prefixes = tuple(Keys(ws).prefix for ws in (await all_workspaces(redis)).values())
    keys = [raw.decode() async for raw in redis.scan_iter()]
    return sorted(key for key in keys if key not in shared and not key.startswith((*prefixes, "rq:")))
