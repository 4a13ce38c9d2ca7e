"""Vectors of words, kept beside the vault so that a daemon need not make them anew, and erased in the unit that erases
the words.

A vector tells what a text is about, so it counts as words: it is in no log, no export and no tomb. It is filed only
while the very words it was made of are in the vault. Which model made it is kept with it; what another model made is
as good as not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from redis.asyncio import Redis

from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys

EMBED_LUA: Final = resources.files("amnesiad.store").joinpath("embed.lua").read_text()
STORED: Final = np.dtype("<f2")
"""Half precision: a kilobyte for 512 dimensions, and cosines exact to the third decimal."""


class Kept(NamedTuple):
    """A note's words as stored, and the vector of them if the model asked about made one."""

    words: bytes
    vector: npt.NDArray[np.float32] | None


async def read(redis: Redis, keys: Keys, model: str, dimensions: int, ids: Sequence[str]) -> dict[str, Kept]:
    """Words and vectors of ``ids`` as they stood at one moment; notes without words are missing."""
    if not ids:
        return {}
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        pipe.hmget(keys.vault, list(ids))
        pipe.hmget(keys.vectors, list(ids))
        texts, vectors = cast(list[list[bytes | None]], await pipe.execute())
    return {
        id_: Kept(words, None if raw is None else _decode(raw, model, dimensions))
        for id_, words, raw in zip(ids, texts, vectors, strict=True)
        if words is not None
    }


async def file(redis: Redis, keys: Keys, model: str, rows: Sequence[tuple[str, bytes, npt.NDArray[np.float32]]]) -> int:
    """File vectors by note id, each with the words as stored that it was made of; returns how many still had them."""
    if not rows:
        return 0
    args: list[Any] = []
    for id_, words, vector in rows:
        args += (id_, hashlib.sha1(words, usedforsecurity=False).hexdigest(), _encode(model, vector))
    with store_errors():
        return int(await redis.register_script(EMBED_LUA)(keys=[keys.vault, keys.vectors], args=args))


def _encode(model: str, vector: npt.NDArray[np.float32]) -> bytes:
    return f"{model}|".encode() + vector.astype(STORED).tobytes()


def _decode(raw: bytes, model: str, dimensions: int) -> npt.NDArray[np.float32] | None:
    made_by, _, data = raw.partition(b"|")
    if made_by != model.encode() or len(data) != dimensions * STORED.itemsize:
        return None
    return np.frombuffer(data, STORED).astype(np.float32)
