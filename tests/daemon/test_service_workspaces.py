"""Workspaces as the service sees them: made by a first write that is taken, found by their name, dropped by their
owner."""

from __future__ import annotations

from typing import cast

import pytest
from tests.daemon.desk import HUMAN, ManualClock, Recorder, call, listed, remember

from amnesiad.errors import Forbidden, Invalid
from amnesiad.service import Service
from amnesiad.service.base import NAME_CHECK_MS
from amnesiad.store.workspaces import all_workspaces


async def test_a_refused_first_write_leaves_no_workspace(service: Service) -> None:
    """A refusal changes nothing, not even the list of workspaces."""
    with pytest.raises(Invalid):
        await call(service, "remember", content="always test in a venv", kind="directive", ttl_ms=1000)
    assert await all_workspaces(service.redis) == {}
    await remember(service, "always test in a venv", kind="directive")
    assert list(await all_workspaces(service.redis)) == ["desk"]


async def test_another_daemon_notices_a_rename(service: Service, second: Service, clock: ManualClock) -> None:
    """What a name means is looked up again, so that two daemons cannot serve one workspace under two names for long."""
    note = await remember(service, "the port is 8080")
    assert await listed(second) == [note]
    await call(service, "workspaces", rename="desk", to="bench")
    clock.advance(NAME_CHECK_MS)
    assert await listed(second) == []
    assert await listed(second, workspace="bench") == [note]


async def test_a_rename_is_felt_at_once_where_it_was_asked_for(service: Service) -> None:
    """The old name means nothing any more, and what is written under it is another workspace's."""
    note = await remember(service, "the port is 8080")
    await call(service, "workspaces", rename="desk", to="bench")
    assert await listed(service) == []
    other = await remember(service, "the port is 9090")
    assert await listed(service) == [other]
    assert await listed(service, workspace="bench") == [note]


@pytest.mark.parametrize(
    ("verb", "asked", "field"),
    [
        ("workspaces", {"rename": "desk", "to": "bench", "drop": "desk"}, "drop"),
        ("workspaces", {"rename": "desk", "to": "bench", "drop": "bench", "confirm": True}, "drop"),
        ("workspaces", {"to": "bench"}, "rename"),
        ("dead", {"retry": ["1-1"], "show": "1-1"}, "show"),
        ("dead", {"retry": ["1-1"], "drop": ["1-1"]}, "drop"),
    ],
)
async def test_what_is_refused_has_done_nothing_by_halves(
    service: Service, verb: str, asked: dict[str, object], field: str
) -> None:
    """Of two things asked for at once the first is not done when the second is refused: both are, by name."""
    note = await remember(service, "the port is 8080")
    with pytest.raises(Invalid) as refusal:
        await call(service, verb, **asked)
    assert refusal.value.field == field
    assert await listed(service) == [note]
    assert list(await all_workspaces(service.redis)) == ["desk"]


async def test_a_drop_has_the_words_scrubbed(service: Service) -> None:
    """They are in the store's files until these are written anew, so that is asked for at once."""
    await remember(service, "the port is 8080")
    await call(service, "workspaces", drop="desk", confirm=True)
    await service.quiesce()
    assert cast(Recorder, service.jobs).scrubs == 1


@pytest.mark.parametrize("asked", [{"drop": "desk", "confirm": True}, {"rename": "desk", "to": "bench"}])
async def test_a_human_s_workspace_is_not_an_agent_s_to_drop(service: Service, asked: dict[str, object]) -> None:
    """V07: what an agent may not forget note by note it may not drop or hide as a whole either."""
    note = await remember(service, "never force-push", kind="directive", caller=HUMAN)
    with pytest.raises(Forbidden):
        await call(service, "workspaces", **asked)
    assert await listed(service) == [note]
    answer = await call(service, "workspaces", caller=HUMAN, **asked)
    assert answer.changed == 1
