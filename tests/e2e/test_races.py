"""Two daemons on one store, asked for things that cannot both be so, at the same instant and many times over."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from tests.support import wait_until

from amnesiad import AsyncClient, wire

ROUNDS = 50


class Pair(NamedTuple):
    """A client on each of the two daemons, in one workspace."""

    here: AsyncClient
    there: AsyncClient
    sockets: tuple[str, str]
    workspace: str


@pytest.fixture
async def pair(daemon: str, second: str) -> AsyncIterator[Pair]:
    """Two daemons on a workspace of the test's own."""
    name = f"races-{secrets.token_hex(4)}"
    async with (
        AsyncClient(daemon, workspace=name, role="human") as here,
        AsyncClient(second, workspace=name, role="human") as there,
    ):
        yield Pair(here, there, (daemon, second), name)


async def live(client: AsyncClient) -> list[wire.NoteView]:
    """Every live note."""
    return list((await client.list_notes(with_content=True, limit=1000)).notes)


async def test_one_key(pair: Pair) -> None:
    """V27: two daemons are told different values of one key at the same instant: one value lives, each time, and it
    is the one that came last; the other is linked to it."""
    for number in range(ROUNDS):
        key = f"key {number}"
        ours, theirs = await asyncio.gather(
            pair.here.remember(f"{key} is odd", key=key, kind="finding"),
            pair.there.remember(f"{key} is even", key=key, kind="finding"),
        )
        (loser,) = [*ours.superseded, *theirs.superseded]
        winner = ours.id if loser == theirs.id else theirs.id
        assert (await pair.there.inspect(loser)).note.superseded_by == winner
    for client in (pair.here, pair.there):
        assert sorted(note.key or "" for note in await live(client)) == sorted(f"key {n}" for n in range(ROUNDS))
    assert (await pair.here.verify()).problems == ()


async def test_one_text(pair: Pair) -> None:
    """V27: two daemons are told the same text at the same instant: one note lives, each time, and both name it."""
    for number in range(ROUNDS):
        told = await asyncio.gather(
            *(client.remember(f"the same, {number}", kind="finding") for client in (pair.here, pair.there))
        )
        assert told[0].id == told[1].id
        assert sorted(answer.created for answer in told) == [False, True]
    for client in (pair.here, pair.there):
        assert len(await live(client)) == ROUNDS
    assert (await pair.here.verify()).problems == ()


async def test_an_owner_ends_while_its_agent_writes(pair: Pair) -> None:
    """V28: sessions are ended through one daemon while their agents write through the other: no note of the ended
    life survives, whichever came first, and what is written afterwards opens a new one and stays."""
    dice = random.Random(28)

    async def one(session: str) -> None:
        enough = asyncio.Event()
        turn = dice.randint(1, 8)

        async def write() -> None:
            async with AsyncClient(pair.sockets[0], workspace=pair.workspace, session=session) as agent:
                for number in range(10):
                    if number == turn:
                        enough.set()
                    await agent.remember(f"{session} writes {number}", scope="session", kind="finding")

        async def end() -> None:
            await enough.wait()
            async with AsyncClient(pair.sockets[1], workspace=pair.workspace, session=session) as agent:
                await agent.events("session-end")

        await asyncio.gather(write(), end())

    sessions = [f"s{number}" for number in range(ROUNDS)]
    await asyncio.gather(*(one(session) for session in sessions))

    async def ended() -> bool:
        rows = {row.owner: row for row in (await pair.there.owners()).rows}
        return all(rows[session].state == "closed" or rows[session].incarnation > 1 for session in sessions)

    await wait_until(ended)

    async def left_over() -> list[str]:
        rows = {row.owner: row for row in (await pair.there.owners()).rows}
        found = []
        for note in await live(pair.there):
            created = (await pair.there.history(note.id)).events[0]
            row = rows[note.owner or ""]
            if row.state == "closed" or created.facts["incarnation"] < row.incarnation:
                found.append(note.id)
        return found

    async def none_left() -> bool:
        return not await left_over()

    await wait_until(none_left)
    later = {}
    for session in sessions:
        async with AsyncClient(pair.sockets[0], workspace=pair.workspace, session=session) as agent:
            later[session] = (await agent.remember("back again", scope="session", kind="finding")).id
    await pair.here.settle()  # queued behind whatever else the worker had to do
    assert await left_over() == []
    assert set(later.values()) <= {note.id for note in await live(pair.here)}
    assert (await pair.here.verify()).problems == ()


async def test_a_read_after_a_revoke(pair: Pair) -> None:
    """V32: one daemon reads without pause while the other revokes: once the revoke is acknowledged no recall, list,
    preview or injection that is asked for hands the note out as a fact."""
    reads = 0
    for number in range(ROUNDS):
        note = await pair.here.remember(f"the ferry leaves at {number}", kind="finding")
        acknowledged = asyncio.Event()

        async def read(note_id: str = note.id, acknowledged: asyncio.Event = acknowledged) -> None:
            nonlocal reads
            rounds_after = 0
            while rounds_after < 2:
                late = acknowledged.is_set()
                recalled, injected, previewed, listed = await asyncio.gather(
                    pair.there.recall("ferry", limit=100),
                    pair.there.inject(4000, query="ferry"),
                    pair.there.preview(4000, query="ferry"),
                    pair.there.list_notes(limit=1000),
                )
                reads += 4
                if late:
                    rounds_after += 1
                    assert note_id not in {one.id for one in recalled.notes}
                    assert note_id not in (*injected.ids, *previewed.ids)
                    assert note_id not in {one.id for one in listed.notes}

        async def revoke(note_id: str = note.id, acknowledged: asyncio.Event = acknowledged) -> None:
            assert (await pair.here.revoke(note_id, "the winter timetable")).changed
            acknowledged.set()

        await asyncio.gather(read(), revoke())
    assert reads >= 12 * ROUNDS
