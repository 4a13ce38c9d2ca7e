"""The service and time: shelf lives, renewal, expiry, the two regimes, and what no passing of time may do."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.daemon.conftest import serve
from tests.daemon.desk import (
    DAY,
    HUMAN,
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
from tests.support import wait_until

from amnesiad.core import decisions
from amnesiad.service import Service
from amnesiad.service.writing.change import Change


async def _flag_anchor(service: Service, note_id: str) -> None:
    """What the anchor check does when it sees that the file has changed."""
    workspace = await projection(service)
    change = Change(workspace, service.clock.now_ms())
    change.add(note_id, decisions.flag(change.settled(note_id), None, change.now, cause="anchor"))
    unit = change.finish()
    assert unit is not None
    workspace.absorb(await workspace.log.commit(unit), change.results)


# -- acceptance of the first seed ----------------------------------------------------------------------------------


async def test_a_directive_outlives_every_age(service: Service, clock: ManualClock) -> None:
    """V06, acceptance (a): under ``record_ttl`` of a day a directive of any age survives decay and settle, visible."""
    await call(service, "policy", set={"record_ttl": "1d", "ended_retention": "1d"})
    note_id = await remember(service, "never push to main", kind="directive")
    other = await remember(service, "the api was rewritten", kind="finding")
    for age in (2, 400, 36_500):
        clock.advance(age * DAY)
        await sweep(service)
        assert await recalled(service, "push to main") == ["never push to main"]
        assert note_id in (await call(service, "inject")).ids
    view = (await call(service, "inspect", id=note_id)).note
    assert (view.state, view.rank, view.strength, view.expires_at) == ("active", 1.0, 1.0, None)
    assert (await call(service, "history", id=note_id)).events[-1].type == "created"
    assert other not in await listed(service, states=["active", "stale", "expired"])


async def test_an_expired_record_leaves_every_reading_and_nothing_else(service: Service, clock: ManualClock) -> None:
    """Acceptance (b): an expired record leaves recall and inject; inspect, history and its deterrent still tell of
    it."""
    await call(service, "policy", set={"record_ttl": "10d"})
    note_id = await remember(service, "the cache is warmed at six", kind="finding", tags=["cache"])
    for swept in (False, True):
        if swept:
            await sweep(service)
        else:
            clock.advance(10 * DAY)
        assert await recalled(service, "cache warmed") == []
        assert note_id not in (await call(service, "inject", query="cache")).ids
        answer = await call(service, "inspect", id=note_id)
        assert (answer.note.state, answer.note.content) == ("expired", "the cache is warmed at six")
        assert (answer.note.expires_at, answer.note.stale_at, answer.note.strength) == (None, None, 0.0)
        assert answer.text.startswith(f"[{note_id}] [EXPIRED] [cache] Expired (recorded ")
        assert answer.text.endswith("Words and history retained; reinstate to bring it back.")
    event = (await call(service, "history", id=note_id)).events[-1]
    assert (event.type, event.frm, event.to, event.reason, event.actor) == (
        "expired",
        "active",
        "expired",
        "ttl",
        "system",
    )
    await call(service, "reinstate", id=note_id)
    assert await recalled(service, "cache") == ["the cache is warmed at six"]


async def test_settling_again_changes_no_number(service: Service, second: Service, clock: ManualClock) -> None:
    """C32, acceptance (c): settling once or thirty times, in whichever daemon, gives identical numbers and events."""
    await call(service, "policy", set={"record_ttl": "20d"})
    await remember(service, "never push to main", kind="directive")
    await remember(service, "a finding", kind="finding")
    await remember(service, "a fact")
    await remember(service, "an episode", kind="episode", ttl_ms="40d")
    clock.advance(15 * DAY)
    await sweep(service)
    once = await call(service, "list", states=["active", "stale", "expired"], with_content=True)
    before = await kept(service)
    for n in range(30):
        assert await sweep((service, second)[n % 2]) == 0
    assert await kept(service) == before
    assert await call(service, "list", states=["active", "stale", "expired"], with_content=True) == once
    assert await call(second, "list", states=["active", "stale", "expired"], with_content=True) == once
    assert await problems(service) == ()


async def test_a_view_is_the_same_before_and_after_the_pass(service: Service, clock: ManualClock) -> None:
    """Acceptance (c): what reads show at an instant does not depend on whether a pass has run."""
    await remember(service, "weakens")
    await remember(service, "weakens faster", ttl_ms="16d")
    clock.advance(13 * DAY)
    unswept = await call(service, "list", with_content=True)
    assert {note.state for note in unswept.notes} == {"stale"}
    assert await sweep(service) == 2
    swept = await call(service, "list", with_content=True)
    assert swept.notes == unswept.notes


# -- ends ----------------------------------------------------------------------------------------------------------


async def test_what_has_expired_stays_dead_whoever_reads(service: Service, second: Service, clock: ManualClock) -> None:
    """C10: workers stopped, the TTL passes: recall and inject do not return it, and reading moves no deadline."""
    note_id = await remember(service, "the token lives an hour", ttl_ms="1h")
    clock.advance(3_600_000)
    before = await kept(service)
    for asked in (service, second):
        assert await recalled(asked, "token") == []
        assert await recalled(asked) == []
        assert (await call(asked, "inject", query="token")).text == ""
        assert (await call(asked, "fire", event="pre-run")).notes == ()
        assert await listed(asked) == []
        await asked.quiesce()
    assert await kept(service) == before
    status = await call(service, "status")
    assert (status.counts.active, status.counts.forgotten) == (0, 1)
    await sweep(service)
    history = (await call(service, "history", id=note_id)).events
    assert [(event.type, event.reason) for event in history] == [
        ("created", None), ("expired", "decayed"), ("forgotten", "expired"),
    ]  # fmt: skip
    assert history[1].at == history[2].at <= clock.now_ms()


async def test_time_alone_ends_what_its_writer_gave_a_shelf_life(service: Service, clock: ManualClock) -> None:
    """C09: a record with a TTL of its own expires without any policy, keeps its words, and cannot be renewed."""
    note_id = await remember(service, "the freeze ends on Friday", kind="operational", ttl_ms="5d")
    clock.advance(5 * DAY)
    assert await state_of(service, note_id) == "expired"
    error = await refused(call(service, "renew", id=note_id))
    assert "reinstate" in error.hint
    await call(service, "reinstate", id=note_id)
    assert await recalled(service, "freeze") == ["the freeze ends on Friday"]
    assert (await call(service, "inspect", id=note_id)).note.expires_at == clock.now_ms() + 5 * DAY


# -- renewal -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "lives"), [(10, True), (25, True), (None, False)])
async def test_use_keeps_a_note_alive_and_idleness_ends_it(
    service: Service, clock: ManualClock, every: int | None, lives: bool
) -> None:
    """V29: a note used every 10 or every 25 days with a TTL of 30 lives for a year; one never used is gone on day
    30."""
    note_id = await remember(service, "the linter is strict")
    if every is None:
        expires = (await call(service, "inspect", id=note_id)).note.expires_at
        assert clock.now_ms() + 29 * DAY < expires <= clock.now_ms() + 30 * DAY
        clock.advance(30 * DAY)
    else:
        for _ in range(365 // every):
            clock.advance(every * DAY)
            assert await recalled(service, "linter") == ["the linter is strict"]
            await service.quiesce()
    await sweep(service)
    assert (await recalled(service, "linter") != []) == lives


async def test_renewal_bounds_strength_and_never_compounds(service: Service, clock: ManualClock) -> None:
    """C31: junk renewed a hundred times is no stronger than 1 and outlives an idle TTL no longer than a good note."""
    junk = await remember(service, "junk")
    await remember(service, "good")
    for _ in range(100):
        clock.advance(DAY)
        await call(service, "renew", id=junk)
        view = (await call(service, "inspect", id=junk)).note
        assert view.strength <= 1.0
        assert view.expires_at <= clock.now_ms() + 30 * DAY
    clock.advance(30 * DAY)
    assert await listed(service) == []


async def test_use_in_one_moment_is_recorded_once(service: Service) -> None:
    """C31: a note used a hundred times at once is renewed at most once, and saying its text again adds no event."""
    note_id = await remember(service, "popular")
    for _ in range(100):
        await recalled(service, "popular")
        await call(service, "remember", content="popular")
    await service.quiesce()
    assert not (await call(service, "renew", id=note_id)).changed
    assert await log_types(service) == ["created"]
    assert (await call(service, "inspect", id=note_id)).note.access_count == 100


async def test_a_changed_file_stays_in_doubt_whatever_use_does(service: Service, clock: ManualClock) -> None:
    """V30: a decayed note whose file changes is renewed: it is no longer decayed, and still marked by its anchor."""
    note_id = await remember(service, "parse is in app.py", anchors=["src/app.py"])
    clock.advance(13 * DAY)
    await sweep(service)
    await _flag_anchor(service, note_id)
    assert set((await call(service, "inspect", id=note_id)).note.causes) == {"decayed", "anchor"}
    assert (await call(service, "renew", id=note_id)).state == "stale"
    view = (await call(service, "inspect", id=note_id)).note
    assert (view.state, view.causes) == ("stale", ("anchor",))
    assert note_id not in (await call(service, "inject", query="parse")).ids
    assert "file changed since; verify" in (await call(service, "inject", paths=["src/app.py"])).text


async def test_writing_a_text_again_renews_it(service: Service, clock: ManualClock) -> None:
    """C14: an identical live text said again starts its shelf life anew."""
    note_id = await remember(service, "the mirror is in Oslo")
    clock.advance(20 * DAY)
    answer = await call(service, "remember", content="the mirror is in Oslo")
    assert (answer.id, answer.created) == (note_id, False)
    assert answer.expires_at > clock.now_ms() + 20 * DAY
    assert await log_types(service) == ["created", "stale_flagged", "renewed"]


async def test_an_injected_line_is_no_news(service: Service, second: Service, clock: ManualClock) -> None:
    """C31: text that amnesiad itself injected is not taken for news: no note, no renewal, no event."""
    a = await remember(service, "the port is 8080: always", kind="directive")
    b = await remember(service, "two\nlines [REVOKED] of (text)", tags=["x"])
    gone = await remember(service, "the port is 7070", kind="finding")
    await call(service, "revoke", id=gone, reason="moved")
    text = (await call(service, "inject", query="port lines text")).text
    clock.advance(5 * DAY)
    before = await log_types(service)
    answer = await call(service, "remember", content=text)
    assert not answer.created
    assert answer.id in (a, b)
    for line in text.splitlines()[1:-1]:
        if gone not in line:
            answer = await call(second, "remember", content=f"  {line}\n", kind="finding")
            assert (answer.created, answer.id) == (False, line[1:11])
    recalled_text = (await call(service, "recall", query="port", format="text")).text
    assert not (await call(service, "remember", content=recalled_text)).created
    await service.quiesce()
    assert [kind for kind in await log_types(service) if kind != "renewed"] == before
    for news in (f"{text}\nand the user confirmed it", text.replace("reason: moved", "reason: moved to 9090")):
        assert news != text
        assert (await call(service, "remember", content=news)).created


async def test_a_line_of_a_note_the_caller_may_not_see_is_news_to_it(service: Service) -> None:
    """C23: the guard against echoes tells nobody whether somebody else's note exists."""
    other = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}
    await remember(service, "mine alone", caller=other)
    line = (await call(service, "recall", format="text", caller=other)).text
    answer = await call(service, "remember", content=line, caller={"session": "s2"})
    assert answer.created


@pytest.mark.parametrize(("renews", "expected"), [("matched", 1), ("always", 2), ("never", 0)])
async def test_what_injection_renews_is_a_setting(
    service: Service, clock: ManualClock, renews: str, expected: int
) -> None:
    """C31: by default an injection renews only what the step asked for, so that what merely fits does not live for
    ever."""
    await call(service, "policy", set={"injection_renews": renews})
    await remember(service, "the database is postgres")
    await remember(service, "breakfast is at nine")
    clock.advance(5 * DAY)
    answer = await call(service, "inject", query="which database")
    assert len(answer.ids) == 2
    await service.quiesce()
    assert (await log_types(service)).count("renewed") == expected


@pytest.mark.parametrize(("renews", "expected"), [("matched", 1), ("always", 1), ("never", 0)])
async def test_what_fires_is_renewed_unless_nothing_is(
    service: Service, clock: ManualClock, renews: str, expected: int
) -> None:
    """C31: a trigger that matches asks for its note, so its firing is a use; where injections renew nothing it is
    none."""
    await call(service, "policy", set={"injection_renews": renews})
    note_id = await remember(service, "check the lock first", triggers=[{"event": "pre-run"}])
    await remember(service, "breakfast is at nine")
    clock.advance(5 * DAY)
    assert [note.id for note in (await call(service, "fire", event="pre-run")).notes] == [note_id]
    await service.quiesce()
    assert (await log_types(service)).count("renewed") == expected


async def test_a_step_that_shares_only_small_words_asks_for_nothing(service: Service, clock: ManualClock) -> None:
    """C31: *the* and *for* in a prompt renew no note and bring no revoked one: else every prompt would keep all
    alive."""
    await remember(service, "the port for the database is 9090")
    wrong = await remember(service, "the old host is the first one", kind="decision")
    await call(service, "revoke", id=wrong, reason="it moved")
    clock.advance(5 * DAY)
    asked: dict[str, Any] = {"query": "fix the login page for the admin"}
    shown = await call(service, "inject", **asked)
    assert len(shown.ids) == 1
    assert shown.deterrents == ()
    found = await call(service, "recall", **asked)
    assert (found.notes, found.deterrents) == ((), ())
    await service.quiesce()
    assert "renewed" not in await log_types(service)
    assert len((await call(service, "recall", query="the")).notes) == 1


async def test_preview_is_inject_without_a_trace(service: Service, clock: ManualClock) -> None:
    """C10: preview shows what inject would, and leaves no ledger entry, renewal or count behind."""
    await remember(service, "the database is postgres")
    clock.advance(5 * DAY)
    before = await kept(service)
    preview = await call(service, "preview", query="database")
    await service.quiesce()
    assert await kept(service) == before
    assert (await call(service, "inject", query="database")).text == preview.text


async def test_the_nth_access_gives_a_longer_life(service: Service, clock: ManualClock) -> None:
    """V29: with ``promote_after_accesses`` the third use lengthens the TTL, once."""
    await call(service, "policy", set={"promote_after_accesses": 3, "promoted_ttl": "300d"})
    note_id = await remember(service, "asked for often")
    for _ in range(5):
        clock.advance(DAY)
        await recalled(service, "often")
        await service.quiesce()
    assert (await call(service, "inspect", id=note_id)).note.ttl_ms == 300 * DAY
    assert (await log_types(service)).count("promoted") == 1


# -- policy and the clocks -----------------------------------------------------------------------------------------


async def test_record_ttl_is_opted_into_and_out_of(service: Service, second: Service, clock: ManualClock) -> None:
    """V06: a live change of ``record_ttl`` is felt by every daemon at its next answer, and taken back as quickly."""
    note_id = await remember(service, "the api is at v2", kind="task")
    clock.advance(100 * DAY)
    for value, expected in (("1d", "expired"), ("off", "active"), ("by-kind", "expired"), ("200d", "active")):
        await call(service, "policy", set={"record_ttl": value})
        assert await state_of(service, note_id) == expected
        assert await state_of(second, note_id) == expected
        assert (await recalled(second, "api") == []) == (expected == "expired")
    values = (await call(second, "policy")).values
    assert (values["record_ttl"].value, values["record_ttl"].origin) == ("200d", "workspace")
    await call(second, "policy", reset=["record_ttl"])
    assert (await call(service, "policy")).values["record_ttl"].origin == "default"
    assert await problems(service) == ()


async def test_many_changes_of_policy_at_once_leave_every_daemon_able_to_write(
    service: Service, second: Service
) -> None:
    """C50: policies set in one moment at two daemons all land, and neither daemon is left behind with an older one."""
    await remember(service, "the first")
    for n in range(1, 31):
        settings = {"default_ttl": n, "audit_retention": n, "promoted_ttl": n, "max_record_bytes": n}
        asked = [(service, second)[m % 2] for m in range(4)]
        await asyncio.gather(
            *(
                call(one, "policy", set={name: f"{value}KiB" if "bytes" in name else f"{value}d"})
                for one, (name, value) in zip(asked, settings.items(), strict=True)
            )
        )
        for one in (service, second):
            await remember(one, f"{one is service} {n}")
    policies = [(await projection(one)).policy for one in (service, second)]
    assert policies[0] == policies[1]
    assert (await log_types(service)).count("policy_changed") >= 118


async def test_a_policy_that_holds_already_changes_nothing(service: Service) -> None:
    """C32: setting a value that holds appends nothing, and a refused one leaves every key as it was."""
    await call(service, "policy", set={"record_ttl": "1d"})
    before = await kept(service)
    await call(service, "policy", set={"record_ttl": "1d"})
    assert await kept(service) == before
    for bad in (
        {"record_ttl": "-1"},
        {"record_ttl": 0},
        {"stale_strength": 0},
        {"no_such": 1},
        {"forgotten_strength": 0.9},
    ):
        error = await refused(call(service, "policy", set={"default_ttl": "9d", **bad}))
        assert (error.code, error.field) == ("invalid", next(iter(bad)))
        assert await kept(service) == before


@pytest.mark.parametrize("ttl", [0, -1, "0s", "-1d", 10**18, "200y"])
async def test_a_ttl_out_of_range_is_refused_by_name(service: Service, ttl: Any) -> None:
    """V11: a TTL of nothing, below nothing or beyond a hundred years is refused with the field's name."""
    error = await refused(call(service, "remember", content="x", ttl_ms=ttl))
    assert (error.code, error.field) == ("invalid", "ttl_ms")


async def test_contradictory_shelf_lives_are_refused(service: Service, clock: ManualClock) -> None:
    """V11: a directive with a TTL, a pin with a TTL, two ends at once and an end in the past are refused."""
    for fields in (
        {"kind": "directive", "ttl_ms": "1d"},
        {"pinned": True, "ttl_ms": "1d"},
        {"ttl_ms": "1d", "expires_at": clock.now_ms() + DAY},
        {"expires_at": clock.now_ms() - 1},
    ):
        assert (await refused(call(service, "remember", content="x", **fields))).code == "invalid"
    assert await listed(service) == []


@pytest.mark.parametrize("kind", ["fact", "finding", "task-context"])
async def test_a_note_ends_at_the_instant_it_was_given(service: Service, clock: ManualClock, kind: str) -> None:
    """V11: the floor of its curve does not take a note away before the instant its writer named."""
    end = clock.now_ms() + 31 * DAY + 12_345
    answer = await call(service, "remember", content="until the licence ends", kind=kind, expires_at=end)
    assert answer.expires_at == end
    clock.advance(31 * DAY + 12_344)
    assert await listed(service) == [answer.id]
    clock.advance(1)
    assert await listed(service) == []


async def test_an_end_beyond_a_hundred_years_names_its_field(service: Service) -> None:
    """V11: the field that is refused is the one that was sent."""
    error = await refused(call(service, "remember", content="x", expires_at="2300-01-01"))
    assert (error.code, error.field) == ("invalid", "expires_at")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/Los_Angeles"])
async def test_a_date_is_one_instant_in_every_zone(redis: Redis, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C05, C06: an expiry given as a date, and a filter by a day, mean the same instant wherever the daemon runs."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        midnight = int(datetime(2031, 5, 1, tzinfo=UTC).timestamp() * 1000)
        clock = ManualClock(midnight - 2 * DAY + 2 * 3_600_000)  # 02:00Z on 29 April
        service = serve(redis, clock)
        note_id = await remember(service, "the licence ends", kind="finding", expires_at="2031-05-01")
        view = (await call(service, "inspect", id=note_id)).note
        assert view.expires_at == midnight
        assert await recalled(service, since="2031-04-29", until="2031-04-30") == ["the licence ends"]
        assert await recalled(service, since="2031-04-29T10:00:00+08:00") == ["the licence ends"]
        assert await recalled(service, since="2031-04-29T10:00:01+08:00") == []
        assert await recalled(service, until="2031-04-29") == []
        clock.advance(midnight - 1 - clock.now_ms())
        assert await state_of(service, note_id) == "active"
        clock.advance(1)
        assert await state_of(service, note_id) == "expired"
        assert "2031-05-01" in (await call(service, "inspect", id=note_id)).text
        await service.quiesce()
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_minutely_write_for_a_day_stays_within_its_bounds(service: Service, clock: ManualClock) -> None:
    """V31: 1440 writes of one slot: at most one lives, words stay within the bound, the log grows by transitions
    only."""
    limit = 8192
    await call(service, "policy", set={"max_store_bytes": limit})
    for minute in range(1440):
        clock.advance(60_000)
        answer = await call(
            service, "remember", content=f"at minute {minute} the queue holds {minute * 7}", key="queue"
        )
        assert len(answer.superseded) == (minute > 0)
    assert len(await listed(service)) == 1
    workspace = await projection(service)
    assert workspace.bytes["perishable"] <= limit
    stored = await kept(service)
    assert sum(len(words) for key, words in _hash(stored, "vault").items() if key) < 4 * limit
    assert int(_hash(stored, "totals")[b"perishable_bytes"]) <= limit
    types = await log_types(service)
    assert types.count("created") == 1440
    assert types.count("superseded") == 1439
    assert len(types) <= 1 + 3 * 1440
    assert await problems(service) == ()


def _hash(stored: dict[str, Any], name: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = next(value for key, value in stored.items() if key.endswith(f":{name}"))
    return found


async def test_a_human_s_word_ages_like_any_other(service: Service, clock: ManualClock) -> None:
    """C32: who said it decides who may end it, not how long it lives: a human's preference expires with its TTL."""
    note_id = await remember(service, "tabs, please", kind="preference", caller=HUMAN)
    pinned = await remember(service, "dark mode", kind="preference", pinned=True, caller=HUMAN)
    clock.advance(31 * DAY)
    await sweep(service)
    assert await listed(service) == [pinned]
    await call(service, "unpin", id=pinned, caller=HUMAN)
    clock.advance(29 * DAY)
    assert await state_of(service, pinned) == "stale"
    clock.advance(DAY)
    assert await listed(service) == []
    entries = (await call(service, "audit")).entries
    assert {(entry.id, entry.reason, entry.actor) for entry in entries} == {(note_id, "expired", "system")}


async def test_an_earlier_moment_can_be_looked_at(service: Service) -> None:
    """C06: ``at`` shows the note as the log had it then; before its birth there was none."""
    first = await call(service, "remember", content="the port is 8080", kind="finding")
    born = int(first.seq.split("-")[0])

    async def later() -> bool:
        seconds, micros = await service.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000 > born

    await wait_until(later)
    revoked = int((await call(service, "revoke", id=first.id, reason="moved")).seq.split("-")[0])
    for at, state in ((born, "active"), (revoked - 1, "active"), (revoked, "revoked"), (born + 3_600_000, "revoked")):
        then = (await call(service, "inspect", id=first.id, at=at)).note
        assert (then.id, then.state) == (first.id, state)
    assert (await refused(call(service, "inspect", id=first.id, at=born - 1))).code == "not_found"
    await call(service, "forget", id=first.id)
    then, now = [await call(service, "inspect", id=first.id, **fields) for fields in ({"at": born}, {})]
    assert (then.note.state, now.note.state) == ("active", "forgotten")
    assert then.text == now.text, "its words of then are erased too, and the line says since when"
