"""The two clocks: pure functions of a note, the policy and ``now``. No process here ever asks what time it is.

The *rank clock* orders and never hides: half-life decay since creation. The *lease clock* ends things: strength falls
along a curve since the last renewal, and a note that its lease has ended is dead at that instant whether or not a pass
has run. Everything is recomputed from the start each time, never accumulated, so settling twice gives the same numbers.
Formulas: specification, section 6.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from typing import Final, Literal

import msgspec

from amnesiad.core.events import SYSTEM, AnyNoteEvent, Expired, Forgotten, StaleFlagged
from amnesiad.core.kinds import EXEMPT_KINDS, Curve
from amnesiad.core.notes import Note, State, apply
from amnesiad.core.policy import Policy

SHAPES: Final = 4096
"""Shapes of lease (curve, base, TTL, threshold) whose course is remembered; renewals make new ones."""
RENEWAL_GRAIN: Final = 100
"""A renewal is recorded only if it moves the reference by at least ttl/100, so that use cannot flood the log."""


TIMING: Final = (
    "kinds",
    "auto_expire",
    "record_ttl",
    "ebbinghaus_k",
    "stale_strength",
    "forgotten_strength",
    "audit_retention",
    "ended_retention",
)
"""The settings that decide when a note weakens, goes stale, ends and is forgotten."""


class Next(msgspec.Struct, frozen=True):
    """A note's next transition if nobody touches it: when, to what, and by which event."""

    at: int
    to: State
    event: Literal["stale_flagged", "expired", "forgotten"]
    reason: Literal["decayed", "ttl", "expired", "retention"]


def same_timing(one: Policy, other: Policy) -> bool:
    """Whether every note weakens and ends alike under both policies."""
    return all(getattr(one, name) == getattr(other, name) for name in TIMING)


def rank(note: Note, policy: Policy, now: int) -> float:
    """Rank in [0, 1]: ``0.5 ** (elapsed / half_life)`` since creation; 1.0 for an exempt kind or a future stamp."""
    half_life = policy.kinds.half_life_ms[note.kind]
    return 1.0 if half_life is None else halved(now - note.created_at, half_life)


def halved(elapsed: int, half_life: int) -> float:
    """What is left of 1.0 after ``elapsed`` (both in ms). The one formula of the rank clock."""
    return 1.0 if elapsed <= 0 else float(0.5 ** (elapsed / half_life))


def lease_ttl(note: Note, policy: Policy) -> int | None:
    """The TTL in milliseconds whose clock runs for this note, or ``None`` where none does.

    Exemption is checked before any operator override. A TTL that the writer gave always runs; a record without one
    runs only by ``record_ttl``. Nothing runs while pinned or with ``auto_expire`` off.
    """
    if note.kind in EXEMPT_KINDS or note.pinned or not policy.auto_expire:
        return None
    if note.ttl_ms is not None:
        return note.ttl_ms
    if note.regime == "perishable" or policy.record_ttl == "off":
        return None
    if policy.record_ttl == "by-kind":
        return policy.kinds.ttl_ms[note.kind]
    return policy.record_ttl


def fallen(curve: Curve, base: float, steepness: float, fraction: float) -> float:
    """What is left of ``base`` after ``fraction`` of the TTL. The one formula of the lease clock: searching and
    settling must agree to the bit."""
    if curve == "ebbinghaus":
        return base * math.exp(-steepness * fraction)
    if curve == "linear":
        return base * max(0.0, 1 - fraction)
    return base


def lease_strength(note: Note, policy: Policy, now: int) -> float | None:
    """Strength on the lease clock, in [0, base], or ``None`` where no lease runs. Not forced to 0 past the end."""
    ttl = lease_ttl(note, policy)
    if ttl is None:
        return None
    return fallen(note.curve, note.base, policy.ebbinghaus_k, max(0, now - note.ref_at) / ttl)


def strength(note: Note, policy: Policy, now: int) -> float:
    """What people see and injection orders by: the lease's strength where one runs, else the rank; base when pinned."""
    if note.pinned:
        return note.base
    leased = lease_strength(note, policy, now)
    return rank(note, policy, now) if leased is None else leased


def stale_at(note: Note, policy: Policy) -> int | None:
    """The earliest instant at which the lease makes the unused note stale, or ``None`` if it ends first or never
    does."""
    return _course(note, policy)[0]


def expires_at(note: Note, policy: Policy) -> int | None:
    """The earliest instant at which the lease ends the unused note: its TTL, or the floor relative to its base."""
    return _course(note, policy)[1]


def ttl_ending_after(life_ms: int, curve: Curve, policy: Policy) -> int:
    """The shortest TTL of a lease at full strength that ends ``life_ms`` after its reference, not before.

    A curve's floor may end the lease before its TTL does; so the TTL is longer than the life it is to give. Under
    every policy but one whose curve is too flat for its floor to be told apart by the millisecond, the end is exact.
    """

    def end(ttl: int) -> int:
        # Past the memory of shapes: those that are tried here are nobody's.
        floor = _fall.__wrapped__(curve, 1.0, policy.ebbinghaus_k, ttl, policy.forgotten_strength)
        return ttl if floor is None else min(ttl, floor)

    low = high = life_ms
    while end(high) < life_ms:
        low, high = high, 2 * high
    return low + bisect_left(range(low, high + 1), life_ms, key=end)


def _course(note: Note, policy: Policy) -> tuple[int | None, int | None]:
    """When the lease makes the unused note stale and when it ends it; ``(None, None)`` where no lease runs."""
    ttl = lease_ttl(note, policy)
    if ttl is None:
        return None, None
    base, start = note.base, note.ref_at
    floor = _fall(note.curve, base, policy.ebbinghaus_k, ttl, policy.forgotten_strength * base)
    stale = _fall(note.curve, base, policy.ebbinghaus_k, ttl, policy.stale_strength)
    end = ttl if floor is None else min(ttl, floor)
    return (None if stale is None or stale >= end else start + stale), start + end


@lru_cache(maxsize=SHAPES)
def _fall(curve: Curve, base: float, steepness: float, ttl: int, limit: float) -> int | None:
    """The first millisecond after the reference at which the strength is below ``limit``; ``None`` if not within the
    TTL.

    The closed formula finds it to a rounding; the strength that everything else uses then decides, so that no two
    places can disagree by a millisecond. The bracket around the guess doubles, so that a curve too flat for the
    formula's precision costs a few steps more and not one step a millisecond. Remembered by shape, since the notes of
    a workspace have few.
    """
    if base <= 0:
        return None
    if base < limit:
        return 0
    fraction = limit / base
    if curve == "flat" or fraction <= 0:
        return None
    fall = 1 - fraction if curve == "linear" else -math.log(fraction) / steepness
    if fall > 1:
        return None

    def below(elapsed: int) -> bool:
        return fallen(curve, base, steepness, max(0, elapsed) / ttl) < limit

    guess, width = math.floor(fall * ttl), 1
    while below(guess - width) or not below(guess + width):
        width *= 2
    return guess - width + bisect_left(range(guess - width, guess + width + 1), True, key=below)


def next_transition(note: Note, policy: Policy) -> Next | None:
    """What time alone will do to the note next, or ``None``. Recorded causes count: a stale note goes on to its end."""
    if note.live:
        stale, end = _course(note, policy)
        if stale is not None and "decayed" not in note.causes:
            return Next(at=stale, to="stale", event="stale_flagged", reason="decayed")
        if end is None:
            return None
        to: State = "forgotten" if note.regime == "perishable" else "expired"
        return Next(at=end, to=to, event="expired", reason=_why_expired(note, policy, end))
    if note.state == "forgotten":
        return None
    keep = _retention(note, policy)
    if keep is None:
        return None
    lapsed = note.regime == "perishable" and note.state == "expired"
    return Next(at=note.state_at + keep, to="forgotten", event="forgotten", reason="expired" if lapsed else "retention")


def _retention(note: Note, policy: Policy) -> int | None:
    """How long an ended note is kept before it is forgotten; ``None`` is for good.

    Exemption comes first here too: no setting erases a directive by age, not even one that somebody ended.
    """
    if note.kind in EXEMPT_KINDS:
        return None
    if note.regime == "record":
        return policy.ended_retention
    return 0 if note.state == "expired" else policy.audit_retention


def due_events(note: Note, policy: Policy, now: int) -> list[AnyNoteEvent]:
    """The events that time owes the note at ``now``, oldest first; ``[]`` when none is due.

    Each is stamped with the instant it fell due, not with ``now``; whether a pass ran in between changes neither the
    state that follows nor its time. (Only the version may differ: a stale flag that nobody recorded before the end is
    left out.)
    """
    events: list[AnyNoteEvent] = []
    if note.live:
        stale, end = _course(note, policy)
        if end is None or end > now:
            if stale is None or stale > now or "decayed" in note.causes:
                return []
            flagged = StaleFlagged(note=note.id, version=note.version + 1, at=stale, actor=SYSTEM, cause="decayed")
            return [flagged]
        why = _why_expired(note, policy, end)
        expired = Expired(note=note.id, version=note.version + 1, at=end, actor=SYSTEM, reason=why)
        if note.regime == "perishable":
            gone = Forgotten(note=note.id, version=note.version + 2, at=end, actor=SYSTEM, reason="expired")
            return [expired, gone]
        events.append(expired)
        note = apply(note, expired)
    step = next_transition(note, policy)
    if step is not None and step.at <= now:
        code: Literal["expired", "retention"] = "expired" if step.reason == "expired" else "retention"
        events.append(Forgotten(note=note.id, version=note.version + 1, at=step.at, actor=SYSTEM, reason=code))
    return events


def _why_expired(note: Note, policy: Policy, end: int) -> Literal["ttl", "decayed"]:
    """Whether the TTL itself ended the note, or the floor its curve fell to before."""
    return "ttl" if end == note.ref_at + (lease_ttl(note, policy) or 0) else "decayed"


def settle(note: Note, policy: Policy, now: int) -> Note:
    """The note's state at ``now``: the fold of what is recorded and of what time owes it. Idempotent."""
    for event in due_events(note, policy, now):
        note = apply(note, event)
    return note


def renewed_base(note: Note, policy: Policy, now: int) -> float:
    """The strength a renewal at ``now`` restarts the lease from, in (0, 1].

    ``max(min(1, s * gain + bonus), min(1, 2 * stale_strength))``: applied once, at the renewal, so that it cannot
    compound when settling; a renewed note is never born stale. Where no lease runs strength is the base, as on a flat
    lease without end; the rank clock has no part in it.
    """
    leased = lease_strength(note, policy, now)
    value = note.base if leased is None else leased
    boosted = min(1.0, value * policy.renewal_gain + policy.renewal_bonus)
    return max(boosted, min(1.0, 2 * policy.stale_strength))


def worth_renewing(note: Note, policy: Policy, now: int) -> bool:
    """Whether a use at ``now`` should be recorded as a renewal: a lease runs and its reference would move enough."""
    ttl = lease_ttl(note, policy)
    return ttl is not None and (now - note.ref_at) * RENEWAL_GRAIN >= ttl
