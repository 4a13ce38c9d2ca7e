"""The ends of owners: heard, lapsed or asked for, each ends what was written until then, once, and nothing written
since."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.workers.seeding import KEYRING, MINUTE, START_MS, World, ids
from tests.workers.yard import Yard

from amnesiad.core import decisions
from amnesiad.core.callers import Caller
from amnesiad.core.kinds import DAY_MS
from amnesiad.store.due import read_items
from amnesiad.store.owners import (
    AWAY_MS,
    GRACE_MS,
    UNFINISHED,
    close_owner,
    finish_owner,
    lapsed_owners,
    read_owner,
    touch_owners,
)
from amnesiad.store.policies import read_policy
from amnesiad.store.units import Builder
from amnesiad.store.vault import find_many
from amnesiad_workers.passes import Context, Figures, reconcile, unplug
from amnesiad_workers.passes import ending as ending_module

# -- unplug ------------------------------------------------------------------------------------------------------------


async def test_an_ended_owners_notes_are_erased_pins_too(world: World) -> None:
    """Unplugging erases what the owner wrote, pinned or not, and nobody else's; a second run changes nothing."""
    inc = await world.open("s/a")
    await world.remember("x", scope="session", owner="s/a", incarnation=inc)
    await world.remember("y", scope="session", owner="s/a", incarnation=inc, pinned=True, ttl_ms=None)
    await world.remember("other", scope="session", owner="s/b", incarnation=1)
    world.now += 10
    figures = await unplug(world.context, world.ws, "s/a", heard_at=world.now)
    assert figures.forgotten == 2
    assert {getattr(event, "reason", None) for event in (await world.events("x"))[1:]} == {"agent-disposed"}
    assert await world.note("other") is not None
    assert not (await read_owner(world.redis, world.keys, "s/a")).open
    assert await world.redis.zscore(world.keys.leases, "s/a") is None
    before = await world.dump()
    assert (await unplug(world.context, world.ws, "s/a", heard_at=world.now)).forgotten == 0
    assert await world.dump() == before


async def test_a_sessions_end_takes_its_children_and_its_team_along(world: World) -> None:
    """A lead's end erases its own notes, its team's and its children's; a session whose name begins alike is safe."""
    for owner in ("lead", "lead/a", "leader"):
        await world.open(owner)
    await world.remember("mine", scope="session", owner="lead", incarnation=1)
    await world.remember("teams", scope="team", owner="lead", incarnation=1)
    await world.remember("childs", scope="session", owner="lead/a", incarnation=1)
    await world.remember("others", scope="session", owner="leader", incarnation=1)
    await unplug(world.context, world.ws, "lead", heard_at=world.now + 1, children=True)
    assert [await world.note(n) is None for n in ("mine", "teams", "childs", "others")] == [True, True, True, False]


async def test_an_end_cut_short_is_finished_by_the_next_reconciliation(world: World) -> None:
    """A worker killed between closing the owner and ending its notes, and its job lost: reconciliation finishes it."""
    await world.open("s/a")
    await world.remember("x", scope="session", owner="s/a", incarnation=1)
    await close_owner(world.log, "s/a", heard_at=world.now + 1, at=None, source=None)
    assert await world.redis.zscore(world.keys.leases, "s/a") == UNFINISHED
    await reconcile(world.context, world.ws)
    assert await world.note("x") is None
    assert await world.redis.zscore(world.keys.leases, "s/a") is None


async def test_the_same_end_by_two_workers_is_one_transition(world: World) -> None:
    """C35: an end delivered twice and run by two workers at once erases each note once."""
    await world.open("s")
    await world.remember(*ids(700), scope="session", owner="s", incarnation=1)
    end = {"heard_at": world.now + 1, "children": True}
    await asyncio.gather(*(unplug(world.context, world.ws, "s", **end) for _ in range(2)))  # type: ignore[arg-type]
    assert (await world.counts())["forgotten"] == 700
    assert await world.once_each("forgotten")


async def test_a_late_end_spares_the_life_begun_since(world: World) -> None:
    """An end heard before the owner was opened again ends the notes of the earlier life only."""
    await world.open("s")
    await world.remember("old", scope="session", owner="s", incarnation=1)
    heard = world.now + 5
    await close_owner(world.log, "s", heard_at=heard, at=None, source=None)
    world.now += 10
    assert await world.open("s") == 2
    await world.remember("new", scope="session", owner="s", incarnation=2)
    await unplug(world.context, world.ws, "s", heard_at=heard)
    assert await world.note("old") is None
    assert await world.note("new") is not None
    assert (await read_owner(world.redis, world.keys, "s")).open


async def test_an_owner_ended_while_its_agent_writes_leaves_nothing_behind(world: World) -> None:
    """V28: 200 trials of an end racing a write; no note of the ended life survives, a later call opens a new one."""
    for trial in range(200):
        owner = f"s{trial}"
        await world.open(owner)
        world.now += 1
        outcome, _ = await asyncio.gather(
            world.call(owner, f"n{trial}"), unplug(world.context, world.ws, owner, heard_at=world.now)
        )
        note, cell = await world.note(f"n{trial}"), await read_owner(world.redis, world.keys, owner)
        assert note is None or note.incarnation == cell.incarnation == 2, outcome
        world.now += 1
        later = await world.call(owner, f"m{trial}")
        assert later.status == "ok"
        found = await world.note(f"m{trial}")
        assert found is not None
        assert found.incarnation == 2


# -- reconcile ---------------------------------------------------------------------------------------------------------


async def live_until(world: World, now: int) -> None:
    """Move the clock with reconciliation running all the while, as a healthy fleet does."""
    while world.now < now:
        world.now = min(now, world.now + AWAY_MS)
        await reconcile(world.context, world.ws)


async def test_a_silent_owner_is_ended_once_its_lease_is_over(world: World) -> None:
    """C33: an agent is killed without an end; the lease ends it once and its notes are unplugged."""
    await world.open("s/a")
    await world.remember("x", scope="session", owner="s/a", incarnation=1, ttl_ms=None)
    await live_until(world, START_MS + DAY_MS - AWAY_MS)
    assert await world.note("x") is not None
    await live_until(world, START_MS + DAY_MS)
    assert await world.note("x") is None
    before = await world.dump()
    await reconcile(world.context, world.ws)
    assert await world.dump() == before


async def test_nobody_is_ended_right_after_the_worker_was_away(world: World) -> None:
    """C33: while no worker ran nobody could show a sign of life, so leases lapse only 15 minutes after its return."""
    await world.open("s/a")
    await world.remember("x", scope="session", owner="s/a", incarnation=1, ttl_ms=None)
    await reconcile(world.context, world.ws)
    back = world.now = START_MS + 5 * DAY_MS
    await reconcile(world.context, world.ws)
    await live_until(world, back + GRACE_MS - 1)
    assert await world.note("x") is not None
    await live_until(world, back + GRACE_MS)
    assert await world.note("x") is None


async def test_a_clock_that_was_set_back_does_not_spare_the_silent(world: World) -> None:
    """C33: a reconciliation once ran by a clock that was years ahead; owners of today lapse all the same, after the
    grace."""
    world.now += 1000 * DAY_MS
    await reconcile(world.context, world.ws)
    world.now = START_MS
    await world.open("s/a")
    await world.remember("x", scope="session", owner="s/a", incarnation=1, ttl_ms=None)
    await live_until(world, START_MS + DAY_MS)
    assert await world.note("x") is None


async def test_who_shows_itself_while_others_are_ended_is_spared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """C33: two leases are over; while the notes of the first are being ended, the second gives a sign of life."""
    for owner in ("s/a", "s/b"):
        await world.open(owner)
        await world.remember(f"of-{owner[-1]}", scope="session", owner=owner, incarnation=1, ttl_ms=None)
    await live_until(world, START_MS + DAY_MS - AWAY_MS)
    ended: list[str] = []

    async def end_one(context: Context, ws: str, owner: str, **heard: Any) -> Figures:
        ended.append(owner)
        await touch_owners(world.redis, world.keys, dict.fromkeys({"s/a", "s/b"} - {owner}, world.now))
        return await unplug(context, ws, owner, **heard)

    monkeypatch.setattr(ending_module, "unplug", end_one)
    await live_until(world, START_MS + DAY_MS)
    assert len(ended) == 1
    left = [name for name in ("of-a", "of-b") if await world.note(name) is not None]
    assert left == ["of-b" if ended == ["s/a"] else "of-a"]


async def test_what_is_written_after_an_end_was_asked_for_stays(yard: Yard) -> None:
    """V28: an owner is closed by hand, children too, before any worker comes; a call right after it is of another
    life."""
    world = yard.world
    for owner, note_id in (("s", "old"), ("s/a", "child")):
        assert (await world.call(owner, note_id)).status == "ok"
    world.now = yard.clock.now_ms() + MINUTE
    await yard.jobs.end_owner(world.ws, "s")
    assert [(await read_owner(yard.redis, world.keys, owner)).open for owner in ("s", "s/a")] == [False, False]
    assert (await world.call("s", "new")).status == "ok"
    await yard.work()
    assert [await world.note(note_id) for note_id in ("old", "child")] == [None, None]
    assert await world.note("new") is not None


async def test_an_owner_that_is_back_before_its_end_is_finished_keeps_its_lease(world: World) -> None:
    """V28: its notes are ended, it is opened anew, and only then the end is finished: the new life can still lapse."""
    await world.open("s")
    world.now += 1
    await close_owner(world.log, "s", heard_at=world.now, at=None, source=None)
    world.now += 1
    assert (await world.call("s", "new")).status == "ok"
    await finish_owner(world.log, "s")
    assert await world.redis.zscore(world.keys.leases, "s") == world.now


async def test_a_session_has_a_longer_lease_and_takes_its_children_along(world: World) -> None:
    """C33: a session may be silent for weeks; when it is over, its children's notes are, though these still show
    life."""
    await world.open("s")
    await world.remember("mine", scope="session", owner="s", incarnation=1, ttl_ms=None)
    ends = START_MS + world.context.session_lease
    for lapses in (START_MS + world.context.child_lease, ends - AWAY_MS):
        world.now = lapses - GRACE_MS
        await reconcile(world.context, world.ws)
        await live_until(world, lapses)
        assert await world.note("mine") is not None
    await world.open("s/a")
    await world.remember("childs", scope="session", owner="s/a", incarnation=1, ttl_ms=None)
    await live_until(world, ends)
    assert await world.note("mine") is None
    assert await world.note("childs") is None


async def test_who_is_back_while_its_end_is_finished_is_not_ended_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V28: reconciliation finishes an end; the owner that has begun another life meanwhile keeps what it wrote in
    it."""
    await world.open("s/a")
    await world.remember("old", scope="session", owner="s/a", incarnation=1, ttl_ms=None)
    await close_owner(world.log, "s/a", heard_at=world.now + 1, at=None, source=None)
    world.now += MINUTE

    async def then_back(*args: Any) -> Any:
        rows = await lapsed_owners(*args)
        await world.open("s/a")
        await world.remember("new", scope="session", owner="s/a", incarnation=2, ttl_ms=None)
        return rows

    monkeypatch.setattr(ending_module, "lapsed_owners", then_back)
    await reconcile(world.context, world.ws)
    assert await world.note("old") is None
    assert await world.note("new") is not None
    assert (await read_owner(world.redis, world.keys, "s/a")).open


async def test_what_time_had_ended_ends_under_its_own_code(world: World) -> None:
    """C33: a note that was over before its owner is audited as expired, whichever pass came to it first."""
    await world.open("s/a")
    await world.remember("over", scope="session", owner="s/a", incarnation=1)
    world.now += 2 * MINUTE
    figures = await unplug(world.context, world.ws, "s/a", heard_at=world.now)
    assert (figures.expired, figures.forgotten) == (1, 1)
    assert [getattr(event, "reason", None) for event in await world.events("over")] == [None, "ttl", "expired"]


async def test_a_note_that_changes_under_its_end_is_ended_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V28: somebody pins it after it was read and before its end is written; the end is decided again."""
    await world.open("s/a")
    await world.remember("x", scope="session", owner="s/a", incarnation=1, ttl_ms=None)

    async def then_pinned(*args: Any) -> Any:
        items = await read_items(*args)
        monkeypatch.setattr(ending_module, "read_items", read_items)
        note = await world.note("x")
        assert note is not None
        old = (await find_many(world.redis, world.keys, ["x"]))[0].words
        policy = await read_policy(world.redis, world.keys, world.policy)
        builder = Builder(world.keys, KEYRING, policy.policy, policy.version)
        builder.change(note, decisions.pin(note, Caller(role="human"), world.now), old)
        assert (await world.log.commit(builder.build())).status == "ok"
        return items

    monkeypatch.setattr(ending_module, "read_items", then_pinned)
    figures = await unplug(world.context, world.ws, "s/a", heard_at=world.now + 1)
    assert (figures.conflicts, figures.forgotten) == (1, 1)
    assert await world.note("x") is None
