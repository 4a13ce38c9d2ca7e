"""The write primitive and the log: one contract, held by fakeredis and by the real server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from tests.contract.driver import HUMAN, KEYRING, NOW, POLICY, Driver, policy_unit, replace_policy
from tests.support import dump

from amnesiad.core import decisions
from amnesiad.core.events import AnyNoteEvent, Edited, Expired, Forgotten, Scrubbed, encode
from amnesiad.core.notes import Words, apply
from amnesiad.errors import Bug, StoreUnavailable
from amnesiad.store.log import START, Cell, Log, Outcome, Unit, at_or_past, parse_stored, seq_key
from amnesiad.store.policies import read_policy, write_policy
from amnesiad.store.units import UNSCRUBBED, text_cell
from amnesiad.store.vault import Head, find_many, heads


class LostReplies:
    """Stands where the script stands: runs it, and drops the connection before the reply of the first calls."""

    def __init__(self, script: Any, count: int) -> None:
        self.script = script
        self.count = count

    async def __call__(self, **call: Any) -> Any:
        answer = await self.script(**call)
        if self.count:
            self.count -= 1
            raise RedisConnectionError("gone")
        return answer


def lose_replies(log: Log, count: int) -> None:
    """Let the store's next answers get lost."""
    log._commit = LostReplies(log._commit, count)  # type: ignore[assignment]


class TestUnits:
    """What one unit does, and what it leaves alone."""

    async def test_a_unit_lands_whole(self, driver: Driver) -> None:
        """A created note has its event, head, words, cells, due time and bytes at once."""
        unit, note, words = driver.birth("the port is 8080", key="port")
        outcome = await driver.log.commit(unit)
        assert (outcome.status, outcome.previous) == ("ok", START)
        stored = await dump(driver.redis)
        keys = driver.keys
        assert set(stored[keys.heads]) == set(stored[keys.vault]) == {note.id.encode()}
        assert parse_stored(stored[keys.heads][note.id.encode()])[:3] == ("1", unit.op, outcome.seq)
        assert text_cell(note, words, KEYRING).encode() in stored[keys.cells]
        assert set(stored[keys.due]) == {note.id.encode()}
        assert stored[keys.totals] == {b"perishable_bytes": str(note.size).encode()}
        assert [entry.event.note for entry in await driver.log.read(START)] == [note.id]  # type: ignore[union-attr]

    async def test_a_conflicting_unit_changes_nothing(self, driver: Driver) -> None:
        """Where one note of a unit has moved, neither note, nor words, nor cells, nor totals change."""
        first, second = await driver.remember("first"), await driver.remember("second")
        stale = driver.notes[second]
        await driver.change(second, decisions.pin(driver.notes[second], HUMAN, NOW))
        builder = driver.builder()
        builder.change(driver.notes[first], decisions.forget(driver.notes[first], HUMAN, NOW), driver.words[first])
        builder.change(stale, decisions.pin(stale, HUMAN, NOW), driver.words[second])
        event, words = driver.created("third")
        builder.change(None, [event], None, words)
        before = await dump(driver.redis)
        outcome = await driver.log.commit(builder.build())
        assert (outcome.status, outcome.detail) == ("conflict", f"note:{second}")
        assert parse_stored(outcome.current).stamp == "2"
        assert await dump(driver.redis) == before

    async def test_units_of_one_call_are_independent(self, driver: Driver) -> None:
        """A conflict and a full store in the middle leave the units around them alone."""
        good, other = driver.birth("good")[0], driver.birth("other")[0]
        taken, _, _ = driver.birth("good")
        full = driver.birth("too much")[0]
        full.totals = [("perishable_bytes", 10**9, 10)]
        outcomes = await driver.log.commit_now([good, taken, full, other])
        assert [outcome.status for outcome in outcomes] == ["ok", "conflict", "full", "ok"]
        assert outcomes[3].previous == outcomes[0].seq
        assert len(await driver.log.read(START)) == 2

    async def test_a_taken_cell_is_a_conflict_that_names_its_holder(self, driver: Driver) -> None:
        """C13: the same slot cannot be taken twice; the answer tells the slot and who holds it."""
        holder = await driver.remember("port 1", key="port")
        outcome = await driver.log.commit(driver.birth("port 2", key="port")[0])
        assert outcome.status == "conflict"
        assert outcome.detail.startswith("slot:")
        assert parse_stored(outcome.current).stamp == holder

    async def test_a_cell_may_pass_from_one_note_to_the_next_in_one_unit(self, driver: Driver) -> None:
        """C13: superseding by key frees and takes the slot in one unit, whichever of the notes is named first."""
        for order in (0, 1):
            name = f"slot{order}"
            old = await driver.remember(f"old {order}", key=name)
            event, words = driver.created(f"new {order}", key=name)
            new = apply(None, event)
            ends = decisions.supersede(driver.notes[old], new, HUMAN, NOW, successor=lambda _: None)
            builder = driver.builder()
            steps = [
                lambda b=builder, o=old, e=ends: b.change(driver.notes[o], e, driver.words[o]),
                lambda b=builder, e=event, w=words: b.change(None, [e], None, w),
            ]
            for step in steps if order else reversed(steps):
                step()
            assert (await driver.log.commit(builder.build())).status == "ok"
            again = await driver.log.commit(driver.birth(f"third {order}", key=name)[0])
            assert parse_stored(again.current).stamp == new.id

    async def test_a_moved_policy_is_a_conflict(self, driver: Driver) -> None:
        """A unit decided under an older policy is not written."""
        unit = driver.birth("decided before")[0]
        change = policy_unit(driver, 0, {"default_ttl": 1000})
        assert (await driver.log.commit(change)).status == "ok"
        outcome = await driver.log.commit(unit)
        assert (outcome.status, outcome.detail) == ("conflict", "policy")
        effective = await read_policy(driver.redis, driver.keys, POLICY)
        assert (effective.version, effective.policy.default_ttl) == (1, 1000)

    async def test_capacity_is_checked_where_it_is_spent(self, driver: Driver) -> None:
        """Two writers who each saw room cannot both take it; a write that shrinks is never refused."""
        driver.policy = replace_policy(max_store_bytes=100)
        first, second = driver.birth("a" * 60)[0], driver.birth("b" * 60)[0]
        outcomes = await driver.log.commit_now([first, second])
        assert [outcome.status for outcome in outcomes] == ["ok", "full"]
        assert (outcomes[1].detail, outcomes[1].current) == ("perishable_bytes", b"60")
        shrink = Unit(totals=[("perishable_bytes", -10, 5)], cells=[Cell("scrub", "", "1")])
        assert (await driver.log.commit(shrink)).status == "ok"

    async def test_a_damaged_value_stops_only_those_who_want_it(self, driver: Driver) -> None:
        """V09: a head that is no head conflicts; the other units of the call are written."""
        broken, whole = await driver.remember("broken"), await driver.remember("whole")
        await driver.redis.hset(driver.keys.heads, broken, "nonsense")
        units = []
        for id_ in (broken, whole):
            builder = driver.builder()
            builder.change(driver.notes[id_], decisions.pin(driver.notes[id_], HUMAN, NOW), driver.words[id_])
            units.append(builder.build())
        outcomes = await driver.log.commit_now(units)
        assert [outcome.status for outcome in outcomes] == ["conflict", "ok"]
        assert outcomes[0].current == b"nonsense"

    @pytest.mark.parametrize("text", ['配置 😀 é\n\t"\\" | {x} * a,b : null []', "x" * 512 * 1024, "\u2028\x7f\x1f"])
    async def test_words_come_back_as_they_went(self, driver: Driver, text: str) -> None:
        """C24: whatever signs, quotes and separators words have, and however long they are, the vault returns them."""
        driver.policy = replace_policy(max_store_bytes=2**40)
        note_id = await driver.remember(text, key="a|b", tags=("a|b", "*", "{x}", "配置"))
        assert (await find_many(driver.redis, driver.keys, [note_id]))[0].words == driver.words[note_id]
        (head,) = await heads(driver.redis, driver.keys, [note_id])
        assert isinstance(head, Head)
        assert head.note == driver.notes[note_id]

    async def test_an_id_once_issued_is_never_issued_again(self, driver: Driver) -> None:
        """A new note with the id of a living or a forgotten one is a conflict."""
        note_id = await driver.remember("first holder")
        assert (await driver.log.commit(driver.birth("other", id=note_id)[0])).detail == f"note:{note_id}"
        await driver.change(note_id, decisions.forget(driver.notes[note_id], HUMAN, NOW))
        assert (await driver.log.commit(driver.birth("other", id=note_id)[0])).detail == f"note:{note_id}"

    async def test_forgetting_erases_and_leaves_a_tomb(self, driver: Driver) -> None:
        """The words are nowhere in the store afterwards; hash and bare facts stay; the erasure waits for a scrub."""
        note_id = await driver.remember("a secret nobody keeps", key="sekret", tags=("taggy",))
        await driver.redis.hset(driver.keys.use, mapping={f"{note_id}:n": 3, f"{note_id}:t": NOW})
        assert (await driver.change(note_id, decisions.forget(driver.notes[note_id], HUMAN, NOW))).status == "ok"
        stored = await dump(driver.redis)
        assert not [word for word in ("secret", "sekret", "taggy") if word in repr(stored)]
        tomb = await driver.tomb(note_id)
        assert (tomb.note.state, tomb.kept, tomb.actor) == ("forgotten", None, "human")
        assert tomb.content_hash == KEYRING.content_hash("a secret nobody keeps")
        assert stored[driver.keys.totals][UNSCRUBBED.encode()] == b"1"
        assert driver.keys.use not in stored

    async def test_a_note_may_be_born_dead(self, driver: Driver) -> None:
        """C19: an import that expired long ago leaves a tomb and events; its words never reach the store."""
        event, words = driver.created("words of long ago", ttl_ms=1000)
        note_id = event.note
        facts: dict[str, Any] = {"at": NOW + 1000, "actor": "system"}
        builder = driver.builder()
        ends: list[AnyNoteEvent] = [
            Expired(note=note_id, version=2, reason="ttl", **facts),
            Forgotten(note=note_id, version=3, reason="expired", **facts),
        ]
        builder.change(None, [event, *ends], None, words)
        assert (await driver.log.commit(builder.build())).status == "ok"
        stored = await dump(driver.redis)
        assert "long ago" not in repr(stored)
        assert UNSCRUBBED.encode() not in stored[driver.keys.totals]
        assert (await driver.tomb(note_id)).note.version == 3

    async def test_a_purged_tomb_keeps_bare_facts(self, driver: Driver) -> None:
        """The kept copy of a restorable note goes with its hash, and counts as an erasure to scrub."""
        driver.policy = replace_policy(restorable=True)
        note_id = await driver.remember("kept for a while")
        await driver.change(note_id, decisions.forget(driver.notes[note_id], HUMAN, NOW))
        tomb = await driver.tomb(note_id)
        assert tomb.kept == Words(content="kept for a while")
        builder = driver.builder()
        builder.retomb(tomb, now=NOW + driver.policy.audit_retention)
        assert (await driver.log.commit(builder.build())).status == "ok"
        stored = await dump(driver.redis)
        assert "kept for a while" not in repr(stored)
        assert stored[driver.keys.totals][UNSCRUBBED.encode()] == b"2"
        assert driver.keys.due not in stored

    def test_a_builder_refuses_what_could_not_be_written(self) -> None:
        """A note twice in a unit, and a change of a forgotten note, are bugs of ours and say so."""
        driver = Driver(FakeAsyncRedis(), "none")
        _, note, words = driver.birth("once")
        builder = driver.builder()
        pins = decisions.pin(note, HUMAN, NOW)
        builder.change(note, pins, words)
        with pytest.raises(Bug, match="twice"):
            builder.change(note, pins, words)
        gone = driver.builder().change(note, decisions.forget(note, HUMAN, NOW), words)
        with pytest.raises(Bug, match="forgotten"):
            driver.builder().change(gone, pins, None)
        with pytest.raises(Bug, match="repetition"):
            driver.log._encode([Unit(events=[b"{}"])])


class TestOwnSuccess:
    """A lost reply is told from a lost write."""

    @pytest.mark.parametrize("kind", ["create", "change", "forget", "cell", "policy", "scrub", "two"])
    async def test_a_unit_committed_twice_is_written_once(self, driver: Driver, kind: str) -> None:
        """C35: whatever a unit changes, its repetition answers ``own`` and changes nothing."""
        unit = await self.unit(driver, kind)
        first = await driver.log.commit(unit)
        before = await dump(driver.redis)
        again = await driver.log.commit(unit)
        assert (first.status, again.status) == ("ok", "own")
        assert again.seq == first.seq
        assert await dump(driver.redis) == before

    async def unit(self, driver: Driver, kind: str) -> Unit:
        if kind == "create":
            return driver.birth("created")[0]
        if kind == "cell":
            return Unit(cells=[Cell("owner:s1", "", "1o", b'{"incarnation":1,"open":true}')])
        if kind == "policy":
            return policy_unit(driver, 0, {"max_deterrents": 1})
        if kind == "scrub":
            done = Scrubbed(at=NOW, actor="system", through=START, result="done")
            return Unit(cells=[Cell("scrub", "", "1")], events=[encode(done)], totals=[(UNSCRUBBED, -1, None)])
        note_id = await driver.remember("something")
        note = driver.notes[note_id]
        builder = driver.builder()
        ends = decisions.pin(note, HUMAN, NOW) if kind == "change" else decisions.forget(note, HUMAN, NOW)
        builder.change(note, ends, driver.words[note_id])
        if kind == "two":
            event, words = driver.created("another")
            builder.change(None, [event], None, words)
        return builder.build()

    async def test_one_trace_is_enough(self, driver: Driver) -> None:
        """Though somebody has changed one note since, the other still tells that the unit was written."""
        builder = driver.builder()
        born = [driver.created(text) for text in ("one", "two")]
        notes = [builder.change(None, [event], None, words) for event, words in born]
        unit = builder.build()
        first = await driver.log.commit(unit)
        assert notes[0] is not None
        driver.take(notes[0], born[0][1])
        await driver.change(notes[0].id, decisions.pin(notes[0], HUMAN, NOW))
        again = await driver.log.commit(unit)
        assert (again.status, again.seq) == ("own", first.seq)

    async def test_a_lost_reply_is_asked_for_again(self, driver: Driver) -> None:
        """The caller of a unit whose reply was lost learns that it landed; the log holds it once."""
        lose_replies(driver.log, 1)
        outcome = await driver.log.commit(driver.birth("landed")[0])
        assert outcome.status == "own"
        assert [entry.seq for entry in await driver.log.read(START)] == [outcome.seq]

    async def test_a_store_that_stays_away_is_said_to_be(self, driver: Driver) -> None:
        """Two lost replies are an error; the same unit again answers ``own``."""
        unit = driver.birth("landed")[0]
        lose_replies(driver.log, 2)
        with pytest.raises(StoreUnavailable):
            await driver.log.commit(unit)
        assert (await driver.log.commit(unit)).status == "own"


class TestRequests:
    """``request_id``: a repetition gets the first answer."""

    def with_request(self, driver: Driver, text: str, body: bytes, answer: bytes = b'{"id":"x"}') -> Unit:
        unit = driver.birth(text)[0]
        unit.request = (driver.keys.request("r1"), KEYRING.body_hash(body), answer)
        return unit

    async def test_a_repetition_is_answered_as_the_first_time(self, driver: Driver) -> None:
        """The stored answer comes back with its seq, though the repetition decided anew; nothing is written."""
        first = await driver.log.commit(self.with_request(driver, "one", b"body"))
        again = await driver.log.commit(self.with_request(driver, "two", b"body"))
        assert (again.status, again.current) == ("replay", first.seq.encode() + b'|{"id":"x"}')
        assert len(await driver.log.read(START)) == 1
        assert 0 < await driver.redis.pttl(driver.keys.request("r1")) <= 86_400_000

    async def test_another_body_is_told(self, driver: Driver) -> None:
        """The same id with another body is reuse, not repetition."""
        await driver.log.commit(self.with_request(driver, "one", b"body"))
        assert (await driver.log.commit(self.with_request(driver, "two", b"other"))).status == "reused"

    async def test_two_at_once_are_one(self, driver: Driver) -> None:
        """Both units of one request in one call: the second replays the first."""
        units = [self.with_request(driver, text, b"body") for text in ("one", "two")]
        assert [outcome.status for outcome in await driver.log.commit_now(units)] == ["ok", "replay"]

    async def test_a_refused_unit_leaves_no_answer(self, driver: Driver) -> None:
        """A conflict may be tried again under its request id."""
        await driver.remember("taken")
        assert (await driver.log.commit(self.with_request(driver, "taken", b"body"))).status == "conflict"
        assert (await driver.log.commit(self.with_request(driver, "free", b"body"))).status == "ok"


class TestBatching:
    """Many writers, few calls."""

    async def test_two_hundred_writers(self, driver: Driver) -> None:
        """C01: every writer gets its own seq, in the order they asked, and the chain of previous ids has no gap."""
        outcomes = await asyncio.gather(*[driver.log.commit(driver.birth(f"note {i}")[0]) for i in range(200)])
        assert {outcome.status for outcome in outcomes} == {"ok"}
        seqs = [outcome.seq for outcome in outcomes]
        assert seqs == sorted(set(seqs), key=seq_key)
        assert [outcome.previous for outcome in outcomes] == [START, *seqs[:-1]]
        assert [entry.seq for entry in await driver.log.read(START)] == seqs

    async def test_a_long_list_is_several_calls(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        """More than a call may carry, by count or by bytes, is written in order over several."""
        monkeypatch.setattr("amnesiad.store.log.MAX_UNITS_PER_CALL", 7)
        monkeypatch.setattr("amnesiad.store.log.MAX_BYTES_PER_CALL", 200)
        units = [driver.birth(f"{i} " + "x" * (300 if i % 5 == 0 else 1))[0] for i in range(40)]
        outcomes = await driver.log.commit_now(units)
        seqs = [outcome.seq for outcome in outcomes]
        assert seqs == sorted(set(seqs), key=seq_key)
        assert await driver.log.commit_now([]) == []

    async def test_a_failed_call_fails_only_its_waiters(self, driver: Driver) -> None:
        """Those in the call are told; those after it are served."""
        lose_replies(driver.log, 2)
        first = [asyncio.ensure_future(driver.log.commit(driver.birth(f"first {i}")[0])) for i in range(3)]
        results = await asyncio.gather(*first, return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable] * 3
        assert (await driver.log.commit(driver.birth("after")[0])).status == "ok"

    async def test_a_unit_that_cannot_be_sent_leaves_the_sender_usable(self, driver: Driver) -> None:
        """A bug in one caller's unit is raised there, and the next unit is written."""
        with pytest.raises(Bug):
            await driver.log.commit(Unit(totals=[("x", 1, None)]))
        assert (await driver.log.commit(driver.birth("after")[0])).status == "ok"

    async def test_a_waiter_may_give_up(self, driver: Driver) -> None:
        """One cancelled before its unit was sent has written nothing; its neighbors are served."""
        tasks = [asyncio.ensure_future(driver.log.commit(driver.birth(f"note {i}")[0])) for i in range(5)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results.pop(2), asyncio.CancelledError)
        assert {cast_outcome(result).status for result in results} == {"ok"}
        assert len(await driver.log.read(START)) == 4

    async def test_a_cancelled_sender_leaves_nobody_waiting(self, driver: Driver) -> None:
        """When the loop ends the sender, those whose units were under way hear of it."""
        task = asyncio.ensure_future(driver.log.commit(driver.birth("under way")[0]))
        await asyncio.sleep(0)
        assert driver.log._sender is not None
        driver.log._sender.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)

    async def test_a_flushed_script_cache_is_filled_again(self, driver: Driver) -> None:
        """SCRIPT FLUSH, or a restarted store, is not noticed by anyone."""
        await driver.remember("before")
        await driver.redis.script_flush()
        await driver.remember("after")
        await driver.redis.script_flush()
        assert (await driver.witness.check(NOW, [])).moved == []


class TestRaces:
    """Two processes at once."""

    @pytest.mark.parametrize("what", ["slot", "text"])
    async def test_one_live_note_each_time(self, store: Redis, what: str) -> None:
        """V27: two clients write the same key, or the same text, at the same instant, 200 times: one note each time."""
        one = await Driver.open(store)
        two = Driver(store, one.keys.ws)
        for trial in range(200):
            born = [
                driver.birth(f"{trial}" if what == "text" else f"{trial} {i}", id=f"{'ab'[i]}{trial:09d}", key=key)
                for i, driver in enumerate((one, two))
                for key in [f"k{trial}" if what == "slot" else None]
            ]
            outcomes = await asyncio.gather(one.log.commit(born[0][0]), two.log.commit(born[1][0]))
            assert sorted(outcome.status for outcome in outcomes) == ["conflict", "ok"]
        assert await store.hlen(one.keys.heads) == 200
        assert len(await one.log.read(START)) == 200


class TestReading:
    """The log as it is read."""

    async def test_a_notes_history_is_a_chain(self, driver: Driver) -> None:
        """Every entry names the same note's one before it, whatever lies between; history walks it, newest first."""
        note_id, other = await driver.remember("one"), await driver.remember("other")
        for _ in range(3):
            for id_, act in ((note_id, decisions.pin), (other, decisions.pin), (note_id, decisions.unpin)):
                if events := act(driver.notes[id_], HUMAN, NOW):
                    await driver.change(id_, events)
        last = await driver.change(note_id, decisions.forget(driver.notes[note_id], HUMAN, NOW))
        history = await driver.log.history(last.seq, 100)
        assert [entry.event.version for entry in history] == list(range(8, 0, -1))  # type: ignore[union-attr]
        assert {entry.event.note for entry in history} == {note_id}  # type: ignore[union-attr]
        assert [entry.previous for entry in history] == [*[entry.seq for entry in history[1:]], ""]
        assert await driver.log.history(last.seq, 2) == history[:2]
        assert await driver.log.history("5-5", 2) == []

    async def test_reading_goes_on_where_it_stopped(self, driver: Driver) -> None:
        """Pages of the log, and all of it, hold every entry once, and the last id is the last."""
        assert await driver.log.last_id() == START
        for i in range(7):
            await driver.remember(f"note {i}")
        seqs = [entry.seq async for entry in driver.log.entries()]
        assert len(seqs) == 7
        assert [entry.seq for entry in await driver.log.read(seqs[2], 2)] == seqs[3:5]
        assert await driver.log.last_id() == seqs[-1]
        assert at_or_past(seqs[-1], seqs[0])
        assert not at_or_past("999-5", "1000-0")

    async def test_several_events_of_a_unit_chain_too(self, driver: Driver) -> None:
        """A unit's own events of one note follow each other."""
        note_id = await driver.remember("edited twice")
        words = Words(content="edited twice", tags=("new",))
        edited = Edited(note=note_id, version=2, at=NOW, actor="human", fields=("tags",), size=words.size())
        pinned = decisions.pin(driver.notes[note_id], HUMAN, NOW)[0]
        outcome = await driver.change(note_id, [edited, replace_event(pinned, 3)], words)
        first, second, third = await driver.log.read(START)
        assert (second.previous, third.previous, third.seq) == (first.seq, second.seq, outcome.seq)


class TestWitness:
    """The check before an answer leaves."""

    async def test_what_stands_is_logged_and_counted(self, driver: Driver) -> None:
        """Nothing moved: the ledger has its entry, the first notes count as used."""
        one, two = await driver.remember("one"), await driver.remember("two")
        shown = [(one, 1), (two, 1)]
        for _ in range(2):
            found = await driver.witness.check(NOW, shown, entry=b'{"ids":[]}', used=1)
            assert (found.last, found.moved) == (await driver.log.last_id(), [])
        stored = await dump(driver.redis)
        assert [fields for _, fields in stored[driver.keys.access]] == [{b"e": b'{"ids":[]}'}] * 2
        assert stored[driver.keys.use] == {f"{one}:n".encode(): b"2", f"{one}:t".encode(): str(NOW).encode()}

    async def test_a_moved_note_stops_the_answer(self, driver: Driver) -> None:
        """V32: changed, forgotten and unknown notes are named, and neither ledger nor counters are touched."""
        one, two = await driver.remember("one"), await driver.remember("two")
        await driver.change(one, decisions.revoke(driver.notes[one], HUMAN, NOW, reason="wrong"))
        gone = await driver.remember("gone")
        await driver.change(gone, decisions.forget(driver.notes[gone], HUMAN, NOW))
        shown = [(one, 1), (two, 1), (gone, 1), ("unknown000", 1)]
        found = await driver.witness.check(NOW, shown, entry=b"{}", used=4)
        assert found.moved == [one, gone, "unknown000"]
        stored = await dump(driver.redis)
        assert driver.keys.access not in stored
        assert driver.keys.use not in stored

    async def test_a_note_is_marked_by_one_of_many_answers(self, driver: Driver) -> None:
        """Of answers made from the same view of a session's ledger one is let out; the others learn what it showed,
        what it only warned of included."""
        one, two = await driver.remember("one"), await driver.remember("two")
        views = [await driver.witness.once("s1", str(turn), 60_000) for turn in range(5)]
        shown = [(one, 1), (two, 1)]
        found = await asyncio.gather(
            *(driver.witness.check(NOW, shown, entry=b"{}", used=1, once=view) for view in views)
        )
        assert sorted(answer.shown for answer in found) == [[], *[[one, two]] * 4]
        winner = views[[answer.shown for answer in found].index([])]
        assert {view.shown(one) for view in views if view is not winner} == {(NOW, winner.turn)}
        stored = await dump(driver.redis)
        assert len(stored[driver.keys.access]) == 1
        mark = f"{NOW}|{winner.turn}".encode()
        assert stored[driver.keys.ledger("s1")] == {one.encode(): mark, two.encode(): mark}
        assert set(stored[driver.keys.use]) == {f"{one}:n".encode(), f"{one}:t".encode()}
        assert 0 < await driver.redis.pttl(driver.keys.ledger("s1")) <= 60_000

    async def test_an_answer_by_an_older_policy_is_stopped(self, driver: Driver) -> None:
        """A policy that was changed meanwhile stops an answer even where it does not insist on the log's end."""
        one = await driver.remember("one")
        assert not (await driver.witness.check(NOW, [(one, 1)], entry=b"{}", policy=0)).later_policy
        unit = Unit()
        write_policy(unit, driver.keys, 0, {"injection_enabled": False}, ())
        await driver.log.commit(unit)
        assert (await driver.witness.check(NOW, [(one, 1)], entry=b"{}", used=1, policy=0)).later_policy
        assert not (await driver.witness.check(NOW, [(one, 1)], policy=1)).later_policy
        assert len((await dump(driver.redis))[driver.keys.access]) == 1


def replace_event(event: Any, version: int) -> Any:
    """The event, later in the note's life."""
    return msgspec.structs.replace(event, version=version)


def cast_outcome(result: object) -> Outcome:
    """The result of a commit that did not fail."""
    assert isinstance(result, Outcome), result
    return result
