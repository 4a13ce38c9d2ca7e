"""``verify`` names every kind of damage, ``rebuild`` mends it, and neither loses what is written meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest
from redis.asyncio import Redis
from tests.contract.driver import HUMAN, KEYRING, NOW, POLICY, Driver, policy_unit
from tests.support import dump

from amnesiad.core import decisions
from amnesiad.core.notes import Anchor
from amnesiad.errors import Conflict, Refused
from amnesiad.store.checks import Checks
from amnesiad.store.log import Log
from amnesiad.store.owners import owner_field
from amnesiad.store.policies import FILED_CELL
from amnesiad.store.units import text_cell
from amnesiad.store.verify import Report, rebuild, verify

Damage = Callable[[Redis, Driver, dict[str, str]], Awaitable[Any]]


async def populate(store: Redis) -> tuple[Driver, dict[str, str]]:
    """A workspace with a note in every sort of state, an owner and a policy of its own."""
    driver = await Driver.open(store)
    ids = {name: await driver.remember(f"words of {name}") for name in ("live", "other", "pinned", "gone", "gone2")}
    ids["record"] = await driver.remember("words of record", kind="decision", key="slot")
    ids["ended"] = await driver.remember("words of ended", kind="decision")
    hashed, unread = (Anchor("a.py", "0" * 64),), (Anchor("b.py"),)
    ids["anchored"] = await driver.remember("words of anchored", kind="decision", anchors=hashed)
    await driver.remember("words of an unread file", kind="decision", anchors=unread)
    life = await driver.open_owner("s1")
    ids["owned"] = await driver.remember("words of owned", scope="session", owner="s1", incarnation=life)
    await driver.change(ids["pinned"], decisions.pin(driver.notes[ids["pinned"]], HUMAN, NOW))
    for name in ("gone", "gone2"):
        await driver.change(ids[name], decisions.forget(driver.notes[ids[name]], HUMAN, NOW))
    await driver.change(ids["ended"], decisions.revoke(driver.notes[ids["ended"]], HUMAN, NOW, reason="no"))
    assert (await driver.log.commit(policy_unit(driver, 0, {"max_deterrents": 1}))).status == "ok"
    driver.policy_version = 1
    return driver, ids


async def check(driver: Driver) -> Report:
    return await verify(driver.redis, driver.keys, KEYRING, POLICY)


def cell_of(driver: Driver, note_id: str) -> str:
    return text_cell(driver.notes[note_id], driver.words[note_id], KEYRING)


def rewritten(field: str, name: str, old: bytes, new: bytes) -> Damage:
    """Damage a stored value in one place."""

    async def damage(store: Redis, driver: Driver, ids: dict[str, str]) -> None:
        key = getattr(driver.keys, field)
        raw = cast(bytes, await store.hget(key, ids[name]))
        assert old in raw
        await store.hset(key, ids[name], raw.replace(old, new, 1))

    return damage


DAMAGES: dict[str, tuple[str, Damage]] = {
    "a head is lost": ("heads", lambda r, d, i: r.hdel(d.keys.heads, i["live"])),
    "all heads are lost": ("heads", lambda r, d, _: r.delete(d.keys.heads)),
    "a head of an unknown kind (V09)": ("heads", rewritten("heads", "live", b'"fact"', b'"hunch"')),
    "a head of another version": ("heads", rewritten("heads", "live", b"1|", b"7|")),
    "a head in another state": ("heads", rewritten("heads", "ended", b'"revoked"', b'"expired"')),
    "a malformed head": ("heads", lambda r, d, i: r.hset(d.keys.heads, i["live"], "x")),
    "a head nobody wrote": ("heads", lambda r, d, _: r.hset(d.keys.heads, "stranger00", "1|a|1-1|{}")),
    "a head of a forgotten note (C21)": ("heads", lambda r, d, i: r.hset(d.keys.heads, i["gone"], "1|a|1-1|{}")),
    "heads are no hash": ("heads", lambda r, d, _: replace_by_string(r, d.keys.heads)),
    "a tomb is lost": ("tomb", lambda r, d, i: r.hdel(d.keys.tomb, i["gone"])),
    "a tomb with another reason": ("tomb", rewritten("tomb", "gone", b'"manual"', b'"evicted"')),
    "a tomb by another hand": ("tomb", rewritten("tomb", "gone", b'"actor":"human"', b'"actor":"system"')),
    "a tomb of another version": ("tomb", rewritten("tomb", "gone", b"2|", b"7|")),
    "a hash kept for ever": ("tomb", rewritten("tomb", "gone", b'"purge_at":', b'"purged":')),
    "a malformed tomb": ("tomb", lambda r, d, i: r.hset(d.keys.tomb, i["gone"], "x")),
    "a tomb of a living note": ("tomb", lambda r, d, i: r.hset(d.keys.tomb, i["live"], "1|a|1-1|{}")),
    "a tomb nobody wrote": ("tomb", lambda r, d, _: r.hset(d.keys.tomb, "stranger00", "1|a|1-1|{}")),
    "words of a forgotten note (C30)": ("vault", lambda r, d, i: r.hset(d.keys.vault, i["gone"], '{"content":"zz"}')),
    "words of no note": ("vault", lambda r, d, _: r.hset(d.keys.vault, "stranger00", '{"content":"zz"}')),
    "a vector of a forgotten note": ("vectors", lambda r, d, i: r.hset(d.keys.vectors, i["gone"], "m|zz")),
    "a vector of no note": ("vectors", lambda r, d, _: r.hset(d.keys.vectors, "stranger00", "m|zz")),
    "vectors are no hash": ("vectors", lambda r, d, _: replace_by_string(r, d.keys.vectors)),
    "a text nobody holds": ("cells", lambda r, d, i: r.hdel(d.keys.cells, cell_of(d, i["live"]))),
    "a text of another": ("cells", lambda r, d, i: r.hset(d.keys.cells, cell_of(d, i["live"]), f"{i['other']}|a||")),
    "a slot of an ended note": ("cells", lambda r, d, i: r.hset(d.keys.cells, "slot:zz", f"{i['ended']}|a||")),
    "a malformed cell": ("cells", lambda r, d, _: r.hset(d.keys.cells, "text:zz", "x")),
    "by which policy all is filed is garbage": ("cells", lambda r, d, _: r.hset(d.keys.cells, FILED_CELL, "x")),
    "the owner's cell is lost": ("cells", lambda r, d, _: r.hdel(d.keys.cells, owner_field("s1"))),
    "the owner's cell is garbage": ("cells", lambda r, d, _: r.hset(d.keys.cells, owner_field("s1"), "zz")),
    "the cell of an owner without notes is garbage": (
        "cells",
        lambda r, d, _: r.hset(d.keys.cells, owner_field("s8"), "zz|a||{}"),
    ),
    "all cells are lost": ("cells", lambda r, d, _: r.delete(d.keys.cells)),
    "a member is lost": ("members", lambda r, d, i: r.srem(d.keys.members("s1"), i["owned"])),
    "a member too many": ("members", lambda r, d, i: r.sadd(d.keys.members("s1"), i["live"])),
    "members of nobody": ("members", lambda r, d, _: r.sadd(d.keys.members("s9"), "stranger00")),
    "a due time is lost": ("due", lambda r, d, i: r.zrem(d.keys.due, i["live"])),
    "another due time": ("due", lambda r, d, i: r.zadd(d.keys.due, {i["live"]: 5})),
    "a due time behind all times": ("due", lambda r, d, i: r.zadd(d.keys.due, {i["live"]: "inf"})),
    "a pinned note is due": ("due", lambda r, d, i: r.zadd(d.keys.due, {i["pinned"]: 5})),
    "a stranger is due": ("due", lambda r, d, _: r.zadd(d.keys.due, {"stranger00": 5})),
    "a purge is lost": ("due", lambda r, d, i: r.zrem(d.keys.due, i["gone"])),
    "the audit misses one": ("audit", lambda r, d, i: r.zrem(d.keys.audit, i["gone"])),
    "the audit has a living note": ("audit", lambda r, d, i: r.zadd(d.keys.audit, {i["live"]: 5})),
    "a file is not watched": ("anchored", lambda r, d, i: r.srem(d.keys.anchored, i["anchored"])),
    "no file is watched, as in a store from before": ("anchored", lambda r, d, _: r.delete(d.keys.anchored)),
    "a note without a file is watched": ("anchored", lambda r, d, i: r.sadd(d.keys.anchored, i["live"])),
    "an ended note is watched": ("anchored", lambda r, d, i: r.sadd(d.keys.anchored, i["ended"])),
    "a forgotten note is watched": ("anchored", lambda r, d, i: r.sadd(d.keys.anchored, i["gone"])),
    "a stranger is watched": ("anchored", lambda r, d, _: r.sadd(d.keys.anchored, "stranger00")),
    "the watched are no set": ("anchored", lambda r, d, _: replace_by_string(r, d.keys.anchored)),
    "bytes are off": ("totals", lambda r, d, _: r.hincrby(d.keys.totals, "perishable_bytes", 7)),
    "a total is no number": ("totals", lambda r, d, _: r.hset(d.keys.totals, "record_bytes", "many")),
    "unscrubbed is below nothing": ("totals", lambda r, d, _: r.hset(d.keys.totals, "unscrubbed", -3)),
    "all totals are lost": ("totals", lambda r, d, _: r.delete(d.keys.totals)),
    "a setting is lost": ("policy", lambda r, d, _: r.delete(d.keys.policy)),
    "a setting of no meaning": ("policy", lambda r, d, _: r.hset(d.keys.policy, "max_deterrents", "{")),
    "a setting nobody made": ("policy", lambda r, d, _: r.hset(d.keys.policy, "restorable", "true")),
}


async def replace_by_string(redis: Redis, key: str) -> None:
    await redis.delete(key)
    await redis.set(key, "x")


@pytest.mark.parametrize("what", DAMAGES)
async def test_damage_is_named_and_mended(store: Redis, what: str) -> None:
    """V09 among them: one structure is damaged; verify names it, rebuild mends it, and then all is clean."""
    field, damage = DAMAGES[what]
    driver, ids = await populate(store)
    assert (await check(driver)).differences == ()
    before = await dump(store)
    await damage(store, driver, ids)
    report = await check(driver)
    assert field in report.counts
    assert field in {difference.field for difference in report.differences}
    assert "words of" not in repr(report)
    rebuilt = await rebuild(store, driver.keys, KEYRING, POLICY)
    assert rebuilt.found.counts == report.counts
    assert rebuilt.mended > 0
    assert (await check(driver)).differences == ()
    assert (await rebuild(store, driver.keys, KEYRING, POLICY)).mended == 0
    after = await dump(store)
    assert after.keys() == before.keys()
    assert after[driver.keys.vault] == before[driver.keys.vault]
    assert (await driver.log.commit(driver.birth("written afterwards")[0])).status == "ok"


async def test_lost_words_are_reported_and_stay_lost(store: Redis) -> None:
    """Words that are gone, unreadable or of another size cannot be mended; nothing else is disturbed for them."""
    driver, ids = await populate(store)
    await store.hdel(driver.keys.vault, ids["live"])
    await store.hset(driver.keys.vault, ids["other"], "x")
    await store.hset(driver.keys.vault, ids["record"], '{"content":"longer than it was, by far","key":"slot"}')
    report = await check(driver)
    assert {difference.id for difference in report.differences if difference.field == "vault"} == {
        ids["live"],
        ids["other"],
        ids["record"],
    }
    assert "longer than" not in repr(report)
    await rebuild(store, driver.keys, KEYRING, POLICY)
    assert set((await check(driver)).counts) == {"vault"}


async def test_entries_that_cannot_be_read_hold_up_nobody(store: Redis) -> None:
    """V09: an event of a kind, or of a sort, that this version does not know leaves that note alone and no other."""
    driver, ids = await populate(store)
    await store.xadd(driver.keys.log, {"e": '{"type":"dreamt","note":"' + ids["live"] + '","version":2}', "p": ""})
    await store.xadd(driver.keys.log, {"e": "no event", "p": ""})
    await store.xadd(
        driver.keys.log, {"e": '{"type":"pinned","note":"stranger00","version":9,"at":1,"actor":"x"}', "p": ""}
    )
    head = await store.hget(driver.keys.heads, ids["live"])
    await store.zrem(driver.keys.due, ids["other"])
    report = await check(driver)
    assert report.counts == {"log": 3, "due": 1}
    await rebuild(store, driver.keys, KEYRING, POLICY)
    assert (await check(driver)).counts == {"log": 3}
    assert await store.hget(driver.keys.heads, ids["live"]) == head
    assert await store.hexists(driver.keys.cells, cell_of(driver, ids["live"]))


@pytest.mark.parametrize("junk", ["junk", "", "1.5", "9" * 30])
async def test_a_total_that_is_no_number_leaves_no_write_half_done(store: Redis, junk: str) -> None:
    """A note is written, and another forgotten with its words, as if nothing was wrong; verify tells, and rebuild
    mends."""
    driver, ids = await populate(store)
    for name in await store.hkeys(driver.keys.totals):
        await store.hset(driver.keys.totals, name, junk)
    new = await driver.remember("written all the same")
    outcome = await driver.change(ids["live"], decisions.forget(driver.notes[ids["live"]], HUMAN, NOW))
    assert outcome.status == "ok"
    assert await store.hmget(driver.keys.vault, [ids["live"]]) == [None]
    assert await store.hexists(driver.keys.vault, new)
    assert "totals" in (await check(driver)).counts
    await rebuild(store, driver.keys, KEYRING, POLICY)
    assert (await check(driver)).counts == {}


async def test_an_answer_kept_in_pieces_is_given_to_nobody(store: Redis) -> None:
    """The record of a request that was damaged is taken for another body's, and nothing is written."""
    driver = await Driver.open(store)
    key = driver.keys.request("r1")
    await store.set(key, "damaged")
    unit, _, _ = driver.birth("said twice")
    unit.request = (key, "hash", b"{}")
    assert (await driver.log.commit(unit)).status == "reused"
    assert await driver.log.last_id() == "0-0"


async def test_a_broken_chain_is_reported(store: Redis) -> None:
    """An entry that does not name the one before it cuts a history short, and is named."""
    driver, ids = await populate(store)
    event = decisions.pin(driver.notes[ids["live"]], HUMAN, NOW)[0]
    await store.xadd(driver.keys.log, {"e": msgspec.json.encode(event), "p": "5-5"})
    report = await check(driver)
    assert (ids["live"], "log") in {(difference.id, difference.field) for difference in report.differences}


async def test_many_differences_are_counted_and_some_are_listed(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is bounded, the counts are exact."""
    monkeypatch.setattr("amnesiad.store.findings.MAX_DIFFERENCES", 3)
    monkeypatch.setattr("amnesiad.store.checks.CHUNK", 2)
    driver, _ = await populate(store)
    await store.delete(driver.keys.heads)
    report = await check(driver)
    assert len(report.differences) == 3
    assert report.counts == {"heads": 8}
    assert report.figures["differences_heads"] == report.figures["differences"] == 8
    assert str(report.differences[0]).startswith("heads of n")


async def test_a_lost_log_is_not_taken_for_the_truth(store: Redis) -> None:
    """Where the log is empty beside notes, a rebuild would erase them all: it refuses."""
    driver, _ = await populate(store)
    await store.delete(driver.keys.log)
    before = await dump(store)
    with pytest.raises(Refused, match="log is empty"):
        await rebuild(store, driver.keys, KEYRING, POLICY)
    assert await dump(store) == before


async def test_verify_amid_writers_finds_nothing(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers create, change and forget all the time; a sound store never looks damaged."""
    monkeypatch.setattr("amnesiad.store.checks.CHUNK", 3)
    driver, _ = await populate(store)
    done = asyncio.Event()

    async def write() -> None:
        while not done.is_set():
            note_id = await driver.remember(f"{driver.new_id()} text", key=f"k{len(driver.notes)}")
            await driver.change(note_id, decisions.pin(driver.notes[note_id], HUMAN, NOW))
            await driver.change(note_id, decisions.forget(driver.notes[note_id], HUMAN, NOW))

    writer = asyncio.ensure_future(write())
    try:
        for _ in range(5):
            assert (await check(driver)).differences == ()
    finally:
        done.set()
        await writer
    assert (await check(driver)).clean


async def test_a_commit_during_a_rebuild_is_not_lost(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that lands between the look and the mend makes the mend fail and start over."""
    driver, ids = await populate(store)
    await store.delete(driver.keys.heads)
    await store.zrem(driver.keys.due, ids["live"])
    other = Driver(store, driver.keys.ws)
    other.log = Log(store, driver.keys)
    other.policy_version = 1
    real = Checks.run
    written: list[str] = []

    async def run(self: Any) -> None:
        await real(self)
        if len(written) < limit:
            written.append(await other.remember(f"meanwhile {len(written)}", id=f"mean{len(written):06d}"))

    monkeypatch.setattr(Checks, "run", run)
    limit = 2
    await rebuild(store, driver.keys, KEYRING, POLICY)
    assert len(written) == 2
    limit = 100
    await store.zrem(driver.keys.due, ids["live"])
    with pytest.raises(Conflict, match="written to"):
        await rebuild(store, driver.keys, KEYRING, POLICY)
    monkeypatch.undo()
    await rebuild(store, driver.keys, KEYRING, POLICY)
    assert (await check(driver)).differences == ()
    assert {id_.encode() for id_ in written} <= set(await store.hkeys(driver.keys.heads))
