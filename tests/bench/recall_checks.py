"""Whether search is right while it is fast: real daemons, ten thousand notes, each looked for as soon as it is written
and again as soon as it has ended, each time through another daemon than that which wrote or ended it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.bench.daemon import up
from tests.bench.figures import Figure
from tests.bench.recall import another

from amnesiad import AsyncClient

CHECKS: Final = 10_000
AT_ONCE: Final = 8
"""Notes under way at the same time, so that writes, endings and recalls meet in both daemons."""
WORKSPACE: Final = "checks"


class Seen(NamedTuple):
    """How many notes the next recall found, and how many it returned once they had ended; of as many each."""

    found: int
    returned: int


async def figures() -> list[Figure]:
    """Both counts, beside the number of checks."""
    async with (
        up() as environ,
        AsyncClient(environ["AMNESIA_SOCKET"], workspace=WORKSPACE, role="human") as here,
        another(environ, workspace=WORKSPACE, role="human") as (there, _),
    ):
        seen = await check(here, there, CHECKS)
    return [
        Figure("written notes that the next recall found", seen.found, "written, two daemons", CHECKS, ""),
        Figure("ended notes that a later recall returned", seen.returned, "ended, two daemons", CHECKS, ""),
    ]


async def check(here: AsyncClient, there: AsyncClient, notes: int) -> Seen:
    """Write so many notes, look for each, end it, and look again. Both may end anything."""
    numbers = iter(range(notes))
    parts = await asyncio.gather(*(_worker(here, there, numbers) for _ in range(AT_ONCE)))
    return Seen(sum(part.found for part in parts), sum(part.returned for part in parts))


async def _worker(here: AsyncClient, there: AsyncClient, numbers: Iterator[int]) -> Seen:
    found = returned = 0
    for number in numbers:
        writer, reader = (here, there) if number % 2 else (there, here)
        query = f"parcel shelf{number}q"
        note = await writer.remember(f"the {query} is to be sent on", kind="finding")
        found += any(one.id == note.id for one in (await reader.recall(query)).notes)
        await _end(reader, note.id, number)
        returned += any(one.id == note.id for one in (await writer.recall(query)).notes)
    return Seen(found, returned)


async def _end(client: AsyncClient, note_id: str, number: int) -> None:
    """In each way in turn: revoked, forgotten, superseded."""
    match number % 3:
        case 0:
            assert (await client.revoke(note_id, "it was sent")).changed
        case 1:
            assert (await client.forget(note_id)).forgotten == 1
        case _:
            assert (await client.supersede(note_id, f"nothing lies there any more, {number}")).changed
