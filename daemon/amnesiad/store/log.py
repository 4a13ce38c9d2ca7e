"""The log of one workspace and the one write primitive, ``Log.commit``.

A *unit* is all-or-nothing; the units of one call are independent. Units that arrive while a call is on its way are
gathered into the next one, so that a burst of writers costs a few round trips instead of one each. The script is
``commit.lua``; this module is its Python half. What a unit should contain is ``store.units``'s business.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec
from redis.asyncio import Redis

from amnesiad.core.events import Event, decode
from amnesiad.errors import Bug, StoreUnavailable
from amnesiad.store.faults import StoreSilent, store_errors
from amnesiad.store.keys import Keys

MAX_UNITS_PER_CALL: Final = 500
"""Notes and units of one script call, which blocks the store for about 25 µs each: 500 keep it near 12 ms."""
MAX_BYTES_PER_CALL: Final = 8 * 1024 * 1024
"""Words of one script call, so that a burst of long notes becomes several calls and not one frame of gigabytes."""
READ_COUNT: Final = 1000
"""Entries per XRANGE when reading the log forward."""
MAX_HISTORY: Final = 10_000
"""Events of one note that are walked; renewals are thinned, so a note does not get there."""
REQUEST_TTL_MS: Final = 86_400_000
"""How long the answer to a ``request_id`` is kept: the specification's 24 hours."""
START: Final = "0-0"
"""The position before the first entry of a log."""

_encoder: Final = msgspec.json.Encoder()

_Rows = list[tuple[bytes, dict[bytes, bytes]]]
Status = Literal["ok", "own", "conflict", "full", "replay", "reused"]


class NoteOp(NamedTuple):
    """One note's head (or tomb) compared at ``expected`` and set, with its new events."""

    note: str
    source: Literal["h", "t", "-"]
    expected: int
    target: Literal["h", "t"]
    version: int
    value: bytes
    events: tuple[bytes, ...]


class Cell(NamedTuple):
    """A field of the cells hash, compared by stamp and set. ``new`` ``""`` deletes, ``"="`` only compares."""

    field: str
    expected: str
    new: str
    payload: str | bytes = ""


_PROCESS: Final = secrets.token_urlsafe(8)
_numbers: Final = itertools.count()


def _new_op() -> str:
    """An operation id no other unit has: this process's random name and a number. Asking the kernel for each costs more
    than writing the unit down."""
    return f"{_PROCESS}.{next(_numbers):x}"


@dataclass(slots=True)
class Unit:
    """Everything one change does to the store, as data.

    A lost reply is told from a lost write by the operation id in a head, tomb or cell. So a unit whose effect must not
    happen twice (events, totals) changes at least one of these.
    """

    op: str = field(default_factory=_new_op)
    notes: list[NoteOp] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    totals: list[tuple[str, int, int | None]] = field(default_factory=list)
    words: list[tuple[str, bytes]] = field(default_factory=list)
    due: list[tuple[str, int | None]] = field(default_factory=list)
    sets: list[tuple[str, Literal["SADD", "SREM", "ZADD", "ZREM", "HSET", "HDEL"], str, str | bytes | int]] = field(
        default_factory=list
    )
    events: list[bytes] = field(default_factory=list)
    request: tuple[str, str, bytes] | None = None
    """Key, keyed hash of the request body, answer without ``seq`` and without words."""


class Outcome(NamedTuple):
    """What became of one unit.

    On ``ok`` ``seq`` is the stream id of its last event and ``previous`` the log's last id before it. ``own`` says that
    the unit was written by an earlier try; ``seq`` is then its last event as far as its heads, tombs and cells still
    tell, and ``previous``, as for everything that wrote nothing, the log's last id now. On ``conflict`` and ``full``
    ``detail`` names the cell, ``note:ID`` or total, and ``current`` holds what stands there: a ``conflict`` on the
    policy cell with nothing there is a dropped workspace. On ``replay`` ``current`` is ``seq|answer`` as it was stored.
    """

    status: Status
    seq: str
    previous: str
    detail: str
    current: bytes


class Entry(NamedTuple):
    """One entry of the log. ``previous`` is the stream id of the same note's event before it, or ``""``."""

    seq: str
    event: Event
    previous: str


class Stored(NamedTuple):
    """A head, tomb or cell as it stands in the store."""

    stamp: str
    op: str
    seq: str
    value: bytes


def parse_stored(raw: bytes) -> Stored:
    """Split ``stamp|op|seq|value``. Raises ``Bug`` for anything else."""
    parts = raw.split(b"|", 3)
    if len(parts) != 4:
        raise Bug("a stored cell is malformed", hint="run amnesia verify")
    return Stored(parts[0].decode(), parts[1].decode(), parts[2].decode(), parts[3])


def seq_key(seq: str) -> tuple[int, int]:
    """A stream id as numbers, so that ids compare in log order."""
    ms, _, n = seq.partition("-")
    return int(ms), int(n or 0)


def at_or_past(seq: str, other: str) -> bool:
    """Whether stream id ``seq`` is ``other`` or later."""
    return seq_key(seq) >= seq_key(other)


COMMIT_LUA: Final = resources.files("amnesiad.store").joinpath("commit.lua").read_text()


class Log:
    """One workspace's log. Safe for concurrent use on one event loop."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys
        self._commit = redis.register_script(COMMIT_LUA)
        self._waiting: list[tuple[Unit, asyncio.Future[Outcome]]] = []
        self._sending: list[tuple[Unit, asyncio.Future[Outcome]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def commit(self, unit: Unit) -> Outcome:
        """Write one unit, together with whatever else is waiting.

        Raises ``StoreUnavailable`` when no answer came; the unit may then have landed, and committing the *same* unit
        again is safe: a unit that finds its own operation id answers ``own``.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((unit, future))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_waiting())
            self._sender.add_done_callback(self._sender_ended)
        return await future

    async def _send_waiting(self) -> None:
        while self._waiting:
            # A caller that gave up before its unit was sent has not written anything.
            self._waiting = [waiter for waiter in self._waiting if not waiter[1].done()]
            size = _fitting([unit for unit, _ in self._waiting])
            self._sending, self._waiting = self._waiting[:size], self._waiting[size:]
            if self._sending:
                await self._send(self._sending)
            self._sending = []

    def _sender_ended(self, sender: asyncio.Task[None]) -> None:
        """Whoever cancels the sender, even before its first step, must not leave its callers waiting for ever."""
        if sender.cancelled():
            for _, future in self._sending + self._waiting:
                future.cancel()
            self._sending, self._waiting = [], []

    async def _send(self, batch: Sequence[tuple[Unit, asyncio.Future[Outcome]]]) -> None:
        try:
            outcomes = await self.commit_now([unit for unit, _ in batch])
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)

    async def commit_now(self, units: Sequence[Unit]) -> list[Outcome]:
        """Write units in their order, in as few calls as the bounds allow; an error of one call leaves those before it
        written. A dropped connection is tried once more: operation ids make that safe. A store that was
        given its time and said nothing is not.
        """
        outcomes: list[Outcome] = []
        while len(outcomes) < len(units):
            rest = units[len(outcomes) :]
            outcomes += await self._call(rest[: _fitting(rest)])
        return outcomes

    async def _call(self, units: Sequence[Unit]) -> list[Outcome]:
        keys, args = self._encode(units)
        try:
            rows = await self._run(self._commit, keys, args)
        except StoreSilent:
            raise
        except StoreUnavailable:
            rows = await self._run(self._commit, keys, args)
        return [
            Outcome(row[0].decode(), row[1].decode(), row[2].decode(), row[3].decode(), row[4])
            for row in cast(list[Any], rows)
        ]

    async def _run(self, script: Any, keys: list[str], args: Sequence[Any]) -> Any:
        with store_errors():
            return await script(keys=keys, args=args)

    def _encode(self, units: Sequence[Unit]) -> tuple[list[str], list[bytes]]:
        k = self.keys
        keys = [k.log, k.heads, k.vault, k.tomb, k.cells, k.due, k.totals, k.use, k.vectors]
        numbers: dict[str, int] = {}

        def number(key: str) -> int:
            if key not in numbers:
                keys.append(key)
                numbers[key] = len(keys)
            return numbers[key]

        return keys, [_encode_unit(unit, number) for unit in units]

    async def stored_answer(self, request_id: str) -> tuple[str, bytes] | None:
        """The keyed body hash and ``seq|answer`` kept for a request id, if it was answered in the last 24 hours."""
        with store_errors():
            raw = cast(bytes | None, await self.redis.get(self.keys.request(request_id)))
        if raw is None:
            return None
        body_hash, _, rest = raw.partition(b"|")
        return body_hash.decode(), rest

    async def last_id(self) -> str:
        """The stream id of the newest entry, or ``START``."""
        with store_errors():
            rows = cast(_Rows, await self.redis.xrevrange(self.keys.log, count=1))
        return rows[0][0].decode() if rows else START

    async def read(self, after: str, count: int = READ_COUNT) -> list[Entry]:
        """Entries later than ``after``, oldest first, at most ``count``."""
        with store_errors():
            rows = cast(_Rows, await self.redis.xrange(self.keys.log, min=f"({after}", count=count))
        return [parse_entry(seq, fields) for seq, fields in rows]

    async def entries(self, after: str = START) -> AsyncIterator[Entry]:
        """Every entry later than ``after``, oldest first, read in pages."""
        while page := await self.read(after):
            for entry in page:
                yield entry
            after = page[-1].seq

    async def history(self, last: str, limit: int = MAX_HISTORY) -> list[Entry]:
        """A note's events, newest first, walking the chain back from its last one. Cost grows with its own events."""
        found: list[Entry] = []
        seq = last
        while seq and len(found) < limit:
            with store_errors():
                rows = cast(_Rows, await self.redis.xrange(self.keys.log, min=seq, max=seq))
            if not rows:
                break
            entry = parse_entry(*rows[0])
            found.append(entry)
            seq = entry.previous
        return found


def _fitting(units: Sequence[Unit]) -> int:
    """How many of the first units one call may carry; at least one."""
    work = size = 0
    for count, unit in enumerate(units):
        work += max(1, len(unit.notes))
        size += sum(len(value) for _, value in unit.words)
        if count and (work > MAX_UNITS_PER_CALL or size > MAX_BYTES_PER_CALL):
            return count
    return len(units)


def _text(value: str | bytes | int) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _encode_unit(unit: Unit, number: Callable[[str], int]) -> bytes:
    """The unit as ``commit.lua`` reads it: one argument, because the client packs arguments one by one in Python."""
    if (unit.events or unit.totals) and not unit.notes and all(cell.new in ("", "=") for cell in unit.cells):
        raise Bug("a unit with events or totals changes no head, tomb or cell: its repetition would not be seen")
    return _encoder.encode(
        {
            "op": unit.op,
            "notes": [
                (
                    note.note,
                    note.source,
                    "" if note.source == "-" else str(note.expected),
                    note.target,
                    str(note.version),
                    note.value.decode(),
                    [event.decode() for event in note.events],
                )
                for note in unit.notes
            ],
            "cells": [(cell.field, cell.expected, cell.new, _text(cell.payload)) for cell in unit.cells],
            "totals": [(name, delta, -1 if limit is None else limit) for name, delta, limit in unit.totals],
            "words": [(note_id, value.decode()) for note_id, value in unit.words],
            "due": [(note_id, "" if at is None else str(at)) for note_id, at in unit.due],
            "sets": [(number(key), command, member, _text(value)) for key, command, member, value in unit.sets],
            "events": [event.decode() for event in unit.events],
            "request": ()
            if unit.request is None
            else (number(unit.request[0]), unit.request[1], unit.request[2].decode(), str(REQUEST_TTL_MS)),
        }
    )


def parse_entry(seq: bytes, fields: dict[bytes, bytes]) -> Entry:
    """One raw stream entry."""
    return Entry(seq.decode(), decode(fields[b"e"]), fields[b"p"].decode())
