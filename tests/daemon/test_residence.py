"""What a daemon keeps in memory: the workspaces that are used, and at the start those that were used last."""

from __future__ import annotations

from typing import Any

import pytest
from tests.daemon.desk import ManualClock, call, projection, recalled, remember

from amnesiad.service import Service, residence
from amnesiad.store.workspaces import POLICY_CELL

HOUR = 3_600_000


def held(service: Service) -> list[str]:
    return sorted(workspace.name for workspace in service.loaded)


async def test_an_idle_workspace_goes_and_comes_back_when_it_is_used(service: Service, clock: ManualClock) -> None:
    """After an hour without use it is dropped; its next user finds everything as it was."""
    await remember(service, "the lighthouse is green", workspace="a", kind="finding")
    await remember(service, "the harbor is shallow", workspace="b", kind="finding")
    clock.advance(HOUR - 1)
    assert residence.drop_idle(service) == 0
    assert await recalled(service, "harbor", workspace="b") == ["the harbor is shallow"]
    clock.advance(1)
    assert residence.drop_idle(service) == 1
    assert held(service) == ["b"]
    assert await recalled(service, "lighthouse", workspace="a") == ["the lighthouse is green"]
    assert held(service) == ["a", "b"]


async def test_beyond_the_bound_those_used_longest_ago_go(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes of all workspaces together are bounded; the one used last stays even if it alone is too large."""
    for name in ("a", "b", "c"):
        for number in range(3):
            await remember(service, f"note {number} of {name}", workspace=name, kind="finding")
        clock.advance(1)
    monkeypatch.setattr(residence, "MAX_NOTES", 6)
    assert residence.drop_idle(service) == 1
    assert held(service) == ["b", "c"]
    monkeypatch.setattr(residence, "MAX_NOTES", 1)
    assert residence.drop_idle(service) == 1
    assert held(service) == ["c"]


async def test_a_start_loads_the_workspaces_used_last(
    service: Service, second: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written or read last, whatever its name; what does not fit is left to its first user; progress is told."""
    for name in ("a", "b", "c", "d"):
        await remember(service, f"the note of {name}", workspace=name, kind="finding")
        await remember(service, f"another of {name}", workspace=name, kind="finding")
    await call(service, "recall", workspace="a", query="note")
    told: list[Any] = []
    monkeypatch.setattr(residence, "PRELOADED", 3)
    monkeypatch.setattr(residence, "PRELOADED_NOTES", 4)
    await residence.preload(second, lambda done, total: told.append((done, total)))
    assert held(second) == ["a", "d"]
    assert told == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize("damage", ["no policy", "a log that is none", "heads that are none"])
async def test_a_workspace_that_cannot_be_loaded_does_not_stop_the_start(
    service: Service, second: Service, damage: str
) -> None:
    """V09: the daemon comes up beside it with all others loaded; it takes one that runs to look at it and to mend
    it."""
    await remember(service, "the note of a", workspace="a", kind="finding")
    await remember(service, "the note of b", workspace="b", kind="finding")
    keys = (await projection(service, "a")).keys
    if damage == "no policy":
        await service.redis.hdel(keys.cells, POLICY_CELL)
    else:
        key = keys.log if damage == "a log that is none" else keys.heads
        await service.redis.delete(key)
        await service.redis.set(key, "damage")
    told: list[Any] = []
    await residence.preload(second, lambda done, total: told.append((done, total)))
    assert "b" in held(second)
    assert told[-1] == (2, 2)
    assert (await call(second, "verify", workspace="a")).problems
    assert {row.name for row in (await call(second, "workspaces")).rows} == {"a", "b"}
