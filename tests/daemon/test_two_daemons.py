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
from amnesiad.service.change import Change
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
    """C13: values of one key, written by the two in turn: only the newest lives, and each old one names its successor."""
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
