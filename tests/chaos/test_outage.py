"""The store goes away and comes back, as at a restart of the machine's services, while daemon and worker run on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable

import pytest
from tests.support import PATIENCE_S, Fleet, wait_until

from amnesiad import AsyncClient
from amnesiad.errors import StoreUnavailable

AT_ONCE_S = 3.0
"""A refusal that needs no waiting takes milliseconds; the rest is for a machine that is busy with something else."""


async def refused_at_once(ask: Awaitable[object]) -> None:
    """The request is answered with store_unavailable, and soon."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await ask
    assert time.monotonic() - began < AT_ONCE_S


@pytest.mark.timeout(150)
async def test_the_store_goes_and_comes_back(fleet: Fleet) -> None:
    """While the store is away every write is refused at once, nothing is put into a context, recall and list answer
    from memory and say so; when it is back notes, shelf lives, lifecycle events and passes all work again, by
    themselves, and nothing was lost or made up."""
    store = await fleet.store()
    daemon, worker = await asyncio.gather(fleet.daemon(), fleet.worker())
    client, elsewhere = fleet.client(role="human", session="s"), fleet.client(workspace="never-opened")
    child = fleet.client(session="s", agent="a", agent_kind="subagent")
    note = await client.remember("the ferry leaves at nine", kind="finding")
    passing = await client.remember("the ferry is late today", ttl_ms="1h")
    scratch = await child.remember("the child's scratch")
    await client.inject(500, query="ferry")
    ferry = {note.id, passing.id}
    kept = set(ferry)

    for away in ("killed", "stopped"):
        if away == "killed":
            os.kill(fleet.store_pid(), signal.SIGKILL)
            await wait_until(lambda: not store.alive)
        else:
            await store.stop()

        for ask in (
            client.remember("written into the void", kind="finding"),
            client.revoke(note.id, "unheard"),
            client.forget(note.id),
            client.pin(note.id),
            client.policy({"max_deterrents": 2}),
            client.events("session-end"),
            client.inject(500, query="ferry"),
            client.fire("tool", prompt="ferry"),
            client.settle(),
            elsewhere.recall("ferry"),
        ):
            await refused_at_once(ask)
        await asyncio.gather(*(refused_at_once(client.remember(f"at once {n}", kind="finding")) for n in range(50)))
        for _ in range(2):
            recalled, listed = await client.recall("ferry"), await client.list_notes()
            assert (recalled.degraded, listed.degraded) == (True, True)
            assert {one.id for one in recalled.notes} == ferry
            assert {one.id for one in listed.notes} == kept | {scratch.id}
        assert daemon.code is None
        assert worker.code is None

        await fleet.store()
        # The first request that meets the store again is answered: nobody has to wait out an old failure.
        answer = await client.remember(f"written after it was {away}", kind="finding")
        kept.add(answer.id)
        assert {one.id for one in (await client.list_notes()).notes} == kept | {scratch.id}
        assert not (await client.recall("ferry")).degraded
        assert (await client.inject(500, query="ferry")).ids
        short = await client.remember(f"over soon, {away}", ttl_ms=1)
        await wait_until(lambda id_=short.id: _gone(client, id_), PATIENCE_S)  # type: ignore[misc]

    await child.events("subagent-end")
    await wait_until(lambda: _gone(client, scratch.id), PATIENCE_S)
    assert {one.id for one in (await client.list_notes()).notes} == kept
    assert (await client.inspect(note.id)).note.state == "active"
    assert (await client.verify()).problems == ()
    assert await daemon.stop() == 0
    assert await worker.stop() == 0
    assert "Traceback" not in daemon.said


async def test_a_silent_store_is_waited_for_once(fleet: Fleet) -> None:
    """A store that is stopped and answers nothing holds up the request that finds it so; all after that are refused at
    once, or answered from memory, until it answers again."""
    await fleet.store()
    daemon = await fleet.daemon()
    client = fleet.client(role="human")
    note = await client.remember("the ferry leaves at nine", kind="finding")
    os.kill(fleet.store_pid(), signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable):
            await client.remember("nobody listens", kind="finding")
        for _ in range(2):
            await refused_at_once(client.remember("still nobody", kind="finding"))
            await refused_at_once(client.inject(500, query="ferry"))
            began = time.monotonic()
            recalled = await client.recall("ferry")
            assert (recalled.degraded, [one.id for one in recalled.notes]) == (True, [note.id])
            assert time.monotonic() - began < AT_ONCE_S
    finally:
        os.kill(fleet.store_pid(), signal.SIGCONT)

    async def written() -> bool:
        try:
            await client.remember("it listens again", kind="finding")
        except StoreUnavailable:
            return False
        return True

    await wait_until(written, PATIENCE_S)
    assert not (await client.recall("ferry")).degraded
    assert (await client.verify()).problems == ()
    assert await daemon.stop() == 0


async def _gone(client: AsyncClient, note_id: str) -> bool:
    return note_id in {entry.id for entry in (await client.audit()).entries}
