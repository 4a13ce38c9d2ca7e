"""SIGKILL, whenever and whomever it hits: no acknowledged write is lost, and starting again needs no hand."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest
from tests.support import PATIENCE_S, Fleet, Process, children, running, wait_until

from amnesiad import AsyncClient
from amnesiad.core.notes import State
from amnesiad.errors import Busy, DaemonUnreachable, Deadline, StoreUnavailable

P = ParamSpec("P")
A = TypeVar("A")

EVERY: tuple[State, ...] = ("active", "stale", "expired", "revoked", "superseded", "forgotten")
WRITERS = 4


async def insist(ask: Callable[P, Awaitable[A]], *args: P.args, **kwargs: P.kwargs) -> A:
    """Ask again and again until there is an answer, as a patient client does; what is refused is refused."""
    answers: list[A] = []

    async def tried() -> bool:
        try:
            answers.append(await ask(*args, **kwargs))
        except (StoreUnavailable, DaemonUnreachable, Deadline, Busy):
            return False
        return True

    await wait_until(tried, PATIENCE_S)
    return answers[0]


async def states(client: AsyncClient) -> dict[str, tuple[str, str | None]]:
    """Every note ever written: its state and content."""
    found: dict[str, tuple[str, str | None]] = {}
    cursor: str | None = None
    while True:
        page = await client.list_notes(states=EVERY, with_content=True, limit=1000, cursor=cursor)
        found |= {note.id: (note.state, note.content) for note in page.notes}
        if (cursor := page.cursor) is None:
            return found


class Writers:
    """Clients that write without pause, and remember what was acknowledged."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.kept: dict[str, str] = {}
        self.revoked: dict[str, str] = {}
        self.forgotten: set[str] = set()
        self.stopped = asyncio.Event()
        self._clients = [fleet.client(role="human") for _ in range(WRITERS)]
        self._dice = [random.Random(f"{seed}-{number}") for number in range(WRITERS)]

    @property
    def acknowledged(self) -> int:
        """How many writes have been answered."""
        return len(self.kept) + 2 * (len(self.revoked) + len(self.forgotten))

    async def run(self) -> None:
        """Write until ``stopped``."""
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write(number))

    async def _write(self, number: int) -> None:
        client, dice, count = self._clients[number], self._dice[number], 0
        while not self.stopped.is_set():
            count += 1
            text, once = f"writer {number}, line {count}", f"w{number}-{count}"
            note = await insist(client.remember, text, kind="finding", request_id=once)
            what = dice.choice(["keep", "keep", "revoke", "forget"])
            if what == "revoke":
                await insist(client.revoke, note.id, f"no longer {text}", request_id=f"{once}-r")
                self.revoked[note.id] = text
            elif what == "forget":
                await insist(client.forget, note.id, request_id=f"{once}-f")
                self.forgotten.add(note.id)
            else:
                self.kept[note.id] = text

    def expected(self) -> dict[str, tuple[str, str | None]]:
        """What ``states`` must find."""
        return {
            **{id_: ("active", text) for id_, text in self.kept.items()},
            **{id_: ("revoked", text) for id_, text in self.revoked.items()},
            **dict.fromkeys(self.forgotten, ("forgotten", None)),
        }


@pytest.mark.timeout(150)
async def test_no_acknowledged_write_is_lost(fleet: Fleet) -> None:
    """Notes are written, revoked and forgotten without pause while store, worker and the whole of ``up`` are killed
    at random moments: afterwards everything that was acknowledged is there exactly once, and the proof is clean."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    victims = ["store", "up", "worker", "store", "up", "store"]
    dice.shuffle(victims)
    up = await fleet.up()
    writers = Writers(fleet, seed)
    running_writers = asyncio.create_task(writers.run())
    for victim in victims:
        goal = writers.acknowledged + dice.randint(1, 150)
        await wait_until(lambda goal=goal: writers.acknowledged >= goal or running_writers.done(), PATIENCE_S)  # type: ignore[misc]
        if victim == "up":
            await up.kill()
            up = await fleet.start("up").ready("amnesia is up")
        elif victim == "store":
            os.kill(fleet.store_pid(), signal.SIGKILL)
        else:
            await wait_until(fleet.worker_pids, PATIENCE_S)
            os.kill(fleet.worker_pids()[0], signal.SIGKILL)
    goal = writers.acknowledged + 50
    await wait_until(lambda: writers.acknowledged >= goal or running_writers.done(), PATIENCE_S)
    writers.stopped.set()
    await running_writers

    client = fleet.client(role="human")
    assert await states(client) == writers.expected()
    created = Counter[str]()
    async for line in client.export():
        if line["line"] == "note":
            created.update(event["type"] for event in line["events"])
    assert created == {
        "created": len(writers.expected()),
        "revoked": len(writers.revoked),
        "forgotten": len(writers.forgotten),
    }
    assert (await client.verify()).problems == ()
    # The worker that was killed, or its successor, still does its work.
    last = await client.remember("over in a moment", ttl_ms=1)
    await wait_until(lambda: _forgotten(client, last.id), PATIENCE_S)
    assert await up.stop() == 0
    assert fleet.sockets() == []


async def _forgotten(client: AsyncClient, note_id: str) -> bool:
    return note_id in {entry.id for entry in (await client.audit()).entries}


def members(fleet: Fleet, up: Process) -> dict[str, int]:
    """The processes of an ``up`` by what they do: itself, its worker, its store, and the store's guard."""
    (worker,) = fleet.worker_pids()
    found = {"up": up.pid, "worker": worker, "store": fleet.store_pid()}
    (found["guard"],) = set(children(up.pid)) - set(found.values())
    return found


@pytest.mark.timeout(120)
async def test_every_member_one_after_another(fleet: Fleet) -> None:
    """The members of an ``up`` are killed one after another, in orders that leave a worker or a store behind: a new
    ``up`` on the same state directory just works, no old process goes on, and a clean stop leaves nothing running and
    no socket or lock."""
    ids = set()
    client = fleet.client(role="human")
    for order in (("up", "worker", "store", "guard"), ("guard", "worker", "up")):
        up = await fleet.up()
        old = members(fleet, up)
        ids.add((await client.remember(f"before {order}", kind="finding")).id)
        for member in order:
            # Some have ended by themselves when their turn comes.
            if running(old[member]):
                os.kill(old[member], signal.SIGKILL)
            if member == "up":
                await up.ended()
        fresh = await fleet.up()
        assert {note.id for note in (await client.list_notes()).notes} == ids
        assert not [name for name, pid in old.items() if running(pid)]
        pids = set(members(fleet, fresh).values())
        assert await fresh.stop() == 0
        await wait_until(lambda pids=pids: not any(map(running, pids)))  # type: ignore[misc]
        assert fleet.sockets() == []
        assert not [path for path in fleet.home.rglob("*.lock") if locked(path)]
        assert "Traceback" not in fresh.said


def locked(path: Path) -> bool:
    """Whether somebody holds this lock."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class TestTheSocket:
    """C41: what a daemon finds at its socket's path."""

    async def test_left_by_a_killed_daemon(self, fleet: Fleet) -> None:
        """C41: a daemon is killed with SIGKILL and started again: it takes the dead socket over and has every note."""
        await fleet.store()
        daemon = await fleet.daemon()
        client = fleet.client()
        note = await client.remember("kept", kind="finding")
        await daemon.kill()
        assert fleet.socket().is_socket()
        with pytest.raises(DaemonUnreachable):
            await client.list_notes()
        again = await fleet.daemon()
        assert [one.id for one in (await client.list_notes()).notes] == [note.id]
        assert await again.stop() == 0
        assert not fleet.socket().exists()

    async def test_a_regular_file_and_a_live_daemon(self, fleet: Fleet) -> None:
        """C41: a daemon refuses a path that holds somebody's file, and one where a live daemon listens, which it
        names; both are left as they were."""
        await fleet.store()
        fleet.socket("file").write_text("somebody's notes")
        first = await fleet.daemon()
        blocked = fleet.start("daemon", name="file", AMNESIA_REDIS_URL=fleet.url)
        second = fleet.start("daemon", AMNESIA_REDIS_URL=fleet.url)
        assert [await blocked.ended(), await second.ended()] == [1, 1]
        assert str(fleet.socket("file")) in blocked.said
        assert "not a socket" in blocked.said
        assert fleet.socket("file").read_text() == "somebody's notes"
        assert f"process {first.pid}" in second.said
        assert "Traceback" not in blocked.said + second.said
        assert (await fleet.client().status()).counts.active == 0
