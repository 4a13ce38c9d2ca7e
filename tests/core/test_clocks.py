"""Both clocks: exact numbers, and the properties every note and policy must keep.

The heart is one property: what time does to a note does not depend on when, or whether, anybody looked.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.core.strategies import (
    AGENT,
    DEFAULTS,
    HUMAN,
    OLD,
    T0,
    Command,
    bare,
    born,
    commands,
    durations,
    examples,
    gaps,
    newborns,
    policies,
    run,
)

from amnesiad.core import clocks, decisions
from amnesiad.core.clocks import (
    due_events,
    expires_at,
    lease_strength,
    lease_ttl,
    next_transition,
    rank,
    renewed_base,
    settle,
    stale_at,
    strength,
    worth_renewing,
)
from amnesiad.core.events import Expired, Forgotten, Renewed, event_type
from amnesiad.core.kinds import DAY_MS, REGIMES, Curve
from amnesiad.core.notes import Note, apply
from amnesiad.core.policy import Policy

MONTH: int = 30 * DAY_MS


def leased(curve: Curve = "ebbinghaus", **facts: Any) -> Note:
    """A fact with a TTL of 30 days on the curve."""
    return born("fact", ttl_ms=MONTH, curve=curve, **facts)


def days(at: int | None, note: Note) -> float:
    """Days from the note's reference to ``at``."""
    assert at is not None
    return (at - note.ref_at) / DAY_MS


def policy(**values: Any) -> Policy:
    """The defaults with some values replaced."""
    return msgspec.structs.replace(DEFAULTS, **values)


def after(note: Note, *made: Any) -> Note:
    """The note after the events."""
    for event in made:
        note = apply(note, event)
    return note


def renewed(note: Note, by: Policy, now: int) -> Note:
    """The note as a use at ``now`` leaves it, with what time owes it recorded too."""
    made = decisions.renew(settle(note, by, now), AGENT, by, now)
    return after(note, *due_events(note, by, now), *made) if made else note


# Exact numbers


def test_the_lease_of_the_specification() -> None:
    """TTL 30 d, base 1, k 3: stale at 12.04 d, floor at 29.96 d."""
    note = leased()
    assert days(stale_at(note, DEFAULTS), note) == pytest.approx(12.04, abs=0.005)
    assert days(expires_at(note, DEFAULTS), note) == pytest.approx(29.96, abs=0.005)
    assert lease_strength(note, DEFAULTS, T0 + 10 * DAY_MS) == pytest.approx(math.exp(-1))


def test_a_linear_lease_goes_stale_at_seven_tenths_and_ends_at_its_floor() -> None:
    """Linear: s = 1 - t/ttl, so below 0.3 after 21 days and below 0.05 after 28.5."""
    note = leased("linear")
    assert days(stale_at(note, DEFAULTS), note) == pytest.approx(21, abs=1e-6)
    assert days(expires_at(note, DEFAULTS), note) == pytest.approx(28.5, abs=1e-6)
    assert lease_strength(note, DEFAULTS, T0 + 2 * MONTH) == 0


def test_a_flat_lease_keeps_its_strength_until_its_ttl_is_over() -> None:
    """Flat: never stale, dead exactly at the end of the TTL with code ttl."""
    note = leased("flat")
    assert stale_at(note, DEFAULTS) is None
    assert expires_at(note, DEFAULTS) == T0 + MONTH
    assert strength(note, DEFAULTS, T0 + MONTH - 1) == 1
    assert settle(note, DEFAULTS, T0 + MONTH - 1) == note
    expired, forgotten = due_events(note, DEFAULTS, T0 + MONTH)
    assert isinstance(expired, Expired)
    assert (expired.reason, expired.at, expired.actor) == ("ttl", T0 + MONTH, "system")
    assert isinstance(forgotten, Forgotten)
    assert (forgotten.reason, forgotten.at) == ("expired", T0 + MONTH)


def test_rank_halves_every_half_life_and_never_rises_above_one() -> None:
    """A finding of 15 days ranks 0.7071; one stamped in the future, one just written and any directive rank 1.0."""
    finding = born("finding")
    assert rank(finding, DEFAULTS, T0 + 15 * DAY_MS) == pytest.approx(0.7071, abs=5e-5)
    assert rank(finding, DEFAULTS, T0 + 30 * DAY_MS) == 0.5
    assert rank(finding, DEFAULTS, T0) == 1.0
    assert rank(finding, DEFAULTS, T0 - 400 * DAY_MS) == 1.0
    assert rank(born("directive"), DEFAULTS, T0 + OLD) == 1.0
    assert 0 <= rank(born("task-context"), DEFAULTS, T0 + 50 * OLD) < 1e-12


def test_a_future_stamp_neither_ages_nor_weakens() -> None:
    """A note whose reference lies ahead has its base strength until then."""
    note = leased()
    assert lease_strength(note, DEFAULTS, T0 - MONTH) == 1
    assert settle(note, DEFAULTS, T0 - MONTH) == note


def test_strength_is_the_lease_where_one_runs_and_else_the_rank() -> None:
    """What people see: lease strength, base while pinned, rank where nothing leases the note."""
    at = T0 + 30 * DAY_MS
    assert strength(leased(), DEFAULTS, at) == pytest.approx(math.exp(-3))
    assert strength(leased(pinned=True, base=0.7), DEFAULTS, at) == 0.7
    assert strength(born("finding"), DEFAULTS, at) == 0.5
    assert strength(leased(), policy(auto_expire=False), at) == 0.5


@pytest.mark.parametrize("curve", ["flat", "linear", "ebbinghaus"])
def test_a_base_below_the_stale_threshold_is_stale_from_its_reference(curve: Curve) -> None:
    """A note weaker than stale_strength from the start is stale at once on every curve, and still ends at its own
    end."""
    note = leased(curve, base=0.25)
    assert stale_at(note, DEFAULTS) == T0
    assert settle(note, DEFAULTS, T0).causes == ("decayed",)
    assert expires_at(note, DEFAULTS) == expires_at(leased(curve), DEFAULTS)


@pytest.mark.parametrize("curve", ["linear", "ebbinghaus"])
def test_a_base_at_the_threshold_is_stale_a_moment_later(curve: Curve) -> None:
    """Stale is below the threshold, not at it."""
    note = leased(curve, base=0.3)
    assert settle(note, DEFAULTS, T0).state == "active"
    assert stale_at(note, DEFAULTS) == T0 + 1


def test_thresholds_beyond_the_ttl_leave_the_ttl_to_end_the_note() -> None:
    """A curve so gentle that strength stays up, or a floor of 0, ends with code ttl and never goes stale before it."""
    gentle = policy(ebbinghaus_k=0.5)
    note = leased()
    assert stale_at(note, gentle) is None
    assert expires_at(note, gentle) == T0 + MONTH
    assert expires_at(note, policy(forgotten_strength=0.0)) == T0 + MONTH
    assert stale_at(born(ttl_ms=1, curve="ebbinghaus"), DEFAULTS) is None


def test_a_note_without_strength_ends_with_its_ttl_alone() -> None:
    """A base of zero, which only an import could bring, divides nothing by zero."""
    note = leased(base=0.0)
    assert stale_at(note, DEFAULTS) is None
    assert expires_at(note, DEFAULTS) == T0 + MONTH


@pytest.mark.parametrize(
    ("k", "stale", "base"),
    [(1e-12, 1 - 1e-13, 1.0), (1e-9, 1 - 1e-10, 1.0), (3.0, 0.3, math.nextafter(0.3, 0)), (3.0, 0.3, 0.3)],
)
def test_the_threshold_of_a_nearly_flat_curve_is_found_at_once(k: float, stale: float, base: float) -> None:
    """A curve that floats can hardly tell from flat over a hundred years does not make the search crawl."""
    odd = policy(ebbinghaus_k=k, stale_strength=stale)
    note = born(ttl_ms=decisions.MAX_TTL_MS, curve="ebbinghaus", base=base)
    at = stale_at(note, odd)
    if at is not None:
        assert (lease_strength(note, odd, at) or 0) < stale
        assert at == T0 or (lease_strength(note, odd, at - 1) or 0) >= stale


# Which TTL runs


def test_only_an_opt_in_or_the_writers_ttl_lets_a_record_age() -> None:
    """record_ttl off: never; by-kind: the table's; a duration: that; a TTL its writer gave: always."""
    record = born("finding")
    assert lease_ttl(record, DEFAULTS) is None
    assert lease_ttl(record, policy(record_ttl="by-kind")) == 120 * DAY_MS
    assert lease_ttl(record, policy(record_ttl=DAY_MS)) == DAY_MS
    own = born("finding", ttl_ms=5 * DAY_MS)
    for setting in ("off", "by-kind", DAY_MS):
        assert lease_ttl(own, policy(record_ttl=setting)) == 5 * DAY_MS
    assert lease_ttl(born("fact"), policy(record_ttl=DAY_MS)) is None


def test_an_aged_record_is_a_state_and_keeps_its_place() -> None:
    """A record expires as a state at its deadline and stays so, unless ended_retention says otherwise."""
    note = born("finding", ttl_ms=5 * DAY_MS)
    ended = settle(note, DEFAULTS, T0 + OLD)
    assert (ended.state, ended.state_at, ended.state_reason) == ("expired", T0 + 5 * DAY_MS, "ttl")
    assert next_transition(ended, DEFAULTS) is None
    kept_a_day = policy(ended_retention=DAY_MS)
    gone = settle(note, kept_a_day, T0 + 6 * DAY_MS)
    assert (gone.state, gone.state_at, gone.state_reason) == ("forgotten", T0 + 6 * DAY_MS, "retention")
    assert settle(note, kept_a_day, T0 + 6 * DAY_MS - 1).state == "expired"


@examples(150)
@given(policies(), durations, st.integers(0, OLD))
def test_a_directive_is_exempt_before_any_override(by: Policy, ttl: int, age: int) -> None:
    """V06: no policy, no TTL that slipped in, and no age ends, weakens or flags a directive."""
    note = born("directive", ttl_ms=ttl, curve="ebbinghaus")
    assert lease_ttl(note, by) is None
    assert next_transition(note, by) is None
    assert due_events(note, by, T0 + age) == []
    assert settle(note, by, T0 + age) == note
    assert strength(note, by, T0 + age) == 1.0


def test_an_ended_directive_is_kept_under_every_retention() -> None:
    """The exemption also covers erasure by age: a revoked directive can be reinstated years later."""
    note = after(born("directive"), *decisions.revoke(born("directive"), HUMAN, T0, reason="wrong"))
    assert settle(note, policy(ended_retention=1), T0 + OLD) == note


@examples(100)
@given(policies().flatmap(lambda by: st.tuples(st.just(by), newborns(by))), st.integers(0, OLD))
def test_time_never_touches_a_pinned_note(given_pair: tuple[Policy, Note], age: int) -> None:
    """A pinned note neither goes stale nor expires, and keeps its base strength."""
    by, note = given_pair
    pinned = msgspec.structs.replace(note, pinned=True)
    assert settle(pinned, by, T0 + age) == pinned
    assert strength(pinned, by, T0 + age) == pinned.base


@examples(60)
@given(newborns(), st.integers(0, OLD))
def test_with_auto_expire_off_no_live_note_ages(note: Note, age: int) -> None:
    """The switch stops every lease clock."""
    assert settle(note, policy(auto_expire=False, record_ttl=1), T0 + age) == note


# Retention


def test_an_ended_perishable_is_forgotten_after_the_audit_retention() -> None:
    """Superseded and revoked perishables go after audit_retention; ended_retention is about records alone."""
    note = leased()
    ended = after(note, *decisions.revoke(note, HUMAN, T0, reason="wrong"))
    for by in (DEFAULTS, policy(ended_retention=1), policy(auto_expire=False)):
        assert settle(ended, by, T0 + 90 * DAY_MS - 1) == ended
        gone = settle(ended, by, T0 + 90 * DAY_MS)
        assert (gone.state, gone.state_reason, gone.state_at) == ("forgotten", "retention", T0 + 90 * DAY_MS)


def test_ended_records_never_expire_by_age() -> None:
    """A revoked or superseded record stays what it is, whatever its TTL and record_ttl."""
    note = born("finding", ttl_ms=1000)
    ended = after(note, *decisions.revoke(note, HUMAN, T0, reason="wrong"))
    assert settle(ended, policy(record_ttl=1), T0 + OLD) == ended


def test_a_half_recorded_end_of_a_perishable_is_completed_under_its_own_code() -> None:
    """C36: an expiry whose erasure was not recorded is due at once, as expired and not as retention."""
    note = leased()
    lone = after(note, due_events(note, DEFAULTS, T0 + MONTH)[0])
    assert lone.state == "expired"
    step = next_transition(lone, DEFAULTS)
    assert step == clocks.Next(at=lone.state_at, to="forgotten", event="forgotten", reason="expired")
    assert settle(lone, DEFAULTS, T0 + MONTH) == settle(note, DEFAULTS, T0 + MONTH)


# Properties


@examples(250)
@given(policies().flatmap(lambda by: st.tuples(st.just(by), newborns(by))), commands(max_size=5))
def test_the_next_transition_is_exact_to_the_millisecond(
    given_pair: tuple[Policy, Note], sequence: list[Command]
) -> None:
    """What is announced happens at that millisecond and not one earlier; where nothing is announced nothing happens."""
    by, note = given_pair
    note, now, _ = run(note, sequence, by, passes=False)
    note = settle(note, by, now)
    step = next_transition(note, by)
    if step is None:
        assert settle(note, by, now + OLD) == note
        return
    assert step.at > now
    assert settle(note, by, step.at - 1) == note
    then = settle(note, by, step.at)
    assert (then.state, then.state_at) == (step.to, step.at)
    made = due_events(note, by, step.at)
    assert event_type(made[0]) == step.event
    assert all(event.at == step.at for event in made)


@examples(300)
@given(policies().flatmap(lambda by: st.tuples(st.just(by), newborns(by))), commands(), gaps)
def test_nothing_depends_on_when_passes_ran(
    given_pair: tuple[Policy, Note], sequence: list[Command], later: int
) -> None:
    """C32: passes at any instants, or none at all, give the same answers and the same note but for its version."""
    by, note = given_pair
    often, now, answers = run(note, sequence, by, passes=True)
    never, _, same_answers = run(note, sequence, by, passes=False)
    assert answers == same_answers
    assert bare(settle(often, by, now + later)) == bare(settle(never, by, now + later))


@examples(150)
@given(
    policies().flatmap(lambda by: st.tuples(st.just(by), newborns(by))),
    st.lists(st.integers(0, 5 * 365 * DAY_MS), min_size=1, max_size=6).map(sorted),
)
def test_settling_in_steps_or_at_once_is_the_same(given_pair: tuple[Policy, Note], ages: list[int]) -> None:
    """State, causes, times and codes at the end do not depend on the looks taken before; settling twice adds
    nothing."""
    by, note = given_pair
    stepped = note
    for age in ages:
        stepped = settle(stepped, by, T0 + age)
        assert settle(stepped, by, T0 + age) == stepped
        assert due_events(stepped, by, T0 + age) == []
    assert bare(stepped) == bare(settle(note, by, T0 + ages[-1]))


@given(policies(), policies(), newborns(), st.integers(0, OLD))
@examples(300)
def test_no_other_setting_moves_a_clock(by: Policy, other: Policy, note: Note, age: int) -> None:
    """Under policies that agree in what ``TIMING`` names, a note is as strong and ends as soon, whatever else
    differs."""
    other = msgspec.structs.replace(other, **{name: getattr(by, name) for name in clocks.TIMING})
    assert clocks.same_timing(by, other)
    for stood in (note, settle(note, by, note.created_at + age)):
        assert next_transition(stood, by) == next_transition(stood, other)
        assert strength(stood, by, note.created_at + age) == strength(stood, other, note.created_at + age)


def test_thirty_passes_are_one_pass() -> None:
    """C32: running every pass 30 times changes nothing after the first, time stamps included."""
    note = leased()
    once = after(note, *due_events(note, DEFAULTS, T0 + 20 * DAY_MS))
    many = note
    for turn in range(30):
        many = after(many, *due_events(many, DEFAULTS, T0 + 20 * DAY_MS + turn))
    assert many == once
    assert (many.state, many.causes, many.version) == ("stale", ("decayed",), 2)


@examples(200)
@given(policies(), newborns())
def test_thresholds_are_where_strength_crosses_them(by: Policy, note: Note) -> None:
    """stale_at is the first millisecond below stale_strength, and expires_at the first at the TTL or below the
    floor."""
    ttl, end, stale = lease_ttl(note, by), expires_at(note, by), stale_at(note, by)
    if ttl is None:
        assert end is None
        assert stale is None
        return
    assert end is not None
    assert note.ref_at <= end <= note.ref_at + ttl
    floor = by.forgotten_strength * note.base

    def at(instant: int) -> float:
        value = lease_strength(note, by, instant)
        assert value is not None
        return value

    assert end == note.ref_at + ttl or at(end) < floor
    assert end == note.ref_at or at(end - 1) >= floor
    if stale is not None:
        assert note.ref_at <= stale < end
        assert at(stale) < by.stale_strength
        assert stale == note.ref_at or at(stale - 1) >= by.stale_strength
    elif end > note.ref_at:
        assert at(end - 1) >= by.stale_strength


@examples(100)
@given(policies(), newborns(), st.lists(st.integers(0, OLD), min_size=2, max_size=5).map(sorted))
def test_both_clocks_only_ever_fall(by: Policy, note: Note, ages: list[int]) -> None:
    """Left alone, neither rank nor lease strength ever rises, and both stay within their bounds."""
    ranks = [rank(note, by, T0 + age) for age in ages]
    assert ranks == sorted(ranks, reverse=True)
    assert all(0 <= value <= 1 for value in ranks)
    strengths = [lease_strength(note, by, T0 + age) for age in ages]
    if strengths[0] is not None:
        assert strengths == sorted(strengths, key=lambda value: -(value or 0))
        assert all(0 <= (value or 0) <= note.base for value in strengths)


# Renewal


@examples(150)
@given(policies(), newborns(), st.integers(0, OLD))
def test_a_renewal_is_bounded_and_never_born_stale(by: Policy, note: Note, age: int) -> None:
    """The new base lies above the stale threshold, at most 1, and not below the strength it renews."""
    base = renewed_base(note, by, T0 + age)
    assert by.stale_strength < base <= 1
    current = lease_strength(note, by, T0 + age)
    assert base >= (note.base if current is None else current)


def test_the_renewal_formula_of_the_specification() -> None:
    """max(min(1, 1.5 s + 0.1), min(1, 0.6)): by hand at s = e^-1, at s near 0, and at s = 1."""
    note = leased()
    assert renewed_base(note, DEFAULTS, T0 + 10 * DAY_MS) == pytest.approx(1.5 * math.exp(-1) + 0.1)
    assert renewed_base(note, DEFAULTS, T0 + 29 * DAY_MS) == pytest.approx(0.6)
    assert renewed_base(note, DEFAULTS, T0) == 1.0
    assert renewed_base(note, policy(stale_strength=0.9), T0 + 29 * DAY_MS) == 1.0


def test_a_note_that_no_lease_weakens_is_renewed_from_its_base() -> None:
    """The rank clock has no part in a lease: an old unleased note of base 0.4 restarts from 0.7, whatever its age."""
    note = born("fact", base=0.4)
    assert renewed_base(note, DEFAULTS, T0 + OLD) == pytest.approx(0.7)


def test_a_hundred_renewals_do_not_compound() -> None:
    """C31: junk renewed 100 times is bounded at 1, dies as fast as anything else, and logs at most one event per
    grain."""
    junk, count = leased(), 0
    for turn in range(1, 101):
        before = junk.version
        junk = renewed(junk, DEFAULTS, T0 + turn * 60_000)
        count += junk.version - before
    assert count == 0
    for turn in range(1, 101):
        junk = renewed(junk, DEFAULTS, T0 + turn * DAY_MS)
        assert junk.base <= 1
    good = born("fact", at=T0 + 100 * DAY_MS, ttl_ms=MONTH, curve="ebbinghaus")
    assert expires_at(junk, DEFAULTS) == expires_at(good, DEFAULTS)
    assert strength(junk, DEFAULTS, T0 + 110 * DAY_MS) <= strength(good, DEFAULTS, T0 + 110 * DAY_MS)


@pytest.mark.parametrize("every", [10, 25])
def test_a_used_note_lives(every: int) -> None:
    """V29: used every 10 or every 25 days with a TTL of 30, a note lives through the year and is renewed each time."""
    note = leased()
    for day in range(every, 366, every):
        now = T0 + day * DAY_MS
        assert settle(note, DEFAULTS, now).live
        note = renewed(note, DEFAULTS, now)
        assert note.ref_at == now
        assert note.state == "active"


def test_an_unused_note_dies_on_day_thirty() -> None:
    """V29, C10: never used, it is dead on day 30 (29.96 by the floor), without any pass, and no use revives it."""
    note = leased()
    assert settle(note, DEFAULTS, T0 + int(29.95 * DAY_MS)).live
    dead = settle(note, DEFAULTS, T0 + 30 * DAY_MS)
    assert dead.state == "forgotten"
    assert days(dead.state_at, note) == pytest.approx(29.957, abs=0.001)
    assert settle(leased("flat"), DEFAULTS, T0 + MONTH).state_at == T0 + MONTH


@pytest.mark.parametrize(
    ("ttl", "gap", "worth"),
    [(150, 1, False), (150, 2, True), (1, 0, False), (1, 1, True), (100, 1, True), (MONTH, 3600_000, False)],
)
def test_a_renewal_is_recorded_only_if_it_moves_the_reference_by_a_hundredth(ttl: int, gap: int, worth: bool) -> None:
    """V31: use cannot flood the log."""
    assert worth_renewing(born(ttl_ms=ttl, curve="flat"), DEFAULTS, T0 + gap) is worth


def test_what_has_no_running_lease_is_not_worth_renewing() -> None:
    """Directives, pinned notes, records without a TTL and a stopped clock log no renewals."""
    for note in (born("directive"), born("finding"), leased(pinned=True), born("fact")):
        assert not worth_renewing(note, DEFAULTS, T0 + OLD)
    assert not worth_renewing(leased(), policy(auto_expire=False), T0 + OLD)


def test_reading_does_not_move_a_deadline() -> None:
    """C10: settling, whatever the instant, leaves expires_at where it was."""
    note = leased()
    deadline = expires_at(note, DEFAULTS)
    assert expires_at(settle(note, DEFAULTS, T0 + 20 * DAY_MS), DEFAULTS) == deadline


def test_an_import_from_the_past_is_dead_at_once_at_its_own_deadline() -> None:
    """C19: a perishable dated two years ago with a 30-day TTL settles as forgotten, stamped with the day it fell
    due."""
    note = leased(at=T0 - 730 * DAY_MS)
    gone = settle(note, DEFAULTS, T0)
    assert gone.state == "forgotten"
    assert gone.state_at == expires_at(note, DEFAULTS)
    assert gone.state_at < T0 - 699 * DAY_MS


def test_the_anchor_outlives_a_renewal() -> None:
    """V30: decayed, then its file changes, then renewed: the lease restarts and the anchor's mark stays."""
    now = T0 + 15 * DAY_MS
    note = leased()
    note = after(note, *due_events(note, DEFAULTS, now))
    note = after(note, *decisions.flag(note, None, now, cause="anchor"))
    assert note.causes == ("decayed", "anchor")
    note = renewed(note, DEFAULTS, now)
    assert (note.state, note.causes, note.ref_at) == ("stale", ("anchor",), now)
    later = settle(note, DEFAULTS, now + 20 * DAY_MS)
    assert later.causes == ("anchor", "decayed")


@given(st.sampled_from(sorted(REGIMES)))
@examples(20)
def test_the_regime_decides_what_an_end_is(kind: str) -> None:
    """Records end as a state with one event, perishables end and are erased with two."""
    assume(kind != "directive")
    note = born(kind, ttl_ms=DAY_MS)
    names = [event_type(event) for event in due_events(note, DEFAULTS, T0 + DAY_MS)]
    assert names == (["expired"] if REGIMES[kind] == "record" else ["expired", "forgotten"])


def test_a_renewal_event_sets_the_base_once() -> None:
    """The boost is in the event; folding and settling again never applies it a second time."""
    note = leased()
    now = T0 + 10 * DAY_MS
    (event,) = decisions.renew(note, AGENT, DEFAULTS, now)
    assert isinstance(event, Renewed)
    fresh = apply(note, event)
    assert fresh.base == event.base
    assert settle(settle(fresh, DEFAULTS, now), DEFAULTS, now).base == event.base
