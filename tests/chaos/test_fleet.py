"""A whole fleet under fire: agents that come and go, events that are lost, repeated and reordered, and processes of
every kind that are killed, paused and started again. At the end the books must balance, to the note."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest
from redis.exceptions import RedisError
from tests.support import PATIENCE_S, Fleet, Process, children, running, wait_until

from amnesiad import AsyncClient
from amnesiad.errors import AmnesiaError, Busy, DaemonUnreachable, Deadline, StoreUnavailable
from amnesiad.store.keys import BRIDGE_GROUP, DEAD, LIFECYCLE, Keys
from amnesiad.store.owners import NO_OWNER, Owner, read_owner
from amnesiad.store.workspaces import find

DAEMONS = ("a", "b")
WORKERS = 3
SESSIONS = 8
CHILDREN = 4
"""Besides the main agent of each session: forty agents at a time."""
KILLS = 9
RECOVERY_S = 100.0
"""A job whose worker was killed in the middle of it is made up for by the reconciliation that runs once a minute."""
POISON = (
    '{"event": "subagent-end", "workspace": ',
    '{"event": "no-such-event", "workspace": "w"}',
    '{"event": "heartbeat"}',
)
"""Events that nobody can handle, whoever sent them."""


class Anyone:
    """Whichever daemon answers."""

    def __init__(self, fleet: Fleet, dice: random.Random) -> None:
        self._clients = {name: fleet.client(name) for name in DAEMONS}
        self._dice = dice
        self.refusals = Counter[str]()

    async def ask(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask one daemon or the other until one answers, as a patient client does; what is refused is refused."""
        answers: list[dict[str, Any]] = []

        async def answered() -> bool:
            name = self._dice.choice(DAEMONS)
            try:
                answers.append(await self._clients[name].call(verb, body))
            except (StoreUnavailable, DaemonUnreachable, Deadline, Busy) as error:
                self.refusals[f"{name}: {error.code}"] += 1
                await asyncio.sleep(self._dice.uniform(0, 0.2))  # forty agents that hammer keep nobody from dying
            return bool(answers)

        try:
            await wait_until(answered, PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"nobody answers {verb}: {dict(self.refusals)}") from None
        return answers[0]


class Post:
    """How events reach the store: by API or by XADD; some twice, some late and out of order, some never."""

    def __init__(self, fleet: Fleet, anyone: Anyone, dice: random.Random) -> None:
        self.sent = Counter[str]()
        self._anyone, self._dice = anyone, dice
        self._redis = fleet.redis()
        self._late: list[dict[str, Any]] = []
        self._clock = int(time.time() * 1000)

    def now(self) -> int:
        """The producers' own time: it only grows."""
        self._clock += 1
        return self._clock

    async def send(self, event: str, *, lost: float = 0.0, late: float = 0.2, **fields: Any) -> bool:
        """Send an event, or put it by for later, or lose it. Returns whether it has reached the store, or will."""
        if self._dice.random() < lost:
            self.sent["lost"] += 1
            return False
        stamped = {"event": event, "workspace": "w", "at": self.now(), **fields}
        if self._dice.random() < late:
            self.sent["late"] += 1
            self._late.append(stamped)
        else:
            await self._put(stamped)
        if self._late and self._dice.random() < 0.3:
            await self._put(self._late.pop(self._dice.randrange(len(self._late))))
        return True

    async def owner(self, name: str) -> Owner:
        """What the store knows of an owner."""
        owner = NO_OWNER
        with contextlib.suppress(AmnesiaError):
            ws = await find(self._redis, "w")
            owner = NO_OWNER if ws is None else await read_owner(self._redis, Keys(ws), name)
        return owner

    async def flush(self) -> None:
        """Send what is late still, in no order."""
        self._dice.shuffle(self._late)
        while self._late:
            await self._put(self._late.pop())

    async def poison(self) -> None:
        """Send what nobody can handle."""
        for raw in POISON:
            await self._add(raw)

    async def _put(self, event: dict[str, Any]) -> None:
        for _ in range(1 + (self._dice.random() < 0.25)):
            self.sent["sent"] += 1
            if self._dice.random() < 0.5:
                await self._anyone.ask("events", event)
            else:
                await self._add(json.dumps(event))

    async def _add(self, raw: str) -> None:
        async def added() -> bool:
            with contextlib.suppress(RedisError, OSError):
                return bool(await self._redis.xadd(LIFECYCLE, {"e": raw}))
            return False

        await wait_until(added, PATIENCE_S)


class Agents:
    """Sessions with their subagents, one life after another, and what must have become of their notes."""

    def __init__(self, anyone: Anyone, post: Post, seed: int) -> None:
        self.ended: set[str] = set()
        self.live: set[str] = set()
        self.whose: dict[str, str] = {}
        self.lives = Counter[str]()
        self.stopped = asyncio.Event()
        self._scoped: dict[str, str] = {}
        """Notes that only their owner sees."""
        self._anyone, self._post, self._seed = anyone, post, seed

    @property
    def acknowledged(self) -> int:
        """Notes whose fate is known."""
        return len(self.ended) + len(self.live)

    async def run(self) -> None:
        """Live until ``stopped``."""
        async with asyncio.TaskGroup() as group:
            for number in range(SESSIONS):
                group.create_task(self._sessions(number))

    async def _sessions(self, number: int) -> None:
        dice, count = random.Random(f"{self._seed}-{number}"), 0
        while not self.stopped.is_set():
            count += 1
            await self._session(f"s{number}-{count}", dice)

    async def _notes(self, dice: random.Random, who: dict[str, Any], **fields: Any) -> set[str]:
        """Write some notes, by whichever daemon; a reply that was lost is asked for again, maybe of the other one."""
        name, found = f"{who['session']}-{who.get('agent', 'main')}", set()
        owner = f"{who['session']}/{who['agent']}" if "agent" in who else who["session"]
        for number in range(dice.randint(1, 4)):
            body = {"content": f"{name} {number} {fields}", "kind": "finding", "caller": who, **fields}
            body["request_id"] = f"{name}-{number}-{len(fields)}-{dice.randrange(2**32)}"
            answer = await self._anyone.ask("remember", body)
            found.add(answer["id"])
            self.whose[answer["id"]] = body["content"]
            if owner != who["session"] or fields:
                self._scoped[answer["id"]] = owner
            if dice.random() < 0.3:
                seen = await self._anyone.ask("inject", {"budget_tokens": 500, "caller": who})
                assert {self._scoped.get(id_, owner) for id_ in seen["ids"]} <= {owner}, "notes of somebody else"
        return found

    async def _session(self, session: str, dice: random.Random) -> None:
        source = f"host-{session}"
        main = {"session": session}
        await self._post.send("session-start", lost=0.2, source=source, session=session)
        async with asyncio.TaskGroup() as group:
            kids = [group.create_task(self._child(session, f"a{n}", source, dice)) for n in range(CHILDREN)]
            own = await self._notes(dice, main, scope="session")
            self.live |= await self._notes(dice, main)
        orphans = set[str]().union(*(kid.result() for kid in kids))
        await self._post.send("turn-end", lost=0.2, session=session)
        if await self._post.send("session-end", lost=0.3, source=source, session=session):
            self.lives["ended"] += 1
            self._end(own | orphans)
            if dice.random() < 0.4:
                await self._second_life(session, source, dice)
        else:
            self.lives["unheard"] += 1
            self.live |= own | orphans

    async def _child(self, session: str, agent: str, source: str, dice: random.Random) -> set[str]:
        """One subagent's life. Returns its notes if its end was lost: then they are its session's to take along."""
        who: dict[str, Any] = {"session": session, "agent": agent, "agent_kind": "subagent"}
        await self._post.send("subagent-start", lost=0.2, source=source, **who)
        notes = await self._notes(dice, who)
        await self._post.send("heartbeat", lost=0.2, **who)
        if dice.random() < 0.2:
            kept = dice.choice(sorted(notes))
            del self._scoped[kept]
            await self._anyone.ask("promote", {"id": kept, "to": "workspace", "caller": who})
            notes.discard(kept)
            self.live.add(kept)
        if await self._post.send("subagent-end", lost=0.3, source=source, **who):
            self._end(notes)
            return set()
        return notes

    async def _second_life(self, session: str, source: str, dice: random.Random) -> None:
        """The session is resumed: what it writes from then on is no business of the end before, however late that
        is."""
        at = self._post.now()
        await self._post.send("session-start", late=0, at=at, source=source, session=session)

        async def resumed() -> bool:
            return (await self._post.owner(session)).started_at == at

        await wait_until(resumed, PATIENCE_S)
        self.live |= await self._notes(dice, {"session": session}, scope="session")
        self.lives["resumed"] += 1

    def _end(self, notes: set[str]) -> None:
        self.ended |= notes


class Chaos:
    """The processes, and what becomes of them."""

    def __init__(self, fleet: Fleet, dice: random.Random) -> None:
        self._fleet, self._dice = fleet, dice
        self.daemons: dict[str, Process] = {}
        self.workers: list[Process] = []
        self.pids: set[int] = set()

    async def begin(self) -> None:
        """Store, daemons and workers, in no order but for the store."""
        await self._fleet.store()
        await asyncio.gather(*(self._daemon(name) for name in DAEMONS), *(self._worker() for _ in range(WORKERS)))

    async def strike(self, victim: str) -> None:
        """Kill or pause one, and see to it that it is there again."""
        self._note_pids()
        print(f"{time.monotonic():.1f} {victim}")
        match victim:
            case "daemon":
                name = self._dice.choice(DAEMONS)
                await self.daemons[name].kill()
                await self._daemon(name)
            case "worker":
                await self.workers.pop(self._dice.randrange(WORKERS)).kill()
                await self._worker()
            case "pause":
                sleepy = self._dice.choice(self.workers)
                sleepy.signal(signal.SIGSTOP)
                await asyncio.sleep(self._dice.uniform(0.2, 2.0))  # how long it is away is the matter here
                sleepy.signal(signal.SIGCONT)
            case "store":
                server, pid = await self._fleet.store(), self._fleet.store_pid()
                os.kill(pid, signal.SIGKILL)
                await wait_until(lambda: not server.alive)
                await self._fleet.store()
            case "restart":
                await (await self._fleet.store()).stop()
                await self._fleet.store()
            case _:
                raise AssertionError(victim)

    async def end(self) -> None:
        """Ask all of them to stop, in no order; each does, by itself."""
        self._note_pids()
        processes = [*self.daemons.values(), *self.workers]
        self._dice.shuffle(processes)
        for process in processes:
            assert await process.stop() == 0, process.said[-2000:]

    async def _daemon(self, name: str) -> None:
        self.daemons[name] = await self._fleet.daemon(name)

    async def _worker(self) -> None:
        self.workers.append(await self._fleet.worker())

    def _note_pids(self) -> None:
        for process in (*self.daemons.values(), *self.workers):
            self.pids |= {process.pid, *children(process.pid)}


@pytest.mark.timeout(420)
async def test_the_books_balance(fleet: Fleet) -> None:
    """C33, C35, C36, C37, C39: two daemons, three workers and forty agents at a time; SIGKILL for each kind of process,
    a worker paused, the store killed and restarted; events twice, late, out of order and lost. At the end every note of
    what ended was forgotten exactly once and no other was touched; the proof is clean, nothing is pending, what nobody
    could handle is put aside, and no process or socket is left."""
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(2**32))
    print(f"CHAOS_SEED={seed}")
    dice = random.Random(seed)
    chaos = Chaos(fleet, dice)
    await chaos.begin()
    anyone = Anyone(fleet, random.Random(f"{seed}-anyone"))
    post = Post(fleet, anyone, random.Random(f"{seed}-post"))
    agents = Agents(anyone, post, seed)
    life = asyncio.create_task(agents.run())
    victims = ["daemon", "worker", "store", "restart", "pause", "daemon", "worker"]
    victims += dice.choices(["daemon", "worker", "store", "pause"], k=KILLS - len(victims))
    dice.shuffle(victims)
    for number, victim in enumerate(victims):
        goal = agents.acknowledged + dice.randint(1, 40)
        await wait_until(lambda goal=goal: agents.acknowledged >= goal or life.done(), PATIENCE_S)  # type: ignore[misc]
        await chaos.strike(victim)
        if number == len(victims) // 2:
            await post.poison()
    agents.stopped.set()
    await life
    await post.flush()
    print(f"{dict(agents.lives)}, {len(agents.ended)} notes ended, {len(agents.live)} live, events {dict(post.sent)}")
    assert agents.lives["ended"] > 3

    human = fleet.client("a", role="human")
    redis: Any = fleet.redis()

    async def quiet() -> bool:
        (group,) = await redis.xinfo_groups(LIFECYCLE)
        if group["pending"] or group["lag"]:
            return False
        told = [entry.id async for entry in forgotten(human)]
        return agents.ended <= set(told)

    print(f"{time.monotonic():.1f} all is said")
    await wait_until(quiet, RECOVERY_S)
    print(f"{time.monotonic():.1f} quiet")
    for name in DAEMONS:
        books = await histories(fleet.client(name, role="human"))
        # What a resumed session says again takes the place of what it said before, and both their ends count once.
        ends = {note: tuple(name for name in books[note] if name != "superseded") for note in agents.ended}
        assert ends == dict.fromkeys(agents.ended, ("created", "forgotten"))
        touched = {note: books[note] for note in agents.live if books[note][-1] not in ("created", "promoted")}
        assert touched == {}, await story(human, redis, agents.whose, sorted(touched)[0])
        assert set(books) == agents.ended | agents.live
        assert (await fleet.client(name, role="human").verify()).problems == ()
    assert (await redis.xpending(LIFECYCLE, BRIDGE_GROUP))["pending"] == 0
    parked = {fields[b"id"]: fields[b"e"].decode() for _, fields in await redis.xrange(DEAD)}
    assert sorted(parked.values()) == sorted(POISON)
    await chaos.end()
    await wait_until(lambda: not any(map(running, chaos.pids)))
    assert [path for path in fleet.sockets() if path.parent == fleet.home] == [], (
        "the store, which is ours, has its own"
    )


async def story(client: AsyncClient, redis: Any, whose: dict[str, str], note: str) -> str:
    """What happened to a note, and which events were about its session: for whoever must find out why."""
    session = whose[note].split("-a")[0].split("-main")[0]
    lines = [f"{note} of {whose[note]}"]
    lines += [f"{event.seq} {event.type} {event.facts}" for event in (await client.history(note)).events]
    for seq, fields in await redis.xrange(LIFECYCLE):
        if f'"{session}"'.encode() in fields.get(b"e", b""):
            lines.append(f"{seq.decode()} {fields[b'e'].decode()}")
    lines += [str(row) for row in (await client.owners()).rows if row.owner.split("/")[0] == session]
    return "\n".join(lines)


async def forgotten(client: AsyncClient) -> Any:
    """Every forgotten note."""
    cursor: str | None = None
    while True:
        page = await client.list_notes(states=("forgotten",), limit=1000, cursor=cursor)
        for note in page.notes:
            yield note
        if (cursor := page.cursor) is None:
            return


async def histories(client: AsyncClient) -> dict[str, tuple[str, ...]]:
    """The types of every note's events."""
    found: dict[str, tuple[str, ...]] = {}
    async for line in client.export():
        if line["line"] == "note":
            found[line["id"] if "id" in line else line["events"][0]["note"]] = tuple(e["type"] for e in line["events"])
    return found
