"""Recall with each of the models that ship in a package, beside recall by words alone in the same run.

Embedding ten thousand notes would take minutes, so their vectors are mixed from those of a few and filed in the store;
what a search costs depends on how many there are and how many are near, not on what they mean. What a note costs is
measured on notes that are really embedded. Every query is embedded anew: more are asked in turns than are remembered.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final, cast

import numpy as np
from tests.bench.daemon import up
from tests.bench.figures import Figure
from tests.bench.recall import LIMIT, another, beside, in_turns, median, p99, write
from tests.bench.search import corpus
from tests.support import wait_until

from amnesiad import AsyncClient, embedding
from amnesiad.store import vectors as stored
from amnesiad.store.connect import connect
from amnesiad.store.keys import Keys
from amnesiad.store.location import store_url
from amnesiad.store.workspaces import find

NOTES: Final = 10_000
EMBEDDED: Final = 100
"""Notes that are really embedded, and whose vectors are the others' ingredients."""
ASKED: Final[dict[embedding.Name, int]] = {"use": 500, "e5": 100}
WORKSPACE: Final = "meaning"
EMBED_TIMEOUT_S: Final = 120.0
NOISE: Final = 0.7
"""How far a mixed vector is from those it is mixed of: as many lie above a model's floor as do among real notes."""


async def figures() -> list[Figure]:
    """Every figure, model by model."""
    made: list[Figure] = []
    for name in ASKED:
        async with up() as environ, AsyncClient(environ["AMNESIA_SOCKET"], workspace=WORKSPACE) as words:
            made += await _measure(name, words, environ)
    return made


async def _measure(name: embedding.Name, words: AsyncClient, environ: dict[str, str]) -> list[Figure]:
    notes = corpus(NOTES)
    queries = [f"{query} {number}" for number, query in enumerate(notes.queries)]
    await write(words, [{"content": text, "kind": "finding"} for text in notes.contents])
    encoder = await asyncio.to_thread(embedding.load, name)
    await _file(Path(environ["AMNESIA_STATE_DIR"]), encoder, notes.contents)
    del encoder
    async with another(environ, workspace=WORKSPACE, AMNESIA_EMBEDDER=name) as (meaning, _):
        await _embedded(meaning, NOTES)

        async def by_words(number: int) -> None:
            assert (await words.call("recall", {"query": queries[number % len(queries)], "limit": LIMIT}))["notes"]

        async def by_meaning(number: int) -> None:
            assert (await meaning.call("recall", {"query": queries[number % len(queries)], "limit": LIMIT}))["notes"]

        words_ms, meaning_ms = await in_turns(by_words, by_meaning, asked=ASKED[name])
        started = time.perf_counter()
        fresh = [f"{text} again" for text in notes.contents[:EMBEDDED]]
        await write(meaning, [{"content": text, "kind": "finding"} for text in fresh])
        wrote = time.perf_counter()
        await _embedded(meaning, NOTES + EMBEDDED)
        each_ms = (time.perf_counter() - wrote) * 1000 / EMBEDDED
        write_ms = (wrote - started) * 1000 / EMBEDDED
    what = f"with {name}, {NOTES:,} notes"
    return [
        beside(f"recall {what}, p50", median(meaning_ms), "by words alone", median(words_ms)),
        beside(f"recall {what}, p99", p99(meaning_ms), "by words alone", p99(words_ms)),
        beside(f"embed a note, {name}, behind the write", each_ms, "write it", write_ms),
    ]


async def _file(state_dir: Path, encoder: embedding.Encoder, contents: list[str]) -> None:
    rng = np.random.default_rng(1)
    real = await asyncio.to_thread(encoder.notes, contents[:EMBEDDED])
    redis = await connect(store_url(None, state_dir, "bench"))
    try:
        ws = await find(redis, WORKSPACE)
        assert ws is not None
        keys, model = Keys(ws), encoder.model
        ids = [str(id_, "ascii") for id_ in cast(list[bytes], await redis.hkeys(keys.vault))]
        for start in range(0, len(ids), EMBEDDED):
            some = ids[start : start + EMBEDDED]
            noise = rng.standard_normal((len(some), model.dimensions)).astype(np.float32)
            mixed = real[: len(some)] + NOISE * noise / np.linalg.norm(noise, axis=1, keepdims=True)
            mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
            kept = await stored.read(redis, keys, model.id, model.dimensions, some)
            await stored.file(
                redis, keys, model.id, [(id_, kept[id_].words, row) for id_, row in zip(some, mixed, strict=True)]
            )
    finally:
        await redis.aclose()


async def _embedded(client: AsyncClient, notes: int) -> None:
    """Wait until so many notes have their vector."""

    async def all_have() -> bool:
        return bool((await client.call("status", {}))["store"]["vectors"] == notes)

    await wait_until(all_have, EMBED_TIMEOUT_S)
