"""Who owns what, who sees what, who may end what."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from tests.core.strategies import AGENT, DEFAULTS, HUMAN, born, callers, examples, newborns

from amnesiad.core.callers import (
    OWN_SETTINGS,
    AgentKind,
    Caller,
    address,
    check_authority,
    check_governor,
    check_policy,
    child_owner,
    governs,
    visible,
)
from amnesiad.core.errors import Forbidden, Invalid, Refused
from amnesiad.core.events import Provenance, Scope
from amnesiad.core.kinds import REGIMES
from amnesiad.core.notes import Note
from amnesiad.core.policy import LIVE_SETTINGS, Policy

MAIN = Caller(session="s1")
LEAD = Caller(session="s1", team="s1")
CHILD = Caller(agent_kind="subagent", session="s1", agent="a1")
MATE = Caller(agent_kind="teammate", session="s2", agent="m1", team="s1")
FRESH = Caller(agent_kind="fresh", session="s1", agent="a1")
OWN_ONLY: Policy = msgspec.structs.replace(DEFAULTS, child_sees="own")


def note_of(scope: Scope = "workspace", owner: str | None = None, kind: str = "fact", **facts: Any) -> Note:
    """A live note at the address."""
    return born(kind, scope=scope, owner=owner, **facts)


def test_the_log_names_a_caller_by_its_nearest_id() -> None:
    """actor is human or agent:ID, the agent's id before its session's before its team's; author never is a team."""
    assert (HUMAN.actor, HUMAN.author) == ("human", None)
    assert (AGENT.actor, AGENT.author) == ("agent:a1", "a1")
    assert (MAIN.actor, MAIN.author) == ("agent:s1", "s1")
    assert (Caller(team="t1").actor, Caller(team="t1").author) == ("agent:t1", None)
    assert Caller().actor == "agent:unnamed"


def test_owners_of_each_kind() -> None:
    """SPEC 9: main answers for its session and team, a child for session/agent, a teammate for the team, fresh for
    none."""
    assert LEAD.owners == ("s1",)
    assert Caller(session="s1", team="t1").owners == ("s1", "t1")
    assert Caller().owners == ()
    for kind in ("subagent", "continuable", "workflow"):
        assert Caller(agent_kind=kind, session="s1", agent="a1").owners == ("s1/a1",)
    assert MATE.owners == ("s1",)
    assert FRESH.owners == ()


@pytest.mark.parametrize("kind", ["subagent", "continuable", "workflow"])
@pytest.mark.parametrize(("session", "agent", "missing"), [(None, "a1", "session"), ("s1", None, "agent")])
def test_an_unidentified_child_is_refused_everywhere(
    kind: AgentKind, session: str | None, agent: str | None, missing: str
) -> None:
    """C23: a child that does not say who it is neither writes nor reads, and is never widened to the workspace."""
    child = Caller(agent_kind=kind, session=session, agent=agent)
    for act in (
        lambda: child_owner(child),
        lambda: child.owners,
        lambda: address(child, None, None),
        lambda: visible(note_of(), child, DEFAULTS),
        lambda: visible(note_of(kind="directive"), child, DEFAULTS),
    ):
        with pytest.raises(Refused) as refusal:
            act()
        assert refusal.value.field == f"caller.{missing}"
        assert refusal.value.rule == "unidentified-child"


@pytest.mark.parametrize(
    ("caller", "scope", "expected"),
    [
        (MAIN, None, ("workspace", None)),
        (MAIN, "session", ("session", "s1")),
        (LEAD, "team", ("team", "s1")),
        (CHILD, None, ("session", "s1/a1")),
        (CHILD, "session", ("session", "s1/a1")),
        (MATE, None, ("team", "s1")),
        (MATE, "workspace", ("workspace", None)),
        (HUMAN, None, ("workspace", None)),
    ],
)
def test_default_and_chosen_addresses(caller: Caller, scope: Scope | None, expected: tuple[Scope, str | None]) -> None:
    """SPEC 9, the table: each kind's default scope and owner, and what it may choose instead."""
    assert address(caller, scope, None) == expected
    if expected[1] is not None:
        assert address(caller, scope, expected[1]) == expected


@pytest.mark.parametrize(
    ("caller", "scope", "rule"),
    [
        (FRESH, None, "fresh"),
        (CHILD, "workspace", "child-scope"),
        (CHILD, "team", "child-scope"),
        (MATE, "session", "teammate-scope"),
        (Caller(), "session", "unidentified-owner"),
        (MAIN, "team", "unidentified-owner"),
        (Caller(agent_kind="teammate", session="s2"), None, "unidentified-owner"),
    ],
)
def test_addresses_that_are_refused(caller: Caller, scope: Scope | None, rule: str) -> None:
    """A fresh agent, a scope beyond the kind and a scope without an owner are refused by their rule, with a way out."""
    with pytest.raises(Refused) as refusal:
        address(caller, scope, None)
    assert refusal.value.rule == rule
    assert refusal.value.hint


def test_only_a_human_names_somebody_elses_owner() -> None:
    """C23: an agent writes for itself; a human may name any owner; a workspace note has none."""
    with pytest.raises(Forbidden):
        address(MAIN, "session", "s2")
    with pytest.raises(Forbidden):
        address(CHILD, None, "s1/a2")
    assert address(HUMAN, "session", "s1/a1") == ("session", "s1/a1")
    with pytest.raises(Invalid) as refusal:
        address(HUMAN, None, "s1")
    assert refusal.value.field == "owner"


def test_what_main_sees() -> None:
    """Main sees the workspace, its own session and its team, and no other owner's notes, its children's included."""
    main = Caller(session="s1", team="t1")
    seen = [("workspace", None), ("session", "s1"), ("team", "t1"), ("team", "s1")]
    hidden = [("session", "s2"), ("session", "s1/a1"), ("session", "t1"), ("team", "t2")]
    assert all(visible(note_of(scope, owner), main, DEFAULTS) for scope, owner in seen)  # type: ignore[arg-type]
    assert not any(visible(note_of(scope, owner), main, DEFAULTS) for scope, owner in hidden)  # type: ignore[arg-type]


def test_what_a_child_sees() -> None:
    """A child sees its own notes and, if child_sees says so, the workspace's directives; nothing of its session."""
    assert visible(note_of("session", "s1/a1"), CHILD, OWN_ONLY)
    assert visible(note_of(kind="directive"), CHILD, DEFAULTS)
    assert not visible(note_of(kind="directive"), CHILD, OWN_ONLY)
    for note in (note_of(), note_of("session", "s1"), note_of("session", "s1/a2"), note_of("team", "s1")):
        assert not visible(note, CHILD, DEFAULTS)
    assert not visible(note_of("team", "s1/a1"), CHILD, DEFAULTS)
    assert not visible(note_of("session", "s1", kind="directive"), CHILD, DEFAULTS)


def test_what_a_teammate_sees() -> None:
    """C23: a teammate sees its team's notes and the directives, and not the lead's session, whose id the team bears."""
    assert visible(note_of("team", "s1"), MATE, OWN_ONLY)
    assert visible(note_of(kind="directive"), MATE, OWN_ONLY)
    for note in (note_of(), note_of("session", "s1"), note_of("session", "s2"), note_of("team", "s2")):
        assert not visible(note, MATE, DEFAULTS)
    assert not visible(note_of("team", None), Caller(agent_kind="teammate"), DEFAULTS)


@examples(100)
@given(newborns(), callers())
def test_nobody_sees_another_owners_note(note: Note, caller: Caller) -> None:
    """C23: whoever may see a scoped note is a human or answers for its owner; fresh sees nothing, a human all."""
    if caller.child and caller.role == "agent" and not (caller.session and caller.agent):
        with pytest.raises(Refused):
            visible(note, caller, DEFAULTS)
        return
    seen = visible(note, caller, DEFAULTS)
    if caller.agent_kind == "fresh":
        assert not seen
    elif caller.role == "human":
        assert seen
    elif seen and note.scope != "workspace":
        assert note.owner in caller.owners
    elif note.scope == "workspace":
        assert seen == (caller.agent_kind == "main" or note.kind == "directive")


@examples(100)
@given(callers())
def test_whoever_writes_a_note_sees_it(caller: Caller) -> None:
    """A note written by a main, a child or for a team is visible to its writer, unless a teammate gave it away."""
    for scope in (None, *get_args(Scope)):
        try:
            got, owner = address(caller, scope, None)
        except Refused:
            continue
        if caller.agent_kind != "teammate" or got != "workspace":
            assert visible(note_of(got, owner), caller, DEFAULTS)


@pytest.mark.parametrize("kind", sorted(REGIMES))
def test_authority_follows_provenance(kind: str) -> None:
    """V07: a human's note is a human's to end; a user-stated one needs the declaration and a reason; the rest is
    free."""
    declared = Caller(session="s1", on_behalf=True)
    for provenance in ("human", "user-stated", "agent", "auto"):
        check_authority(born(kind, provenance=provenance), HUMAN, "revoke", None)
    for caller in (AGENT, declared):
        with pytest.raises(Forbidden, match="is a human's"):
            check_authority(born(kind, provenance="human"), caller, "revoke", "because")
    stated = born(kind, provenance="user-stated")
    for caller, reason in ((AGENT, "because"), (declared, None), (declared, "")):
        with pytest.raises(Forbidden, match="on the user's behalf"):
            check_authority(stated, caller, "revoke", reason)
    check_authority(stated, declared, "revoke", "because")
    for provenance in ("agent", "auto"):
        check_authority(born(kind, provenance=provenance), AGENT, "revoke", None)


@pytest.mark.parametrize(
    ("caller", "may"), [(HUMAN, True), (MAIN, True), (Caller(), True), (CHILD, False), (MATE, False), (FRESH, False)]
)
def test_who_governs(caller: Caller, may: bool) -> None:
    """C23: what belongs to all is for a human and a main agent to look at and to change; a fresh human is a human."""
    assert governs(caller) is may
    assert governs(msgspec.structs.replace(caller, role="human"))
    if may:
        check_governor(caller, "drop a workspace", "workspace-role")
        return
    with pytest.raises(Forbidden) as refusal:
        check_governor(caller, "drop a workspace", "workspace-role")
    assert refusal.value.rule == "workspace-role"


@pytest.mark.parametrize("setting", sorted(LIVE_SETTINGS))
def test_a_policy_reaches_no_further_than_a_verb(setting: str) -> None:
    """V07: an agent changes what only shapes new notes; the rest only where it could end every note that is there."""
    behalf = msgspec.structs.replace(MAIN, on_behalf=True)
    own = setting in OWN_SETTINGS
    asked: list[tuple[Caller, set[Provenance], bool]] = [
        (HUMAN, {"human", "user-stated"}, True),
        (MAIN, set(), True),
        (MAIN, {"agent", "auto"}, True),
        (MAIN, {"agent", "user-stated"}, own),
        (MAIN, {"human"}, own),
        (behalf, {"user-stated"}, True),
        (behalf, {"user-stated", "human"}, own),
        (CHILD, set(), False),
    ]
    for caller, held, may in asked:
        if may:
            check_policy(caller, [setting], held)
            continue
        with pytest.raises(Forbidden) as refusal:
            check_policy(caller, [setting], held)
        assert refusal.value.rule == "policy-role"


@pytest.mark.parametrize(
    ("fields", "context"),
    [
        ({"session": "s"}, "s"),
        ({"session": "s", "agent": "main-1"}, "s"),
        ({"session": "s", "agent": "a", "agent_kind": "subagent"}, "s/a"),
        ({"session": "s", "agent": "a", "agent_kind": "workflow"}, "s/a"),
        ({"session": "s", "agent_kind": "subagent"}, None),
        ({"session": "m", "team": "t", "agent_kind": "teammate"}, "m"),
        ({"session": "m", "team": "t", "agent": "b", "agent_kind": "teammate"}, "m/b"),
        ({"team": "t", "agent": "b", "agent_kind": "teammate"}, "t/b"),
        ({"agent": "a"}, None),
        ({"agent": "a", "agent_kind": "subagent"}, None),
        ({"session": "s", "role": "human"}, None),
        ({"session": "s", "agent_kind": "fresh"}, None),
        ({}, None),
    ],
)
def test_each_context_window_has_a_name(fields: dict[str, Any], context: str | None) -> None:
    """Sessions, and each child and teammate apart; nobody's where it is not said whose."""
    assert Caller(**fields).context == context
