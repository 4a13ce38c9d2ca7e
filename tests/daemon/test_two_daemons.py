"""Cases of one daemon, asked of two on one store: what one did, the other goes by at its next answer."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.daemon.desk import (
    DAY,
    ManualClock,
    call,
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

from amnesiad.service import Service
from amnesiad.service.writing.change import Change
from amnesiad.store import due


async def test_what_ran_out_is_shown_by_neither(service: Service, second: Service, clock: ManualClock) -> None:
    """C10: no worker runs and the TTL passes: neither daemon hands it out, neither read moves its deadline, and it is
    swept once, whichever daemon's use had renewed it last."""
    note_id = await remember(service, "the ferry leaves at nine", ttl_ms=DAY)
    clock.advance(DAY // 2)
    assert await recalled(second, "ferry") == ["the ferry leaves at nine"]
    await second.quiesce()
    clock.advance(DAY // 2 + 1)
    assert await recalled(service, "ferry") == ["the ferry leaves at nine"], "its use at the other one had renewed it"
    await service.quiesce()
    keys = (await projection(service)).keys
    deadline = await service.redis.zscore(keys.due, note_id)
    clock.advance(2 * DAY)
    for daemon in (service, second, service):
        assert await recalled(daemon, "ferry") == []
        assert (await call(daemon, "inject", query="ferry")).ids == ()
        assert (await refused(call(daemon, "renew", id=note_id))).code == "refused"
        await daemon.quiesce()
    assert await service.redis.zscore(keys.due, note_id) == deadline
    await asyncio.gather(sweep(service), sweep(second))
    assert (await log_types(second)).count("forgotten") == 1
    assert await problems(service) == ()


async def test_a_slot_s_latest_value_lives_at_both(service: Service, second: Service) -> None:
    """C13: values of one key, written by the two in turn: only the newest lives, and each old one names its
    successor."""
    ids = []
    for number, daemon in zip(range(6), itertools.cycle((service, second))):
        ids.append(await remember(daemon, f"the port is {8000 + number}", kind="finding", key="port"))
    for daemon in (service, second):
        assert await recalled(daemon, "port") == ["the port is 8005"]
        assert await listed(daemon) == [ids[-1]]
    for old, new in itertools.pairwise(ids):
        assert (await call(second, "inspect", id=old)).note.superseded_by == new
    assert await problems(second) == ()


async def test_a_text_said_at_both_is_one_note(service: Service, second: Service) -> None:
    """C14: the same text, five times at each, all at once."""
    said = [remember(daemon, "the harbor is shallow", kind="finding") for daemon in (service, second) * 5]
    assert len(set(await asyncio.gather(*said))) == 1
    assert await log_types(service) == ["created"]


@pytest.mark.parametrize("filed", [True, False])
async def test_what_was_decided_before_it_was_forgotten_elsewhere_is_dropped(
    service: Service, second: Service, clock: ManualClock, filed: bool
) -> None:
    """C21: one daemon has decided to settle a note, or to file it anew, when the other forgets it: it stays forgotten,
    no head appears, and nothing is due."""
    note_id = await remember(service, "over tomorrow", ttl_ms=DAY)
    workspace = await projection(service)
    clock.advance(2 * DAY)
    change = Change(workspace, clock.now_ms())
    change.owe(note_id)
    unit = change.finish()
    filing = due.Filing(note_id, workspace.notes[note_id].version, clock.now_ms())
    await call(second, "forget", id=note_id)
    if filed:
        assert await due.refile(service.redis, workspace.keys, workspace.policy_version, [filing]) == 0
    else:
        assert unit is not None
        assert (await workspace.log.commit(unit)).status == "conflict"
    assert await state_of(service, note_id) == await state_of(second, note_id) == "forgotten"
    assert await service.redis.hlen(workspace.keys.heads) == 0
    assert (await log_types(second)).count("forgotten") == 1
    assert await problems(second) == ()


async def test_a_successor_is_named_by_the_other(service: Service, second: Service) -> None:
    """C12, V03: what one has superseded the other does not supersede again, and names the successor; a cycle that only
    both together would close is refused; of a chain whose links they made in turn both find the newest."""
    first = await remember(service, "the tide turns at six", kind="finding")
    ids = [first]
    for number, daemon in zip(range(7, 17), itertools.cycle((second, service))):
        content = f"the tide turns at {number}"
        ids.append((await call(daemon, "supersede", id=ids[-1], content=content)).by)
    for daemon in (service, second):
        again = await refused(call(daemon, "supersede", id=first, content="the tide does not turn"))
        assert (again.code, ids[1] in again.message) == ("refused", True)
        assert (await refused(call(daemon, "supersede", id=ids[-1], by=first))).code == "refused"
        assert await recalled(daemon, "tide", limit=1) == ["the tide turns at 16"]
        assert await state_of(daemon, first) == "superseded"
    assert await problems(service) == ()


async def test_what_one_was_told_is_wrong_the_other_warns_of(service: Service, second: Service) -> None:
    """C29: a text that was revoked through one daemon is new again through the other, with the warning; the counts of
    the two notes stay apart."""
    old = await remember(service, "the bridge opens for sails", kind="finding")
    assert await recalled(service, "bridge") == ["the bridge opens for sails"]
    await call(service, "revoke", id=old, reason="it has been fixed shut")
    told = await call(second, "remember", content="the bridge opens for sails", kind="finding")
    assert (told.created, [(one.kind, one.id) for one in told.warnings]) == (True, [("revoked", old)])
    await service.quiesce()
    for daemon in (service, second):
        assert await listed(daemon) == [told.id]
        assert (await call(daemon, "inspect", id=told.id)).note.access_count == 0


async def test_one_workspace_is_emptied_and_the_other_is_whole_at_both(service: Service, second: Service) -> None:
    """C16, C25: everything of one workspace is forgotten through one daemon while the other writes into another one:
    there nothing is missing, and no trace of the first is shown, by either."""
    await asyncio.gather(*(remember(service, f"pelican number {n}", workspace="a", kind="finding") for n in range(40)))
    emptied, *_ = await asyncio.gather(
        call(service, "forget", workspace="a", all=True, confirm=True),
        *(remember(second, f"heron number {n}", workspace="b", kind="finding") for n in range(40)),
    )
    assert emptied.forgotten == 40
    for daemon in (service, second):
        assert await listed(daemon, workspace="a") == []
        assert len(await listed(daemon, workspace="b")) == 40
        assert await recalled(daemon, "pelican", workspace="b") == []
        assert "pelican" not in (await call(daemon, "inject", workspace="b", query="pelican")).text
    assert await problems(second, "a") == await problems(service, "b") == ()


async def test_many_writes_behind_one_of_another_daemon(
    service: Service, second: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C32: who only writes reads nothing of what others wrote; however much it was, the next read has all of it."""
    monkeypatch.setattr("amnesiad.workspace.READ_COUNT", 4)
    mine = [await remember(service, "before")]
    theirs = await remember(second, "theirs")
    mine += [await remember(service, f"mine {number}") for number in range(40)]
    workspace = await projection(service)
    assert sorted(await listed(service)) == sorted([*mine, theirs])
    assert workspace.position == await workspace.log.last_id()
