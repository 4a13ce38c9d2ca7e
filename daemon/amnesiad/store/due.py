"""The due index of a workspace: which notes have something coming, and everything a pass needs to decide what.

Reading here never fails for one bad row: what cannot be read is handed back as ``Unreadable`` with its id, so that a
pass reports it and goes on for all the others. What a due note owes is ``core.clocks``'s to say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from importlib import resources
from typing import Any, Final, NamedTuple, cast

from redis.asyncio import Redis

from amnesiad.core.notes import Note, Words
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.policies import FILED_CELL, Filed, filed_by
from amnesiad.store.units import UNSCRUBBED
from amnesiad.store.vault import Found, Grave, Head, Tomb, Unreadable, find_many
from amnesiad.store.workspaces import POLICY_CELL

SCAN_COUNT: Final = 500
"""Ids per step of a walk."""
LAST_MS: Final = 2**53
"""The last time that an index tells to the millisecond; a sorted set knows infinity too."""
REFILE_LUA: Final = resources.files("amnesiad.store").joinpath("refile.lua").read_text()


class DueNote(NamedTuple):
    """A note that is not forgotten, with its words; ``None`` where the vault has none."""

    note: Note
    words: Words | None


class DueTomb(NamedTuple):
    """A forgotten note, due for the purge of its hash and copy."""

    tomb: Tomb


class Gone(NamedTuple):
    """An id in the index of which nothing is left."""

    id: str


DueItem = DueNote | DueTomb | Gone | Unreadable


class Filing(NamedTuple):
    """Where a note belongs in the index: its version (``None`` where nothing is left of it) and time, if any."""

    id: str
    version: int | None
    at: int | None


class Earliest(NamedTuple):
    """What a workspace has coming first (store ms, ``None`` for nothing), its erasures not yet scrubbed, and by which
    policy it is filed."""

    at: int | None
    unscrubbed: int
    filed: Filed


async def due_ids(redis: Redis, keys: Keys, now: int, count: int) -> list[str]:
    """Ids due at ``now``, earliest first, at most ``count``."""
    with store_errors():
        rows = cast(list[bytes], await redis.zrangebyscore(keys.due, "-inf", now, start=0, num=count))
    return [row.decode() for row in rows]


async def earliest(redis: Redis, workspaces: Sequence[str]) -> list[Earliest]:
    """For each workspace id what it has coming first, in their order; one round trip for all."""
    if not workspaces:
        return []
    with store_errors():
        pipe = redis.pipeline(transaction=False)
        for ws in workspaces:
            keys = Keys(ws)
            pipe.zrange(keys.due, 0, 0, withscores=True)
            pipe.hget(keys.totals, UNSCRUBBED)
            pipe.hmget(keys.cells, [POLICY_CELL, FILED_CELL])
        rows = await pipe.execute(raise_on_error=False)
    return [_earliest(*found) for found in zip(rows[0::3], rows[1::3], rows[2::3], strict=True)]


def _earliest(first: Any, count: Any, cells: Any) -> Earliest:
    """A key that is none of its type, or a time that is none, holds up no other workspace: the server's refusal stands
    for nothing there, and what is filed before or behind all times for the first or the last."""
    at = int(min(max(first[0][1], 0), LAST_MS)) if isinstance(first, list) and first else None
    unscrubbed = int(count) if isinstance(count, bytes) and count.isdigit() else 0
    return Earliest(at, unscrubbed, filed_by(*cells) if isinstance(cells, list) else Filed(True, ""))


async def read_items(redis: Redis, keys: Keys, ids: Sequence[str]) -> list[DueItem]:
    """Heads, words and tombs of ``ids`` in their order, in one round trip."""
    return [_item(*row) for row in zip(ids, await find_many(redis, keys, ids), strict=True)]


def _item(note_id: str, found: Found) -> DueItem:
    match found.place:
        case Head(note=note):
            return DueNote(note, found.words)
        case Grave(tomb=tomb):
            return DueTomb(tomb)
        case None:
            return Gone(note_id)
        case unreadable:
            return unreadable


async def refile(redis: Redis, keys: Keys, policy_version: int, filings: Sequence[Filing]) -> int | None:
    """File notes that still stand at the version given, and return how many were not filed so already.

    ``None`` when the policy has moved; then none is filed.
    """
    if not filings:
        return 0
    args: list[Any] = [policy_version]
    for filing in filings:
        args += (filing.id, "" if filing.version is None else filing.version, "" if filing.at is None else filing.at)
    with store_errors():
        script = redis.register_script(REFILE_LUA)
        filed = int(await script(keys=[keys.cells, keys.heads, keys.tomb, keys.due], args=args))
    return None if filed < 0 else filed


async def set_aside(redis: Redis, keys: Keys, ids: Sequence[str], until: int) -> None:
    """Put ids that no pass can settle off until ``until``, if they are still in the index, so that others get through.

    Nothing is compared: who set them aside could not read what to compare. A time that a newer version filed
    meanwhile is overwritten, and found stale and mended at ``until``.
    """
    if not ids:
        return
    with store_errors():
        await redis.zadd(keys.due, dict.fromkeys(ids, until), xx=True)


async def scan_ids(scan: Callable[..., Any], key: str) -> AsyncIterator[list[str]]:
    """Walk the ids in a key in batches; ``scan`` is the client's ``hscan``, ``zscan`` or ``sscan``, as the key is.

    An id that is there throughout comes at least once; one may come twice.
    """
    cursor = 0
    while True:
        with store_errors():
            cursor, rows = await scan(key, cursor=cursor, count=SCAN_COUNT)
        ids = [row[0] if isinstance(row, tuple) else row for row in rows]
        # A small one is one listpack and comes whole, whatever the count says.
        for at in range(0, len(ids), SCAN_COUNT):
            yield [id_.decode() for id_ in ids[at : at + SCAN_COUNT]]
        if not int(cursor):
            return
