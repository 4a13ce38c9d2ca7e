"""Owners of scoped notes: each has a cell with its incarnation, open or closed, and a place among the leases.

Every scoped write compares the cell, so that an owner's end and a concurrent write can never both win. The rules of
ending (which incarnation, by whose clock) are here as one pure function; running them is the worker's job.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, cast

import msgspec
from redis.asyncio import Redis

from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.log import Cell, Unit, parse_stored


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


_decoder: Final = msgspec.json.Decoder(Owner)
_encoder: Final = msgspec.json.Encoder()

NO_OWNER: Final = Owner(incarnation=0, open=False)
"""An owner nobody has heard of; its stamp in the store is the absent cell."""


def owner_field(owner: str) -> str:
    """The owner's field in the cells hash."""
    return f"owner:{owner}"


def decode_owner(raw: bytes | None) -> Owner:
    """The owner a stored cell describes; ``NO_OWNER`` for an absent one."""
    return NO_OWNER if not raw else _decoder.decode(parse_stored(raw).value)


def _stamp(owner: Owner) -> str:
    return "" if owner is NO_OWNER or owner == NO_OWNER else owner.stamp


async def read_owner(redis: Redis, keys: Keys, owner: str) -> Owner:
    """One owner's cell."""
    with store_errors():
        raw = cast(bytes | None, await redis.hget(keys.cells, owner_field(owner)))
    return decode_owner(raw)


def expect_open(unit: Unit, owner: str, known: Owner) -> None:
    """Make the unit fail unless the owner is still as known; for a scoped write of an open owner."""
    unit.cells.append(Cell(owner_field(owner), _stamp(known), "="))


def set_owner(unit: Unit, keys: Keys, owner: str, known: Owner, new: Owner, now: int) -> None:
    """Move the owner's cell; an open one is put among the leases, a closed one taken out."""
    unit.cells.append(Cell(owner_field(owner), _stamp(known), new.stamp, _encoder.encode(new)))
    if new.open:
        unit.sets.append((keys.leases, "ZADD", owner, now))
    else:
        unit.sets.append((keys.leases, "ZREM", owner, ""))


def reopened(known: Owner, now: int, *, agent_kind: str | None = None) -> Owner:
    """The next incarnation of a closed or unknown owner, opened by a call at store time ``now``."""
    return Owner(incarnation=known.incarnation + 1, open=True, opened_at=now, agent_kind=agent_kind)


class Ending(NamedTuple):
    """What an end event does: the owner afterwards (``None``: the cell stays) and the last incarnation whose notes end."""

    owner: Owner | None
    through: int


def end_owner(known: Owner, *, now: int, heard_at: int, at: int | None, source: str | None) -> Ending:
    """Decide an end heard by the store at ``heard_at`` and stamped ``at`` by its producer ``source``.

    An end that lies before this incarnation's start ends only the incarnations before it. Producer times are compared
    only with the same producer's; without a pair to compare, the store's own times decide.
    """
    ended = {"closed_at": now, "ended_at": at, "source": source or known.source}
    if not known.open:
        if at is not None and (known.ended_at is None or known.source != source or at > known.ended_at):
            kept = msgspec.structs.replace(known, ended_at=at, source=source, closed_at=known.closed_at or now)
            return Ending(kept, known.incarnation)
        return Ending(None, known.incarnation)
    comparable = at is not None and known.started_at is not None and source == known.source
    older = at < known.started_at if comparable else heard_at < known.opened_at  # type: ignore[operator]
    if older:
        return Ending(None, known.incarnation - 1)
    return Ending(msgspec.structs.replace(known, open=False, **ended), known.incarnation)


def start_owner(
    known: Owner, *, now: int, heard_at: int, at: int | None, source: str | None, agent_kind: str | None
) -> Owner | None:
    """Decide a start event: the owner afterwards, or ``None`` where it changes nothing (repeated, or late).

    A start that lies before an end already seen from the same producer opens nothing.
    """
    comparable = at is not None and source == known.source
    if known.open:
        fresh = at if known.started_at is None else None
        if fresh is None:
            return None
        return msgspec.structs.replace(
            known, started_at=fresh, source=source, agent_kind=agent_kind or known.agent_kind
        )
    if known.incarnation or known.closed_at is not None:
        if comparable and known.ended_at is not None and at is not None and at <= known.ended_at:
            return None
        if not comparable and known.closed_at is not None and heard_at <= known.closed_at and known.ended_at is None:
            return None
    return Owner(
        incarnation=known.incarnation + 1,
        open=True,
        opened_at=now,
        started_at=at,
        source=source,
        agent_kind=agent_kind,
    )


LeaseState = Literal["open", "closed"]
