"""Import line by line: dates, lines that are wrong, dry runs, and who may bring in what."""

from __future__ import annotations

from typing import Any

import pytest
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
from tests.daemon.lines import ELSEWHERE, busy_life, everything, exported, parsed, taken_in

from amnesiad.errors import StoreUnavailable
from amnesiad.limits import MAX_LINE_BYTES
from amnesiad.service import Service
from amnesiad.service.transfer import importing, shapes
from amnesiad.store.log import Log


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
        """C19: an export that lay about until its perishables lapsed brings them in ended; records stay as they
        were."""
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
            b'{"content": "x", "created_at": 1e400}',
            b'{"content": "x", "created_at": "\xff"}',
            b'{"content": "x", "created_at": 1' + b"0" * 5000 + b"}",
            {"line": "export", "format": 1, "workspace": "w", "through": "1-0", "key": "k", "at": 1, "after": "here"},
            {
                "line": "fact",
                "seq": "there",
                "event": {"type": "scrubbed", "at": 1, "actor": "system", "through": "1-0", "result": "done"},
            },
            {"line": "note", "id": "0123456789", "seq": "9" * 40 + "-1", "events": []},
        ]
        lines: list[bytes | dict[str, Any]] = []
        for n, line in enumerate(bad):
            lines += [line, {"content": f"good line {n}"}]
        answer = await taken_in(service, lines)
        assert [problem.line for problem in answer.problems] == list(range(1, 2 * len(bad), 2))
        assert {problem.code for problem in answer.problems} == {"invalid", "too_large"}
        assert (answer.lines, answer.imported) == (2 * len(bad), len(bad))
        assert len(await listed(service, workspace=ELSEWHERE)) == len(bad)

    async def test_a_date_is_refused_for_what_is_wrong_with_it(self, service: Service) -> None:
        """V26: a number that is out of range and a text that is none are told apart."""
        dates = (b"1e400", b'"\xff"')
        answer = await taken_in(service, [b'{"content": "x", "created_at": %b}' % date for date in dates])
        told = [problem.message for problem in answer.problems]
        assert told == ["created_at is a number that is out of range", "created_at is not JSON in UTF-8"]

    async def test_owners_without_end_are_refused(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """V26: a file may tell of so many owners; each beyond is named by its line, and the others are taken in."""
        monkeypatch.setattr(importing, "MAX_OWNERS", 2)
        owners = [{"line": "owner", "owner": f"s{n}", "incarnation": 1, "open": True} for n in (1, 2, 2, 3)]
        answer = await taken_in(service, [*owners, {"content": "of everybody"}])
        assert [(problem.line, problem.code) for problem in answer.problems] == [(4, "too_large")]
        assert answer.imported == 1

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


class TestDamage:
    """What is damaged here, or lost on the way, costs its own line."""

    async def test_a_damaged_owner_stops_no_other_line(self, service: Service) -> None:
        """V09: an owner's cell cannot be read any more; its line is reported by its number, the others come in."""
        mine = {"session": "s1"}
        await remember(service, "of before", scope="session", caller=mine, workspace=ELSEWHERE)
        view = await projection(service, ELSEWHERE)
        await service.redis.hset(view.keys.cells, "owner:s1", "no cell at all")
        lines = [{"content": "of its session", "scope": "session", "owner": "s1"}, {"content": "of everybody"}]
        answer = await taken_in(service, lines)
        assert (answer.imported, [(one.line, one.code) for one in answer.problems]) == (1, [(1, "conflict")])
        assert await recalled(service, "everybody", workspace=ELSEWHERE) == ["of everybody"]


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
        lines = parsed(await exported(service))
        mine = [line for line in lines if line["line"] == "note" and line["words"]["content"] == "the agent's"]
        mine[0]["events"][0]["provenance"] = "user-stated"
        forged = await taken_in(service, mine, workspace="forged", role="agent")
        assert [problem.code for problem in forged.problems] == ["forbidden"]
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
