"""Workspaces: names, and the random internal ids that keys are made of.

A name may be a path or anything else a person chose; it never becomes a key, an argument of a job or a line of a log.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, cast

from redis.asyncio import Redis

from amnesiad.errors import Conflict, NotFound
from amnesiad.store import keys as keyspace
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys

WS_BYTES: Final = 8
POLICY_CELL: Final = "policy"
FIRST_POLICY: Final = 0
"""The policy version of a workspace whose policy was never changed."""
SCAN_COUNT: Final = 500
"""Keys per step when a workspace's keys are looked for; dropping is the only thing that looks."""

_RENAME_LUA: Final = """
local ws = redis.call('HGET', KEYS[1], ARGV[1])
if not ws then return -1 end
if ARGV[1] == ARGV[2] then return 1 end
if redis.call('HSETNX', KEYS[1], ARGV[2], ws) == 0 then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
"""
"""One step, because a workspace found under two names would be dropped under one and lost under the other."""

_DROP_LUA: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HINCRBY', KEYS[2], 'unscrubbed', 1)
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
"""
"""One step too: the words are still in the data files, and only the count of unscrubbed erasures remembers it."""


_DISCARD_LUA: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] or redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[3])
return 1
"""
"""Only while its log is empty: a write that came between keeps the workspace."""


async def discard_unused(redis: Redis, name: str, ws: str) -> bool:
    """Take back a workspace into which nothing was ever written, as when its first write was refused."""
    keys = Keys(ws)
    with store_errors():
        script = redis.register_script(_DISCARD_LUA)
        return bool(await script(keys=[keyspace.WORKSPACES, keys.log, keys.cells], args=[name, ws]))


async def find(redis: Redis, name: str) -> str | None:
    """The id of the workspace called ``name``, or ``None``."""
    with store_errors():
        raw = cast(bytes | None, await redis.hget(keyspace.WORKSPACES, name))
    return None if raw is None else raw.decode()


async def find_or_create(redis: Redis, name: str) -> str:
    """The id of the workspace called ``name``, which exists afterwards. Two callers at once get the same id.

    Its policy cell stands before its name does: every unit compares that cell, so that a write to a workspace dropped
    meanwhile conflicts instead of leaving keys that nobody owns.
    """
    if (ws := await find(redis, name)) is not None:
        return ws
    fresh = secrets.token_hex(WS_BYTES)
    with store_errors():
        await redis.hset(Keys(fresh).cells, POLICY_CELL, f"{FIRST_POLICY}|new||")
        if await redis.hsetnx(keyspace.WORKSPACES, name, fresh):
            return fresh
        await redis.delete(Keys(fresh).cells)
    ws = await find(redis, name)
    if ws is None:
        raise Conflict("the workspace was dropped while it was being made", hint="try again")
    return ws


async def all_workspaces(redis: Redis) -> dict[str, str]:
    """Every workspace, name → id, sorted by name."""
    with store_errors():
        rows = cast(dict[bytes, bytes], await redis.hgetall(keyspace.WORKSPACES))
    return {name.decode(): ws.decode() for name, ws in sorted(rows.items())}


async def rename(redis: Redis, name: str, to: str) -> None:
    """Give a workspace another name. Raises ``NotFound``, or ``Conflict`` when the new name is taken."""
    with store_errors():
        done = cast(int, await redis.register_script(_RENAME_LUA)(keys=[keyspace.WORKSPACES], args=[name, to]))
    if done < 0:
        raise NotFound("there is no such workspace", field="workspace", hint="amnesia workspaces lists them")
    if not done:
        raise Conflict("another workspace has that name", field="to", hint="choose another name, or drop that one")


async def drop(redis: Redis, name: str) -> bool:
    """Delete a workspace, its log and its words; ``False`` if there is none.

    Name, words and all go in one step, so that nobody finds a half-deleted workspace and no crash leaves one's words.
    """
    while (ws := await find(redis, name)) is not None:
        with store_errors():
            script = redis.register_script(_DROP_LUA)
            dropped = await script(keys=[keyspace.WORKSPACES, keyspace.META, *Keys(ws).fixed], args=[name, ws])
        if dropped:
            await delete_keys(redis, ws)
            return True
    return False


async def delete_keys(redis: Redis, ws: str) -> int:
    """Delete every key of a workspace id; returns how many there were.

    The cells go first: without its policy cell nothing is written to a workspace any more.
    """
    keys = Keys(ws)
    with store_errors():
        count = await redis.unlink(keys.cells)
        async for key in redis.scan_iter(match=f"{keys.prefix}*", count=SCAN_COUNT):
            count += await redis.unlink(key)
    return count


async def sizes(redis: Redis, ids: Sequence[str]) -> list[int]:
    """How many notes that are not forgotten each workspace holds."""
    if not ids:
        return []
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        for ws in ids:
            pipe.hlen(Keys(ws).heads)
        return cast(list[int], await pipe.execute())
