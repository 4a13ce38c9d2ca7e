"""Following a workspace as it grows: its log and its ledger as one sequence with one cursor.

A reader has a place of its own in both streams and reads at its own pace, so nothing is queued for a slow one and
nothing is lost to it. Reading and waiting are two steps: what is there is read over the shared connections, and only
the wait for more holds one, out of a pool of its own, so that no feed takes a connection from the verbs.

Both streams get their ids from the store's clock, apart. Within one millisecond the log comes first; an entry is told
once its millisecond is over, when nothing can come before it any more. So one id says where a reader is in both.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from redis.asyncio import BlockingConnectionPool, Redis

from amnesiad.store.connect import POOL_WAIT_S
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.log import START, at_or_past, seq_key

MAX_WAITING: Final = 64
"""Readers that wait at once, each on a connection of its own: as many as the API has feeds."""
PAGE: Final = 200
"""Entries of a stream per read: what is held for one reader at a time."""
BLOCK_MS: Final = 2_000
"""How long one wait lasts: below the client's socket timeout, and how late a dropped workspace is noticed."""
AHEAD_MS: Final = 1_000
"""An id further ahead of the store's clock than this comes of a clock that was put back; it is not waited for."""

_LAST: Final = 2**64 - 1
_SHOWN: Final = 10**12
"""Added to the number of a ledger entry's id in a cursor, which puts it behind the log of its millisecond: no store
appends as many entries in one."""

_Rows = list[tuple[bytes, dict[bytes, bytes]]]


class Place(NamedTuple):
    """Where a reader is: the last ids it has read of the log and of the ledger."""

    log: str
    shown: str


class Item(NamedTuple):
    """One entry: the cursor to go on behind it, whether it is of the ledger, and its payload, ``None`` for a foreign
    one."""

    cursor: str
    shown: bool
    raw: bytes | None


class Page(NamedTuple):
    """What is there to be told, in order, the place behind it, and after how many seconds to look again at entries
    whose millisecond was not over (0: there are none)."""

    items: list[Item]
    place: Place
    again_s: float
    more: bool
    """Whether a stream held more than one page."""


def place_behind(cursor: str) -> Place:
    """The place right behind a cursor. The stream id of any event is one too."""
    # The store refuses to read behind the very last id there can be.
    ms, number = (min(part, most) for part, most in zip(seq_key(cursor), (_LAST - 1, _LAST), strict=True))
    if number >= _SHOWN:
        return Place(f"{ms}-{_LAST}", f"{ms}-{number - _SHOWN}")
    return Place(f"{ms}-{number}", START if ms == 0 else f"{ms - 1}-{_LAST}")


def _cursor(shown: bool, seq: str) -> str:
    ms, number = seq_key(seq)
    return f"{ms}-{number + _SHOWN}" if shown else seq


class Tails:
    """The readers of one process. ``aclose`` ends those that wait."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        shared = redis.connection_pool
        pool = BlockingConnectionPool(
            connection_class=shared.connection_class,
            max_connections=MAX_WAITING,
            timeout=POOL_WAIT_S,
            **shared.connection_kwargs,
        )
        self._waiting = Redis.from_pool(pool)

    async def end(self, keys: Keys) -> tuple[Place, str]:
        """The place behind everything there is, and the cursor that stands for it."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.xrevrange(keys.log, count=1)
            pipe.xrevrange(keys.access, count=1)
            rows = cast(list[_Rows], await pipe.execute())
        log, shown = (row[0][0].decode() if row else START for row in rows)
        cursors = [log] if shown == START else [log, _cursor(True, shown)]
        return Place(log, shown), max(cursors, key=seq_key)

    async def trimmed(self, keys: Keys, place: Place) -> bool:
        """Whether entries of the ledger were trimmed and the oldest one left lies behind ``place``: then some that a
        reader there has not read may be gone."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.exists(keys.access)
            pipe.xrange(keys.access, count=1)
            there, first = cast(tuple[int, _Rows], await pipe.execute())
            if not there or (first and at_or_past(place.shown, first[0][0].decode())):
                return False
            ledger = await self._redis.xinfo_stream(keys.access)
        return int(ledger["entries-added"]) > int(ledger["length"])

    async def read(self, keys: Keys, place: Place) -> Page:
        """What has come behind ``place``, at most a page of each stream."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.xrange(keys.log, min=f"({place.log}", count=PAGE)
            pipe.xrange(keys.access, min=f"({place.shown}", count=PAGE)
            pipe.time()
            log, shown, (seconds, micros) = cast(tuple[_Rows, _Rows, tuple[int, int]], await pipe.execute())
        return _page(place, log, shown, seconds * 1000 + micros // 1000)

    async def wait(self, keys: Keys, place: Place) -> None:
        """Return when there is something behind ``place``, or after ``BLOCK_MS``."""
        with store_errors():
            streams: Any = {keys.log: place.log, keys.access: place.shown}
            await self._waiting.xread(streams, count=1, block=BLOCK_MS)

    async def aclose(self) -> None:
        """Close the connections of those that wait."""
        await self._waiting.aclose()


def _page(place: Place, log: _Rows, shown: _Rows, now: int) -> Page:
    found: list[tuple[tuple[int, int], str, Item]] = []
    full: list[tuple[int, int]] = []
    for of_ledger, rows in ((False, log), (True, shown)):
        for raw_seq, fields in rows:
            seq = raw_seq.decode()
            item = Item(_cursor(of_ledger, seq), of_ledger, fields.get(b"e"))
            found.append((seq_key(item.cursor), seq, item))
        if len(rows) == PAGE:
            full.append(found[-1][0])
    found.sort(key=lambda one: one[0])
    items: list[Item] = []
    for key, seq, item in found:
        if full and key > min(full):
            break  # What comes before it in the other stream has not been read.
        if now <= key[0] < now + AHEAD_MS:
            return Page(items, place, (key[0] + 1 - now) / 1000, bool(full))
        items.append(item)
        place = place._replace(shown=seq) if item.shown else place._replace(log=seq)
    return Page(items, place, 0.0, bool(full))
