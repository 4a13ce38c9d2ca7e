"""The stream of agents' lifecycle events and the one of those that could not be handled, as writers and people see
them.

Reading the stream as a consumer group and turning events into effects is the bridge's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, NamedTuple, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from amnesiad.store import keys
from amnesiad.store.faults import store_errors
from amnesiad.store.log import seq_key

MAX_COUNTED: Final = 1000
"""Unread events that are counted one by one, where the server cannot tell how many there are."""
RETRY_LUA: Final = resources.files("amnesiad.store").joinpath("retry.lua").read_text()

_Rows = list[tuple[bytes, dict[bytes, bytes]]]


class Dead(NamedTuple):
    """A parked event: its place on the dead stream, when it was parked (epoch ms), why, and the event as it came."""

    seq: str
    at: int
    error: str
    raw: bytes


class Backlog(NamedTuple):
    """Events that are not handled yet, how long the oldest of them has waited (ms, ``None`` without one), and how many
    are parked."""

    waiting: int
    lag_ms: int | None
    parked: int


async def append(redis: Redis, events: Sequence[bytes]) -> list[str]:
    """Put events (JSON) on the stream, all or none; returns their stream ids."""
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        for event in events:
            pipe.xadd(keys.LIFECYCLE, {"e": event})
        ids = await pipe.execute()
    return [id_.decode() for id_ in ids]


async def backlog(redis: Redis) -> Backlog:
    """How far the bridges of all daemons are behind, by the store's clock."""
    client = cast(Any, redis)
    with store_errors():
        parked, (seconds, micros) = await client.xlen(keys.DEAD), await client.time()
        try:
            groups = {group["name"]: group for group in await client.xinfo_groups(keys.LIFECYCLE)}
        except ResponseError:  # Nobody has sent an event yet.
            return Backlog(0, None, parked)
        group = groups.get(keys.BRIDGE_GROUP.encode())
        behind = group["last-delivered-id"].decode() if group else "0-0"
        oldest = []
        if group and group["pending"]:
            oldest += [row["message_id"] for row in await client.xpending_range(
                keys.LIFECYCLE, keys.BRIDGE_GROUP, min="-", max="+", count=1
            )]  # fmt: skip
        unread = group["lag"] if group else None
        fresh = await client.xrange(keys.LIFECYCLE, min=f"({behind}", count=MAX_COUNTED if unread is None else 1)
        oldest += [seq for seq, _ in fresh[:1]]
    waiting = (len(fresh) if unread is None else unread) + (group["pending"] if group else 0)
    now = int(seconds) * 1000 + int(micros) // 1000
    lag = [now - seq_key(seq.decode())[0] for seq in oldest]
    return Backlog(waiting, max(0, *lag) if lag else None, parked)


async def parked(redis: Redis, seq: str) -> Dead | None:
    """The event that is parked at ``seq``."""
    with store_errors():
        rows = cast(_Rows, await redis.xrange(keys.DEAD, min=seq, max=seq))
    return _dead(*rows[0]) if rows else None


def _dead(seq: bytes, fields: dict[bytes, bytes]) -> Dead:
    at = seq_key(seq.decode())[0]
    return Dead(seq.decode(), at, fields.get(b"error", b"").decode(errors="replace"), fields.get(b"e", b""))


async def dead(redis: Redis, limit: int) -> list[Dead]:
    """The latest parked events, newest first."""
    with store_errors():
        rows = cast(_Rows, await redis.xrevrange(keys.DEAD, count=limit))
    return [_dead(seq, fields) for seq, fields in rows]


async def retry_dead(redis: Redis, seq: str) -> bool:
    """Move a parked event back onto the stream; ``False`` if there is none at ``seq``."""
    with store_errors():
        return bool(await redis.register_script(RETRY_LUA)(keys=[keys.DEAD, keys.LIFECYCLE], args=[seq]))


async def drop_dead(redis: Redis, seq: str) -> bool:
    """Delete a parked event; ``False`` if there is none at ``seq``."""
    with store_errors():
        return bool(await redis.xdel(keys.DEAD, seq))
