"""Owners' lives: what is said again in a new life is a note of that life, whatever is still to end of the one
before."""

from __future__ import annotations

import asyncio

import pytest
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, listed, problems, projection, remember, state_of

from amnesiad.service import Service
from amnesiad.store.log import Outcome, Unit
from amnesiad.store.owners import close_owner, open_owner

S1 = {"session": "s1"}


@pytest.mark.parametrize("kind", ["finding", "fact"])
@pytest.mark.parametrize("heard", [True, False])
async def test_a_text_of_an_ended_life_is_written_anew(
    service: Service, second: Service, clock: ManualClock, heard: bool, kind: str
) -> None:
    """V28: a session ends and is resumed before its notes are erased, and says the same again: that is a note of the
    new life, which the end of the old one does not reach; also where only the start was heard and the end is late, and
    where the old note would be renewed."""
    old = await remember(service, "the deploy is half done", scope="session", kind=kind, caller=S1)
    log = (await projection(second, "desk") if heard else await projection(service)).log
    clock.advance(DAY)
    if heard:
        await close_owner(log, "s1", heard_at=clock.now_ms(), at=None, source=None)
    else:
        assert await open_owner(log, "s1", heard_at=clock.now_ms(), at=20, source="host", agent_kind="main")
    answer = await call(service, "remember", content="the deploy is half done", scope="session", kind=kind, caller=S1)
    assert answer.created
    assert answer.superseded == (old,)
    assert (await projection(service)).notes[answer.id].incarnation == 2
    through = await close_owner(log, "s1", heard_at=clock.now_ms() - 1, at=10, source="host")
    assert through == 1, "an end from before this life reaches the one before alone"
    assert await state_of(service, answer.id) == "active"
    again = await call(service, "remember", content="the deploy is half done", scope="session", kind=kind, caller=S1)
    assert (again.created, again.id) == (False, answer.id)
    assert await problems(service) == ()


async def test_what_a_human_said_in_an_ended_life_is_not_replaced_by_an_agent(
    service: Service, clock: ManualClock
) -> None:
    """An agent may not end a human's note, so the note that says the same stands for its own."""
    who = {**HUMAN, **S1}
    old = await remember(service, "ask before deploying", scope="session", provenance="human", caller=who)
    log = (await projection(service)).log
    await close_owner(log, "s1", heard_at=clock.advance(5), at=None, source=None)
    answer = await call(service, "remember", content="ask before deploying", scope="session", caller=S1)
    assert (answer.id, answer.created) == (old, False)


async def test_a_start_heard_late_divides_no_life(service: Service, clock: ManualClock) -> None:
    """Calls have opened an owner before its start was heard: its end then takes what was written before and after."""
    await remember(service, "before the start was heard", scope="session", caller=S1)
    log = (await projection(service)).log
    clock.advance(5)
    assert await open_owner(log, "s1", heard_at=clock.now_ms(), at=10, source="host", agent_kind=None)
    after = await remember(service, "after it", scope="session", caller=S1)
    assert (await projection(service)).notes[after].incarnation == 2
    assert not await open_owner(log, "s1", heard_at=clock.now_ms(), at=10, source="host", agent_kind=None)
    assert await close_owner(log, "s1", heard_at=clock.advance(5), at=11, source="host") == 2


@pytest.mark.parametrize(
    "verb", ["list", "inspect", "history", "status", "audit", "preview", "why-not", "policy", "owners", "ledger"]
)
async def test_whoever_looks_is_alive(service: Service, clock: ManualClock, verb: str) -> None:
    """C33: any call of an owner refreshes its lease, one that only looks too; somebody else's does not."""
    note_id = await remember(service, "half done", scope="session", caller=S1)
    await service.quiesce()
    keys = (await projection(service)).keys
    fields = {"id": note_id} if verb in ("inspect", "history", "why-not") else {}
    now = clock.advance(3_600_000)
    await call(service, verb, caller=HUMAN, **fields)
    await service.quiesce()
    assert (await service.redis.zscore(keys.leases, "s1") or 0) < now
    await call(service, verb, caller=S1, **fields)
    await service.quiesce()
    assert await service.redis.zscore(keys.leases, "s1") == now


async def test_a_write_that_changes_nothing_is_a_sign_of_life(service: Service, clock: ManualClock) -> None:
    """C33: saying the same again, or pinning what is pinned, comes from somebody who lives."""
    await remember(service, "half done", scope="session", kind="finding", caller=S1)
    await service.quiesce()
    keys = (await projection(service)).keys
    now = clock.advance(3_600_000)
    answer = await call(service, "remember", content="half done", scope="session", kind="finding", caller=S1)
    assert not answer.created
    await service.quiesce()
    assert await service.redis.zscore(keys.leases, "s1") == now


async def test_a_repeat_is_not_answered_with_what_is_ending(
    service: Service, second: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V28: the session ends while a repeat of its text is decided anew for another reason: it is a note of a new life,
    and not the one that the end is about to erase."""
    said = {"content": "the deploy is half done", "scope": "session", "caller": S1}
    old = (await call(service, "remember", kind="finding", **said)).id
    await call(second, "policy", set={"default_kind": "finding"}, caller=HUMAN)
    log = (await projection(service)).log
    commit = log.commit

    async def commit_then_end(unit: Unit) -> Outcome:
        monkeypatch.setattr(log, "commit", commit)
        outcome = await commit(unit)
        await close_owner(log, "s1", heard_at=clock.advance(5), at=None, source=None)
        return outcome

    monkeypatch.setattr(log, "commit", commit_then_end)
    answer = await call(service, "remember", **said)
    assert answer.created
    assert answer.superseded == (old,)
    assert (await projection(service)).notes[answer.id].incarnation == 2
    assert await problems(service) == ()


async def test_an_owner_that_was_ended_is_shown_as_closed_at_once(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends an owner sees in the answer that it is closed, though its notes are still to be erased."""
    await remember(service, "of the session", scope="session", caller=S1)
    log = (await projection(service)).log

    async def end_owner(_ws: str, owner: str) -> None:
        await close_owner(log, owner, heard_at=clock.advance(1), at=None, source=None)

    monkeypatch.setattr(service.jobs, "end_owner", end_owner)
    answer = await call(service, "owners", close="s1", caller=HUMAN)
    assert (answer.changed, [(row.owner, row.state, row.notes) for row in answer.rows]) == (1, [("s1", "closed", 1)])


async def test_as_many_sessions_as_may_come_are_remembered_within_bounds(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sessions that come by, whether they write or only look, the latest are remembered; each writes as it likes."""
    monkeypatch.setattr("amnesiad.workspace.MAX_OWNERS", 3)
    sessions = [{"session": f"s{number}"} for number in range(12)]
    for _ in range(2):
        await asyncio.gather(
            *(remember(service, "mine", scope="session", caller=caller) for caller in sessions),
            *(call(service, "list", caller={"session": f"look{number}"}) for number in range(12)),
        )
    workspace = await projection(service)
    assert len(workspace.owners) <= 3
    assert len(workspace.signs) <= 3
    assert len(await listed(service, caller=HUMAN)) == 12
    assert await problems(service) == ()
