"""Many sessions, one after another, told by lifecycle events: what they leave behind in the processes is nothing."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from tests.e2e.test_hook_costs import held
from tests.support import PATIENCE_S, Fleet, wait_until

SESSIONS: Final = 200
WARM: Final = 60
"""Sessions before the baseline: a process that has just started loads what it needs."""
AT_ONCE: Final = 8
GROWTH_KIB: Final = 24 * 1024
"""What an allocator may keep."""


@pytest.mark.timeout(180)
async def test_two_hundred_sessions_by_events(fleet: Fleet) -> None:
    """C43, C33: sessions begin, write, are shown notes and end, by two daemons in turn: their notes are gone, every
    owner is closed, and descriptors, memory and processes of daemons and worker are what they were."""
    await fleet.store()
    processes = list(await asyncio.gather(fleet.daemon("a"), fleet.daemon("b"), fleet.worker()))
    clients = [fleet.client(name) for name in "ab"]
    human = fleet.client("a", role="human")
    await human.remember("the tests are slow", kind="directive")
    free = asyncio.Semaphore(AT_ONCE)

    async def session(name: str, number: int) -> None:
        first, last = clients[number % 2], clients[(number + 1) % 2]
        who = {"session": name}
        async with free:
            await first.call("events", {"event": "session-start", "workspace": "w", **who})
            await first.call("remember", {"content": "half done", "scope": "session", "caller": who})
            assert (await last.call("inject", {"caller": who}))["ids"]
            await last.call("events", {"event": "session-end", "workspace": "w", **who})

    async def all_over() -> bool:
        rows = (await human.owners()).rows
        return all(row.state == "closed" and row.notes == 0 for row in rows)

    async def run(prefix: str, count: int) -> None:
        await asyncio.gather(*(session(f"{prefix}{number}", number) for number in range(count)))
        await wait_until(all_over, PATIENCE_S)

    await run("warm", WARM)
    before = [held(process.pid) for process in processes]
    await run("s", SESSIONS)
    for process, was in zip(processes, before, strict=True):
        await wait_until(lambda pid=process.pid, most=was.descriptors + AT_ONCE: held(pid).descriptors <= most)  # type: ignore[misc]
        now = held(process.pid)
        assert now.processes == was.processes
        assert now.memory_kib - was.memory_kib < GROWTH_KIB
    assert (await human.status()).counts.forgotten == SESSIONS + WARM
    assert len((await human.owners()).rows) == SESSIONS + WARM
    assert (await human.verify()).problems == ()
