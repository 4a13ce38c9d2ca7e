"""The cells that one live note holds at a time, its text and its slot, looked for by their holder.

Which they are follows from a note's words (``units``); here they are found for a note whose words cannot tell.
"""

from __future__ import annotations

from typing import Final

from redis.asyncio import Redis

from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys

EXCLUSIVE: Final = ("slot:", "text:")
"""How their fields begin."""
SCAN_COUNT: Final = 1000
"""Cells per step of a walk."""


async def cells_held(redis: Redis, keys: Keys, note_id: str) -> list[str]:
    """The texts and slots that stand under the note's name, found by a walk over all of them."""
    stamp, found = f"{note_id}|".encode(), set()
    with store_errors():
        async for field, raw in redis.hscan_iter(keys.cells, count=SCAN_COUNT):
            name = field.decode(errors="replace")
            if raw.startswith(stamp) and name.startswith(EXCLUSIVE):
                found.add(name)
    return sorted(found)
