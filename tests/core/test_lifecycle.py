"""What each lifecycle event asks for: the table of agents and their ends, specification section 9."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from amnesiad.core.errors import Invalid
from amnesiad.core.lifecycle import (
    MAX_PATHS,
    Check,
    Compacted,
    Effect,
    End,
    LifecycleEvent,
    Open,
    Settle,
    Touch,
    check_event,
    effects,
)
from amnesiad.core.policy import Policy
from amnesiad.settings import load_settings

POLICY: Policy = load_settings(environ={}).policy


def of(event: Any, policy: Policy = POLICY, **fields: Any) -> list[Effect]:
    """The effects of an event in workspace w."""
    return effects(check_event(LifecycleEvent(event=event, workspace="w", **fields)), policy)


@pytest.mark.parametrize(
    ("event", "fields", "wanted"),
    [
        ("session-start", {"session": "s"}, [Open("s", "main")]),
        ("session-start", {}, []),
        ("session-start", {"session": "s", "agent_kind": "fresh"}, []),
        ("subagent-start", {"session": "s", "agent": "a"}, [Open("s/a", "subagent")]),
        ("subagent-start", {"session": "s"}, []),
        ("session-start", {"session": "m", "team": "t", "agent_kind": "teammate"}, [Touch("t")]),
        ("session-start", {"session": "m", "agent_kind": "teammate"}, []),
        ("heartbeat", {"session": "s"}, [Touch("s")]),
        ("pre-step", {"session": "s", "agent": "a", "agent_kind": "workflow"}, [Touch("s/a")]),
        ("heartbeat", {"session": "m", "team": "t", "agent_kind": "teammate"}, [Touch("t")]),
        ("turn-end", {"session": "s"}, [Touch("s"), Settle(), Check()]),
        ("turn-end", {}, [Settle(), Check()]),
        ("file-changed", {"paths": ("a/b",)}, [Check()]),
        ("compacted", {"session": "s"}, [Touch("s"), Compacted("s")]),
        ("compacted", {"session": "s", "agent": "main-1"}, [Touch("s"), Compacted("s")]),
        (
            "compacted",
            {"session": "s", "agent": "a", "agent_kind": "subagent"},
            [Touch("s/a"), Compacted("s/a")],
        ),
        (
            "compacted",
            {"session": "m", "agent": "b", "team": "t", "agent_kind": "teammate"},
            [Touch("t"), Compacted("m/b")],
        ),
        ("compacted", {}, []),
    ],
)
def test_signs_of_life(event: str, fields: dict[str, Any], wanted: list[Effect]) -> None:
    """Starts open an owner, everything else shows that it lives; what names nobody touches nobody."""
    assert of(event, **fields) == wanted


@pytest.mark.parametrize(
    ("event", "fields", "wanted"),
    [
        ("session-end", {"session": "s"}, End("s", children=True, agent_kind="main")),
        ("agent-disposed", {"session": "s", "agent_kind": "main"}, End("s", children=True, agent_kind="main")),
        (
            "agent-disposed",
            {"session": "s", "agent": "lead", "agent_kind": "main"},
            End("s", children=True, agent_kind="main"),
        ),
        ("subagent-end", {"session": "s", "agent": "a"}, End("s/a", children=False, agent_kind="subagent")),
        ("agent-disposed", {"session": "s", "agent": "a"}, End("s/a", children=False, agent_kind="subagent")),
        ("workflow-agent-end", {"session": "s", "agent": "a"}, End("s/a", children=False, agent_kind="workflow")),
        (
            "subagent-end",
            {"session": "s", "agent": "a", "agent_kind": "continuable"},
            End("s/a", children=False, agent_kind="continuable"),
        ),
        (
            "session-end",
            {"session": "s", "agent": "a", "agent_kind": "subagent"},
            End("s/a", children=False, agent_kind="subagent"),
        ),
    ],
)
def test_ends(event: str, fields: dict[str, Any], wanted: End) -> None:
    """Each kind of agent ends at its own event; a session takes everything below it along, a child nothing."""
    assert of(event, **fields) == [wanted]


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("agent-disposed", {"session": "s"}),
        ("subagent-end", {"session": "s"}),
        ("subagent-end", {"agent": "a"}),
        ("workflow-agent-end", {"session": "s"}),
        ("session-end", {}),
        ("session-end", {"session": "s", "agent_kind": "fresh"}),
        ("agent-disposed", {"session": "lead", "team": "lead", "agent": "m", "agent_kind": "teammate"}),
        ("agent-disposed", {"session": "lead", "team": "lead", "agent_kind": "teammate"}),
        ("session-end", {"session": "lead", "team": "lead", "agent_kind": "teammate"}),
        ("session-end", {"session": "m", "team": "lead", "agent_kind": "teammate"}),
    ],
)
def test_ends_that_end_nothing(event: str, fields: dict[str, Any]) -> None:
    """An end without an agent id never ends session notes unless it is the session's, and a member ends no team."""
    assert of(event, **fields) == []


def test_a_workflow_agent_ends_at_its_own_end_alone() -> None:
    """A subagent-end leaves a workflow's agent its notes; the end of its workflow, or its disposal, does not."""
    child: dict[str, Any] = {"session": "s", "agent": "a", "agent_kind": "workflow"}
    assert of("subagent-end", **child) == []
    for end in ("workflow-agent-end", "agent-disposed"):
        assert of(end, **child) == [End("s/a", children=False, agent_kind="workflow")]


def test_a_continuable_child_is_kept_by_choice() -> None:
    """With continuable_end = keep a subagent-end keeps a continuable child's notes; its disposal still ends them."""
    keep = msgspec.structs.replace(POLICY, continuable_end="keep")
    child: dict[str, Any] = {"session": "s", "agent": "a", "agent_kind": "continuable"}
    assert of("subagent-end", keep, **child) == []
    assert of("agent-disposed", keep, **child) == [End("s/a", children=False, agent_kind="continuable")]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("workspace", {"workspace": ""}),
        ("workspace", {"workspace": "x" * 5000}),
        ("session", {"session": "a\nb"}),
        ("agent", {"agent": ""}),
        ("paths", {"paths": ("a",) * (MAX_PATHS + 1)}),
        ("paths[1]", {"paths": ("a", "../b")}),
    ],
)
def test_a_malformed_event_is_refused_by_the_field(field: str, fields: dict[str, Any]) -> None:
    """What is wrong with an event is said with the name of the field."""
    with pytest.raises(Invalid) as refused:
        check_event(LifecycleEvent(**{"event": "heartbeat", "workspace": "w", **fields}))
    assert refused.value.field == field
