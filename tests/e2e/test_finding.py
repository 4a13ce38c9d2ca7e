"""Reading across daemons: what was written is found by the next recall, what has ended by none, and what a session was
shown through any of them is remembered until its context is compacted."""

from __future__ import annotations

import secrets

from tests.bench.recall_checks import Seen, check
from tests.support import PATIENCE_S, wait_until

from amnesiad import AsyncClient

NOTES = 200


async def test_written_is_found_and_ended_is_not(daemon: str, second: str) -> None:
    """V32: two daemons, eight notes under way at any time: each is found through the other daemon as soon as its write
    is acknowledged, and once it is revoked, forgotten or superseded there, no recall here returns it."""
    name = f"finding-{secrets.token_hex(4)}"
    async with (
        AsyncClient(daemon, workspace=name, role="human") as here,
        AsyncClient(second, workspace=name, role="human") as there,
    ):
        assert await check(here, there, NOTES) == Seen(found=NOTES, returned=0)
        assert (await here.verify()).problems == ()


async def test_a_compaction_is_seen_by_both_daemons(daemon: str, second: str) -> None:
    """A session's context is compacted: what it was shown through either daemon is gone from it, so it is shown again,
    once; another session's ledger stays as it is."""
    name = f"compaction-{secrets.token_hex(4)}"
    async with (
        AsyncClient(daemon, workspace=name, session="s1") as here,
        AsyncClient(second, workspace=name, session="s1") as there,
        AsyncClient(second, workspace=name, session="s2") as other,
    ):
        note_id = (await here.remember("mind the lock", kind="gotcha", triggers=[{"event": "pre-run"}])).id

        async def fired(client: AsyncClient) -> list[str]:
            return [note.id for note in (await client.fire("pre-run")).notes]

        assert await fired(here) == await fired(other) == [note_id]
        assert await fired(here) == await fired(there) == []
        await there.events("compacted")

        async def shown_again() -> bool:
            return await fired(there) == [note_id]

        await wait_until(shown_again, PATIENCE_S)
        assert await fired(here) == await fired(there) == await fired(other) == []
