"""Export and import over a real store: what goes out, and what of it comes in again elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from tests.daemon.conftest import serve
from tests.daemon.desk import (
    DAY,
    HUMAN,
    WORKSPACE,
    ManualClock,
    call,
    kept,
    listed,
    log_types,
    problems,
    projection,
    recalled,
    refused,
    remember,
    state_of,
)
from tests.daemon.lines import ELSEWHERE, busy_life, everything, exported, parsed, taken_in

from amnesiad import wire
from amnesiad.errors import NotFound
from amnesiad.service import Service
from amnesiad.service.transfer import shapes
from amnesiad.service.transfer.importing import PAGE_NOTES
from amnesiad.store.keyring import Keyring
from amnesiad.store.log import Log
from amnesiad.store.owners import close_owner, lapsed_owners, read_owner


class TestExport:
    """What the lines hold."""

    async def test_it_opens_and_closes(self, service: Service) -> None:
        """A header says what it is and how far it goes, a closing line how many notes there should be."""
        await remember(service, "one")
        await remember(service, "two")
        lines = parsed(await exported(service))
        assert (lines[0]["line"], lines[0]["format"], lines[0]["workspace"]) == ("export", shapes.FORMAT, WORKSPACE)
        assert (lines[-1]["line"], lines[-1]["notes"]) == ("end", 2)
        assert lines[-1]["through"] == lines[0]["through"] == (await projection(service)).position

    async def test_no_words_of_what_is_forgotten(self, service: Service, clock: ManualClock) -> None:
        """C30: a forgotten note goes out as bare facts and hash, kept copy or not; one that time has ended likewise."""
        await call(service, "policy", set={"restorable": True})
        gone = await remember(service, "the forgotten sentence")
        dead = await remember(service, "the lapsed sentence", ttl_ms="1d")
        await call(service, "forget", id=gone)
        clock.advance(2 * DAY)
        lines = await exported(service)
        assert b"sentence" not in b"".join(lines)
        notes = {line["id"]: line for line in parsed(lines) if line["line"] == "note"}
        assert all(len(notes[one]["content_hash"]) == 64 and "words" not in notes[one] for one in (gone, dead))

    async def test_an_agent_gets_what_it_may_see(self, service: Service) -> None:
        """C25: another session's notes are in no line of an agent's export; a human's holds everything."""
        await remember(service, "for all to see")
        await remember(service, "the secret of s1", scope="session", caller={"session": "s1"})
        theirs = b"".join(await exported(service, caller={"session": "s2"}))
        assert b"for all to see" in theirs
        assert b"secret" not in theirs
        assert b"s1" not in theirs
        assert b"the secret of s1" in b"".join(await exported(service, caller={"session": "s1"}))
        assert b"the secret of s1" in b"".join(await exported(service))

    async def test_another_workspace_is_not_in_it(self, service: Service) -> None:
        """C25: an export of B holds no trace of A, and a workspace that does not exist is not found."""
        await remember(service, "of A alone")
        await remember(service, "of B", workspace="B")
        assert b"of A alone" not in b"".join(await exported(service, workspace="B"))
        assert (await refused(anext(service.export(wire.decode("export", b'{"workspace":"C"}'))))).code == "not_found"

    async def test_it_resumes_behind_any_of_its_lines(self, service: Service, clock: ManualClock) -> None:
        """Cut off anywhere and resumed there, the two pieces together import as the whole does."""
        await busy_life(service, clock)
        lines = await exported(service)
        for cut in range(1, len(lines)):
            seqs = [line["seq"] for line in parsed(lines[:cut]) if "seq" in line]
            rest = await exported(service, **({"after": seqs[-1]} if seqs else {}))
            answer = await taken_in(service, [*lines[:cut], *rest], workspace=f"cut {cut}")
            assert not answer.problems, cut
            assert await everything(service, f"cut {cut}") == await everything(service, WORKSPACE)

    async def test_a_note_that_moves_on_meanwhile_is_not_lost(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Notes that change while an export runs come once, whole, as they are by then."""
        ids = [await remember(service, f"note {n}") for n in range(6)]
        monkeypatch.setattr(Log.read, "__defaults__", (2,))
        lines: list[bytes] = []
        async for line in service.export(wire.decode("export", msgspec.json.encode({"workspace": WORKSPACE}))):
            lines.append(line)
            if len(lines) == 1:
                await call(service, "revoke", id=ids[4], reason="it is wrong")
                await call(service, "forget", id=ids[5])
        notes = [line for line in parsed(lines) if line["line"] == "note"]
        assert sorted(line["id"] for line in notes) == sorted(ids)
        whole = {line["id"]: [event["type"] for event in line["events"]] for line in notes}
        assert whole[ids[4]] == ["created", "revoked"]
        assert whole[ids[5]] == ["created", "forgotten"]
        assert not (await taken_in(service, lines)).problems

    @pytest.mark.parametrize("lines", [1, 4])
    async def test_one_of_a_workspace_that_is_dropped_meanwhile_has_no_end(
        self, service: Service, second: Service, clock: ManualClock, lines: int
    ) -> None:
        """C16: what has come by then is not closed as if it were the whole, wherever the drop cuts in."""
        await busy_life(service, clock)
        export = service.export(wire.decode("export", msgspec.json.encode({"workspace": WORKSPACE, "caller": HUMAN})))
        found = [await anext(export) for _ in range(lines)]
        await call(second, "workspaces", drop=WORKSPACE, confirm=True, caller=HUMAN)
        with pytest.raises(NotFound):
            found += [line async for line in export]
        assert "end" not in {line["line"] for line in parsed(found)}

    async def test_a_long_history_is_continued(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """A note whose history does not fit one line takes several, and arrives as one."""
        note = await remember(service, "pinned and unpinned", kind="finding")
        for _ in range(20):
            await call(service, "pin", id=note)
            await call(service, "unpin", id=note)
        monkeypatch.setattr(shapes, "MAX_EVENTS_BYTES", 1000)
        lines = await exported(service)
        parts = [line for line in parsed(lines) if line["line"] == "note"]
        assert len(parts) > 3
        assert max(map(len, lines)) < 2000
        assert (await taken_in(service, lines)).imported == 1
        assert (await everything(service, ELSEWHERE)) == (await everything(service, WORKSPACE))


class TestRoundTrip:
    """Out of one store and into another."""

    async def test_the_fold_is_the_same(self, service: Service, second: Service, clock: ManualClock) -> None:
        """Every head and tomb, field by field, and all words are as the exporter has them; verify finds nothing."""
        ids = await busy_life(service, clock)
        answer = await taken_in(second, await exported(service))
        assert (answer.imported, answer.skipped, answer.problems) == (len(ids), 0, ())
        assert await everything(second, ELSEWHERE) == await everything(service, WORKSPACE)
        assert await problems(second, ELSEWHERE) == ()
        view = await projection(second, ELSEWHERE)
        assert view.policy.max_injected_tokens == 1234
        assert view.policy.default_ttl == 45 * DAY
        for state in ("active", "stale", "expired", "revoked", "superseded"):
            everywhere = [
                await listed(second, workspace=name, states=[state], caller=HUMAN) for name in (ELSEWHERE, WORKSPACE)
            ]
            assert sorted(everywhere[0]) == sorted(everywhere[1])

    async def test_histories_are_told_alike(self, service: Service, clock: ManualClock) -> None:
        """Who did what when and why stays with the note: actors, dates and reasons come along."""
        ids = await busy_life(service, clock)
        await taken_in(service, await exported(service))
        for note in ids.values():
            told = [
                (await call(service, "history", id=note, workspace=name, caller=HUMAN)).events
                for name in (WORKSPACE, ELSEWHERE)
            ]
            bare = [[msgspec.structs.replace(event, seq="") for event in events] for events in told]
            assert bare[0] == bare[1]

    async def test_a_second_time_changes_nothing(self, service: Service, clock: ManualClock) -> None:
        """An import is idempotent by note id: repeated, it skips every note and writes nothing at all."""
        ids = await busy_life(service, clock)
        lines = await exported(service)
        await taken_in(service, lines)
        before = await kept(service, ELSEWHERE)
        again = await taken_in(service, lines)
        assert (again.imported, again.skipped, again.problems) == (0, len(ids), ())
        assert await kept(service, ELSEWHERE) == before
        assert (await taken_in(service, lines, workspace=WORKSPACE)).skipped == len(ids)

    async def test_what_was_forgotten_since_stays_forgotten(self, service: Service) -> None:
        """C30: an older export brings no word back of what was forgotten after it was made."""
        note = await remember(service, "the withdrawn sentence")
        lines = await exported(service)
        await call(service, "forget", id=note)
        answer = await taken_in(service, lines, workspace=WORKSPACE)
        assert (answer.imported, answer.skipped) == (0, 1)
        assert await state_of(service, note) == "forgotten"
        assert "withdrawn" not in repr(await kept(service))

    async def test_words_beside_a_forgotten_history_are_not_taken(self, service: Service) -> None:
        """C30: a file that was tampered with to carry words for a forgotten note brings in the bare facts alone."""
        note = await remember(service, "gone for good")
        living = parsed(await exported(service))
        await call(service, "forget", id=note)
        lines = parsed(await exported(service))
        words = next(line["words"] for line in living if line["line"] == "note")
        next(line for line in lines if line["line"] == "note")["words"] = words
        assert (await taken_in(service, lines)).imported == 1
        assert await state_of(service, note, workspace=ELSEWHERE) == "forgotten"
        assert "gone for good" not in repr(await kept(service, ELSEWHERE))

    async def test_a_hash_counts_only_under_its_own_key(
        self, service: Service, redis: Redis, clock: ManualClock
    ) -> None:
        """The audit's hash comes along to a store of the same install key, and is left out under another."""
        note = await remember(service, "to be hashed")
        await call(service, "forget", id=note)
        lines = await exported(service)
        other = serve(redis, clock)
        other.keyring = Keyring(b"x" * 32)
        await taken_in(service, lines, workspace="same key")
        await taken_in(other, lines, workspace="other key")
        here = (await call(service, "audit", workspace="same key")).entries[0]
        there = (await call(other, "audit", workspace="other key")).entries[0]
        assert (here.id, there.id) == (note, note)
        assert here.content_hash == (await call(service, "audit")).entries[0].content_hash is not None
        assert there.content_hash is None

    async def test_a_later_export_carries_a_note_on(self, service: Service) -> None:
        """A human's import of a newer export appends what happened since; the two folds are the same again."""
        note = await remember(service, "first the one", kind="finding")
        await taken_in(service, await exported(service))
        await call(service, "revoke", id=note, reason="then the other")
        gone = await remember(service, "short-lived")
        await taken_in(service, await exported(service))
        await call(service, "forget", id=gone)
        lines = await exported(service)
        assert (await taken_in(service, lines, role="agent")).problems[0].code == "forbidden"
        assert (await taken_in(service, lines)).imported == 1
        assert await everything(service, ELSEWHERE) == await everything(service, WORKSPACE)
        assert await problems(service, ELSEWHERE) == ()

    async def test_a_restored_note_is_carried_on(self, service: Service) -> None:
        """The mark that a forgotten note was restored follows in a later import, as does the note it became."""
        await call(service, "policy", set={"restorable": True})
        note = await remember(service, "lost and found")
        await call(service, "forget", id=note)
        await taken_in(service, await exported(service))
        await call(service, "restore", id=note)
        answer = await taken_in(service, await exported(service))
        assert (answer.imported, answer.problems) == (2, ())
        assert await everything(service, ELSEWHERE) == await everything(service, WORKSPACE)

    async def test_another_history_is_a_conflict(self, service: Service) -> None:
        """A note that went its own way in both places is reported and left as it is here."""
        note = await remember(service, "at the fork", kind="finding")
        await taken_in(service, await exported(service))
        await call(service, "revoke", id=note, reason="here it is wrong")
        await call(service, "pin", id=note, workspace=ELSEWHERE)
        answer = await taken_in(service, await exported(service))
        assert [problem.code for problem in answer.problems] == ["conflict"]
        assert note in answer.problems[0].message
        assert await state_of(service, note, workspace=ELSEWHERE) == "active"

    async def test_a_text_that_lives_already_is_a_conflict(self, service: Service) -> None:
        """Two notes of one text, or of one slot, cannot both live: the one that is here stays, the line is named."""
        await remember(service, "said twice")
        await remember(service, "value one", key="slot")
        lines = await exported(service)
        here = await remember(service, "said twice", workspace=ELSEWHERE)
        slot = await remember(service, "value two", key="slot", workspace=ELSEWHERE)
        answer = await taken_in(service, lines)
        assert [problem.code for problem in answer.problems] == ["conflict", "conflict"]
        assert here in answer.problems[0].message
        assert slot in answer.problems[1].message
        assert await problems(service, ELSEWHERE) == ()

    async def test_a_text_whose_holder_is_over_is_free(self, service: Service, clock: ManualClock) -> None:
        """A holder that time has ended, though no pass has run, gives its text up in the same unit."""
        old = await remember(service, "in its turn", workspace=ELSEWHERE, ttl_ms="1d")
        clock.advance(2 * DAY)
        note = await remember(service, "in its turn")
        assert (await taken_in(service, await exported(service))).imported == 1
        assert await listed(service, workspace=ELSEWHERE) == [note]
        assert await state_of(service, old, workspace=ELSEWHERE) == "forgotten"
        assert await problems(service, ELSEWHERE) == ()

    async def test_many_notes_arrive_in_pages(self, service: Service) -> None:
        """More notes than one page holds, in several states, come over whole."""
        count = 2 * PAGE_NOTES + 17
        await call(
            service,
            "batch",
            requests=[
                {"verb": "remember", "body": {"content": f"finding number {n}", "kind": "finding"}}
                for n in range(count)
            ],
        )
        for note in (await listed(service))[:50]:
            await call(service, "revoke", id=note, reason="no longer so")
        answer = await taken_in(service, await exported(service))
        assert (answer.imported, answer.problems) == (count, ())
        assert await everything(service, ELSEWHERE) == await everything(service, WORKSPACE)

    async def test_two_imports_at_once(self, service: Service, second: Service, clock: ManualClock) -> None:
        """V27: one file taken in by two daemons at the same moment is there once, and neither calls it a problem."""
        ids = await busy_life(service, clock)
        lines = await exported(service)
        lines += [msgspec.json.encode({"content": f"plain {n}", "kind": "finding"}) for n in range(60)]
        answers = await asyncio.gather(taken_in(service, lines), taken_in(second, lines))
        assert [answer.problems for answer in answers] == [(), ()]
        assert sum(answer.imported for answer in answers) == len(ids) + 60
        assert (await log_types(service, ELSEWHERE)).count("created") == len(ids) + 60
        assert await problems(service, ELSEWHERE) == ()

    async def test_writers_go_on_meanwhile(self, service: Service, second: Service) -> None:
        """An import beside a daemon that writes the same texts ends with each text living once."""
        lines: list[Any] = [{"content": f"text {n}", "kind": "finding"} for n in range(40)]

        async def writer() -> None:
            for n in range(40):
                await remember(second, f"text {n}", workspace=ELSEWHERE, kind="finding")

        answer, _ = await asyncio.gather(taken_in(service, lines), writer())
        assert (answer.problems, answer.imported + answer.skipped) == ((), 40)
        await call(service, "recall", workspace=ELSEWHERE)
        assert len(await listed(service, workspace=ELSEWHERE)) == 40
        assert await problems(service, ELSEWHERE) == ()


class TestOwners:
    """Scoped notes and the owners they belong to."""

    async def test_an_owner_comes_with_its_notes(self, service: Service) -> None:
        """Imported session notes get their owner's cell, in its incarnation, so that its end still reaches them."""
        caller = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}
        await remember(service, "the child's own", caller=caller)
        await taken_in(service, await exported(service))
        view = await projection(service, ELSEWHERE)
        cell = await read_owner(service.redis, view.keys, "s1/a1")
        assert (cell.incarnation, cell.open, cell.agent_kind) == (1, True, "subagent")
        assert await recalled(service, workspace=ELSEWHERE, caller=caller) == ["the child's own"]
        rows = (await call(service, "owners", workspace=ELSEWHERE)).rows
        assert [(row.owner, row.notes) for row in rows] == [("s1/a1", 1)]
        assert await problems(service, ELSEWHERE) == ()

    async def test_an_owner_known_here_reaches_as_far(self, service: Service) -> None:
        """A note of a later incarnation than this store knows moves the owner on, so that no end misses the note."""
        await remember(service, "of the third life", scope="session", caller={"session": "s1"})
        lines = parsed(await exported(service))
        for line in lines:
            if line["line"] == "owner":
                line["incarnation"] = 3
            if line["line"] == "note":
                line["events"][0]["incarnation"] = 3
        await remember(service, "of the first", workspace=ELSEWHERE, scope="session", caller={"session": "s1"})
        assert (await taken_in(service, lines)).imported == 1
        view = await projection(service, ELSEWHERE)
        assert (await read_owner(service.redis, view.keys, "s1")).incarnation == 3
        assert await problems(service, ELSEWHERE) == ()

    async def test_an_owner_that_ended_here_opens_again(self, service: Service) -> None:
        """V28: notes of an owner whose life is over here come in under a new one, which reaches them when it ends."""
        await remember(service, "of s1", scope="session", caller={"session": "s1"})
        lines = await exported(service)
        await remember(service, "here", workspace=ELSEWHERE, scope="session", caller={"session": "s1"})
        view = await projection(service, ELSEWHERE)
        await close_owner(view.log, "s1", heard_at=service.clock.now_ms() + 1, at=None, source=None)
        assert (await taken_in(service, lines)).imported == 1
        cell = await read_owner(service.redis, view.keys, "s1")
        assert (cell.open, cell.incarnation) == (True, 2)
        assert await problems(service, ELSEWHERE) == ()

    async def test_an_owner_that_ended_there_stays_ended(self, service: Service) -> None:
        """Notes that were kept beyond their owner's end are not taken for notes of a living one, nor ended once
        more."""
        child = {"session": "s1", "agent": "a1", "agent_kind": "continuable"}
        note = await remember(service, "kept by choice", caller=child)
        view = await projection(service)
        await close_owner(view.log, "s1/a1", heard_at=service.clock.now_ms() + 1, at=None, source=None)
        assert (await taken_in(service, await exported(service))).imported == 1
        there = await projection(service, ELSEWHERE)
        cell = await read_owner(service.redis, there.keys, "s1/a1")
        assert (cell.open, cell.incarnation, cell.agent_kind) == (False, 1, "continuable")
        assert await lapsed_owners(service.redis, there.keys, service.clock.now_ms()) == []
        assert await state_of(service, note, workspace=ELSEWHERE) == "active"


class TestPolicy:
    """Overrides come along where there is room for them."""

    async def test_a_setting_of_its_own_stays(self, service: Service) -> None:
        """What this workspace has set otherwise is kept and reported; what it has not set is taken over."""
        await call(service, "policy", set={"tie_width": 0.2, "default_ttl": "45d"})
        await call(service, "policy", workspace=ELSEWHERE, set={"tie_width": 0.3})
        lines = await exported(service)
        for dry in ("true", "false"):
            answer = await taken_in(service, lines, dry_run=dry)
            assert [problem.code for problem in answer.problems] == ["conflict"]
            assert "tie_width" in answer.problems[0].message
        policy = (await projection(service, ELSEWHERE)).policy
        assert (policy.tie_width, policy.default_ttl) == (0.3, 45 * DAY)

    async def test_its_history_stays_where_it_happened(self, service: Service) -> None:
        """An export tells when the policy changed; importing it makes no second history of that."""
        await call(service, "policy", set={"tie_width": 0.2})
        await call(service, "policy", set={"tie_width": 0.25})
        lines = await exported(service)
        assert [line["event"]["new"] for line in parsed(lines) if line["line"] == "fact"] == [0.2, 0.25]
        await taken_in(service, lines)
        assert await log_types(service, ELSEWHERE) == ["policy_changed"]
