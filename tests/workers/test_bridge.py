"""The bridge and the timer: no event is lost, none is done twice, and what is due is asked for on time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from tests.support import dump, wait_until
from tests.workers.seeding import MINUTE, POLICY, World, new_world

from amnesiad.bridge import Bridge, Jobs, Timer, reader
from amnesiad.bridge.timer import SWEEP_S
from amnesiad.secretscan import SecretScan
from amnesiad.store import lifecycle
from amnesiad.store.clock import StoreClock
from amnesiad.store.keys import BRIDGE_GROUP, DEAD, LIFECYCLE, WORKSPACES
from amnesiad.store.owners import read_owner
from amnesiad.store.queue import PREFIX, QUEUE
from amnesiad.tasks import end
from amnesiad_workers.passes import settle, unplug

SECRETS = SecretScan(None)
T0 = 1_700_000_000_000
"""Where the producers' clocks begin (epoch ms)."""


class Yard:
    """A bridge with its clock and jobs, and the world it works for."""

    def __init__(self, world: World, clock: StoreClock, jobs: Jobs) -> None:
        self.world, self.clock, self.jobs = world, clock, jobs
        self.redis: Any = world.redis
        self.bridge = Bridge(world.redis, jobs, POLICY, SECRETS)

    async def send(self, event: str, **fields: object) -> str:
        """Put an event on the stream, as any process may."""
        body = {"event": event, "workspace": "w", **fields}
        seq: bytes = await self.redis.xadd(LIFECYCLE, {"e": json.dumps(body)})
        return seq.decode()

    async def handle(self) -> int:
        """One turn of the bridge."""
        with contextlib.suppress(Exception):
            await self.redis.xgroup_create(LIFECYCLE, BRIDGE_GROUP, id="0", mkstream=True)
        return await self.bridge.turn(block_ms=1)

    async def queued(self) -> list[tuple[str, list[Any]]]:
        """The jobs in the queue: name and arguments."""
        found = []
        for job_id in await self.redis.lrange(f"{PREFIX}:queue:{QUEUE}", 0, -1):
            raw = await self.redis.hget(f"{PREFIX}:job:{job_id.decode()}", "data")
            name, _, args, _ = json.loads(__import__("zlib").decompress(raw))
            found.append((name.rpartition(".")[2], args))
        return found

    async def work(self) -> None:
        """Run the unplug jobs in the queue, as a worker would."""
        for name, args in await self.queued():
            if name == "unplug":
                ws, owner, heard_at, at, source, children = args
                await unplug(self.world.context, ws, owner, heard_at=heard_at, at=at, source=source, children=children)

    async def pending(self) -> int:
        """Events that were delivered and not acknowledged."""
        return int((await self.redis.xpending(LIFECYCLE, BRIDGE_GROUP))["pending"])


@pytest.fixture
async def clock(redis: Redis) -> StoreClock:
    """The store's time."""
    found = StoreClock()
    await found.sync(redis)
    return found


@pytest.fixture
async def jobs(redis: Redis, redis_url: str) -> AsyncIterator[Jobs]:
    """The daemon's end of the queue."""
    found = Jobs(redis, redis_url)
    yield found
    found.close()


@pytest.fixture
async def yard(redis: Redis, clock: StoreClock, jobs: Jobs) -> Yard:
    """A workspace, and a bridge for it, at the real time."""
    world = await new_world(redis)
    world.now = clock.now_ms()
    return Yard(world, clock, jobs)


# -- from event to effect ----------------------------------------------------------------------------------------------


async def test_an_agents_life_from_start_to_end(yard: Yard) -> None:
    """A start opens the owner, a heartbeat renews its lease, an end closes it at once and asks for its notes' end."""
    world, redis = yard.world, yard.redis
    await yard.send("subagent-start", session="s", agent="a")
    await yard.handle()
    assert (await read_owner(redis, world.keys, "s/a")).open
    await redis.zadd(world.keys.leases, {"s/a": 1})
    await yard.send("heartbeat", session="s", agent="a", agent_kind="subagent")
    await yard.handle()
    assert await redis.zscore(world.keys.leases, "s/a") > 1
    await world.remember("x", scope="session", owner="s/a", incarnation=1)
    seq = await yard.send("subagent-end", session="s", agent="a", at=T0 + 5, source="host")
    await yard.handle()
    assert not (await read_owner(redis, world.keys, "s/a")).open
    assert await yard.queued() == [("unplug", [world.ws, "s/a", int(seq.split("-")[0]), T0 + 5, "host", False])]
    assert await yard.pending() == 0
    await yard.work()
    assert await world.note("x") is None


@pytest.mark.parametrize(
    ("agent_kind", "choice", "kept"),
    [("continuable", "keep", True), ("continuable", "unplug", False), ("workflow", "unplug", True),
     ("subagent", "keep", False)],
)  # fmt: skip
async def test_an_end_without_a_kind_is_of_the_kind_the_owner_began_as(
    yard: Yard, agent_kind: str, choice: str, kept: bool
) -> None:
    """An end that does not say which kind of child it ends goes by what the owner's cell knows."""
    bridge = Bridge(yard.redis, yard.jobs, msgspec.structs.replace(POLICY, continuable_end=choice), SECRETS)
    yard.bridge = bridge
    await yard.send("subagent-start", session="s", agent="a", agent_kind=agent_kind)
    await yard.send("subagent-end", session="s", agent="a")
    await yard.handle()
    assert (await read_owner(yard.redis, yard.world.keys, "s/a")).open is kept
    assert (await yard.queued() == []) is kept


async def test_a_late_heartbeat_is_no_life(yard: Yard) -> None:
    """A sign of life that arrives after the end neither opens the owner nor gives it a lease."""
    await yard.send("session-start", session="s")
    await yard.send("session-end", session="s")
    await yard.send("heartbeat", session="s")
    await yard.handle()
    await yard.work()
    assert not (await read_owner(yard.redis, yard.world.keys, "s")).open
    assert await yard.redis.zscore(yard.world.keys.leases, "s") is None


async def test_a_start_right_behind_an_end_begins_a_new_life(yard: Yard) -> None:
    """End and start of the same session in one batch, without producer times: the end's job spares the new life."""
    world = yard.world
    await yard.send("session-start", session="s")
    await yard.handle()
    await world.remember("old", scope="session", owner="s", incarnation=1)
    await yard.send("session-end", session="s")
    await yard.send("session-start", session="s")
    await yard.handle()
    owner = await read_owner(yard.redis, world.keys, "s")
    assert (owner.open, owner.incarnation) == (True, 2)
    await world.remember("new", scope="session", owner="s", incarnation=2)
    await yard.work()
    assert await world.note("old") is None
    assert await world.note("new") is not None


async def test_a_restart_without_an_end_is_a_new_life_for_a_late_end(yard: Yard) -> None:
    """The end got lost in between and arrives last: by the producer's clock it lies before the second start."""
    world = yard.world
    await yard.send("session-start", session="s", at=T0 + 100, source="host")
    await yard.handle()
    await world.remember("old", scope="session", owner="s", incarnation=1)
    await yard.send("session-start", session="s", at=T0 + 500, source="host")
    await yard.handle()
    await world.remember("new", scope="session", owner="s", incarnation=2)
    await yard.send("session-end", session="s", at=T0 + 300, source="host")
    await yard.handle()
    await yard.work()
    assert await world.note("old") is None
    assert await world.note("new") is not None
    assert (await read_owner(yard.redis, world.keys, "s")).open


async def test_an_end_that_overtook_its_start_is_believed(yard: Yard) -> None:
    """Reordered events: the end comes first, and the start before it by the producer's clock opens nothing."""
    await yard.send("subagent-end", session="s", agent="a", at=T0 + 200, source="host")
    await yard.send("subagent-start", session="s", agent="a", at=T0 + 100, source="host")
    await yard.handle()
    assert not (await read_owner(yard.redis, yard.world.keys, "s/a")).open


async def test_an_end_delivered_twice_is_one_transition(yard: Yard) -> None:
    """C35: the same end twice on the stream, handled by two daemons, run by two workers; each note is erased once."""
    world = yard.world
    await yard.send("session-start", session="s")
    await yard.handle()
    await world.remember(*(f"n{number}" for number in range(40)), scope="session", owner="s", incarnation=1)
    other = Yard(world, yard.clock, yard.jobs)
    for _ in range(2):
        await yard.send("session-end", session="s", at=T0 + 5, source="host")
    await asyncio.gather(yard.handle(), other.handle())
    await asyncio.gather(yard.work(), other.work())
    assert (await world.counts())["forgotten"] == 40
    assert await world.once_each("forgotten")


async def test_a_member_of_a_team_ends_nothing(yard: Yard) -> None:
    """A teammate's end, session or not, leaves the team's notes; the lead's takes them along."""
    world = yard.world
    await yard.send("session-start", session="lead", agent_kind="main")
    await yard.handle()
    await world.remember("team-note", scope="team", owner="lead", incarnation=1)
    for event in ("agent-disposed", "session-end"):
        await yard.send(event, session="lead", team="lead", agent="m", agent_kind="teammate")
        await yard.send(event, session="other", team="lead", agent_kind="teammate")
    await yard.handle()
    await yard.work()
    assert await world.note("team-note") is not None
    await yard.send("agent-disposed", session="lead", agent_kind="main")
    await yard.handle()
    await yard.work()
    assert await world.note("team-note") is None


async def test_turns_files_and_compactions(yard: Yard) -> None:
    """turn-end asks for a settle and a look at the files, once for many; compacted empties the session's ledger."""
    due: list[str] = []
    yard.jobs.on_due = lambda ws, _at: due.append(ws)
    await yard.redis.hset(yard.world.keys.ledger("s"), "n", "1")
    for _ in range(5):
        await yard.send("turn-end", session="s")
    await yard.send("file-changed", paths=["src/a.py"])
    await yard.send("compacted", session="s")
    await yard.handle()
    assert due == [yard.world.ws] * 5
    # One to run and one behind it, in each of two buckets if the test runs across an edge.
    assert 1 <= len(await yard.queued()) <= 4
    assert {name for name, _ in await yard.queued()} == {"check_anchors"}
    assert not await yard.redis.exists(yard.world.keys.ledger("s"))


# -- what can go wrong -------------------------------------------------------------------------------------------------


async def test_poison_is_put_aside_and_the_rest_is_handled(yard: Yard) -> None:
    """Malformed, unknown and oversized events go to the dead-letter stream with their error, and are acknowledged."""
    poison = [
        b"{",
        b"[]",
        b'{"event":"nap","workspace":"w"}',
        b'{"event":"heartbeat","workspace":"w","mood":"good"}',
        b'{"event":"heartbeat","workspace":""}',
        b'{"event":"heartbeat","workspace":"w","session":"a\\u0000b"}',
        b'{"event":"file-changed","workspace":"w","paths":["../x"]}',
        b" " * (reader.MAX_EVENT_BYTES + 1),
        b"\xff",
    ]
    for raw in poison:
        await yard.redis.xadd(LIFECYCLE, {"e": raw})
    await yard.redis.xadd(LIFECYCLE, {"other": "field"})
    await yard.send("session-start", session="s")
    assert await yard.handle() == len(poison) + 2
    rows = await yard.redis.xrange(DEAD)
    assert len(rows) == len(poison) + 1
    assert all(fields[b"error"] and fields[b"id"] for _, fields in rows)
    assert rows[3][1][b"e"] == poison[3]
    assert await yard.pending() == 0
    assert (await read_owner(yard.redis, yard.world.keys, "s")).open


@pytest.mark.parametrize("name", ["session", "agent", "source", "id"])
async def test_an_id_that_looks_like_a_secret_is_put_aside_masked(yard: Yard, name: str) -> None:
    """Whoever puts an event on the stream by hand: no cell, no key and no parked event holds the secret, and the entry
    itself is deleted; the error says which id and of what type. Where the guard is off, an id is an id."""
    secret = "ghp_" + "aB3dE5fG7h" * 3 + "Qr1St9"
    await yard.send("subagent-start", **({"session": "s", "agent": "a"} | {name: secret}))
    await yard.send("heartbeat", session="s2")
    assert await yard.handle() == 2
    ((_, parked),) = await yard.redis.xrange(DEAD)
    assert parked[b"error"].startswith(f"{name} looks like a secret: ".encode())
    assert json.loads(parked[b"e"])["event"] == "subagent-start"
    assert secret not in repr(await dump(yard.redis))
    assert await yard.pending() == 0
    await lifecycle.retry_dead(yard.redis, (await lifecycle.dead(yard.redis, 1))[0].seq)
    await yard.handle()
    assert len(await yard.redis.xrange(DEAD)) == 1, "a retry of what is left is put aside again"
    bridge = Bridge(yard.redis, yard.jobs, msgspec.structs.replace(POLICY, secret_guard="off"), SECRETS)
    await yard.send("session-start", session=secret)
    await bridge.turn(block_ms=1)
    assert (await read_owner(yard.redis, yard.world.keys, secret)).open


async def test_of_an_unreadable_event_with_a_secret_nothing_is_kept(yard: Yard) -> None:
    """Not even the error repeats it; another unreadable one is kept as it came."""
    secret = "ghp_" + "aB3dE5fG7h" * 3 + "Qr1St9"
    await yard.redis.xadd(LIFECYCLE, {"e": json.dumps({"event": secret, "workspace": "w"})})
    await yard.redis.xadd(LIFECYCLE, {"e": f'{{"session": "{secret}"'})
    await yard.redis.xadd(LIFECYCLE, {"e": '{"event": "no-such-event"}'})
    await yard.handle()
    assert secret not in repr(await dump(yard.redis))
    kept = [fields[b"e"] for _, fields in await yard.redis.xrange(DEAD)]
    assert kept == [b"", b"", b'{"event": "no-such-event"}']


async def test_how_far_events_are_behind_is_told(yard: Yard) -> None:
    """Unread and unacknowledged events count as waiting, the oldest tells the lag, and parked ones are counted."""
    assert await lifecycle.backlog(yard.redis) == (0, None, 0)
    await yard.redis.xadd(LIFECYCLE, {"e": "{}"}, id=f"{yard.clock.now_ms() - 60_000}-0")
    await yard.send("heartbeat", session="s")
    assert (await lifecycle.backlog(yard.redis)).waiting == 2
    await yard.redis.xgroup_create(LIFECYCLE, BRIDGE_GROUP, id="0")
    await yard.redis.xreadgroup(BRIDGE_GROUP, "somebody", {LIFECYCLE: ">"}, count=1)
    behind = await lifecycle.backlog(yard.redis)
    assert behind.waiting == 2
    assert behind.lag_ms is not None
    assert 60_000 <= behind.lag_ms < 120_000
    await yard.redis.xclaim(
        LIFECYCLE, BRIDGE_GROUP, "somebody", 0, [(await yard.redis.xrange(LIFECYCLE))[0][0]], idle=60_000
    )
    await yard.handle()
    assert await lifecycle.backlog(yard.redis) == (0, None, 1)


async def test_an_event_for_a_workspace_nobody_wrote_to_makes_nothing(yard: Yard) -> None:
    """Hooks run everywhere; a workspace that has no memory gets none from them."""
    await yard.redis.xadd(LIFECYCLE, {"e": json.dumps({"event": "session-start", "workspace": "new", "session": "s"})})
    before = set(await dump(yard.redis, "amnesia:{*"))
    await yard.handle()
    assert set(await dump(yard.redis, "amnesia:{*")) == before
    assert not await yard.redis.hexists(WORKSPACES, "new")
    assert await yard.pending() == 0


async def test_what_a_dead_daemon_left_is_claimed(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that were read by a daemon which then died are handled by another; one deleted meanwhile harms nobody."""
    monkeypatch.setattr(reader, "CLAIM_IDLE_MS", 0)
    await yard.redis.xgroup_create(LIFECYCLE, BRIDGE_GROUP, id="0", mkstream=True)
    for number in range(450):
        await yard.send("session-start", session=f"s{number}")
    lost = await yard.send("session-start", session="lost")
    await yard.redis.xreadgroup(BRIDGE_GROUP, "dead", {LIFECYCLE: ">"})
    await yard.redis.xdel(LIFECYCLE, lost)
    assert await yard.handle() >= 450
    assert await yard.pending() == 0
    assert (await read_owner(yard.redis, yard.world.keys, "s449")).open


async def test_an_event_that_breaks_every_handler_is_put_aside(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event whose handling fails for a reason nobody foresaw is tried again, and in the end parked, not for ever."""
    monkeypatch.setattr(reader, "CLAIM_IDLE_MS", 0)
    monkeypatch.setattr(reader, "CLAIM_EVERY_S", 0)

    async def break_down(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(reader, "open_owner", break_down)
    await yard.send("session-start", session="s")
    for _ in range(reader.MAX_DELIVERIES):
        await yard.handle()
        assert not await yard.redis.exists(DEAD)
    await yard.handle()
    assert (await yard.redis.xlen(DEAD), await yard.pending()) == (1, 0)


async def test_a_deleted_stream_is_made_anew(yard: Yard) -> None:
    """Somebody deletes the stream and the group with it: the bridge makes both again and goes on."""
    task = asyncio.create_task(yard.bridge.run())
    try:
        await yard.send("session-start", session="a")
        await wait_until(lambda: is_open(yard, "a"))
        await yard.redis.delete(LIFECYCLE)
        await yard.send("session-start", session="b")
        await wait_until(lambda: is_open(yard, "b"))
    finally:
        await end(task)


async def is_open(yard: Yard, owner: str) -> bool:
    """Whether the owner is open."""
    return (await read_owner(yard.redis, yard.world.keys, owner)).open


# -- the timer ---------------------------------------------------------------------------------------------------------


async def pretend_worker(redis: Any) -> None:
    """The record that a living worker keeps."""
    key = f"{PREFIX}:worker:somebody"
    await redis.sadd(f"{PREFIX}:workers:{QUEUE}", key)
    await redis.hset(key, mapping={"state": "idle", "birth": "now"})
    await redis.expire(key, 90)


@pytest.fixture
async def timers(yard: Yard) -> AsyncIterator[list[Timer]]:
    """Two daemons' timers, running."""
    found = [Timer(yard.redis, yard.clock, yard.jobs, POLICY, erase_within=60_000) for _ in range(2)]
    tasks = [asyncio.create_task(timer.run()) for timer in found]
    yield found
    await end(*tasks)


async def hinted(timer: Timer, ws: str) -> None:
    """Tell the timer that something is due, and wait until it has dealt with that."""
    timer.hint(ws, 0)
    await wait_until(lambda: timer._due.get(ws) != 0)


async def settles(yard: Yard) -> int:
    """How many settle jobs are queued."""
    return sum(name == "settle" for name, _ in await yard.queued())


async def test_a_ttl_of_a_millisecond_is_asked_for_within_the_second(yard: Yard, timers: list[Timer]) -> None:
    """With no other traffic and no hint, a note that is due at once is settled by a sweep, of which there are two a
    second where the machine has time for them."""
    assert timers
    await pretend_worker(yard.redis)
    yard.world.now = yard.clock.now_ms()
    await yard.world.remember("a", ttl_ms=1)
    await wait_until(lambda: settles(yard))
    assert SWEEP_S <= 0.5
    yard.world.now = yard.clock.now_ms()
    assert (await settle(yard.world.context, yard.world.ws)).expired == 1


async def test_many_reasons_to_settle_are_one_job(yard: Yard, timers: list[Timer]) -> None:
    """While a settle waits in the queue, hints, sweeps and other daemons add no second one."""
    await pretend_worker(yard.redis)
    yard.world.now = yard.clock.now_ms() - MINUTE
    await yard.world.remember("a")
    for _ in range(50):
        await hinted(timers[0], yard.world.ws)
    # Two buckets of time at most: the test may run across an edge.
    assert 1 <= await settles(yard) <= 2


async def test_ticks_and_scrubs_are_asked_for_once(yard: Yard, timers: list[Timer]) -> None:
    """Two daemons: each periodic job is queued once, and a scrub only when something was erased."""
    assert timers
    await pretend_worker(yard.redis)
    await wait_until(lambda: has(yard, {"reconcile", "trim", "purge_audit"}))
    names = [name for name, _ in await yard.queued()]
    assert "scrub" not in names
    assert names.count("purge_audit") == 1
    yard.world.now = yard.clock.now_ms() - MINUTE
    await yard.world.remember("a")
    yard.world.now += MINUTE
    await settle(yard.world.context, yard.world.ws)
    await wait_until(lambda: has(yard, {"scrub"}))


async def has(yard: Yard, names: set[str]) -> bool:
    """Whether jobs of all these names are queued."""
    return names <= {name for name, _ in await yard.queued()}


async def test_nothing_is_asked_of_nobody(yard: Yard, timers: list[Timer]) -> None:
    """Without a worker no jobs pile up, however long; when one comes, what is due is asked for at once."""
    yard.world.now = yard.clock.now_ms() - MINUTE
    await yard.world.remember("a")
    for _ in range(20):
        await hinted(timers[0], yard.world.ws)
    assert await yard.queued() == []
    await pretend_worker(yard.redis)
    await wait_until(lambda: settles(yard))
