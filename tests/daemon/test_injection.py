"""What a projection keeps sorted for injections, held against a walk through every note after whatever happened."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Final

import pytest
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, projection, remember, sweep

from amnesiad.core.callers import Caller
from amnesiad.core.errors import AmnesiaError
from amnesiad.core.inject import Listed
from amnesiad.core.strongest import TIERS
from amnesiad.service import Service
from amnesiad.workspace import Workspace

CALLERS: Final[tuple[dict[str, Any], ...]] = (
    HUMAN,
    {"session": "s1"},
    {"session": "s2", "team": "s1"},
    {"session": "s1", "agent": "a1", "agent_kind": "subagent"},
    {"agent": "a2", "team": "s1", "agent_kind": "teammate"},
    {"agent_kind": "fresh"},
    {},
)


def held_against_a_walk(workspace: Workspace, now: int) -> int:
    """Compare for every caller; returns how many notes the most privileged saw."""
    most = 0
    for fields in CALLERS:
        caller = Caller(**fields)
        walked = Listed(workspace.visible_live(caller, now), workspace.policy, workspace.last_access, now)
        kept = workspace.active(caller, now)
        assert kept.count == walked.count
        for tier in TIERS:
            assert [note.id for note in kept.strongest(tier)] == [note.id for note in walked.strongest(tier)]
        most = max(most, kept.count)
    return most


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_kept_sorted_is_what_a_walk_would_find(
    service: Service, second: Service, clock: ManualClock, seed: int
) -> None:
    """Through writes, uses, endings, policies, passes and time, in this daemon's view and in another's."""
    dice = random.Random(seed)
    ids: list[str] = []
    seen = 0
    kinds = ["fact", "finding", "directive", "episode", "task", "gotcha"]

    async def act() -> None:
        who = dice.choice(CALLERS)
        one = dice.choice(ids) if ids else "0" * 10
        match dice.choice(["remember"] * 6 + ["recall", "inject", "renew", "pin", "unpin", "flag", "revoke", "policy"]):
            case "remember":
                facts: dict[str, Any] = {"kind": dice.choice(kinds), "caller": who}
                if facts["kind"] in ("fact", "episode"):
                    facts |= {"ttl_ms": dice.choice([DAY, 2 * DAY, 30 * DAY])}
                    facts |= {"curve": dice.choice(["flat", "linear", "ebbinghaus"])}
                if "session" in who and dice.random() < 0.5:
                    facts["scope"] = "session"
                ids.append(await remember(service, f"note {len(ids)} about the harbor", **facts))
            case "recall":
                await call(service, "recall", query="harbor", limit=dice.randint(1, 5), caller=who)
            case "inject":
                await call(service, "inject", query=dice.choice([None, "harbor"]), caller=who)
            case "policy":
                value = dice.choice(["off", "by-kind", 40 * DAY])
                await call(service, "policy", set={"record_ttl": value}, caller=HUMAN)
            case "flag" | "revoke" as verb:
                await call(service, verb, id=one, reason="doubt", caller=HUMAN)
            case verb:
                await call(service, verb, id=one, caller=who)

    ids.append(await remember(service, "the first note about the harbor", kind="finding"))
    for step in range(60):
        with contextlib.suppress(AmnesiaError):  # a refusal is as good a step as any other
            await act()
        await service.quiesce()
        clock.advance(dice.choice([0, 0, 1, DAY // 7, 3 * DAY]))
        if dice.random() < 0.1:
            await sweep(service)
        if step % 6 == 0:
            for daemon in (service, second):
                if (workspace := await daemon.open("desk", create=False)) is not None:
                    await workspace.catch_up()
                    seen = max(seen, held_against_a_walk(workspace, clock.now_ms()))
    assert seen > 5
    workspace = await projection(service)
    held_against_a_walk(workspace, clock.now_ms() - DAY)
    await workspace.load()
    held_against_a_walk(workspace, clock.now_ms())


async def test_the_cost_of_a_large_workspace_is_estimated_until_it_is_counted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits until every note of a workspace is counted; each look counts some more, and in the end it is
    exact."""
    for number in range(9):
        await remember(service, f"the harbor of town {number} is shallow", kind="finding")
    workspace = await projection(service)
    exact = sum(workspace.cost(note_id) for note_id in workspace.notes)
    await workspace.load()
    monkeypatch.setattr("amnesiad.projection.COUNTED_AT_ONCE", 4)
    told = [(await call(service, "status")).tokens for _ in range(3)]
    assert told[-1] == exact
    assert all(abs(tokens - exact) < exact / 10 for tokens in told)
