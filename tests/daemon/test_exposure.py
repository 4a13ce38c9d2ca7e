"""Who was shown a note, when, how, at which version, and what they wrote afterwards: read from the ledger, within
bounds."""

from __future__ import annotations

import pytest
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, kept, projection, refused, remember

from amnesiad import wire
from amnesiad.service import Service
from amnesiad.service.reading import exposing, ledger

S1 = {"session": "s1"}
S2 = {"session": "s2", "agent": "planner"}
CHILD = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}


async def exposure(service: Service, note_id: str, **fields: object) -> wire.ExposureAnswer:
    """The answer a human gets."""
    answer = await call(service, "exposure", id=note_id, **({"caller": HUMAN} | fields))
    assert isinstance(answer, wire.ExposureAnswer)
    return answer


async def test_who_was_shown_it_and_what_they_wrote(service: Service, second: Service, clock: ManualClock) -> None:
    """Sessions and children by daemon, times, kinds and versions; of their notes only those written since."""
    before = await remember(service, "written before", kind="finding", caller=S1)
    rule = await remember(service, "never force-push", kind="directive", caller=S2)
    clock.advance(DAY)
    first = clock.now_ms()
    await call(service, "inject", caller=S1)
    await call(second, "inject", caller=CHILD)
    clock.advance(DAY)
    await call(second, "recall", query="force-push", caller=S1)
    plain = await remember(service, "pushed by hand", kind="finding", caller=S1)
    own = await remember(second, "the child's own", caller=CHILD)
    await remember(service, "by somebody who never saw it", kind="finding", caller=S2)
    await call(service, "edit", id=rule, tags=["git"], caller=S2)
    clock.advance(DAY)
    await call(service, "inject", caller=S1)
    last = clock.now_ms()

    answer = await exposure(service, rule)
    main, child = answer.rows
    assert (answer.id, answer.total, answer.cut) == (rule, 2, False)
    assert (main.session, main.owner, main.actor, main.first_at, main.last_at) == ("s1", "s1", "agent:s1", first, last)
    assert (main.times, main.kinds, main.versions) == (3, {"inject": 2, "recall": 1}, (1, 2))
    assert (main.wrote, main.wrote_count) == ((plain,), 1)
    assert (child.session, child.owner, child.actor) == ("s1", "s1/a1", "agent:a1")
    assert (child.times, child.wrote) == (1, (own,))
    assert before not in main.wrote
    assert (await exposure(second, rule[:6])).rows == answer.rows


async def test_deterrents_corrections_and_forgotten_notes(service: Service) -> None:
    """A note shown as a warning was shown too; one that is forgotten by now may be asked for all the more."""
    note_id = await remember(service, "the port is 8080", kind="finding")
    await call(service, "inject", caller=S1)
    await call(service, "revoke", id=note_id, reason="no")
    await call(service, "recall", query="port 8080", caller=S2)
    await call(service, "inject", caller=S1)
    await call(service, "forget", id=note_id, caller=HUMAN)
    rows = {row.actor: row.kinds for row in (await exposure(service, note_id)).rows}
    assert rows == {"agent:s1": {"inject": 1, "correction": 1}, "agent:planner": {"deterrent": 1}}


async def test_only_those_who_see_the_whole_may_ask(service: Service, clock: ManualClock) -> None:
    """A human and main agents; and nobody about a note that it may not see, nor of notes that it may not see."""
    private = await remember(service, "the session's own", scope="session", caller=S1)
    await call(service, "inject", caller=S1)
    clock.advance(1)
    later = await remember(service, "another of its own", scope="session", caller=S1)
    for caller in (CHILD, {"team": "s1", "agent": "b", "agent_kind": "teammate"}, {"agent_kind": "fresh"}):
        error = await refused(exposure(service, private, caller=caller))
        assert (error.code, error.rule) == ("forbidden", "exposure-role")
    assert (await refused(exposure(service, private, caller=S2))).code == "not_found"
    assert (await exposure(service, private, caller=S1)).rows[0].wrote == (later,)
    shared = await remember(service, "for all", kind="finding", caller=S2)
    await call(service, "recall", query="for all", caller=S1)
    clock.advance(1)
    another = await remember(service, "a third of its own", scope="session", caller=S1)
    assert (await exposure(service, shared)).rows[0].wrote == (another,)
    assert (await exposure(service, shared, caller=S2)).rows[0].wrote == ()


async def test_it_says_where_it_stopped(service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the ledger is, so much of it is looked at, and the answer says that it goes on."""
    monkeypatch.setattr(ledger, "PAGE", 4)
    monkeypatch.setattr(exposing, "MAX_SCANNED", 8)
    monkeypatch.setattr(exposing, "MAX_WROTE", 2)
    note_id = await remember(service, "the port is 8080", kind="finding")
    await call(service, "inject", caller=S2)
    clock.advance(1)
    for _ in range(8):
        await call(service, "inject", caller=S1)
    answer = await exposure(service, note_id)
    assert [row.actor for row in answer.rows] == ["agent:s1"]
    assert answer.rows[0].times == 8
    assert answer.cut
    assert answer.since is not None
    monkeypatch.setattr(exposing, "MAX_SCANNED", 12)
    assert not (await exposure(service, note_id)).cut
    clock.advance(1)
    for number in range(3):
        await remember(service, f"finding {number}", kind="finding", caller=S1)
    row = (await exposure(service, note_id, limit=1)).rows[0]
    assert (len(row.wrote), row.wrote_count) == (2, 3)
    assert (await exposure(service, note_id, limit=1)).total == 2


async def test_what_somebody_else_put_into_the_ledger_ends_no_look(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V09: an entry that is none of ours among the others hides nothing that lies behind it, from exposure or
    ledger."""
    monkeypatch.setattr(ledger, "PAGE", 3)
    note_id = await remember(service, "the port is 8080", kind="finding")
    await call(service, "inject", caller=S2)
    await service.redis.xadd((await projection(service)).keys.access, {"x": "foreign"})
    await call(service, "inject", caller=S1)
    await call(service, "inject", caller=S1)
    answer = await exposure(service, note_id)
    assert {(row.session, row.times) for row in answer.rows} == {("s1", 2), ("s2", 1)}
    assert not answer.cut
    assert len((await call(service, "ledger", caller=HUMAN)).rows) == 3


async def test_asking_changes_nothing(service: Service) -> None:
    """No entry in the ledger, no use, no renewal."""
    note_id = await remember(service, "the port is 8080", kind="finding")
    await call(service, "inject", caller=S1)
    await service.quiesce()
    before = await kept(service)
    await exposure(service, note_id)
    await service.quiesce()
    assert await kept(service) == before
