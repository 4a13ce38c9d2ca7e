"""Several daemons and workers on one store: none needs to be first or last, and all get over the store's absence."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.support import PATIENCE_S, Fleet, wait_until

from amnesiad import AsyncClient
from amnesiad.errors import StoreUnavailable


async def gone(client: AsyncClient, note_id: str) -> bool:
    """Whether the note is forgotten."""
    return note_id in {entry.id for entry in (await client.audit()).entries}


@pytest.mark.timeout(150)
async def test_no_daemon_needs_to_be_first_or_last(fleet: Fleet) -> None:
    """C33: a worker waits for daemons; they come and go in every order, and what one was told the others know; an end
    that is heard while no daemon runs is carried out by the next, whichever that is."""
    await fleet.store()
    worker = await fleet.worker()
    second = await fleet.daemon("b")
    there, here = fleet.client("b", session="s"), fleet.client("a", session="s")
    kept = await there.remember("of the workspace", kind="finding")
    scratch = await there.remember("of the session", kind="finding", scope="session")
    first = await fleet.daemon("a")
    assert {note.id for note in (await here.list_notes(after=kept.seq)).notes} == {kept.id, scratch.id}
    assert await second.stop() == 0
    more = await here.remember("written when b had gone", kind="finding")
    await fleet.redis().xadd("amnesia:lifecycle", {"e": '{"event":"heartbeat","workspace":"w","session":"s"}'})
    assert await first.stop() == 0
    await fleet.redis().xadd("amnesia:lifecycle", {"e": '{"event":"session-end","workspace":"w","session":"s"}'})
    second = await fleet.daemon("b")
    await wait_until(lambda: gone(there, scratch.id), PATIENCE_S)
    assert {note.id for note in (await there.list_notes()).notes} == {kept.id, more.id}
    assert await worker.stop() == 0
    worker = await fleet.worker()
    first = await fleet.daemon("a")
    human = fleet.client("a", role="human")
    await human.settle()
    assert (await human.verify()).problems == ()
    assert [await process.stop() for process in (second, worker, first)] == [0, 0, 0]


@pytest.mark.timeout(150)
async def test_two_daemons_get_over_the_store_s_absence(fleet: Fleet) -> None:
    """C02: the store is killed and comes back: both daemons say so meanwhile and answer from memory, then take writes
    again, and each has what the other wrote ``after`` its seq; nobody was restarted."""
    store = await fleet.store()
    daemons = await asyncio.gather(fleet.daemon("a"), fleet.daemon("b"), fleet.worker())
    clients = [fleet.client(name, role="human") for name in "ab"]
    first = await clients[0].remember("the ferry leaves at nine", kind="finding")
    assert [note.id for note in (await clients[1].recall("ferry")).notes] == [first.id]
    for number in range(2):
        os.kill(fleet.store_pid(), signal.SIGKILL)
        await wait_until(lambda: not store.alive)
        for client in clients:
            with pytest.raises(StoreUnavailable):
                await client.remember("into the void", kind="finding")
            with pytest.raises(StoreUnavailable):
                await client.inject(500, query="ferry")
            answer = await client.recall("ferry")
            assert answer.degraded
            assert first.id in {note.id for note in answer.notes}
        await fleet.store()
        here, there = clients if number else clients[::-1]
        news = await here.remember(f"the ferry is late, {number}", kind="finding")
        found = await there.recall("ferry late", after=news.seq)
        assert news.id in {note.id for note in found.notes}
        assert not found.degraded
        short = await there.remember(f"over soon, {number}", ttl_ms=1)
        await wait_until(lambda id_=short.id: gone(here, id_), PATIENCE_S)  # type: ignore[misc]  # noqa: B023
    assert (await clients[0].verify()).problems == ()
    assert {process.code for process in daemons} == {None}
