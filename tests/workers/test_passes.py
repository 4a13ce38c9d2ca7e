"""The passes, against a real server: what they write, that they write it once, and that they survive anything."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import secrets
import signal
import sys
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis
from tests.support import wait_until
from tests.workers.seeding import KEYRING, MINUTE, POLICY, START_MS, World, ids, new_world, set_policy

from amnesiad.core.events import Scrubbed
from amnesiad.core.notes import Anchor
from amnesiad.errors import AmnesiaError
from amnesiad.store import due, workspaces
from amnesiad.store.due import earliest
from amnesiad.store.keys import BRIDGE_GROUP, DEAD, LIFECYCLE, META
from amnesiad.store.server import EmbeddedServer
from amnesiad.store.units import UNSCRUBBED
from amnesiad.store.vault import find_many, tombs
from amnesiad_workers.passes import (
    check_anchors,
    purge_audit,
    reconcile,
    refile,
    scrub,
    settle,
    trim,
)
from amnesiad_workers.passes import settling as settling_module
from amnesiad_workers.passes.settling import ASIDE_MS, Settling

# -- settle ------------------------------------------------------------------------------------------------------------


async def test_a_perishable_that_ran_out_is_expired_and_erased(world: World) -> None:
    """At the end of its TTL a perishable expires and its words go, in one step, and only its hash stays."""
    await world.remember("a", "b")
    await world.remember("later", ttl_ms=10 * MINUTE)
    world.now += MINUTE
    figures = await settle(world.context, world.ws)
    assert (figures.due, figures.expired, figures.forgotten, figures.unreadable) == (2, 2, 2, [])
    assert [found.words for found in await find_many(world.redis, world.keys, ["a", "b"])] == [None, None]
    grave = (await tombs(world.redis, world.keys, ["a"]))[0]
    assert grave is not None
    assert grave.tomb.content_hash == KEYRING.content_hash("the words of a")
    assert await world.note("later") is not None


async def test_a_record_that_ran_out_keeps_its_words(world: World) -> None:
    """A record with a TTL of its own expires as a state: words and history stay."""
    await world.remember("r", kind="finding")
    world.now += MINUTE
    assert (await settle(world.context, world.ws)).expired == 1
    note = await world.note("r")
    assert note is not None
    assert note.state == "expired"
    assert (await find_many(world.redis, world.keys, ["r"]))[0].words is not None


async def test_an_expiry_is_stamped_with_its_deadline(world: World) -> None:
    """However late the pass, the event names the instant the note died."""
    await world.remember("a")
    world.now += 60 * MINUTE
    await settle(world.context, world.ws)
    assert [event.at for event in await world.events("a")] == [START_MS, START_MS + MINUTE, START_MS + MINUTE]


async def test_four_passes_at_once_settle_each_note_once(world: World) -> None:
    """V02: 8000 notes due, four passes at once; one expired event a note, and their counts add up."""
    for at in range(0, 8000, 1000):
        await world.remember(*ids(1000, f"n{at}x"))
    world.now += MINUTE
    runs = await asyncio.gather(*(settle(world.context, world.ws) for _ in range(4)))
    assert (await world.counts())["expired"] == 8000
    assert await world.once_each("expired")
    assert await world.once_each("forgotten")
    assert sum(run.expired for run in runs) == sum(run.due for run in runs) == 8000
    assert all(not run.unreadable for run in runs)


async def test_a_note_forgotten_before_the_job_runs_stays_forgotten(world: World) -> None:
    """C21: a settle job is queued, the note is forgotten, the job runs: nothing is written, no partial head appears."""
    await world.remember("a")
    world.now += MINUTE
    pass_ = Settling(world.context, world.ws)
    original = world.context
    await settle(original, world.ws)
    before = await world.dump()
    figures = await pass_.run()
    assert figures.due == 0
    assert await world.dump() == before
    assert await world.note("a") is None


async def test_a_note_forgotten_between_read_and_write_stays_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C21: the note is forgotten after the pass has read it; the pass conflicts and changes nothing."""
    await world.remember("a")
    world.now += MINUTE
    real = due.read_items

    async def read_then_lose(*args: object) -> object:
        items = await real(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(settling_module, "read_items", real)
        await settle(world.context, world.ws)
        return items

    monkeypatch.setattr(settling_module, "read_items", read_then_lose)
    figures = await settle(world.context, world.ws)
    assert (figures.conflicts, figures.expired) == (1, 0)
    assert (await world.counts())["forgotten"] == 1
    assert await world.note("a") is None


async def maintain(world: World) -> None:
    """Every maintenance pass, once."""
    for work in (settle, refile, check_anchors, purge_audit, reconcile):
        await work(world.context, world.ws)
    await scrub(world.context)
    await trim(world.context)


async def test_thirty_runs_are_as_good_as_one(redis: Redis, tmp_path: Path) -> None:
    """C32: every maintenance pass run 30 times gives what once gave; exempt kinds are untouched, no time moves."""
    world = await new_world(redis, str(tmp_path))
    await world.remember("p", "q")
    await world.remember("record", kind="finding")
    await world.remember("rule", kind="directive", ttl_ms=None)
    await world.remember("pin", pinned=True)
    await world.remember("drifted", kind="finding", ttl_ms=None, anchors=[Anchor("gone.py", "0" * 64)])
    await world.open("s1")
    world.now += MINUTE
    await maintain(world)
    states = {name: (await world.note(name)).state for name in ("record", "rule", "pin", "drifted")}  # type: ignore[union-attr]
    assert states == {"record": "expired", "rule": "active", "pin": "active", "drifted": "stale"}
    before = await world.dump()
    for _ in range(30):
        await maintain(world)
    assert await world.dump() == before
    rule = await world.note("rule")
    assert rule is not None
    assert rule.version == 1


async def test_similar_notes_are_never_merged(world: World) -> None:
    """C20: a chain of notes that hardly differ goes through every pass: ids and texts stay, and nothing is recorded."""
    chain = ids(40)
    await world.remember(*chain, kind="finding", ttl_ms=None)
    world.now += MINUTE
    await maintain(world)
    assert await world.counts() == {"created": 40}
    assert {getattr(await world.note(note_id), "state", None) for note_id in chain} == {"active"}
    found = [row.words for row in await find_many(world.redis, world.keys, chain)]
    assert [one and one.content for one in found] == [f"the words of {note_id}" for note_id in chain]


@pytest.mark.parametrize("place", ["heads", "vault"])
async def test_an_unreadable_note_holds_up_no_other(world: World, place: str) -> None:
    """V09: a head with an unknown kind is reported by its id, and the pass goes on for all the others, also next
    time."""
    await world.remember(*ids(60), "bad")
    key = getattr(world.keys, place)
    raw = await world.redis.hget(key, "bad")
    assert raw is not None
    broken = raw.replace(b'"kind":"fact"', b'"kind":"rumour"') if place == "heads" else b"{"
    await world.redis.hset(key, "bad", broken)
    world.now += MINUTE
    figures = await settle(world.context, world.ws)
    assert figures.expired == 60
    assert [line.split(":")[0] for line in figures.unreadable] == ["bad"]
    assert "words of" not in figures.unreadable[0]
    assert (await settle(world.context, world.ws)).due == 0
    world.now += ASIDE_MS
    assert len((await settle(world.context, world.ws)).unreadable) == 1


async def test_a_note_with_a_damaged_cell_is_set_aside(world: World) -> None:
    """V09: a note whose text cell names another note conflicts for ever; it is reported, and the others are settled."""
    await world.remember(*ids(60), "bad")
    cell = next(
        field for field, raw in (await world.redis.hgetall(world.keys.cells)).items() if raw.startswith(b"bad|")
    )
    await world.redis.hset(world.keys.cells, cell, "other|op||")
    world.now += MINUTE
    figures = await settle(world.context, world.ws)
    assert figures.expired == 60
    assert figures.unreadable == ["bad: conflicts again and again on its text"]


async def test_stale_entries_of_the_index_are_mended(world: World) -> None:
    """An id due by the index but not by the clocks is filed where it belongs, and one of nothing is taken out."""
    await world.remember("a")
    await world.redis.zadd(world.keys.due, {"a": START_MS - 1, "nothing": START_MS - 1})
    figures = await settle(world.context, world.ws)
    assert (figures.refiled, figures.expired) == (2, 0)
    assert await world.redis.zrange(world.keys.due, 0, -1, withscores=True) == [(b"a", float(START_MS + MINUTE))]


async def test_a_tomb_is_purged_when_its_time_has_come(world: World) -> None:
    """After audit_retention hash and kept copy go; the bare event stays, and nothing more is due."""
    world.policy = msgspec.structs.replace(POLICY, restorable=True)
    await world.remember("a")
    world.now += MINUTE
    await settle(world.context, world.ws)
    grave = (await tombs(world.redis, world.keys, ["a"]))[0]
    assert grave is not None
    assert grave.tomb.kept is not None
    world.now += POLICY.audit_retention
    figures = await settle(world.context, world.ws)
    assert (figures.purged, figures.forgotten) == (1, 0)
    grave = (await tombs(world.redis, world.keys, ["a"]))[0]
    assert grave is not None
    assert (grave.tomb.content_hash, grave.tomb.kept, grave.tomb.purge_at) == (None, None, None)
    assert await world.redis.zcard(world.keys.due) == 0


async def test_settling_a_dropped_workspace_leaves_no_keys(world: World) -> None:
    """A job for a workspace that was dropped meanwhile writes nothing."""
    await world.remember("a")
    world.now += MINUTE
    await workspaces.drop(world.redis, "w")
    assert (await settle(world.context, world.ws)).due == 0
    assert await world.dump() == {}


# -- killed and paused workers -----------------------------------------------------------------------------------------


def settle_in_process(url: str, ws: str, now: int, stop_after: int, pause: bool) -> None:
    """A worker that, after that many pages, is killed or stopped in the middle of a pass."""
    from amnesiad.store.connect import connect

    async def run() -> None:
        redis = await connect(url)
        world = World(redis, ws, now=now)
        pass_ = Settling(world.context, ws)
        write, pages = pass_._write, 0

        async def write_then_stop(page: settling_module.Page) -> None:
            nonlocal pages
            if pages == stop_after:
                os.kill(os.getpid(), signal.SIGSTOP if pause else signal.SIGKILL)
            pages += 1
            await write(page)

        pass_._write = write_then_stop  # type: ignore[method-assign]
        await pass_.run()
        await redis.aclose()

    asyncio.run(run())


async def test_a_killed_pass_is_finished_by_the_next(world: World, redis_url: str) -> None:
    """C36: a worker killed between two pages; after recovery each transition is there once and nothing due is left."""
    await world.remember(*ids(1700))
    world.now += MINUTE
    child = multiprocessing.get_context("spawn").Process(
        target=settle_in_process, args=(redis_url, world.ws, world.now, 2, False)
    )
    child.start()
    await asyncio.to_thread(child.join)
    assert child.exitcode == -signal.SIGKILL
    assert 0 < (await world.counts())["expired"] < 1700
    await settle(world.context, world.ws)
    assert (await world.counts())["expired"] == 1700
    assert await world.once_each("expired")
    assert (await earliest(world.redis, [world.ws]))[0].at == world.now - MINUTE + MINUTE + POLICY.audit_retention


async def test_a_pass_paused_past_any_lock_does_nothing_twice(world: World, redis_url: str) -> None:
    """C37: three workers, one paused in the middle of its pass until the others are done; no double effect."""
    await world.remember(*ids(1200))
    world.now += MINUTE
    child = multiprocessing.get_context("spawn").Process(
        target=settle_in_process, args=(redis_url, world.ws, world.now, 1, True)
    )
    child.start()
    pid = child.pid
    assert pid is not None
    try:
        if sys.platform == "linux":
            await wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T")
        else:
            await wait_until(lambda: not child.is_alive() or os.waitpid(pid, os.WNOHANG | os.WUNTRACED)[0] == pid)
        await asyncio.gather(settle(world.context, world.ws), settle(world.context, world.ws))
        assert (await world.counts())["expired"] == 1200
    finally:
        os.kill(pid, signal.SIGCONT)
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0
    assert (await world.counts())["expired"] == (await world.counts())["forgotten"] == 1200


# -- scrub -------------------------------------------------------------------------------------------------------------


async def test_erased_words_are_off_the_disk_after_a_scrub(redis: Redis, redis_server: EmbeddedServer) -> None:
    """After the scrub no data file holds the words, the log says so, and the count of what is left is zero."""
    marker = secrets.token_hex(16)
    world = await new_world(redis)
    await world.remember(marker)
    world.now += MINUTE
    await settle(world.context, world.ws)

    def on_disk() -> bool:
        files = [path for path in redis_server.data_dir.rglob("*") if path.is_file()]
        return any(f"the words of {marker}".encode() in path.read_bytes() for path in files)

    assert on_disk()
    assert await scrub(world.context) == {"workspaces": 1, "erased": 1, "result": "done"}
    assert not on_disk()
    assert [type(event) for event in await world.events()][-1] is Scrubbed
    assert await world.redis.hget(world.keys.totals, UNSCRUBBED) == b"0"
    assert (await scrub(world.context))["result"] == "none"


async def test_two_scrubs_at_once_count_an_erasure_once(world: World) -> None:
    """Two workers scrub at the same time: one record stands and the count never falls below zero."""
    await world.remember("a")
    world.now += MINUTE
    await settle(world.context, world.ws)
    await asyncio.gather(scrub(world.context), scrub(world.context))
    assert await world.redis.hget(world.keys.totals, UNSCRUBBED) == b"0"
    assert (await world.counts())["scrubbed"] == 1


async def test_a_server_that_does_not_confirm_is_told_of_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite that is only requested is asked for again, and stands in the log once for the same erasures."""

    async def only_request(*_: object) -> str:
        return "requested"

    monkeypatch.setattr("amnesiad_workers.passes.upkeep.rewrite", only_request)
    for erased, told in (("a", 1), ("b", 2)):
        await world.remember(erased)
        world.now += MINUTE
        await settle(world.context, world.ws)
        for _ in range(3):
            assert (await scrub(world.context))["result"] == "requested"
        assert (await world.counts())["scrubbed"] == told
    assert await world.redis.hget(world.keys.totals, UNSCRUBBED) == b"2"


async def test_a_dropped_workspace_is_scrubbed_too(world: World) -> None:
    """What a drop left on the disk is counted for the whole store and rewritten with the rest."""
    await world.redis.hset(META, UNSCRUBBED, 3)
    assert (await scrub(world.context))["result"] == "done"
    assert await world.redis.hget(META, UNSCRUBBED) == b"0"


# -- purge, trim, refile, anchors --------------------------------------------------------------------------------------


async def test_a_purge_that_the_index_lost_is_made_up_for(world: World) -> None:
    """The daily walk finds a tomb past its retention though nothing says that it is due, and trims the old ledger."""
    await world.remember("a")
    world.now += MINUTE
    await settle(world.context, world.ws)
    await world.redis.delete(world.keys.due)
    await world.redis.xadd(world.keys.access, {"e": "old"}, id=f"{START_MS}-0")
    await world.redis.xadd(world.keys.access, {"e": "new"}, id=f"{START_MS + POLICY.audit_retention + MINUTE}-0")
    world.now += POLICY.audit_retention
    assert (await purge_audit(world.context, world.ws)).purged == 1
    assert [fields[b"e"] for _, fields in await world.redis.xrange(world.keys.access)] == [b"new"]


async def test_trimming_never_passes_an_event_that_is_not_handled(world: World) -> None:
    """C39: old handled events go; what is pending or was never delivered stays, however old, and so does all after."""
    redis = world.redis
    for number in range(1, 7):
        await redis.xadd(LIFECYCLE, {"e": str(number)}, id=f"{number}-0")
    assert (await trim(world.context))["trimmed"] == 0
    await redis.xgroup_create(LIFECYCLE, BRIDGE_GROUP, id="0")
    await redis.xreadgroup(BRIDGE_GROUP, "c", {LIFECYCLE: ">"}, count=4)
    await redis.xack(LIFECYCLE, BRIDGE_GROUP, "1-0", "2-0", "4-0")
    assert (await trim(world.context))["trimmed"] == 2
    assert (await redis.xrange(LIFECYCLE))[0][0] == b"3-0"
    await redis.xack(LIFECYCLE, BRIDGE_GROUP, "3-0")
    await trim(world.context)
    assert [seq for seq, _ in await redis.xrange(LIFECYCLE)] == [b"4-0", b"5-0", b"6-0"]


async def test_dead_events_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer of poison cannot fill the store: only the newest dead events are kept."""
    monkeypatch.setattr("amnesiad_workers.passes.upkeep.MAX_DEAD", 2)
    for number in range(5):
        await world.redis.xadd(DEAD, {"e": str(number)})
    assert (await trim(world.context))["dead"] == 3
    assert [fields[b"e"] for _, fields in await world.redis.xrange(DEAD)] == [b"3", b"4"]


async def test_a_change_of_policy_refiles_what_it_concerns(world: World) -> None:
    """Records get a due time when record_ttl is switched on and lose it when it is off; directives never have one."""
    await world.remember(*ids(1200), kind="finding", ttl_ms=None)
    await world.remember("rule", kind="directive", ttl_ms=None)
    assert await world.redis.zcard(world.keys.due) == 0
    await set_policy(world, 0, record_ttl=MINUTE)
    await refile(world.context, world.ws)
    assert await world.redis.zcard(world.keys.due) == 1200
    assert await world.redis.zscore(world.keys.due, "rule") is None
    await set_policy(world, 1, record_ttl="off")
    await refile(world.context, world.ws)
    assert await world.redis.zcard(world.keys.due) == 0


async def test_switching_restorable_off_takes_the_copies(world: World) -> None:
    """Kept copies go when restorable is switched off, and count as words to be scrubbed; the hash stays."""
    await set_policy(world, 0, restorable=True)
    await world.remember("a")
    world.now += MINUTE
    await settle(world.context, world.ws)
    await scrub(world.context)
    await set_policy(world, 1, restorable=False)
    await refile(world.context, world.ws)
    grave = (await tombs(world.redis, world.keys, ["a"]))[0]
    assert grave is not None
    assert grave.tomb.kept is None
    assert grave.tomb.content_hash is not None
    assert await world.redis.hget(world.keys.totals, UNSCRUBBED) == b"1"


async def test_a_changed_or_deleted_file_flags_the_notes_anchored_to_it(redis: Redis, tmp_path: Path) -> None:
    """V12: drift is flagged, once; a note whose file is as it was, and one without a hash, are left alone."""
    world = await new_world(redis, str(tmp_path))
    for name in ("same", "changed", "deleted"):
        (tmp_path / name).write_text(name)
        sha = __import__("hashlib").sha256(name.encode()).hexdigest()
        await world.remember(name, kind="finding", ttl_ms=None, anchors=[Anchor(name, sha)])
    await world.remember("unknown", kind="finding", ttl_ms=None, anchors=[Anchor("nowhere", None)])
    (tmp_path / "changed").write_text("other")
    (tmp_path / "deleted").unlink()
    assert (await check_anchors(world.context, world.ws)).stale == 2
    states = [getattr(await world.note(name), "state", None) for name in ("same", "changed", "deleted", "unknown")]
    assert states == ["active", "stale", "stale", "active"]
    assert (await check_anchors(world.context, world.ws)).stale == 0


async def test_a_pass_over_a_store_that_is_away_says_so(tmp_path: Path) -> None:
    """A pass does not swallow an unreachable store: the job fails and is tried again."""
    redis = Redis.from_url(f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(AmnesiaError):
        await settle(World(redis, "0").context, "0")
    await redis.aclose()
