"""Owners of scoped notes: each has a cell with its incarnation, open or closed, and a place among the leases.

Every scoped write compares the cell, so that an owner's end and a concurrent write can never both win. The rules of
starting and ending (which incarnation, by whose clock) are two pure functions; ``open_owner`` and ``close_owner`` apply
them to the cell. Ending the notes of what was closed is the worker's job; until that is done the owner stays among the
leases with the time ``UNFINISHED``, so that a job lost on the way is found and finished by the next reconciliation.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, cast

import msgspec
from redis.asyncio import Redis

from amnesiad.core.times import MINUTE_MS
from amnesiad.errors import Bug, Conflict, NotFound
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import META, Keys
from amnesiad.store.log import Cell, Log, Unit, parse_stored
from amnesiad.store.workspaces import POLICY_CELL

UNFINISHED: Final = 0
"""The lease of a closed owner whose notes may not all be ended yet."""
MAX_ATTEMPTS: Final = 24
"""Tries before a cell that others keep moving is given up with ``conflict``; each try lets one of them through."""
LEASES_PER_READ: Final = 1000
"""Leases per step when an owner's children are looked for."""
AWAY_MS: Final = 5 * MINUTE_MS
"""A longer gap between two reconciliations, which run every minute, means that worker or daemon was away."""
GRACE_MS: Final = 15 * MINUTE_MS
"""How long after that agents have to show that they live."""
_SEEN: Final = "reconciled_at"
_BACK: Final = "reconciling_since"


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """One owner's cell. ``started_at`` is the producer's own time of the start event, comparable only with times from
    the same ``source``; ``opened_at`` and ``closed_at`` are store time."""

    incarnation: int
    open: bool
    opened_at: int = 0
    closed_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    source: str | None = None
    agent_kind: str | None = None

    @property
    def stamp(self) -> str:
        """How the commit script compares it."""
        return f"{self.incarnation}{'o' if self.open else 'c'}"


SCAN_COUNT: Final = 1000
"""Cells per HSCAN step."""

_TOUCH_LUA: Final = """
for i = 1, #ARGV, 3 do
  local cell = redis.call('HGET', KEYS[1], ARGV[i])
  if cell and string.match(cell, '^%d+o|') then redis.call('ZADD', KEYS[2], 'GT', ARGV[i + 2], ARGV[i + 1]) end
end
"""
"""One step: an end that came between look and touch would lose its mark ``UNFINISHED``, a drop would leave the
leases."""

_STAMP: Final = re.compile(r"([0-9]{1,18})([oc])")
_decoder: Final = msgspec.json.Decoder(Owner)
_encoder: Final = msgspec.json.Encoder()

NO_OWNER: Final = Owner(incarnation=0, open=False)
"""An owner nobody has heard of; its stamp in the store is the absent cell."""


def owner_field(owner: str) -> str:
    """The owner's field in the cells hash."""
    return f"owner:{owner}"


def decode_owner(raw: bytes | None) -> Owner:
    """The owner a stored cell describes; ``NO_OWNER`` for an absent one.

    Where its facts are damaged the stamp, which alone is compared, still tells the life and whether it is open. Raises
    ``Conflict`` for a cell without one: no write of this owner could land.
    """
    if not raw:
        return NO_OWNER
    try:
        stored = parse_stored(raw)
        owner = _decoder.decode(stored.value)
        stamp = stored.stamp
    except (msgspec.MsgspecError, Bug, UnicodeDecodeError):
        owner, stamp = None, raw.partition(b"|")[0].decode(errors="replace")
    if owner is not None and owner.stamp == stamp:
        return owner
    life = _STAMP.fullmatch(stamp)
    if life is None or raw.count(b"|") < 3:
        raise Conflict("the owner's cell cannot be read", hint="amnesia verify names it, amnesia rebuild mends it")
    return Owner(incarnation=int(life[1]), open=life[2] == "o")


def readable_owner(raw: bytes | None) -> Owner | None:
    """The owner a stored cell describes; ``None`` for a cell that no write could compare itself with."""
    try:
        return decode_owner(raw)
    except Conflict:
        return None


def _stamp(owner: Owner) -> str:
    return "" if owner == NO_OWNER else owner.stamp


async def read_owner(redis: Redis, keys: Keys, owner: str) -> Owner:
    """One owner's cell."""
    with store_errors():
        raw = cast(bytes | None, await redis.hget(keys.cells, owner_field(owner)))
    return decode_owner(raw)


def expect_open(unit: Unit, owner: str, known: Owner) -> None:
    """Make the unit fail unless the owner is still as known; for a scoped write of an open owner."""
    unit.cells.append(Cell(owner_field(owner), _stamp(known), "="))


def set_owner(unit: Unit, keys: Keys, owner: str, known: Owner, new: Owner, now: int) -> None:
    """Move the owner's cell. An open one's lease begins; a closed one is marked until ``finish_owner``."""
    unit.cells.append(Cell(owner_field(owner), _stamp(known), new.stamp, _encoder.encode(new)))
    unit.sets.append((keys.leases, "ZADD", owner, now if new.open else UNFINISHED))


def reopened(known: Owner, now: int, *, agent_kind: str | None = None) -> Owner:
    """The next incarnation of a closed or unknown owner, opened by a call at store time ``now``."""
    return Owner(incarnation=known.incarnation + 1, open=True, opened_at=_opened_at(known, now), agent_kind=agent_kind)


def _opened_at(known: Owner, at: int) -> int:
    """Store time of an opening, later than the end it follows even within one millisecond: that end, run again, must
    not reach the new life."""
    return at if known.closed_at is None else max(at, known.closed_at + 1)


class Ending(NamedTuple):
    """What an end event does: the owner afterwards (``None``: the cell stays) and the last incarnation whose notes
    end."""

    owner: Owner | None
    through: int


def end_owner(known: Owner, *, heard_at: int, at: int | None, source: str | None) -> Ending:
    """Decide an end heard by the store at ``heard_at`` and stamped ``at`` by its producer ``source``.

    An end that lies before this incarnation's start ends only the incarnations before it. Producer times are compared
    only with the same producer's; without a pair to compare, the store's own times decide. The answer to an end heard
    again is the same, so that it can be run again.
    """
    if not known.open:
        if at is not None and (known.ended_at is None or known.source != source or at > known.ended_at):
            closed_at = heard_at if known.closed_at is None else max(known.closed_at, heard_at)
            kept = msgspec.structs.replace(known, ended_at=at, source=source, closed_at=closed_at)
            return Ending(kept, known.incarnation)
        return Ending(None, known.incarnation)
    if at is not None and known.started_at is not None and source == known.source:
        older = at < known.started_at
    else:
        older = heard_at < known.opened_at
    if older:
        return Ending(None, known.incarnation - 1)
    closed = msgspec.structs.replace(
        known, open=False, closed_at=heard_at, ended_at=at, source=source if at is not None else known.source
    )
    return Ending(closed, known.incarnation)


def start_owner(
    known: Owner, *, heard_at: int, at: int | None, source: str | None, agent_kind: str | None
) -> Owner | None:
    """Decide a start event: the owner afterwards, or ``None`` where it changes nothing (repeated, or late).

    A start that lies before an end already seen opens nothing. A later start of an owner that is open already, by the
    same producer's clock, begins another incarnation: the end in between was lost or is still on its way, and must not
    reach what is written from here on. So does the first start that is heard of an owner that calls have opened: it may
    be the start of this life, come late, and then the end of this life will take both incarnations along; or that of
    the next one, and then an end on its way, which lies before it, takes only what was written until now.
    """
    comparable = at is not None and source == known.source
    if known.open:
        if at is None or (known.started_at is not None and (not comparable or at <= known.started_at)):
            return None
    elif comparable and known.ended_at is not None and at is not None:
        if at <= known.ended_at:
            return None
    elif known.closed_at is not None and heard_at < known.closed_at:
        return None
    return Owner(
        incarnation=known.incarnation + 1,
        open=True,
        opened_at=_opened_at(known, heard_at),
        started_at=at,
        source=source if at is not None else None,
        agent_kind=agent_kind or (known.agent_kind if known.open else None),
    )


async def open_owner(
    log: Log, owner: str, *, heard_at: int, at: int | None, source: str | None, agent_kind: str | None
) -> bool:
    """Apply a start event to the owner's cell. Returns whether it moved; a repeat moves nothing.

    Raises ``NotFound`` where the workspace was dropped, ``Conflict`` when others kept moving the cell.
    """
    for _ in range(MAX_ATTEMPTS):
        known = await read_owner(log.redis, log.keys, owner)
        new = start_owner(known, heard_at=heard_at, at=at, source=source, agent_kind=agent_kind)
        if new is None or await _move(log, owner, known, new, heard_at):
            return new is not None
    raise Conflict("the owner's cell kept moving", hint="the event is tried again")


async def close_owner(log: Log, owner: str, *, heard_at: int, at: int | None, source: str | None) -> int:
    """Apply an end event to the owner's cell and return the last incarnation whose notes it ends.

    From here on no write of an ended incarnation lands. Run again it returns the same and changes nothing. Raises
    ``NotFound`` where the workspace was dropped, ``Conflict`` when others kept moving the cell.
    """
    for _ in range(MAX_ATTEMPTS):
        known = await read_owner(log.redis, log.keys, owner)
        ending = end_owner(known, heard_at=heard_at, at=at, source=source)
        if ending.owner is None or await _move(log, owner, known, ending.owner, heard_at):
            return ending.through
    raise Conflict("the owner's cell kept moving", hint="the event is tried again")


async def close_owners(
    log: Log, owner: str, *, children: bool, heard_at: int, at: int | None, source: str | None
) -> dict[str, int]:
    """``close_owner``, and with ``children`` also for every owner below this one: the answer for each by its name."""
    names = [owner, *(await children_of(log.redis, log.keys, owner) if children else ())]
    return {name: await close_owner(log, name, heard_at=heard_at, at=at, source=source) for name in names}


async def _move(log: Log, owner: str, known: Owner, new: Owner, now: int) -> bool:
    unit = Unit()
    set_owner(unit, log.keys, owner, known, new, now)
    outcome = await log.commit(unit)
    if outcome.detail == POLICY_CELL:
        raise NotFound("the workspace was dropped", field="workspace")
    return outcome.status in ("ok", "own")


async def finish_owner(log: Log, owner: str) -> None:
    """Take a closed owner whose notes are all ended out of the leases; one that was opened meanwhile stays."""
    known = await read_owner(log.redis, log.keys, owner)
    if known.open:
        return
    unit = Unit()
    unit.cells.append(Cell(owner_field(owner), _stamp(known), "="))
    unit.sets.append((log.keys.leases, "ZREM", owner, ""))
    await log.commit(unit)


async def touch_owners(redis: Redis, keys: Keys, signs: dict[str, int]) -> None:
    """Record signs of life (owner → store ms) of open owners. A late one of a closed owner is no life."""
    if not signs:
        return
    args = [part for name, at in signs.items() for part in (owner_field(name), name, at)]
    with store_errors():
        script = redis.register_script(_TOUCH_LUA)
        await script(keys=[keys.cells, keys.leases], args=args)


async def children_of(redis: Redis, keys: Keys, owner: str) -> list[str]:
    """Every owner below this one (``owner/…``) that is open, or closed and unfinished.

    A scan, since a walk by rank would pass over one whose lease is refreshed meanwhile.
    """
    prefix, found = f"{owner}/".encode(), set()
    with store_errors():
        async for name, _ in redis.zscan_iter(keys.leases, count=LEASES_PER_READ):
            if name.startswith(prefix):
                found.add(name.decode())
    return sorted(found)


async def lapsed_owners(redis: Redis, keys: Keys, before: int) -> list[tuple[str, int]]:
    """Owners without a sign of life since ``before`` (store ms), with the time of the last; unfinished ones first."""
    with store_errors():
        rows = cast(list[tuple[bytes, float]], await redis.zrangebyscore(keys.leases, "-inf", before, withscores=True))
    return [(name.decode(), int(at)) for name, at in rows]


async def last_seen(redis: Redis, keys: Keys, owner: str) -> int | None:
    """The time of the owner's last sign of life (store ms), ``UNFINISHED``, or ``None`` for one without a lease."""
    with store_errors():
        at = await redis.zscore(keys.leases, owner)
    return None if at is None else int(at)


class Holding(NamedTuple):
    """An owner, the notes it holds, and when its lease was last refreshed (epoch ms)."""

    name: str
    owner: Owner
    notes: int
    last_seen_at: int | None


async def all_owners(redis: Redis, keys: Keys) -> list[Holding]:
    """Every owner ever heard of in the workspace; one whose cell cannot be read is left to ``verify`` to name."""
    with store_errors():
        leases = cast(list[tuple[bytes, float]], await redis.zrange(keys.leases, 0, -1, withscores=True))
        cells = [
            (field.decode(errors="replace").removeprefix("owner:"), raw)
            async for field, raw in redis.hscan_iter(keys.cells, match="owner:*", count=SCAN_COUNT)
        ]
        pipe = redis.pipeline(transaction=False)
        for name, _ in cells:
            pipe.scard(keys.members(name))
        held = await pipe.execute() if cells else []
    seen = {name.decode(): int(at) for name, at in leases}
    return [
        Holding(name, owner, notes, seen.get(name))
        for (name, raw), notes in zip(cells, held, strict=True)
        if (owner := readable_owner(raw)) is not None
    ]


async def members_of(redis: Redis, keys: Keys, owner: str) -> list[str]:
    """Ids of the owner's notes that are not forgotten, sorted."""
    with store_errors():
        rows = cast(set[bytes], await cast(Any, redis.smembers(keys.members(owner))))
    return sorted(row.decode() for row in rows)


async def leases_may_lapse(redis: Redis, now: int) -> bool:
    """Whether an owner's silence may count against it at ``now``; to be asked at every reconciliation, and only there.

    While no reconciliation ran, agents may have had nobody to give a sign of life to. So each one leaves its time in
    the fleet-wide ``META`` hash, and after a gap of more than ``AWAY_MS`` (and at the very first) nobody is ended for
    ``GRACE_MS``.
    """
    with store_errors():
        seen, back = cast(list[bytes | None], await cast(Any, redis.hmget(META, [_SEEN, _BACK])))
        # A time that lies ahead is one of before the clock was set back: it says no more about who was away.
        returned = now if seen is None or abs(now - int(seen)) > AWAY_MS else int(back or now)
        await cast(Any, redis.hset(META, mapping={_SEEN: now, _BACK: returned}))
    return now - returned >= GRACE_MS
