"""What a daemon keeps in memory: the workspaces that are used, and at the start those that were used last."""

from __future__ import annotations

from typing import Any

import pytest
from tests.daemon.desk import ManualClock, call, recalled, remember

from amnesiad.service import Service, residence

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
