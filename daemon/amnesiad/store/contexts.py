"""What each context was shown: which notes, and when, so that it can be told of those that were taken back since.

A context is the window of one session or one of its children (``Caller.context``). The witness script records what is
shown to it and what it was told has changed, in the very step that logs both (``store.witness``); here it is read. Ids
and times only; no words.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple, cast

from redis.asyncio import Redis

from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys


class Correction(NamedTuple):
    """A note that a context is told of: its version, ``None`` for a forgotten one, and the mark it was seen with."""

    note: str
    version: int | None
    mark: str


class Telling:
    """What one answer tells its context: the notes shown to it are recorded for ``keep_ms``, and the ``corrections``
    are marked as told by ``op``, unless another answer has told them first."""

    __slots__ = ("context", "corrections", "keep_ms", "op")

    def __init__(self, context: str, keep_ms: int) -> None:
        self.context = context
        self.keep_ms = keep_ms
        self.op = secrets.token_hex(8)
        self.corrections: Sequence[Correction] = ()


def shown_at(mark: str) -> int:
    """When the note was shown (epoch ms); 0 for a mark that is none."""
    at = mark.partition("|")[0]
    return int(at) if at.isdecimal() and at.isascii() else 0


def told_by(mark: str) -> str:
    """The telling that has corrected the note since; ``""`` while none has."""
    return mark.partition("|")[2]


async def marks_of(redis: Redis, keys: Keys, context: str, notes: Sequence[str] | None = None) -> dict[str, str]:
    """The marks of these notes, or of all, that the context was shown. Raises ``StoreUnavailable``."""
    key = keys.shown(context)
    with store_errors():
        if notes is None:
            found = cast(dict[bytes, bytes], await redis.hgetall(key))
            return {note.decode(errors="replace"): mark.decode(errors="replace") for note, mark in found.items()}
        if not notes:
            return {}
        rows = cast(list[bytes | None], await redis.hmget(key, list(notes)))
    return {note: raw.decode(errors="replace") for note, raw in zip(notes, rows, strict=True) if raw is not None}


async def forget_shown(redis: Redis, keys: Keys, context: str) -> None:
    """The context was compacted: nothing that it was shown is in it any more. Raises ``StoreUnavailable``."""
    with store_errors():
        await redis.delete(keys.ledger(context), keys.shown(context))
