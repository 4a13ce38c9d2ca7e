"""Workspaces: names, and the random internal ids that keys are made of.

A name may be a path or anything else a person chose; it never becomes a key, an argument of a job or a line of a log.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

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

_DONE: Final = 1
_TAKEN: Final = 0
_MOVED: Final = -2
"""What the scripts below answer; -1 says that the name means another workspace by now."""

_LAST_LUA: Final = """
local function moved(log, seen)
  if seen == '' then return false end
  local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)
  return (#last == 0 and '0-0' or last[1][1]) ~= seen
end
"""
"""Whether the log has gone on since whoever decided looked at it; ``''`` asks nothing."""

_RENAME_LUA: Final = (
    _LAST_LUA
    + """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return -1 end
if moved(KEYS[2], ARGV[4]) then return -2 end
if ARGV[1] == ARGV[3] then return 1 end
if redis.call('HSETNX', KEYS[1], ARGV[3], ARGV[2]) == 0 then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
"""
)
"""One step, because a workspace found under two names would be dropped under one and lost under the other."""

_DROP_LUA: Final = (
    _LAST_LUA
    + """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return -1 end
if moved(KEYS[3], ARGV[3]) then return -2 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HINCRBY', KEYS[2], 'unscrubbed', 1)
for _, field in ipairs(redis.pcall('HKEYS', KEYS[4])) do
  if string.sub(field, 1, 6) == 'owner:' then redis.call('UNLINK', ARGV[4] .. string.sub(field, 7)) end
end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
"""
)
"""One step too: the words are still in the data files, and only the count of unscrubbed erasures remembers it. What
whoever is killed right behind it leaves are answers and ledgers, which expire."""


_DISCARD_LUA: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] or redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[3], KEYS[4])
return 1
"""
"""Only while its log is empty: a write that came between keeps the workspace. An owner may have begun in it."""

_CREATE_LUA: Final = """
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then return redis.call('HGET', KEYS[1], ARGV[1]) end
redis.call('HSET', KEYS[2], 'policy', ARGV[3])
return ARGV[2]
"""
"""One step: a policy cell without a name would be found by nobody, a name without the cell would take no writes."""


async def discard_unused(redis: Redis, name: str, ws: str) -> bool:
    """Take back a workspace into which nothing was ever written, as when its first write was refused."""
    keys = Keys(ws)
    with store_errors():
        script = redis.register_script(_DISCARD_LUA)
        return bool(await script(keys=[keyspace.WORKSPACES, keys.log, keys.cells, keys.leases], args=[name, ws]))


async def find(redis: Redis, name: str) -> str | None:
    """The id of the workspace called ``name``, or ``None``."""
    with store_errors():
        raw = cast(bytes | None, await redis.hget(keyspace.WORKSPACES, name))
    return None if raw is None else raw.decode()


async def find_or_create(redis: Redis, name: str) -> str:
    """The id of the workspace called ``name``, which exists afterwards. Two callers at once get the same id.

    It begins with its policy cell: every unit compares that, so that a write to a workspace dropped meanwhile conflicts
    instead of leaving keys that nobody owns.
    """
    if (ws := await find(redis, name)) is not None:
        return ws
    fresh = secrets.token_hex(WS_BYTES)
    with store_errors():
        script = redis.register_script(_CREATE_LUA)
        args = [name, fresh, f"{FIRST_POLICY}|new||"]
        return cast(bytes, await script(keys=[keyspace.WORKSPACES, Keys(fresh).cells], args=args)).decode()


async def all_workspaces(redis: Redis) -> dict[str, str]:
    """Every workspace, name → id, sorted by name."""
    with store_errors():
        rows = cast(dict[bytes, bytes], await redis.hgetall(keyspace.WORKSPACES))
    return {name.decode(): ws.decode() for name, ws in sorted(rows.items())}


class Seen(NamedTuple):
    """The workspace that a decision was made about: its id, and the last id of its log then."""

    ws: str
    last: str


class MovedOn(Exception):
    """The workspace is not what it was when it was decided about: its log went on, or its name means another."""


async def rename(redis: Redis, name: str, to: str, *, seen: Seen | None = None) -> None:
    """Give a workspace another name. Raises ``NotFound``, or ``Conflict`` when the new name is taken.

    With ``seen`` only while it is as it was seen, else ``MovedOn``.
    """
    while (ws := await find(redis, name)) is not None:
        if seen is not None and ws != seen.ws:
            raise MovedOn
        with store_errors():
            script = redis.register_script(_RENAME_LUA)
            last = "" if seen is None else seen.last
            done = cast(int, await script(keys=[keyspace.WORKSPACES, Keys(ws).log], args=[name, ws, to, last]))
        if done == _MOVED:
            raise MovedOn
        if done == _TAKEN:
            raise Conflict("another workspace has that name", field="to", hint="choose another name, or drop that one")
        if done == _DONE:
            return
    raise NotFound("there is no such workspace", field="rename", hint="amnesia workspaces lists them")


async def drop(redis: Redis, name: str, *, seen: Seen | None = None) -> bool:
    """Delete a workspace, its log and its words; ``False`` if there is none.

    Name, words and all go in one step, so that nobody finds a half-deleted workspace and no crash leaves a part of one.
    With ``seen`` only while it is as it was seen, else ``MovedOn``: nothing written meanwhile goes unlooked at.
    """
    while (ws := await find(redis, name)) is not None:
        if seen is not None and ws != seen.ws:
            raise MovedOn
        keys = Keys(ws)
        others = [key for key in keys.fixed if key not in (keys.log, keys.cells)]
        with store_errors():
            script = redis.register_script(_DROP_LUA)
            last = "" if seen is None else seen.last
            done = cast(
                int,
                await script(
                    keys=[keyspace.WORKSPACES, keyspace.META, keys.log, keys.cells, *others],
                    args=[name, ws, last, keys.members("")],
                ),
            )
        if done == _MOVED:
            raise MovedOn
        if done == _DONE:
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


async def used_last(redis: Redis, most: int) -> dict[str, str]:
    """The workspaces that were written or shown last, name → id, the latest first."""
    known = await all_workspaces(redis)
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        for ws in known.values():
            for stream in (Keys(ws).log, Keys(ws).access):
                pipe.xrevrange(stream, count=1)
        latest: list[Any] = await pipe.execute(raise_on_error=False)
    # One whose key is none of its type was used who knows when, and must not hide the others.
    times = [
        int(entries[0][0].partition(b"-")[0]) if entries and isinstance(entries, list) else 0 for entries in latest
    ]
    latest_use = map(max, times[::2], times[1::2])
    ranked = sorted(zip(latest_use, known.items(), strict=True), reverse=True)
    return dict(item for _, item in ranked[:most])


async def sizes(redis: Redis, ids: Sequence[str]) -> list[int]:
    """How many notes that are not forgotten each workspace holds; 0 for one that is damaged beyond counting."""
    if not ids:
        return []
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        for ws in ids:
            pipe.hlen(Keys(ws).heads)
        counts: list[object] = await pipe.execute(raise_on_error=False)
    return [count if isinstance(count, int) else 0 for count in counts]
