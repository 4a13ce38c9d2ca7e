"""Decisions: a command and a note settled at ``now`` in, the events to append out, or a typed refusal.

Every function takes the note *as settled at now* (``clocks.settle``), returns the new events oldest first, and returns
``[]`` where the command asks for what already holds, so that a repeat is a no-op that says so. Nothing here reads or
writes anything; the shells append what is returned. Specification, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, cast

import msgspec

from amnesiad.core import clocks
from amnesiad.core.callers import Caller, check_authority
from amnesiad.core.errors import Forbidden, IllegalTransition, Invalid, Refused
from amnesiad.core.events import (
    SYSTEM,
    AnyNoteEvent,
    Created,
    Edited,
    Expired,
    ForgetCode,
    Forgotten,
    Pinned,
    Promoted,
    Provenance,
    Reinstated,
    Renewed,
    Restored,
    Revoked,
    Scope,
    StaleFlagged,
    Superseded,
    Unpinned,
)
from amnesiad.core.intake import check_reason
from amnesiad.core.kinds import EXEMPT_KINDS, REGIMES, Curve, Kind
from amnesiad.core.notes import TRANSITIONS, Note, Words, apply
from amnesiad.core.policy import Policy
from amnesiad.core.times import MAX_DURATION_MS

MAX_TTL_MS: Final = MAX_DURATION_MS
"""A hundred years: anything longer is a mistake in units."""

PROVENANCE_STEPS: Final[tuple[Provenance, ...]] = ("auto", "agent", "user-stated", "human")


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A note somebody asks to remember, after ``intake`` and ``callers.address``. ``ttl_ms`` unset takes the policy's.

    ``expires_at`` (epoch ms) asks for the TTL that ends there; it stands in place of a ``ttl_ms``.
    """

    id: str
    kind: Kind
    words: Words
    scope: Scope = "workspace"
    owner: str | None = None
    incarnation: int | None = None
    provenance: Provenance | None = None
    ttl_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    expires_at: int | None = None
    curve: Curve | None = None
    pinned: bool = False
    source_ref: str | None = None
    supersedes: tuple[str, ...] = ()
    restored_from: str | None = None


def create(draft: Draft, caller: Caller, policy: Policy, now: int) -> Created:
    """The birth of a note. Raises ``Invalid`` for a TTL or end where none may be, ``Forbidden`` for a provenance above
    the role.

    A perishable born pinned still carries the policy's TTL, as one pinned later does: its clock stands until unpinned.
    """
    perishable = REGIMES[draft.kind] == "perishable"
    curve = draft.curve or (policy.default_curve if perishable else "flat")
    given = _lease(draft, curve, policy, now)
    ttl = given if given is not msgspec.UNSET else (policy.default_ttl if perishable else None)
    return Created(
        note=draft.id,
        version=1,
        at=now,
        actor=caller.actor,
        on_behalf=caller.on_behalf,
        kind=draft.kind,
        provenance=_provenance(draft.provenance, caller),
        size=draft.words.size(),
        scope=draft.scope,
        owner=draft.owner,
        incarnation=draft.incarnation,
        author=caller.author,
        source_ref=draft.source_ref,
        ttl_ms=ttl,
        curve=curve,
        pinned=draft.pinned,
        supersedes=draft.supersedes,
        restored_from=draft.restored_from,
    )


def _lease(draft: Draft, curve: Curve, policy: Policy, now: int) -> int | msgspec.UnsetType | None:
    """The TTL that a draft asks for, by itself or by the end it names. Raises ``Invalid`` naming the field given."""
    given, end = draft.ttl_ms, draft.expires_at
    if end is None and (given is msgspec.UNSET or given is None):
        return given
    field = "ttl_ms" if end is None else "expires_at"
    if end is not None and given is not msgspec.UNSET and given is not None:
        raise Invalid("give either ttl_ms or expires_at", field=field)
    if draft.kind in EXEMPT_KINDS:
        raise Invalid(f"a {draft.kind} has no TTL: it is exempt at any age", field=field, hint="drop the TTL")
    if draft.pinned:
        raise Invalid("a pin with a TTL is a contradiction", field=field, hint="drop the TTL or the pin")
    if end is None:
        return check_ttl(cast(int, given))
    if end <= now:
        raise Invalid("expires_at lies before the note begins", field=field, hint="a note must live to be remembered")
    ttl = end - now
    if ttl <= MAX_TTL_MS:
        ttl = clocks.ttl_ending_after(ttl, curve, policy)
    if ttl > MAX_TTL_MS:
        raise Invalid(
            f"expires_at asks for a lease of more than 100 years on the curve {curve}",
            field=field,
            hint="name an earlier end, or drop expires_at",
        )
    return ttl


def check_ttl(ttl_ms: int, field: str = "ttl_ms") -> int:
    """A TTL in 1 ms .. 100 years; raises ``Invalid`` naming the field."""
    if not 1 <= ttl_ms <= MAX_TTL_MS:
        raise Invalid(f"{field} must be from 1 ms to 100 years, not {ttl_ms}", field=field, hint="like 15s 12h 7d")
    return ttl_ms


def restate(
    note: Note, caller: Caller, policy: Policy, now: int, *, provenance: Provenance | None = None
) -> list[AnyNoteEvent]:
    """The live note's own text is said once more: that renews it, and lifts its provenance to the writer's if higher.

    The writer could have written a note of that provenance, so nobody gains more than with a note of their own. Raises
    ``Forbidden`` for a provenance above the role.
    """
    said_by = _provenance(provenance, caller)
    events = renew(note, caller, policy, now)
    for event in events:
        note = apply(note, event)
    if PROVENANCE_STEPS.index(said_by) > PROVENANCE_STEPS.index(note.provenance):
        events.append(Promoted(**_facts(note, caller, now), provenance=said_by))
    return events


def _provenance(wanted: Provenance | None, caller: Caller) -> Provenance:
    if caller.role == "human":
        return wanted or "human"
    if wanted is None:
        return "user-stated" if caller.on_behalf else "agent"
    if wanted == "human":
        raise Forbidden("an agent never writes provenance human", field="provenance", hint="use agent or user-stated")
    if wanted == "user-stated" and not caller.on_behalf:
        raise Forbidden(
            "provenance user-stated needs the declaration that you act for the user",
            field="provenance",
            hint='send caller.on_behalf "user"',
        )
    return wanted


def _facts(note: Note, caller: Caller | None, now: int) -> dict[str, Any]:
    return {
        "note": note.id,
        "version": note.version + 1,
        "at": now,
        "actor": SYSTEM if caller is None else caller.actor,
        "on_behalf": caller is not None and caller.on_behalf,
    }


def _check_move(note: Note, event: str, verb: str) -> None:
    if note.state in TRANSITIONS[event].frm:
        return
    way_out = {
        "expired": "reinstate it first" if note.regime == "record" else "",
        "superseded": f"its successor is {note.superseded_by}",
        "revoked": "reinstate it first",
        "forgotten": "its words are erased; restore works where a copy was kept",
    }.get(note.state, "")
    raise IllegalTransition(
        f"note {note.id} is {note.state}: it cannot be {verb}", rule=f"{event}-from-{note.state}", hint=way_out
    )


def supersede(
    note: Note, by: Note, caller: Caller, now: int, *, reason: str | None = None, successor: Callable[[str], str | None]
) -> list[AnyNoteEvent]:
    """``note`` is replaced by ``by``. ``successor(id)`` gives the note that superseded ``id``, if any.

    Raises ``Refused`` naming the successor when the note is superseded already, and for a cycle.
    """
    check_authority(note, caller, "supersede", reason)
    if note.state == "superseded":
        if note.superseded_by == by.id:
            return []
        raise Refused(
            f"note {note.id} is superseded already, by {note.superseded_by}",
            rule="superseded-already",
            hint=f"supersede {note.superseded_by} instead",
            choices=(note.superseded_by or "",),
        )
    _check_move(note, "superseded", "superseded")
    _check_cycle(note, by, successor)
    if not by.live:
        raise Refused(
            f"note {by.id} is {by.state}: it cannot take the place of another", rule="successor-ended", field="by"
        )
    return [Superseded(**_facts(note, caller, now), by=by.id)]


def _check_cycle(note: Note, by: Note, successor: Callable[[str], str | None]) -> None:
    if by.id == note.id:
        raise Refused(f"note {note.id} cannot supersede itself", rule="cycle", field="by")
    # A log that was damaged may hold a ring that this note is no part of: each id is followed once.
    seen: set[str] = set()
    step = successor(by.id)
    while step is not None and step not in seen:
        if step == note.id:
            raise Refused(
                f"note {by.id} is itself superseded, in the end, by {note.id}: that would be a cycle",
                rule="cycle",
                field="by",
            )
        seen.add(step)
        step = successor(step)


def revoke(note: Note, caller: Caller, now: int, *, reason: str) -> list[AnyNoteEvent]:
    """Somebody refuted it. The words of the reason go to the vault; without them a revocation teaches nothing."""
    check_reason(reason)
    check_authority(note, caller, "revoke", reason)
    if note.state == "revoked":
        return []
    _check_move(note, "revoked", "revoked")
    return [Revoked(**_facts(note, caller, now))]


def flag(
    note: Note, caller: Caller | None, now: int, *, cause: Literal["distrusted", "anchor"], reason: str | None = None
) -> list[AnyNoteEvent]:
    """It is in doubt: ``distrusted`` by someone, or its ``anchor`` drifted. One flag per cause at a time.

    ``caller`` is ``None`` where the system itself saw the file change. That is an observation about the file, so
    nobody's authority over the note is asked.
    """
    if caller is not None and cause == "distrusted":
        check_authority(note, caller, "flag", reason)
    if cause in note.causes:
        return []
    _check_move(note, "stale_flagged", "flagged")
    return [StaleFlagged(**_facts(note, caller, now), cause=cause)]


def reinstate(
    note: Note, caller: Caller, now: int, *, reason: str | None = None, size: int | None = None
) -> list[AnyNoteEvent]:
    """It holds after all. ``size`` is the new size of the words if re-anchoring changed them."""
    check_authority(note, caller, "reinstate", reason)
    if note.state == "active":
        return []
    _check_move(note, "reinstated", "reinstated")
    return [Reinstated(**_facts(note, caller, now), size=size)]


def renew(note: Note, caller: Caller, policy: Policy, now: int) -> list[AnyNoteEvent]:
    """A use restarts the lease. ``[]`` where no lease runs or the reference would move by less than ttl/100."""
    if not note.live:
        hint = (
            "reinstate it" if note.state != "forgotten" else "its words are erased; restore works where a copy was kept"
        )
        raise Refused(
            f"note {note.id} is {note.state}: use cannot revive it", rule=f"renewed-from-{note.state}", hint=hint
        )
    if "decayed" not in note.causes and not clocks.worth_renewing(note, policy, now):
        return []
    return [Renewed(**_facts(note, caller, now), base=clocks.renewed_base(note, policy, now))]


def pin(note: Note, caller: Caller, now: int, *, reason: str | None = None) -> list[AnyNoteEvent]:
    """Stop the lease clock until unpinned."""
    check_authority(note, caller, "pin", reason)
    _check_move(note, "pinned", "pinned")
    return [] if note.pinned else [Pinned(**_facts(note, caller, now))]


def unpin(note: Note, caller: Caller, now: int, *, reason: str | None = None) -> list[AnyNoteEvent]:
    """Let the lease run again, from now."""
    check_authority(note, caller, "unpin", reason)
    _check_move(note, "unpinned", "unpinned")
    return [Unpinned(**_facts(note, caller, now))] if note.pinned else []


def done(note: Note, caller: Caller, now: int, *, reason: str | None = None) -> list[AnyNoteEvent]:
    """A task is completed: an expiry with that code."""
    check_authority(note, caller, "finish", reason)
    if note.kind != "task":
        raise Refused(
            f"note {note.id} is a {note.kind}: only a task can be done",
            rule="done-task-only",
            hint="forget or revoke it",
        )
    if note.state == "expired" and note.state_reason == "completed":
        return []
    _check_move(note, "expired", "done")
    return [Expired(**_facts(note, caller, now), reason="completed")]


def promote(
    note: Note, caller: Caller, now: int, *, to: Literal["workspace"] | Provenance, reason: str | None = None
) -> list[AnyNoteEvent]:
    """Lift a note to the workspace, or its provenance upward (``user-stated`` and ``human`` need role human)."""
    _check_move(note, "promoted", "promoted")
    if to == "workspace":
        check_authority(note, caller, "promote", reason)
        return [] if note.scope == "workspace" else [Promoted(**_facts(note, caller, now), scope="workspace")]
    if to in ("user-stated", "human") and caller.role != "human":
        raise Forbidden(f"only a human may promote a note to {to}", field="to", hint="ask the user to do it")
    if to == note.provenance:
        return []
    if PROVENANCE_STEPS.index(to) < PROVENANCE_STEPS.index(note.provenance):
        raise Refused(
            f"note {note.id} is {note.provenance} already, which is above {to}", rule="promote-upward", field="to"
        )
    return [Promoted(**_facts(note, caller, now), provenance=to)]


def graduate(note: Note, policy: Policy, now: int, access_count: int) -> list[AnyNoteEvent]:
    """The N-th access gives a leased note the longer ``promoted_ttl``, once; ``[]`` otherwise.

    Only a TTL of the note's own is lengthened. To write one into a record that ages by ``record_ttl`` would let age
    end it after the operator has switched that off.
    """
    need = policy.promote_after_accesses
    if not need or access_count < need or not note.live or clocks.lease_ttl(note, policy) is None:
        return []
    if note.ttl_ms is None or note.ttl_ms >= policy.promoted_ttl:
        return []
    return [Promoted(note=note.id, version=note.version + 1, at=now, actor=SYSTEM, ttl_ms=policy.promoted_ttl)]


def edit(
    note: Note,
    caller: Caller,
    now: int,
    *,
    before: Words,
    after: Words,
    ttl_ms: int | msgspec.UnsetType | None = msgspec.UNSET,
    reason: str | None = None,
) -> list[AnyNoteEvent]:
    """Tags, anchors, triggers and TTL may change in place; content may not (that is ``supersede``)."""
    check_authority(note, caller, "edit", reason)
    _check_move(note, "edited", "edited")
    fields: list[Literal["tags", "anchors", "triggers", "ttl_ms"]] = []
    if after.tags != before.tags:
        fields.append("tags")
    if after.anchors != before.anchors:
        fields.append("anchors")
    if after.triggers != before.triggers:
        fields.append("triggers")
    if ttl_ms is not msgspec.UNSET and ttl_ms != note.ttl_ms:
        if ttl_ms is not None:
            if note.kind in EXEMPT_KINDS:
                raise Invalid(f"a {note.kind} has no TTL: it is exempt at any age", field="ttl_ms", hint="drop the TTL")
            if note.pinned:
                raise Invalid("a pin with a TTL is a contradiction", field="ttl_ms", hint="unpin it first")
            check_ttl(ttl_ms)
        fields.append("ttl_ms")
    if not fields:
        return []
    ttl = ttl_ms if "ttl_ms" in fields and ttl_ms is not msgspec.UNSET else None
    return [Edited(**_facts(note, caller, now), fields=tuple(fields), size=after.size(), ttl_ms=ttl)]


def forget(note: Note, caller: Caller, now: int, *, reason: str | None = None) -> list[AnyNoteEvent]:
    """Erase it by hand. Final; only a kept copy can be restored, as a new note."""
    if note.state == "forgotten":
        return []
    check_authority(note, caller, "forget", reason)
    return [Forgotten(**_facts(note, caller, now), reason="manual")]


def erase(note: Note, now: int, code: ForgetCode) -> list[AnyNoteEvent]:
    """The system erases by policy: eviction, an owner's end, retention. ``[]`` if it is forgotten already.

    Raises ``Refused`` for an eviction of a record or of a live pinned note: capacity never costs those.
    """
    if note.state == "forgotten":
        return []
    if code == "evicted" and (note.regime == "record" or (note.live and note.pinned)):
        what = "a record" if note.regime == "record" else "pinned"
        raise Refused(f"note {note.id} is {what}: it is never evicted", rule="never-evicted")
    return [Forgotten(note=note.id, version=note.version + 1, at=now, actor=SYSTEM, reason=code)]


def restore(
    note: Note, caller: Caller, now: int, *, to: str, kept: bool, reason: str | None = None
) -> list[AnyNoteEvent]:
    """Mark a forgotten note as restored under the new id ``to``. ``kept`` tells whether a copy of its words exists."""
    if note.state != "forgotten":
        way = "reinstate it" if note.state in TRANSITIONS["reinstated"].frm else "there is nothing to restore"
        raise Refused(f"note {note.id} is {note.state}, not forgotten", rule="restore-forgotten-only", hint=way)
    check_authority(note, caller, "restore", reason)
    if note.restored_to is not None:
        raise Refused(
            f"note {note.id} was restored already, as {note.restored_to}",
            rule="restored-once",
            choices=(note.restored_to,),
        )
    if not kept:
        raise Refused(
            f"note {note.id} is erased and no copy was kept",
            rule="nothing-kept",
            hint="copies are kept only while the setting restorable is on",
        )
    return [Restored(**_facts(note, caller, now), to=to)]
