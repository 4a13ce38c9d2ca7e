"""The stream of agents' lifecycle events and the one of those that could not be handled, as writers and people see them.

Reading the stream as a consumer group and turning events into effects is the bridge's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from redis.asyncio import Redis

from amnesiad.store import keys
from amnesiad.store.faults import store_errors
from amnesiad.store.log import seq_key

_Rows = list[tuple[bytes, dict[bytes, bytes]]]


class Dead(NamedTuple):
    """A parked event: its place on the dead stream, when it was parked (epoch ms), why, and the event as it came."""

    seq: str
    at: int
    error: str
    raw: bytes


async def append(redis: Redis, events: Sequence[bytes]) -> list[str]:
    """Put events (JSON) on the stream, all or none; returns their stream ids."""
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        for event in events:
            pipe.xadd(keys.LIFECYCLE, {"e": event})
        ids = await pipe.execute()
    return [id_.decode() for id_ in ids]


async def dead(redis: Redis, limit: int) -> list[Dead]:
    """The latest parked events, newest first."""
    with store_errors():
        rows = cast(_Rows, await redis.xrevrange(keys.DEAD, count=limit))
    return [
        Dead(seq.decode(), seq_key(seq.decode())[0], fields.get(b"error", b"").decode(), fields.get(b"e", b""))
        for seq, fields in rows
    ]


async def retry_dead(redis: Redis, seq: str) -> bool:
    """Move a parked event back onto the stream; ``False`` if there is none at ``seq``."""
    with store_errors():
        rows = cast(_Rows, await redis.xrange(keys.DEAD, min=seq, max=seq))
        if not rows:
            return False
        pipe = redis.pipeline(transaction=True)
        pipe.xadd(keys.LIFECYCLE, {"e": rows[0][1].get(b"e", b"")})
        pipe.xdel(keys.DEAD, seq)
        await pipe.execute()
    return True


async def drop_dead(redis: Redis, seq: str) -> bool:
    """Delete a parked event; ``False`` if there is none at ``seq``."""
    with store_errors():
        return bool(await redis.xdel(keys.DEAD, seq))
