"""Words and tombs: the two places where something of a note's text is kept, and for how long.

The vault holds the words of every note that is not forgotten. A tomb holds what the audit may keep of a forgotten one:
bare facts, a keyed hash, and, where ``restorable`` is on, a copy of the words; hash and copy are purged after
``audit_retention``, the bare facts stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, cast

import msgspec
from redis.asyncio import Redis

from amnesiad.core.notes import Note, Words, decode_note, decode_words
from amnesiad.errors import Bug
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.log import Stored, parse_stored

SCAN_COUNT: Final = 1000
"""Fields per HSCAN step: a few hundred kilobytes at a time."""
GRAVES_PER_READ: Final = 100
"""Tombs per read of the audit: a status or a page of it needs fewer, a copy kept in each may weigh kilobytes."""


class Tomb(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stays of a forgotten note. ``purge_at`` is when hash and copy go; ``None`` once they are gone."""

    note: Note
    actor: str
    content_hash: str | None = None
    kept: Words | None = None
    purge_at: int | None = None


_tomb_decoder: Final = msgspec.json.Decoder(Tomb)
_encoder: Final = msgspec.json.Encoder()


def encode_tomb(tomb: Tomb) -> bytes:
    """The JSON form of a tomb."""
    return _encoder.encode(tomb)


class Head(NamedTuple):
    """A head as it stands: the note, and the stream id of its last event."""

    note: Note
    seq: str


class Grave(NamedTuple):
    """A tomb as it stands in the store."""

    tomb: Tomb
    seq: str


class Unreadable(NamedTuple):
    """A stored value that this version cannot read, as passes report it and go on."""

    id: str
    problem: str


def read_head(note_id: str, raw: bytes) -> Head | Unreadable:
    """Decode one head, or say why not (an unknown kind, say) without repeating its content."""
    try:
        stored: Stored = parse_stored(raw)
        return Head(decode_note(stored.value), stored.seq)
    except msgspec.ValidationError as error:
        return Unreadable(note_id, f"head: {error}")
    except (msgspec.DecodeError, Bug, UnicodeDecodeError):
        return Unreadable(note_id, "head: malformed")


def read_tomb(raw: bytes) -> Grave:
    """Decode one tomb. Raises ``msgspec.MsgspecError``, ``Bug`` or ``UnicodeDecodeError`` for what is none."""
    stored = parse_stored(raw)
    return Grave(_tomb_decoder.decode(stored.value), stored.seq)


def _grave(note_id: str, raw: bytes) -> Grave | Unreadable:
    """One tomb, or why it cannot be read, without repeating its content."""
    try:
        return read_tomb(raw)
    except msgspec.ValidationError as error:
        return Unreadable(note_id, f"tomb: {error}")
    except (msgspec.DecodeError, Bug, UnicodeDecodeError):
        return Unreadable(note_id, "tomb: malformed")


async def heads(redis: Redis, keys: Keys, ids: Sequence[str]) -> list[Head | Unreadable | None]:
    """The heads of ``ids`` in their order, ``None`` where there is none."""
    if not ids:
        return []
    with store_errors():
        rows = cast(list[bytes | None], await redis.hmget(keys.heads, list(ids)))
    return [None if raw is None else read_head(id_, raw) for id_, raw in zip(ids, rows, strict=True)]


async def tombs(redis: Redis, keys: Keys, ids: Sequence[str]) -> list[Grave | None]:
    """The tombs of ``ids`` in their order, ``None`` where there is none, or none that can be read."""
    if not ids:
        return []
    with store_errors():
        rows = cast(list[bytes | None], await redis.hmget(keys.tomb, list(ids)))
    found = [None if raw is None else _grave(id_, raw) for id_, raw in zip(ids, rows, strict=True)]
    return [grave if isinstance(grave, Grave) else None for grave in found]


class Found(NamedTuple):
    """A note as it stands at one instant, with its words unless it is forgotten; ``None``: its id was never used."""

    place: Head | Unreadable | Grave | None
    words: Words | None


async def find_many(redis: Redis, keys: Keys, ids: Sequence[str]) -> list[Found]:
    """The notes ``ids`` in their order, wherever each stands, all read at one instant: head and words belong together.

    A note whose head, tomb or words cannot be read is ``Unreadable``, and has no words.
    """
    if not ids:
        return []
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        for key in (keys.heads, keys.vault, keys.tomb):
            pipe.hmget(key, list(ids))
        raw_heads, raw_words, raw_tombs = cast(list[list[bytes | None]], await pipe.execute())
    return [_found(*row) for row in zip(ids, raw_heads, raw_words, raw_tombs, strict=True)]


def _found(note_id: str, head: bytes | None, text: bytes | None, tomb: bytes | None) -> Found:
    if head is None:
        return Found(None if tomb is None else _grave(note_id, tomb), None)
    try:
        return Found(read_head(note_id, head), None if text is None else decode_words(text))
    except msgspec.MsgspecError:
        return Found(Unreadable(note_id, "words: malformed"), None)


class Standing(NamedTuple):
    """A note's head and words as they stood at one moment, raw; ``None`` where there is none."""

    head: bytes | None
    words: bytes | None


async def scan(redis: Redis, keys: Keys) -> AsyncIterator[dict[str, Standing]]:
    """Every head with its words, raw, in pages; the next page is on its way while one is read.

    A note that changes meanwhile may come twice, or with words that are newer than its head, or with none: whoever
    reads on in the log from where it ended before this began meets the event, and reads the note again.
    """
    rows, cursor = await _heads_from(redis, keys, 0)
    while True:
        ahead = asyncio.create_task(_heads_from(redis, keys, cursor)) if cursor else None
        try:
            with store_errors():
                texts = cast(list[bytes | None], await redis.hmget(keys.vault, list(rows))) if rows else []
            yield {
                id_.decode(errors="replace"): Standing(head, text)
                for (id_, head), text in zip(rows.items(), texts, strict=True)
            }
            if ahead is None:
                return
            rows, cursor = await ahead
        finally:
            if ahead is not None:
                ahead.cancel()


async def _heads_from(redis: Redis, keys: Keys, cursor: int) -> tuple[dict[bytes, bytes], int]:
    with store_errors():
        cursor, rows = await redis.hscan(keys.heads, cursor, count=SCAN_COUNT)
    return cast(dict[bytes, bytes], rows), cursor


async def standing(redis: Redis, keys: Keys, ids: Sequence[str]) -> dict[str, Standing]:
    """Heads and words of ``ids``, read in one step so that no words stand beside a head they were not written with."""
    if not ids:
        return {}
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        pipe.hmget(keys.heads, list(ids))
        pipe.hmget(keys.vault, list(ids))
        found, texts = await pipe.execute()
    return {id_: Standing(head, text) for id_, head, text in zip(ids, found, texts, strict=True)}


async def use_counters(redis: Redis, keys: Keys) -> dict[str, tuple[int, int]]:
    """How often each note was shown and when last (epoch ms); notes never shown are missing."""
    with store_errors():
        rows = cast(dict[bytes, bytes], await redis.hgetall(keys.use))
    found: dict[str, tuple[int, int]] = {}
    for field, value in rows.items():
        if not value.isdigit():
            continue  # A use that cannot be read is one not known of.
        note_id, _, what = field.decode(errors="replace").partition(":")
        count, last_at = found.get(note_id, (0, 0))
        found[note_id] = (int(value), last_at) if what == "n" else (count, int(value))
    return found


async def find(redis: Redis, keys: Keys, note_id: str) -> Head | Unreadable | Grave | None:
    """One note, wherever it stands: its head, or its tomb if it is forgotten."""
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        pipe.hget(keys.heads, note_id)
        pipe.hget(keys.tomb, note_id)
        raw_head, raw_tomb = await pipe.execute()
    if raw_head is not None:
        return read_head(note_id, raw_head)
    return None if raw_tomb is None else _grave(note_id, raw_tomb)


async def forgotten_ids(redis: Redis, keys: Keys, prefix: str) -> set[str]:
    """The ids of forgotten notes that begin with ``prefix``."""
    found = set()
    with store_errors():
        async for field, _ in redis.hscan_iter(keys.tomb, match=f"{prefix}*", count=SCAN_COUNT):
            found.add(field.decode(errors="replace"))
    return found


async def graves(
    redis: Redis, keys: Keys, *, since: int | None = None, until: int | None = None
) -> AsyncIterator[Grave]:
    """Forgotten notes, newest first, read in pages as they are asked for: a reader that filters stops when it has
    enough.

    ``since`` and ``until`` bound when they were forgotten (epoch ms, both included). One whose tomb cannot be read is
    left out: ``verify`` names it.
    """
    least: float | str = "-inf" if since is None else since
    most: float | str = "+inf" if until is None else until
    read: set[bytes] = set()
    while True:
        # By time, not by number: a note that is forgotten meanwhile must not push one into the next page.
        with store_errors():
            raw = await redis.zrevrangebyscore(
                keys.audit, most, least, start=len(read), num=GRAVES_PER_READ, withscores=True
            )
        rows = cast(list[tuple[bytes, float]], raw)
        for grave in await tombs(redis, keys, [id_.decode(errors="replace") for id_, _ in rows if id_ not in read]):
            if grave is not None:
                yield grave
        if len(rows) < GRAVES_PER_READ:
            return
        if rows[-1][1] != most:
            read.clear()
        most = rows[-1][1]
        read.update(id_ for id_, at in rows if at == most)


async def totals(redis: Redis, keys: Keys) -> dict[str, int]:
    """The bounded counters of a workspace, by name, without those that are no numbers: ``verify`` names these."""
    with store_errors():
        rows = cast(dict[bytes, bytes], await redis.hgetall(keys.totals))
    return {name.decode(): int(value) for name, value in rows.items() if value.removeprefix(b"-").isdigit()}
