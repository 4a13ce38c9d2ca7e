"""Words and tombs: the two places where something of a note's text is kept, and for how long.

The vault holds the words of every note that is not forgotten. A tomb holds what the audit may keep of a forgotten one:
bare facts, a keyed hash, and, where ``restorable`` is on, a copy of the words; hash and copy are purged after
``audit_retention``, the bare facts stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import msgspec
from redis.asyncio import Redis

from amnesiad.core.notes import Note, Words, decode_note, decode_words
from amnesiad.errors import Bug
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.log import Stored, parse_stored


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
    """A head as it stands: the note, the operation that wrote it and the stream id of its last event."""

    note: Note
    op: str
    seq: str


class Grave(NamedTuple):
    """A tomb as it stands in the store."""

    tomb: Tomb
    op: str
    seq: str


class Unreadable(NamedTuple):
    """A stored value that this version cannot read, as passes report it and go on."""

    id: str
    problem: str


def read_head(note_id: str, raw: bytes) -> Head | Unreadable:
    """Decode one head, or say why not (an unknown kind, say) without repeating its content."""
    try:
        stored: Stored = parse_stored(raw)
        return Head(decode_note(stored.value), stored.op, stored.seq)
    except msgspec.ValidationError as error:
        return Unreadable(note_id, f"head: {error}")
    except (msgspec.DecodeError, Bug, UnicodeDecodeError):
        return Unreadable(note_id, "head: malformed")


def read_tomb(raw: bytes) -> Grave:
    """Decode one tomb."""
    stored = parse_stored(raw)
    return Grave(_tomb_decoder.decode(stored.value), stored.op, stored.seq)


async def heads(redis: Redis, keys: Keys, ids: Sequence[str]) -> list[Head | Unreadable | None]:
    """The heads of ``ids`` in their order, ``None`` where there is none."""
    if not ids:
        return []
    with store_errors():
        rows = cast(list[bytes | None], await redis.hmget(keys.heads, list(ids)))
    return [None if raw is None else read_head(id_, raw) for id_, raw in zip(ids, rows, strict=True)]


async def words(redis: Redis, keys: Keys, ids: Sequence[str]) -> list[Words | None]:
    """The words of ``ids`` in their order, ``None`` where they are erased."""
    if not ids:
        return []
    with store_errors():
        rows = cast(list[bytes | None], await redis.hmget(keys.vault, list(ids)))
    return [None if raw is None else decode_words(raw) for raw in rows]


async def tombs(redis: Redis, keys: Keys, ids: Sequence[str]) -> list[Grave | None]:
    """The tombs of ``ids`` in their order, ``None`` where there is none."""
    if not ids:
        return []
    with store_errors():
        rows = cast(list[bytes | None], await redis.hmget(keys.tomb, list(ids)))
    return [None if raw is None else read_tomb(raw) for raw in rows]
