"""Export and import over a real store: what goes out, what comes in again, and what is refused on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
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
    sweep,
)

from amnesiad import wire
from amnesiad.core.notes import Note
from amnesiad.errors import StoreUnavailable
from amnesiad.limits import MAX_LINE_BYTES
from amnesiad.service import Service, transfer
from amnesiad.service import lines as shapes
from amnesiad.store import vault
from amnesiad.store.keyring import Keyring
from amnesiad.store.log import Log
from amnesiad.store.owners import close_owner, lapsed_owners, read_owner

ELSEWHERE = "elsewhere"


async def exported(service: Service, *, workspace: str = WORKSPACE, **fields: Any) -> list[bytes]:
    """Every line of an export, as a human gets it unless the fields say otherwise."""
    body = {"workspace": workspace, "caller": HUMAN, **fields}
    return [line async for line in service.export(wire.decode("export", msgspec.json.encode(body)))]


async def taken_in(
    service: Service, lines: Iterable[bytes | dict[str, Any]], *, workspace: str = ELSEWHERE, **fields: str
) -> wire.ImportAnswer:
    """Import lines as the door hands them on, as a human unless the fields say otherwise."""
    request = wire.decode_query(wire.ImportRequest, {"workspace": workspace, "role": "human", **fields})

    async def stream() -> AsyncIterator[bytes]:
        for line in lines:
            yield (line if isinstance(line, bytes) else msgspec.json.encode(line)).strip()

    return await service.import_notes(request, stream())


async def everything(service: Service, workspace: str) -> dict[str, tuple[Note, Any]]:
    """Each note ever issued as folded, with its words if it is not forgotten."""
    view = await projection(service, workspace)
    ids = [entry.event.note async for entry in view.log.entries() if hasattr(entry.event, "note")]
    found = await vault.find_many(service.redis, view.keys, sorted(set(ids)))
    notes = {}
    for one in found:
        assert isinstance(one.place, vault.Head | vault.Grave)
        note = one.place.note if isinstance(one.place, vault.Head) else one.place.tomb.note
        notes[note.id] = (note, one.words)
    return notes


def parsed(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in lines]


async def busy_life(service: Service, clock: ManualClock) -> dict[str, str]:
    """A workspace in which everything has happened once."""
    ids = {
        "plain": await remember(service, "the port is 8080", tags=["net"], kind="fact"),
        "pinned": await remember(service, "never push to main", kind="directive", caller=HUMAN),
        "renewed": await remember(service, "the build takes nine minutes", kind="episode", ttl_ms="20d"),
        "revoked": await remember(service, "the database is postgres 12", kind="finding"),
        "old": await remember(service, "deploys run on fridays", kind="decision", key="deploys"),
        "session": await remember(service, "trying the second fix", scope="session", caller={"session": "s1"}),
        "child": await remember(
            service, "the child's finding", caller={"session": "s1", "agent": "a1", "agent_kind": "subagent"}
        ),
        "forgotten": await remember(service, "a slip of the pen"),
        "task": await remember(service, "write the release notes", kind="task"),
    }
    ids["new"] = await remember(service, "deploys run on mondays", kind="decision", key="deploys")
    clock.advance(3 * DAY)
    await call(service, "renew", id=ids["renewed"])
    await call(service, "revoke", id=ids["revoked"], reason="it is postgres 16 since May")
    await call(service, "forget", id=ids["forgotten"])
    await call(service, "done", id=ids["task"])
    await call(service, "flag", id=ids["plain"], reason="somebody says 9090")
    await call(service, "edit", id=ids["plain"], tags=["net", "ports"])
    await call(service, "policy", set={"max_injected_tokens": 1234, "default_ttl": "45d"}, caller=HUMAN)
    return ids


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
        count = 2 * transfer.PAGE_NOTES + 17
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
        """Notes that were kept beyond their owner's end are not taken for notes of a living one, nor ended once more."""
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


class TestDates:
    """Dates are kept, and those to come are refused."""

    async def test_a_note_of_two_years_ago_is_over_at_once(self, service: Service, clock: ManualClock) -> None:
        """C19: a perishable dated two years ago with thirty days to live is expired at once and audited, erased."""
        born = clock.now_ms() - 730 * DAY
        line = {"content": "the old wifi password was on the fridge", "created_at": born, "ttl_ms": "30d"}
        answer = await taken_in(service, [line])
        assert (answer.imported, answer.problems) == (1, ())
        assert await listed(service, workspace=ELSEWHERE) == []
        (entry,) = (await call(service, "audit", workspace=ELSEWHERE)).entries
        assert (entry.reason, entry.actor) == ("expired", "system")
        assert entry.at < born + 30 * DAY + 1
        assert entry.content_hash
        assert await log_types(service, ELSEWHERE) == ["created", "expired", "forgotten"]
        assert "fridge" not in repr(await kept(service, ELSEWHERE))
        assert await problems(service, ELSEWHERE) == ()
        assert (await taken_in(service, [line])).skipped == 1

    async def test_what_ran_out_on_the_way_is_over_on_arrival(self, service: Service, clock: ManualClock) -> None:
        """C19: an export that lay about until its perishables lapsed brings them in ended; records stay as they were."""
        lapsed = await remember(service, "for a week", ttl_ms="7d")
        record = await remember(service, "for good", kind="finding")
        lines = await exported(service)
        clock.advance(30 * DAY)
        assert (await taken_in(service, lines)).imported == 2
        assert await state_of(service, lapsed, workspace=ELSEWHERE) == "forgotten"
        assert await listed(service, workspace=ELSEWHERE) == [record]
        await sweep(service)
        assert (await everything(service, ELSEWHERE))[lapsed] == (await everything(service, WORKSPACE))[lapsed]

    async def test_dates_are_kept(self, service: Service, clock: ManualClock) -> None:
        """C07: a plain line's date may be ISO with a zone or epoch ms, and is the note's own."""
        lines: list[Any] = [
            {"content": "in Berlin", "created_at": "2024-05-01T10:00:00+02:00", "kind": "finding"},
            {"content": "in London", "created_at": 1714550400000, "kind": "finding"},
            {"content": "without a date", "kind": "finding"},
        ]
        assert (await taken_in(service, lines)).imported == 3
        notes = (await call(service, "list", workspace=ELSEWHERE, with_content=True)).notes
        born = {note.content: note.created_at for note in notes}
        assert born == {"in Berlin": 1714550400000, "in London": 1714550400000, "without a date": clock.now_ms()}

    async def test_an_end_counts_from_the_notes_own_date(self, service: Service, clock: ManualClock) -> None:
        """A stated end is kept as an instant, be it past or to come; one before the beginning is refused."""
        born, now = clock.now_ms() - 10 * DAY, clock.now_ms()
        lines = [
            {"content": "to come", "created_at": born, "expires_at": now + DAY, "curve": "flat"},
            {"content": "past", "created_at": born, "expires_at": now - DAY, "curve": "flat"},
            {"content": "upside down", "created_at": born, "expires_at": born - DAY},
            {"content": "both", "created_at": born, "expires_at": now, "ttl_ms": 5},
        ]
        answer = await taken_in(service, lines)
        assert [problem.line for problem in answer.problems] == [3, 4]
        (note,) = (await call(service, "list", workspace=ELSEWHERE)).notes
        assert (note.created_at, note.expires_at) == (born, now + DAY)
        assert [entry.at for entry in (await call(service, "audit", workspace=ELSEWHERE)).entries] == [now - DAY]

    async def test_a_date_to_come_is_refused_by_line(self, service: Service, clock: ManualClock) -> None:
        """A note from the future, or with one event in it, is named by its line; a clock a minute ahead is forgiven."""
        note = await remember(service, "from the present", kind="finding")
        await call(service, "pin", id=note)
        lines = parsed(await exported(service))
        row = next(n for n, line in enumerate(lines) if line["line"] == "note")
        lines[row]["events"][1]["at"] = clock.now_ms() + DAY
        plain = [
            {"content": "tomorrow", "created_at": clock.now_ms() + DAY},
            {"content": "in a minute", "created_at": clock.now_ms() + 60_000},
        ]
        answer = await taken_in(service, [*lines, *plain])
        assert [(problem.line, problem.code) for problem in answer.problems] == [
            (row + 1, "invalid"),
            (len(lines) + 1, "invalid"),
        ]
        assert all("future" in problem.message for problem in answer.problems)
        assert answer.imported == 1


class TestLines:
    """Every bad line is a problem of its own."""

    async def test_one_bad_line_stops_no_other(self, service: Service) -> None:
        """C03: whatever is wrong with a line, it is named by number and code, and the lines around it come in."""
        bad: list[bytes | dict[str, Any]] = [
            b"not json",
            b"[1, 2]",
            b'{"kind": "fact"}',
            {"content": "x", "kind": "no such kind"},
            {"content": "   "},
            {"content": "x", "colour": "red"},
            {"content": "x", "created_at": "yesterday"},
            {"content": "x", "tags": "net"},
            {"content": "x", "supersedes": "abcd"},
            {"content": "x", "workspace": "other"},
            {"content": "x", "kind": "directive", "ttl_ms": "1d"},
            {"content": "x" * 5000},
            b'{"content": "' + b"x" * MAX_LINE_BYTES + b'"}',
            {"line": "note", "id": "short", "seq": "1-1", "events": []},
            {"line": "surprise"},
            {"line": "owner", "owner": "s p a c e", "incarnation": 1, "open": True},
            {"line": "policy", "values": {"no_such_setting": 1}},
        ]
        lines: list[bytes | dict[str, Any]] = []
        for n, line in enumerate(bad):
            lines += [line, {"content": f"good line {n}"}]
        answer = await taken_in(service, lines)
        assert [problem.line for problem in answer.problems] == list(range(1, 2 * len(bad), 2))
        assert {problem.code for problem in answer.problems} == {"invalid", "too_large"}
        assert (answer.lines, answer.imported) == (2 * len(bad), len(bad))
        assert len(await listed(service, workspace=ELSEWHERE)) == len(bad)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("base", 7.5),
            ("ttl_ms", -1),
            ("owner", "s1"),
            ("actor", "anybody at all"),
            ("source_ref", "words with spaces"),
            ("version", 2),
            ("size", 1),
            ("at", -5),
            ("note", "0000000000"),
            ("supersedes", ["the words of a note"]),
        ],
    )
    async def test_a_forged_history_is_refused(self, service: Service, field: str, value: Any) -> None:
        """Nothing comes in that amnesiad could not have written: no words in the log, no strength above one."""
        await remember(service, "the genuine one")
        lines = parsed(await exported(service))
        note = next(line for line in lines if line["line"] == "note")
        note["events"][0][field] = value
        answer = await taken_in(service, lines)
        assert (answer.imported, len(answer.problems)) == (0, 1)
        assert answer.problems[0].code in ("invalid", "refused")
        assert "words" not in answer.problems[0].message or field == "size"
        assert await listed(service, workspace=ELSEWHERE) == []

    async def test_an_export_that_was_cut_off_is_noticed(self, service: Service) -> None:
        """What is there comes in, and that something is missing is said: at the end, and by count."""
        for n in range(4):
            await remember(service, f"note {n}")
        lines = await exported(service)
        cut = await taken_in(service, lines[:-2])
        assert (cut.imported, [problem.code for problem in cut.problems]) == (3, ["refused"])
        assert "cut off" in cut.problems[0].message
        holed = await taken_in(service, [*lines[:2], *lines[3:]], workspace="holed")
        assert (holed.imported, len(holed.problems)) == (3, 1)
        assert "3 notes of 4" in holed.problems[0].message

    async def test_a_newer_format_is_refused_whole(self, service: Service) -> None:
        """An export that this version cannot read is not half read."""
        lines = parsed(await exported(service, workspace=WORKSPACE) if await remember(service, "x") else [])
        lines[0]["format"] = shapes.FORMAT + 1
        assert (await refused(taken_in(service, lines))).rule == "newer-format"
        assert await listed(service, workspace=ELSEWHERE) == []

    async def test_one_text_twice_in_a_file(self, service: Service) -> None:
        """C14: the same plain text five times is one live note, four of them skipped."""
        answer = await taken_in(service, [{"content": "again and again"}] * 5)
        assert (answer.imported, answer.skipped) == (1, 4)
        assert len(await listed(service, workspace=ELSEWHERE)) == 1

    async def test_a_dated_line_comes_in_once_ever(self, service: Service) -> None:
        """C30: a plain line with a date that was imported and forgotten is not imported again."""
        line = {"content": "dated", "created_at": "2024-05-01", "kind": "finding"}
        await taken_in(service, [line])
        await call(service, "forget", all=True, confirm=True, workspace=ELSEWHERE, caller=HUMAN)
        again = await taken_in(service, [line])
        assert (again.imported, again.skipped) == (0, 1)

    async def test_a_full_store_is_said_by_line(self, service: Service) -> None:
        """Nothing that lives is evicted for an import: lines beyond the bound are problems."""
        here = await remember(service, "was here first", workspace=ELSEWHERE)
        await call(service, "policy", workspace=ELSEWHERE, set={"max_store_bytes": 4096})
        answer = await taken_in(service, [{"content": f"{n} " + "filling " * 100} for n in range(10)])
        assert {problem.code for problem in answer.problems} == {"store_full"}
        assert answer.imported + len(answer.problems) == 10
        assert 0 < answer.imported < 10
        assert here in await listed(service, workspace=ELSEWHERE)


class TestDryRun:
    """Saying what would happen."""

    async def test_it_says_what_the_import_then_does(self, service: Service, clock: ManualClock) -> None:
        """A dry run counts and complains exactly as the import will, and writes nothing, not even the workspace."""
        await busy_life(service, clock)
        lines: list[Any] = [*await exported(service), {"content": "the port is 8080"}, {"content": "twice"}]
        lines += [{"content": "twice"}, {"content": " "}, {"content": "of s9", "scope": "session"}]
        would = await taken_in(service, lines, dry_run="true", session="s9")
        names = [row.name for row in (await call(service, "workspaces")).rows]
        assert ELSEWHERE not in names
        done = await taken_in(service, lines, session="s9")
        assert would == done
        assert (would.imported, would.skipped, len(would.problems)) == (12, 2, 1)

    async def test_it_leaves_a_workspace_as_it_is(self, service: Service) -> None:
        """A dry run into a workspace with notes touches neither the store nor what the daemon answers."""
        await remember(service, "there before", workspace=ELSEWHERE)
        before = await kept(service, ELSEWHERE)
        answer = await taken_in(service, [{"content": "would come"}, {"content": "there before"}], dry_run="true")
        assert (answer.imported, answer.skipped) == (1, 1)
        assert await kept(service, ELSEWHERE) == before
        assert await recalled(service, workspace=ELSEWHERE) == ["there before"]


class TestWhoMay:
    """An agent takes in what it could have written."""

    async def test_an_agent_brings_in_no_human_word(self, service: Service) -> None:
        """V07: a human's notes, and what the user said, need a human's import; the agent's own lines come in."""
        await remember(service, "the human's", caller=HUMAN)
        await remember(service, "what the user said", caller={"on_behalf": "user"})
        await remember(service, "the agent's")
        answer = await taken_in(service, await exported(service), role="agent")
        assert [problem.code for problem in answer.problems] == ["forbidden", "forbidden"]
        assert await recalled(service, workspace=ELSEWHERE) == ["the agent's"]
        plain = await taken_in(service, [{"content": "forged", "provenance": "human"}], role="agent")
        assert [problem.code for problem in plain.problems] == ["forbidden"]

    async def test_an_agent_brings_in_no_other_owners_notes(self, service: Service) -> None:
        """C23: session notes of somebody else are refused by line."""
        await remember(service, "of s1", scope="session", caller={"session": "s1"})
        lines = await exported(service)
        answer = await taken_in(service, lines, role="agent", session="s2")
        assert [problem.code for problem in answer.problems] == ["forbidden"]
        assert (await taken_in(service, lines, role="agent", session="s1")).imported == 1

    async def test_a_fresh_agent_imports_nothing(self, service: Service) -> None:
        """An agent that keeps no memory brings none in either."""
        work = taken_in(service, [{"content": "x"}], role="agent", agent_kind="fresh")
        assert (await refused(work)).rule == "fresh"

    async def test_the_secret_guard_reads_along(self, service: Service) -> None:
        """A key in a line is told by its line and type, or refused there, and never repeated."""
        token = "gh" + "p_" + "x7Kd93mQp2" * 3 + "aB3dE9"
        lines: list[Any] = [{"content": "nothing to see"}, {"content": f"the token is {token}"}]
        answer = await taken_in(service, lines)
        assert answer.imported == 2
        assert len(answer.notices) == 1
        assert "line 2" in answer.notices[0]
        assert "github" in answer.notices[0]
        await call(service, "policy", workspace="strict", set={"secret_guard": "refuse"})
        strict = await taken_in(service, lines, workspace="strict")
        assert [(problem.line, problem.code) for problem in strict.problems] == [(2, "refused")]
        assert token not in repr((answer, strict))

    async def test_a_store_that_goes_away_ends_it(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that does not answer is no fault of a line: the import says so, and run again it carries on."""
        lines: list[Any] = [{"content": f"note {n}", "created_at": "2026-01-01", "kind": "finding"} for n in range(10)]
        await taken_in(service, lines[:4])
        with monkeypatch.context() as away:

            async def gone(*_: object) -> None:
                raise StoreUnavailable("no answer from the store")

            away.setattr(Log, "commit", gone)
            assert (await refused(taken_in(service, lines))).code == "store_unavailable"
        answer = await taken_in(service, lines)
        assert (answer.imported, answer.skipped, answer.problems) == (6, 4, ())
