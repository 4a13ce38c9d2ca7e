"""The bridge: no event is lost, none is done twice, and what cannot be handled is put aside."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from tests.support import dump, wait_until
from tests.workers.seeding import POLICY
from tests.workers.yard import SECRETS, Yard

from amnesiad.bridge import Bridge, reader
from amnesiad.store import lifecycle
from amnesiad.store.keys import BRIDGE_GROUP, DEAD, LIFECYCLE, WORKSPACES
from amnesiad.store.owners import read_owner
from amnesiad.tasks import end

T0 = 1_700_000_000_000
"""Where the producers' clocks begin (epoch ms)."""


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
    assert await yard.queued() == [("check_anchors", [yard.world.ws])]
    assert not await yard.redis.exists(yard.world.keys.ledger("s"))
    for _ in range(3):
        await yard.send("turn-end", session="s")
        await yard.handle()
    # One to run and one behind it, in each of two buckets if the test runs across an edge.
    assert 2 <= len(await yard.queued()) <= 4
    assert {name for name, _ in await yard.queued()} == {"check_anchors"}


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


async def test_a_parked_event_is_tried_again_once(yard: Yard) -> None:
    """However many people ask for it at the same moment, it is put back onto the stream once, as it came."""
    await yard.redis.xadd(DEAD, {"e": b"{}", "error": "broken", "id": "1-1"})
    (row,) = await lifecycle.dead(yard.redis, 1)
    await asyncio.gather(*[yard.redis.ping() for _ in range(8)])  # a connection for each, so that none is late
    done = await asyncio.gather(*[lifecycle.retry_dead(yard.redis, row.seq) for _ in range(8)])
    assert sum(done) == 1
    assert [fields for _, fields in await yard.redis.xrange(LIFECYCLE)] == [{b"e": b"{}"}]
    assert await lifecycle.dead(yard.redis, 1) == []


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
    """C39: events that a daemon has read, and not acknowledged when it died, are handled by another, page after page;
    those that somebody has trimmed or deleted meanwhile hold up nobody."""
    monkeypatch.setattr(reader, "CLAIM_IDLE_MS", 0)
    await yard.redis.xgroup_create(LIFECYCLE, BRIDGE_GROUP, id="0", mkstream=True)
    count = 2 * reader.BATCH + 50
    seqs = [await yard.send("session-start", session=f"s{number}") for number in range(count)]
    await yard.redis.xreadgroup(BRIDGE_GROUP, "dead", {LIFECYCLE: ">"})
    await yard.redis.xtrim(LIFECYCLE, maxlen=count - 10, approximate=False)
    await yard.redis.xdel(LIFECYCLE, seqs[100])
    assert await yard.handle() == count - 11
    assert await yard.pending() == 0
    open_now = [number for number in range(count) if await is_open(yard, f"s{number}")]
    assert open_now == [number for number in range(10, count) if number != 100]
    assert await yard.handle() == 0


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
