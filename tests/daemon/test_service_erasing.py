"""The service erases: by every address, by capacity, by time; and what is gone is nowhere in the store."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.daemon.desk import (
    DAY,
    HUMAN,
    ManualClock,
    Recorder,
    call,
    kept,
    listed,
    log_types,
    problems,
    projection,
    recalled,
    refused,
    refused_unchanged,
    remember,
    state_of,
    sweep,
)
from tests.support import dump

from amnesiad.core import decisions
from amnesiad.core.callers import Caller
from amnesiad.service import Service, base
from amnesiad.service.writing import forgetting
from amnesiad.service.writing.change import MAX_REASONS, Change
from amnesiad.store.vault import GRAVES_PER_READ


class Marks:
    """Words that stand nowhere else, one in each place a note has for words."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def new(self) -> str:
        self.all.append(secrets.token_hex(8))
        return self.all[-1]

    def note(self) -> dict[str, Any]:
        """A note full of marks."""
        return {
            "content": f"{self.new()} about {self.new()}",
            "key": self.new(),
            "tags": [self.new(), self.new()],
            "anchors": [f"src/{self.new()}.py"],
            "triggers": [{"path": f"{self.new()}/*", "words": [self.new()]}, {"command": f"{self.new()}*"}],
        }

    def found_in(self, stored: dict[str, Any]) -> list[str]:
        """Which marks stand anywhere in a dump of the store, key names included."""
        text = repr(stored)
        return [mark for mark in self.all if mark in text]


@pytest.mark.timeout(240)
async def test_forgetting_one_workspace_leaves_the_other(service: Service) -> None:
    """C16: A and B with 2500 notes each; forgetting all of A leaves A none and B all of its 2500."""
    for name in ("A", "B"):
        for start in range(0, 2500, 500):
            items = [
                {"verb": "remember", "body": {"content": f"{name} {n}", "kind": "finding"}}
                for n in range(start, start + 500)
            ]
            await call(service, "batch", workspace=name, requests=items)
    answer = await call(service, "forget", workspace="A", all=True, confirm=True)
    assert answer.forgotten == len(set(answer.ids)) == 2500
    assert answer.summary == "2500 notes forgotten: 2500 finding"
    counts = {name: (await call(service, "status", workspace=name)).counts for name in ("A", "B")}
    assert (counts["A"].active, counts["A"].forgotten) == (0, 2500)
    assert (counts["B"].active, counts["B"].forgotten) == (2500, 0)
    assert await problems(service, "A") == ()


async def test_a_forgotten_note_is_nowhere_in_the_store(service: Service, second: Service, clock: ManualClock) -> None:
    """C30: after forget, expiry, eviction and supersession's end no word of a note is in any key: content, key, tags,
    paths, reasons, triggers, queries, recorded answers."""
    marks = Marks()
    by_hand = (await call(service, "remember", **marks.note(), request_id="r-1")).id
    await call(second, "flag", id=by_hand, reason=marks.new(), request_id="r-2")
    await call(service, "revoke", id=by_hand, reason=marks.new(), request_id="r-3")
    twin = marks.all[0]
    await call(service, "remember", content=f"{twin} about {marks.all[1]}", request_id="r-4", tags=[marks.new()])
    by_time = (await call(service, "remember", **marks.note(), ttl_ms="1d")).id
    for query in (twin, marks.new()):
        await call(second, "recall", query=query, paths=[f"src/{marks.new()}.py"], tags=[marks.new()])
        await call(second, "inject", query=query)
        await call(service, "fire", event="pre-run", prompt=query, command=marks.new(), caller={"session": "s1"})
    await call(service, "supersede", id=by_time, content=marks.new(), reason=marks.new())
    await service.quiesce()
    assert len(marks.found_in(await dump(service.redis))) > 10, "the marks are looked for where they stand"
    clock.advance(121 * DAY)
    await sweep(service)
    await call(service, "forget", all=True, confirm=True, reason=marks.new(), request_id="r-5")
    await service.quiesce()
    assert marks.found_in(await dump(service.redis)) == []
    for asked in (service, second):
        answers = [await call(asked, "audit"), await call(asked, "status"), await call(asked, "inspect", id=by_hand)]
        answers += [await call(asked, "history", id=by_hand), await call(asked, "recall", query=twin)]
        assert marks.found_in({"answers": [msgspec.json.encode(answer).decode() for answer in answers]}) == []
        text = (await call(asked, "inspect", id=by_hand)).text
        assert text.startswith(f"[{by_hand}] [FORGOTTEN] fact, ")


async def test_an_erasure_keeps_what_the_audit_may_keep(service: Service) -> None:
    """C30: the audit holds id, kind, code, actor, time and a keyed hash that is not the plain one; newest first."""
    first = await remember(service, "a short secret", kind="preference")
    again = await remember(service, "another thing")
    await call(service, "forget", id=first, caller={"session": "s1"})
    await call(service, "forget", id=again, caller=HUMAN)
    entries = (await call(service, "audit")).entries
    assert {(entry.id, entry.kind, entry.reason, entry.actor) for entry in entries} == {
        (first, "preference", "manual", "agent:s1"),
        (again, "fact", "manual", "human"),
    }
    hashes = {entry.id: entry.content_hash for entry in entries}
    assert hashes[first] == service.keyring.content_hash("a short secret")
    assert len(set(hashes.values())) == 2


async def test_a_unit_made_before_a_forget_conflicts(service: Service, second: Service, clock: ManualClock) -> None:
    """C21: what was decided about a note before it was forgotten is not written: it stays forgotten, with no head."""
    note_id = await remember(service, "soon gone", ttl_ms="10d")
    clock.advance(5 * DAY)
    await listed(second)
    workspace = await projection(second)
    settling = Change(workspace, clock.now_ms())
    settling.owe(note_id)
    renewing = Change(workspace, clock.now_ms())
    note = renewing.settled(note_id)
    renewing.add(note_id, decisions.renew(note, Caller(), workspace.policy, clock.now_ms()))
    units = [unit for unit in (settling.finish(), renewing.finish()) if unit is not None]
    assert len(units) == 2
    await call(service, "forget", id=note_id)
    before = await kept(service)
    for unit in units:
        assert (await workspace.log.commit(unit)).status == "conflict"
    assert await kept(service) == before
    assert await state_of(second, note_id) == "forgotten"
    assert await problems(service) == ()


async def test_what_was_forgotten_does_not_come_back(service: Service, second: Service) -> None:
    """C30: restore is refused where no copy was kept; rebuilding from the log brings no words back."""
    note_id = await remember(service, "gone for good")
    await remember(service, "stays")
    await listed(second)
    await call(service, "forget", id=note_id)
    for verb, fields in (("restore", {}), ("renew", {}), ("revoke", {"reason": "x"}), ("pin", {}), ("edit", {"tags": []}),
                         ("undo", {}), ("reinstate", {}), ("supersede", {"content": "y"})):  # fmt: skip
        error = await refused_unchanged(service, verb, id=note_id, **fields)
        assert error.code == "refused", verb
        assert "restor" in f"{error.hint} {error.message}" or "kept" in error.message
    await call(service, "rebuild")
    for asked in (service, second):
        assert await recalled(asked, "gone for good") == []
        assert await state_of(asked, note_id) == "forgotten"
    assert (await call(service, "forget", id=note_id)).forgotten == 0
    assert (await call(service, "remember", content="gone for good")).created


async def test_forget_reaches_notes_by_every_address(service: Service) -> None:
    """C16: id, ids, query, tags, kinds, scope, owner and all each erase what they mean, live or ended, and no more."""
    s1 = {"session": "s1"}
    ids = {
        "id": await remember(service, "by its id"),
        "ids": await remember(service, "in a list"),
        "query": await remember(service, "zebra crossing ahead", kind="finding"),
        "half": await remember(service, "zebra without the other word", kind="finding"),
        "tags": await remember(service, "tagged twice", tags=["a", "b"]),
        "tag": await remember(service, "tagged once", tags=["a"]),
        "kinds": await remember(service, "an episode", kind="episode"),
        "owner": await remember(service, "of s1", scope="session", caller=s1),
        "tagged": await remember(service, "tagged twice and ended", tags=["b", "a"], kind="finding"),
        "last": await remember(service, "ended already", kind="gotcha"),
    }
    await call(service, "revoke", id=ids["tagged"], reason="wrong")
    await call(service, "revoke", id=ids["query"], reason="wrong")
    await call(service, "revoke", id=ids["last"], reason="wrong")
    addresses: list[tuple[dict[str, Any], list[str]]] = [
        ({"id": ids["id"][:6]}, ["id"]),
        ({"ids": [ids["ids"], ids["id"]]}, ["ids"]),
        ({"query": "crossing ZEBRA"}, ["query"]),
        ({"query": "no such words"}, []),
        ({"tags": ["a", "b"]}, ["tags", "tagged"]),
        ({"kinds": ["episode"]}, ["kinds"]),
        ({"owner": "s1", "caller": s1}, ["owner"]),
        ({"scope": "team"}, []),
        ({"all": True, "confirm": True}, ["half", "tag", "last"]),
    ]
    for address, expected in addresses:
        shown = await call(service, "forget", dry_run=True, **address)
        assert shown.forgotten == 0
        assert sorted(shown.ids) == sorted(ids[name] for name in expected)
        answer = await call(service, "forget", **address)
        assert sorted(answer.ids) == sorted(ids[name] for name in expected), address
    assert await listed(service, states=["active", "stale", "revoked"], caller=HUMAN) == []


async def test_forgetting_much_asks_first_and_changes_nothing(service: Service) -> None:
    """C16: ``all``, and a query that matches several, need ``confirm``; one address only; none at all is refused."""
    for n in range(3):
        await remember(service, f"scratch {n}", tags=["t"])
    broad: list[dict[str, Any]] = [{"all": True}, {"query": "scratch"}]
    for fields in broad:
        error = await refused_unchanged(service, "forget", **fields)
        assert (error.code, error.field) == ("refused", "confirm")
        assert len(error.choices) == 3
    wrongs: list[dict[str, Any]] = [{}, {"ids": []}, {"query": "scratch", "tags": ["t"]}]
    for wrong in wrongs:
        assert (await refused_unchanged(service, "forget", **wrong)).code == "invalid"
    assert (await call(service, "forget", query="scratch", confirm=True)).forgotten == 3


async def test_one_note_that_cannot_go_holds_up_no_other(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """C16: of many, in however many pages, all go but that one, which the answer names; alone, it is refused."""
    monkeypatch.setattr(forgetting, "AT_ONCE", 2)
    ids = [await remember(service, f"scratch {number}") for number in range(5)]
    keys = (await projection(service)).keys
    bad = ids[0]
    head = await service.redis.hget(keys.heads, bad)
    assert head is not None
    await service.redis.hset(keys.heads, bad, b"9" + cast(bytes, head))
    answer = await call(service, "forget", ids=ids)
    assert (answer.forgotten, set(answer.ids)) == (4, set(ids[1:]))
    (notice,) = answer.notices
    assert bad in notice
    assert "scratch" not in notice
    assert (await refused(call(service, "forget", id=bad))).code in ("conflict", "not_found")


async def test_a_large_forget_lets_others_be_answered(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks over a whole workspace for what is to go pauses on the way, every so many notes."""
    for number in range(60):
        await remember(service, f"scratch {number}")

    async def turns_of_others() -> int:
        turns = 0
        looking = asyncio.ensure_future(call(service, "forget", all=True, dry_run=True))
        while not looking.done():
            turns += 1
            await asyncio.sleep(0)
        assert len((await looking).ids) == 60
        return turns

    monkeypatch.setattr(forgetting, "SLICE", 1)
    pausing = await turns_of_others()
    assert pausing >= 100


async def test_forget_erases_at_once_what_time_has_ended(service: Service, clock: ManualClock) -> None:
    """C10: a note that expired but was not swept yet is erased by a forget, and not left to the next pass."""
    marks = Marks()
    note_id = await remember(service, marks.new(), ttl_ms="1h")
    clock.advance(DAY)
    assert (await call(service, "forget", id=note_id)).forgotten == 1
    assert marks.found_in(await kept(service)) == []
    assert (await call(service, "audit")).entries[0].reason == "expired"
    assert await problems(service) == ()


async def test_two_forgets_of_one_note_erase_it_once(service: Service, second: Service) -> None:
    """C21: the same note forgotten by two daemons at once is forgotten once; nobody is told a lie."""
    for n in range(50):
        note_id = await remember(service, f"contested {n}")
        await listed(second)
        answers = await asyncio.gather(call(service, "forget", id=note_id), call(second, "forget", id=note_id))
        assert sorted(answer.forgotten for answer in answers) == [0, 1]
    assert (await log_types(service)).count("forgotten") == 50
    assert await problems(service) == ()


# -- capacity ------------------------------------------------------------------------------------------------------


async def test_the_weakest_go_first_and_the_ended_before_them(service: Service, clock: ManualClock) -> None:
    """C31: past ``max_store_bytes`` ended perishables go first, then the weakest unpinned; records and pins stay."""
    await call(service, "policy", set={"max_store_bytes": 300})
    text = "x" * 97
    record = await remember(service, "a record is never evicted " * 20, kind="finding")
    pinned = await remember(service, f"{text}p", pinned=True)
    clock.advance(DAY)
    old = await remember(service, f"{text}o")
    clock.advance(DAY)
    ended = await remember(service, f"{text}e")
    await call(service, "revoke", id=ended, reason="no")
    clock.advance(DAY)
    for expected, suffix in ((ended, "1"), (old, "2")):
        clock.advance(1000)
        await remember(service, f"{text}{suffix}")
        newest = (await call(service, "audit", limit=1)).entries[0]
        assert (newest.id, newest.reason, newest.actor) == (expected, "evicted", "system")
    assert {record, pinned} <= set(await listed(service))
    assert (await projection(service)).bytes["perishable"] <= 300
    assert await problems(service) == ()


async def test_a_store_that_is_full_refuses_and_says_how_to_go_on(service: Service) -> None:
    """C31: when pins fill the store, or records pass their bound, the write is refused and nothing is evicted."""
    await call(service, "policy", set={"max_store_bytes": 100, "max_record_bytes": 100})
    await remember(service, "p" * 90, pinned=True)
    await remember(service, "r" * 90, kind="decision")
    for kind, rule in (("fact", "max_store_bytes"), ("decision", "max_record_bytes")):
        error = await refused_unchanged(service, "remember", content="n" * 50, kind=kind)
        assert (error.code, error.rule) == ("store_full", rule)
        assert error.hint
    assert len(await listed(service)) == 2
    assert (await call(service, "status")).refusals["max_store_bytes"] == 1


async def test_reasons_are_words_too_and_count(service: Service, second: Service) -> None:
    """C31: endless doubt cannot grow a workspace past ``max_store_bytes``: reasons count, whichever verb keeps one."""
    await call(service, "policy", set={"max_store_bytes": 6000})
    note_id = await remember(service, "small", pinned=True)
    asked: dict[str, Any] = {"id": note_id, "caller": {"role": "human"}, "reason": "é" * 450}
    more: dict[str, dict[str, Any]] = {"promote": {"to": "human"}, "edit": {"tags": ["t"]}}
    for number, verb in enumerate(("flag", "reinstate", "unpin", "pin", "promote", "edit"), 1):
        await call(service, verb, **asked, **more.get(verb, {}))
        await listed(second)
        workspace = await projection(second)
        assert workspace.notes[note_id].size == workspace.words[note_id].size() == workspace.bytes["perishable"]
        assert workspace.bytes["perishable"] >= number * 900
    error = await refused_unchanged(service, "flag", **asked)
    assert (error.code, error.rule) == ("store_full", "max_store_bytes")
    assert await problems(service) == ()
    await call(service, "forget", id=note_id, caller={"role": "human"})
    assert (await projection(service)).bytes["perishable"] == 0


async def test_two_daemons_at_the_bound_evict_instead_of_refusing(service: Service, second: Service) -> None:
    """C31: writers of two daemons at the brink neither pass the bound nor are refused while something can go."""
    await call(service, "policy", set={"max_store_bytes": 2000})
    for n in range(40):
        await asyncio.gather(
            *(remember((service, second)[m % 2], f"round {n} writer {m} " + "x" * 80) for m in range(6))
        )
    for asked in (service, second):
        await listed(asked)
        assert (await projection(asked)).bytes["perishable"] <= 2000
    assert await problems(service) == ()


async def test_what_time_has_ended_gives_way_before_the_weak(service: Service, clock: ManualClock) -> None:
    """C31: a note that is over goes first, whether or not a pass has said so, and under the code of its own end."""
    await call(service, "policy", set={"max_store_bytes": 300})
    over = await remember(service, "o" * 97, ttl_ms="1d", curve="flat")
    weak = await remember(service, "w" * 97)
    clock.advance(2 * DAY)
    new = await remember(service, "n" * 110)
    assert sorted(await listed(service)) == sorted([weak, new])
    assert [(entry.id, entry.reason) for entry in (await call(service, "audit")).entries] == [(over, "expired")]


async def _gives_way_to(service: Service, letter: str) -> str:
    """The one note that is evicted for another of the same length."""
    await remember(service, letter * 97, ttl_ms="100d", curve="flat")
    newest = (await call(service, "audit", limit=1)).entries[0]
    assert newest.reason == "evicted"
    return str(newest.id)


async def test_what_was_used_a_moment_ago_does_not_give_way(service: Service, clock: ManualClock) -> None:
    """C31: the next weakest does, though an order of the weak was made just before."""
    await call(service, "policy", set={"max_store_bytes": 300})
    first = await remember(service, "a" * 97, ttl_ms="3d")
    used = await remember(service, "b" * 97, ttl_ms="5d")
    other = await remember(service, "c" * 97, ttl_ms="10d")
    clock.advance(DAY)
    assert await _gives_way_to(service, "1") == first
    clock.advance(1)
    assert (await call(service, "renew", id=used)).changed
    assert await _gives_way_to(service, "2") == other


async def test_who_is_weakest_changes_with_time(service: Service, clock: ManualClock) -> None:
    """C31: a straight curve is above a bent one for most of their lives, and below it in the end."""
    await call(service, "policy", set={"max_store_bytes": 300})
    await remember(service, "b" * 97, ttl_ms="10d", curve="ebbinghaus")
    straight = await remember(service, "s" * 97, ttl_ms="10d", curve="linear")
    first = await remember(service, "f" * 97, ttl_ms="3d", curve="ebbinghaus")
    clock.advance(DAY)
    assert await _gives_way_to(service, "1") == first
    clock.advance(DAY * 845 // 100)
    assert await _gives_way_to(service, "2") == straight


async def test_a_note_that_grows_is_not_evicted_for_itself(service: Service, clock: ManualClock) -> None:
    """C31: an edit that passes the bound makes another give way, though the edited note is the weakest there is."""
    await call(service, "policy", set={"max_store_bytes": 300})
    weakest = await remember(service, "o" * 97)
    clock.advance(DAY)
    other = await remember(service, "y" * 97)
    assert (await call(service, "edit", id=weakest, tags=["t" * 120])).changed
    assert await listed(service) == [weakest]
    assert [(entry.id, entry.reason) for entry in (await call(service, "audit")).entries] == [(other, "evicted")]
    assert await problems(service) == ()


async def test_of_endless_reasons_the_latest_are_kept(service: Service) -> None:
    """C31: a note is doubted again and again: its words hold a bounded number of reasons, and history shows these."""
    note_id = await remember(service, "the port is 8080", kind="finding")
    verbs = ["pin", "unpin"] * (MAX_REASONS // 2 + 2)
    for number, verb in enumerate(verbs):
        await call(service, verb, id=note_id, reason=f"reason {number}")
    assert len((await projection(service)).words[note_id].reasons) == MAX_REASONS
    told = [event.reason_text for event in (await call(service, "history", id=note_id, limit=1000)).events[1:]]
    lost = len(verbs) - MAX_REASONS
    assert told == [None] * lost + [f"reason {number}" for number in range(lost, len(verbs))]
    assert await problems(service) == ()


async def test_a_bound_holds_for_a_growing_note_too(service: Service) -> None:
    """C31: an edit or a reason counts against the bound like a new note."""
    await call(service, "policy", set={"max_record_bytes": 150})
    note_id = await remember(service, "r" * 90, kind="decision")
    error = await refused_unchanged(service, "edit", id=note_id, tags=["t" * 100])
    assert error.code == "store_full"


# -- listing the forgotten -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("states", [["forgotten"], ["active", "forgotten"]])
async def test_the_forgotten_can_be_listed_in_pages(service: Service, states: list[str]) -> None:
    """C27: a list that asks for forgotten notes shows every one once, after the others, without their words."""
    live = [await remember(service, f"lives {n}") for n in range(5)]
    gone = [await remember(service, f"goes {n}") for n in range(12)]
    await call(service, "forget", ids=gone)
    expected = {*gone, *(live if "active" in states else ())}
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(20):
        page = await call(service, "list", states=states, limit=3, with_content=True, cursor=cursor)
        assert all(note.content is None for note in page.notes if note.state == "forgotten")
        seen += [note.id for note in page.notes]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(seen) == len(expected)
    assert set(seen) == expected


async def test_others_forgotten_notes_take_no_place(service: Service) -> None:
    """C27, C23: audit, status and list show the caller's forgotten notes, however many others were forgotten since."""
    mine, other = {"session": "mine"}, {"session": "other"}
    note_id = await remember(service, "mine", scope="session", caller=mine)
    await call(service, "forget", id=note_id, caller=mine)
    theirs = [await remember(service, f"other {n}", scope="session", caller=other) for n in range(GRAVES_PER_READ + 30)]
    await call(service, "forget", ids=theirs, caller=other)
    assert [entry.id for entry in (await call(service, "audit", caller=mine)).entries] == [note_id]
    assert [entry.id for entry in (await call(service, "status", caller=mine)).recent] == [note_id]
    assert await listed(service, states=["forgotten"], caller=mine) == [note_id]


async def test_what_needs_no_room_evicts_nothing(service: Service) -> None:
    """V31: in a workspace above a limit that was lowered, a pin, a doubt and a record are written, and nothing goes for
    it."""
    notes = [await remember(service, f"fact number {number} of some length") for number in range(4)]
    await call(service, "policy", set={"max_store_bytes": 40}, caller=HUMAN)
    await call(service, "pin", id=notes[0])
    await call(service, "edit", id=notes[1], ttl_ms="3d")
    await remember(service, "a record", kind="finding")
    assert (await call(service, "status")).counts.forgotten == 0
    assert set(await listed(service)) > set(notes)


class TestWithoutWords:
    """A note whose words are lost or cannot be read, which no rebuild mends."""

    @pytest.mark.parametrize("damage", ["lost", "garbage"])
    @pytest.mark.parametrize("address", ["id", "ids", "all"])
    async def test_it_is_forgotten_like_any_other(
        self, service: Service, second: Service, tmp_path: Path, damage: str, address: str
    ) -> None:
        """V09: whatever stands in the place of its words goes, with all that it held: its text, its slot, its files."""
        place = {"workspace": str(tmp_path)}
        (tmp_path / "a.py").write_text("one")
        said = {"content": "the staging port", "kind": "finding", "key": "port", "anchors": ["a.py"], **place}
        bad = (await call(service, "remember", **said)).id
        await remember(service, "another", **place)
        keys = (await projection(service, str(tmp_path))).keys
        if damage == "lost":
            await service.redis.hdel(keys.vault, bad)
        else:
            await service.redis.hset(keys.vault, bad, b"{the staging port")
        asked = (
            {"id": bad} if address == "id" else {"ids": [bad]} if address == "ids" else {"all": True, "confirm": True}
        )
        would = await call(second, "forget", dry_run=True, **asked, **place)
        assert bad in would.ids
        answer = await call(second, "forget", request_id="r1", **asked, **place)
        assert answer.forgotten == (2 if address == "all" else 1)
        assert await call(second, "forget", request_id="r1", **asked, **place) == answer
        assert "staging" not in repr(await kept(service, str(tmp_path)))
        assert await problems(service, str(tmp_path)) == ()
        again = await call(second, "remember", **said)
        assert (again.created, again.superseded) == (True, ())

    async def test_a_humans_stays_a_humans(self, service: Service, second: Service) -> None:
        """V07: what nobody can read any more is still not an agent's to erase; nor is it there for a child."""
        bad = await remember(service, "the human's word", kind="finding", caller=HUMAN)
        keys = (await projection(service)).keys
        await service.redis.hset(keys.vault, bad, b"{damaged")
        assert (await refused(call(second, "forget", id=bad))).code == "forbidden"
        child = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}
        assert (await refused(call(second, "forget", id=bad, caller=child))).code == "not_found"
        assert await service.redis.hexists(keys.vault, bad)
        assert (await call(second, "forget", id=bad, caller=HUMAN)).forgotten == 1


async def test_an_erasure_is_rewritten_however_much_else_waits(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After-work beyond the bound is dropped, and the log says how much, once; the hint to scrub never is."""
    monkeypatch.setattr(base, "MAX_BACKGROUND", 1)
    note_id = await remember(service, "scratch")
    await service.quiesce()
    going_on = asyncio.Event()
    with capture_logs() as logs:
        service.background(cast(Any, going_on.wait()))
        await call(service, "forget", id=note_id)
        for _ in range(3):
            service.background(asyncio.sleep(0))
        going_on.set()
        await service.quiesce()
    assert cast(Recorder, service.jobs).scrubs == 1
    assert [(line["event"], line["count"]) for line in logs if "dropped" in line["event"]] == [
        ("background work dropped", 3)
    ]
