"""How long after its time a note is erased, with nobody asking for it: what a promise to forget is worth."""

from __future__ import annotations

import asyncio
import statistics
import time

from tests.bench.daemon import running
from tests.bench.figures import Figure
from tests.support import wait_until

from amnesiad import AsyncClient

NOTES = 60
"""One after another, so that each meets a daemon with nothing to do."""
PATIENCE_S = 60.0
"""``erase_within`` as shipped: a note that is still there after it is a broken promise, not a slow one."""
LOOK_EVERY_S = 0.02


async def figures() -> list[Figure]:
    """From the deadline of a note with a shelf life of 1 ms to the entry in the log that says its words are gone."""
    async with running() as (client, _):
        await wait_until(lambda: _has_worker(client))
        late_ms = [await _late_ms(client, f"{number} of {NOTES} that are gone soon") for number in range(NOTES)]
    return [Figure("erased after its time, median", statistics.median(late_ms), "worst", max(late_ms), "ms")]


async def _has_worker(client: AsyncClient) -> bool:
    return (await client.status()).worker.alive


async def _late_ms(client: AsyncClient, content: str) -> float:
    note = await client.remember(content, ttl_ms=1)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        events = {event.type: event for event in (await client.history(note.id)).events}
        if "forgotten" in events:
            recorded_ms = int(events["forgotten"].seq.partition("-")[0])
            return recorded_ms - events["expired"].at
        assert time.monotonic() < deadline, f"{note.id} was not erased within {PATIENCE_S:g} s"
        await asyncio.sleep(LOOK_EVERY_S)
