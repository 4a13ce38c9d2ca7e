"""Births: what a note begins with, by its kind, its writer and the policy; and what no note may begin with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.strategies import (
    AGENT,
    DEFAULTS,
    HUMAN,
    T0,
    callers,
    examples,
    kind_names,
    policies,
)

from amnesiad.core import decisions
from amnesiad.core.callers import Caller
from amnesiad.core.clocks import expires_at
from amnesiad.core.decisions import Draft, create
from amnesiad.core.errors import Forbidden, Invalid
from amnesiad.core.kinds import DAY_MS, REGIMES
from amnesiad.core.notes import Words, apply, fold
from amnesiad.core.policy import Policy

FOR_USER = Caller(session="s1", agent="a1", on_behalf=True)
NOW = T0 + 60_000


def draft(kind: str = "fact", **fields: Any) -> Draft:
    """A draft of one word."""
    return Draft(id="n000000001", kind=kind, words=Words(content="word"), **fields)  # type: ignore[arg-type]


def test_a_perishable_takes_the_policys_ttl_and_curve() -> None:
    """remember without a TTL: 30 days on the default curve; with default_ttl none it does not expire."""
    event = create(draft(), AGENT, DEFAULTS, T0)
    assert (event.ttl_ms, event.curve, event.base, event.version) == (30 * DAY_MS, "ebbinghaus", 1.0, 1)
    assert (event.actor, event.author, event.size) == ("agent:a1", "a1", 4)
    eternal = msgspec.structs.replace(DEFAULTS, default_ttl=None, default_curve="linear")
    event = create(draft(), AGENT, eternal, T0)
    assert (event.ttl_ms, event.curve) == (None, "linear")
    assert expires_at(fold([event]), eternal) is None


def test_a_record_has_no_ttl_but_its_writers() -> None:
    """Records are flat and do not age, unless the writer said so."""
    event = create(draft("finding"), AGENT, DEFAULTS, T0)
    assert (event.ttl_ms, event.curve) == (None, "flat")
    assert create(draft("finding", ttl_ms=5000, curve="linear"), AGENT, DEFAULTS, T0).ttl_ms == 5000
    assert create(draft("fact", ttl_ms=None), AGENT, DEFAULTS, T0).ttl_ms is None


@pytest.mark.parametrize(
    "wrong",
    [
        draft("directive", ttl_ms=DAY_MS),
        draft(ttl_ms=DAY_MS, pinned=True),
        draft(ttl_ms=0),
        draft(ttl_ms=-1),
        draft(ttl_ms=10**18),
        draft("finding", ttl_ms=decisions.MAX_TTL_MS + 1),
    ],
)
def test_a_ttl_that_may_not_be_is_invalid(wrong: Draft) -> None:
    """V11: a TTL on a directive or a pin, of nothing, or beyond a hundred years, is refused by its field."""
    with pytest.raises(Invalid) as refusal:
        create(wrong, HUMAN, DEFAULTS, T0)
    assert refusal.value.field == "ttl_ms"


@examples(200)
@given(
    policies(),
    kind_names.filter(lambda kind: kind != "directive"),
    st.none() | st.sampled_from(["flat", "linear", "ebbinghaus"]),
    st.integers(1, 1000 * DAY_MS),
)
def test_a_note_ends_at_the_instant_its_writer_named(by: Policy, kind: Any, curve: Any, life_ms: int) -> None:
    """V11: whatever the curve and its floor, expires_at is exactly what was asked for."""
    by = msgspec.structs.replace(
        by,
        auto_expire=True,
        ebbinghaus_k=min(max(by.ebbinghaus_k, 0.1), 10),
        forgotten_strength=min(by.forgotten_strength, 0.5),
    )
    event = create(draft(kind, expires_at=T0 + life_ms, curve=curve), AGENT, by, T0)
    assert expires_at(fold([event]), by) == T0 + life_ms


def test_an_end_that_only_an_endless_lease_would_reach_is_refused() -> None:
    """V11: where the floor would need a lease beyond a hundred years, the field is named and nothing is guessed."""
    steep = msgspec.structs.replace(DEFAULTS, ebbinghaus_k=100.0)
    with pytest.raises(Invalid) as refusal:
        create(draft(expires_at=T0 + 5000 * DAY_MS), AGENT, steep, T0)
    assert (refusal.value.field, "100 years" in refusal.value.message) == ("expires_at", True)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("fact", {"expires_at": T0}),
        ("fact", {"expires_at": T0 + decisions.MAX_TTL_MS + 1}),
        ("fact", {"expires_at": T0 + 1, "ttl_ms": 1}),
        ("fact", {"expires_at": T0 + 1, "pinned": True}),
        ("directive", {"expires_at": T0 + 1}),
    ],
)
def test_an_end_that_may_not_be_is_refused_by_its_own_name(kind: str, fields: dict[str, Any]) -> None:
    """V11: who gave expires_at is told about expires_at, not about a TTL they never named."""
    with pytest.raises(Invalid) as refusal:
        create(draft(kind, **fields), AGENT, DEFAULTS, T0)
    assert refusal.value.field == "expires_at"


def test_the_longest_and_shortest_ttl_are_accepted() -> None:
    """1 ms and 100 years are the edges."""
    assert create(draft(ttl_ms=1), AGENT, DEFAULTS, T0).ttl_ms == 1
    assert create(draft(ttl_ms=decisions.MAX_TTL_MS), AGENT, DEFAULTS, T0).ttl_ms == decisions.MAX_TTL_MS
    assert create(draft("directive", ttl_ms=None, pinned=True), AGENT, DEFAULTS, T0).pinned


def test_born_pinned_is_the_same_as_pinned_later() -> None:
    """A perishable keeps its shelf life either way: it stands while pinned and runs from the unpinning."""
    early = fold([create(draft(pinned=True), AGENT, DEFAULTS, T0)])
    late = fold([create(draft(), AGENT, DEFAULTS, T0)])
    (put,) = decisions.pin(late, AGENT, T0)
    late = apply(late, put)
    assert msgspec.structs.replace(early, version=2) == late
    assert expires_at(early, DEFAULTS) is None
    (taken,) = decisions.unpin(early, AGENT, NOW)
    freed = apply(early, taken)
    deadline = expires_at(freed, DEFAULTS)
    assert deadline is not None
    assert NOW + 29 * DAY_MS < deadline < NOW + 30 * DAY_MS


@pytest.mark.parametrize(
    ("caller", "wanted", "given_provenance"),
    [
        (HUMAN, None, "human"),
        (HUMAN, "auto", "auto"),
        (AGENT, None, "agent"),
        (AGENT, "auto", "auto"),
        (FOR_USER, None, "user-stated"),
        (FOR_USER, "user-stated", "user-stated"),
        (FOR_USER, "agent", "agent"),
    ],
)
def test_provenance_is_what_the_role_may_write(caller: Caller, wanted: Any, given_provenance: str) -> None:
    """SPEC 5: the default and the choices of each role; acting for the user is in the log."""
    event = create(draft(provenance=wanted), caller, DEFAULTS, T0)
    assert event.provenance == given_provenance
    assert event.on_behalf == caller.on_behalf


@pytest.mark.parametrize(("caller", "wanted"), [(AGENT, "human"), (FOR_USER, "human"), (AGENT, "user-stated")])
def test_no_agent_writes_above_its_role(caller: Caller, wanted: Any) -> None:
    """An agent never writes human, and user-stated only by declaring it."""
    with pytest.raises(Forbidden) as refusal:
        create(draft(provenance=wanted), caller, DEFAULTS, T0)
    assert refusal.value.field == "provenance"


@examples(80)
@given(kind_names, policies(), callers(), st.booleans())
def test_every_birth_folds(kind: str, by: Policy, caller: Caller, pinned: bool) -> None:
    """Whatever is drafted, the note that is born is live and says what the draft said."""
    made = draft(kind, pinned=pinned, scope="session", owner="s1", incarnation=2, source_ref="pr/1")
    note = fold([create(made, caller, by, T0)])
    assert note.live
    assert (note.kind, note.pinned, note.scope, note.owner, note.incarnation) == (kind, pinned, "session", "s1", 2)
    assert note.ttl_ms == (by.default_ttl if REGIMES[note.kind] == "perishable" else None)
