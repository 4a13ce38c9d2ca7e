"""Decisions: a command on a settled note becomes rows of the table, nothing at all, or a typed refusal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.core.strategies import (
    AGENT,
    DEFAULTS,
    HUMAN,
    OTHER,
    T0,
    VERBS,
    Command,
    born,
    commands,
    decide,
    examples,
    gaps,
    newborns,
    policies,
    run,
)

from amnesiad.core import decisions
from amnesiad.core.callers import Caller
from amnesiad.core.clocks import due_events, settle
from amnesiad.core.decisions import Draft, create
from amnesiad.core.errors import CallerError, Forbidden, IllegalTransition, Invalid, Refused
from amnesiad.core.events import AnyNoteEvent, Created, Edited, Promoted, Superseded, event_type
from amnesiad.core.kinds import DAY_MS
from amnesiad.core.notes import TRANSITIONS, Anchor, Note, Trigger, Words, apply
from amnesiad.core.policy import Policy

FOR_USER = Caller(session="s1", agent="a1", on_behalf=True)
NOW = T0 + 60_000


def after(note: Note, made: list[AnyNoteEvent]) -> Note:
    """The note after the events."""
    for event in made:
        note = apply(note, event)
    return note


def ended(state: str, kind: str = "decision", **facts: Any) -> Note:
    """A record brought to an ended state."""
    note = born(kind, **facts)
    act: dict[str, Callable[[], list[AnyNoteEvent]]] = {
        "revoked": lambda: decisions.revoke(note, HUMAN, NOW, reason="wrong"),
        "superseded": lambda: decisions.supersede(note, OTHER_NOTE, HUMAN, NOW, successor=lambda _: None),
        "forgotten": lambda: decisions.forget(note, HUMAN, NOW),
        "expired": lambda: due_events(msgspec.structs.replace(note, ttl_ms=1), DEFAULTS, NOW),
    }
    return after(note, act[state]())


OTHER_NOTE = msgspec.structs.replace(OTHER, id="n000000005")


def answer(note: Note, verb: str, by: Policy, now: int) -> tuple[list[AnyNoteEvent], CallerError | None]:
    """What a human's command comes to: its events, or the refusal."""
    try:
        return decide(note, verb, HUMAN, by, now), None
    except CallerError as refusal:
        return [], refusal


# The table


@examples(250)
@given(policies().flatmap(lambda by: st.tuples(st.just(by), newborns(by))), commands(), gaps, st.sampled_from(VERBS))
def test_every_accepted_command_is_a_row_of_the_table(
    given_pair: tuple[Policy, Note], sequence: list[Command], later: int, verb: str
) -> None:
    """Any command on any note either appends legal events, or nothing, or raises a typed error that names its rule."""
    by, note = given_pair
    note, now, _ = run(note, sequence, by, passes=True)
    note = settle(note, by, now + later)
    made, refusal = answer(note, verb, by, now + later)
    if refusal is not None:
        assert refusal.code in {"refused", "invalid", "forbidden"}
        assert refusal.rule or refusal.field
    for event in made:
        row = TRANSITIONS[event_type(event)]
        assert note.state in row.frm
        note = apply(note, event)
        assert note.state == (row.to or note.state)
        assert event.at == now + later


@examples(150)
@given(
    newborns(DEFAULTS),
    commands(max_size=4),
    st.sampled_from([verb for verb in VERBS if verb not in {"edit", "lengthen", "shorten", "graduate", "restore"}]),
)
def test_a_repeat_is_a_no_op(note: Note, sequence: list[Command], verb: str) -> None:
    """A command that was accepted and is given again at once changes nothing and appends nothing."""
    # One that is too weak for any lease is stale again in the moment it was reinstated: that is another reinstatement.
    assume(verb != "reinstate" or note.base >= DEFAULTS.stale_strength)
    note, now, _ = run(note, sequence, DEFAULTS, passes=True)
    note = settle(note, DEFAULTS, now)
    made, refusal = answer(note, verb, DEFAULTS, now)
    if refusal is not None:
        return
    assert decide(settle(after(note, made), DEFAULTS, now), verb, HUMAN, DEFAULTS, now) == []


@examples(150)
@given(newborns(DEFAULTS), commands(max_size=4), st.sampled_from(VERBS), st.booleans())
def test_no_agent_changes_a_humans_note(note: Note, sequence: list[Command], verb: str, on_behalf: bool) -> None:
    """V07: an agent's command never ends, edits or promotes a human's note; all it can do is use it."""
    note = msgspec.structs.replace(note, provenance="human")
    note, now, _ = run(note, sequence, DEFAULTS, passes=True)
    note = settle(note, DEFAULTS, now)
    try:
        made = decide(note, verb, Caller(session="s1", on_behalf=on_behalf), DEFAULTS, now)
    except CallerError:
        return
    allowed = (
        {"renewed"} if verb not in {"graduate", "dispose", "drift"} else {"promoted", "forgotten", "stale_flagged"}
    )
    assert {event_type(event) for event in made} <= allowed


@pytest.mark.parametrize(
    "verb",
    [
        verb
        for verb in VERBS
        if verb not in {"renew", "restate", "drift", "graduate", "dispose", "restore", "provenance"}
    ],
)
def test_a_humans_directive_is_forbidden_to_agents(verb: str) -> None:
    """V07: revoke, forget, edit, supersede (a re-kind), pin … of a human's directive is forbidden, declared or not."""
    note = born("directive", provenance="human", scope="session", owner="s1")
    for caller in (AGENT, FOR_USER):
        with pytest.raises(Forbidden) as refusal:
            decide(note, verb, caller, DEFAULTS, NOW)
        assert refusal.value.rule == "provenance"


def test_acting_for_the_user_is_logged_as_such() -> None:
    """A user-stated note may be ended on the user's behalf with a reason, and the event says on whose."""
    note = born(provenance="user-stated")
    (event,) = decisions.revoke(note, FOR_USER, NOW, reason="the user said so")
    assert (event.actor, event.on_behalf) == ("agent:a1", True)
    (lift,) = decisions.promote(
        born(provenance="user-stated", scope="session", owner="s1/a1"), FOR_USER, NOW, to="workspace", reason="asked"
    )
    assert lift.on_behalf


# Supersession


def chain(*ids: str) -> Callable[[str], str | None]:
    """Successors along the ids in order."""
    return dict(pairwise(ids)).get


def test_superseding_a_superseded_note_names_the_successor() -> None:
    """V03: refused, and the choices hold the note to supersede instead; the same successor again is a no-op."""
    old = ended("superseded")
    with pytest.raises(Refused) as refusal:
        decisions.supersede(old, OTHER, HUMAN, NOW, successor=lambda _: None)
    assert refusal.value.rule == "superseded-already"
    assert refusal.value.choices == ("n000000005",)
    assert "n000000005" in refusal.value.message
    assert decisions.supersede(old, OTHER_NOTE, HUMAN, NOW, successor=lambda _: None) == []


def test_cycles_are_refused() -> None:
    """V03: A by itself, A→B→A and a long way round are refused as cycles; a ring elsewhere does not hang the check."""
    note = born("decision")
    for by, successor in (
        (note, chain()),
        (msgspec.structs.replace(ended("superseded"), id="b", superseded_by=note.id), chain("b", note.id)),
        (msgspec.structs.replace(OTHER_NOTE, id="b"), chain("b", "c", "d", note.id)),
    ):
        with pytest.raises(Refused) as refusal:
            decisions.supersede(note, by, HUMAN, NOW, successor=successor)
        assert refusal.value.rule == "cycle"
        assert refusal.value.field == "by"
    ring = {"n000000005": "x", "x": "y", "y": "x"}
    (event,) = decisions.supersede(note, OTHER_NOTE, HUMAN, NOW, successor=ring.get)
    assert isinstance(event, Superseded)
    assert event.by == "n000000005"


def test_only_a_live_note_takes_the_place_of_another() -> None:
    """A revoked successor would leave nothing in the place."""
    dead = msgspec.structs.replace(ended("revoked"), id="n000000005")
    with pytest.raises(Refused) as refusal:
        decisions.supersede(born("decision"), dead, HUMAN, NOW, successor=lambda _: None)
    assert refusal.value.rule == "successor-ended"


def test_an_expired_record_may_still_be_superseded_and_revoked() -> None:
    """SPEC 5: live and expired may be superseded; live, expired and superseded revoked."""
    old = ended("expired")
    assert after(old, decisions.supersede(old, OTHER_NOTE, HUMAN, NOW, successor=chain())).state == "superseded"
    for state in ("expired", "superseded"):
        note = ended(state)
        assert after(note, decisions.revoke(note, HUMAN, NOW, reason="wrong")).state == "revoked"
    with pytest.raises(IllegalTransition) as refusal:
        decisions.supersede(ended("revoked"), OTHER_NOTE, HUMAN, NOW, successor=chain())
    assert refusal.value.rule == "superseded-from-revoked"
    assert "reinstate" in refusal.value.hint


# Revocation and its undoing


@pytest.mark.parametrize("reason", ["", "   ", "x" * 501])
def test_a_revocation_needs_words(reason: str) -> None:
    """Without a reason a deterrent teaches nothing; with an essay it is no reason."""
    with pytest.raises(CallerError) as refusal:
        decisions.revoke(born(), HUMAN, NOW, reason=reason)
    assert refusal.value.field == "reason"


def test_an_undo_of_an_undo_is_one_more_event() -> None:
    """Revoke, reinstate, revoke, reinstate …: each is one event, and the note ends where the last one put it."""
    note = born("finding")
    for turn in range(1, 11):
        made = decisions.revoke(note, HUMAN, NOW + turn, reason="wrong")
        assert len(made) == 1
        note = after(note, made)
        assert (note.state, note.version) == ("revoked", 2 * turn)
        made = decisions.reinstate(note, HUMAN, NOW + turn, reason="right after all")
        assert len(made) == 1
        note = after(note, made)
        assert (note.state, note.ref_at, note.version) == ("active", NOW + turn, 2 * turn + 1)


@pytest.mark.parametrize("state", ["expired", "superseded", "revoked"])
def test_a_record_comes_back_from_every_end_but_the_last(state: str) -> None:
    """reinstate brings words and id back with a lease from now; from forgotten there is only restore."""
    note = ended(state)
    back = after(note, decisions.reinstate(note, HUMAN, NOW, size=99))
    assert (back.state, back.causes, back.superseded_by, back.size, back.id) == ("active", (), None, 99, note.id)
    assert decisions.reinstate(back, HUMAN, NOW) == []
    with pytest.raises(IllegalTransition) as refusal:
        decisions.reinstate(ended("forgotten"), HUMAN, NOW)
    assert "restore" in refusal.value.hint


def test_a_doubt_is_flagged_once_and_cleared_by_reinstating() -> None:
    """flag adds its cause once; the system's own finding carries its name and asks nobody's leave."""
    note = born(provenance="human")
    note = after(note, decisions.flag(note, HUMAN, NOW, cause="distrusted", reason="hm"))
    assert note.causes == ("distrusted",)
    assert decisions.flag(note, HUMAN, NOW, cause="distrusted", reason="hm") == []
    (event,) = decisions.flag(note, None, NOW, cause="anchor")
    assert (event.actor, event.on_behalf) == ("system", False)
    note = after(note, [event])
    assert note.causes == ("distrusted", "anchor")
    assert decisions.flag(note, AGENT, NOW, cause="anchor") == []
    assert after(note, decisions.reinstate(note, HUMAN, NOW)).state == "active"
    with pytest.raises(IllegalTransition):
        decisions.flag(ended("revoked"), HUMAN, NOW, cause="distrusted")


# Renewal, pins, done


@pytest.mark.parametrize("state", ["expired", "superseded", "revoked", "forgotten"])
def test_no_use_revives_the_dead(state: str) -> None:
    """C09: renewing an ended note is refused, with the way out."""
    with pytest.raises(Refused) as refusal:
        decisions.renew(ended(state), AGENT, DEFAULTS, NOW)
    assert refusal.value.rule == f"renewed-from-{state}"
    assert ("restore" if state == "forgotten" else "reinstate") in refusal.value.hint


def test_a_renewal_clears_decay_even_where_the_lease_has_stopped() -> None:
    """A note that went stale by age and was then pinned is active again after its next use, and uses after that add
    nothing."""
    note = born(ttl_ms=30 * DAY_MS, curve="ebbinghaus")
    now = T0 + 20 * DAY_MS
    note = after(note, due_events(note, DEFAULTS, now))
    note = after(note, decisions.pin(note, AGENT, now))
    assert note.causes == ("decayed",)
    note = after(note, decisions.renew(note, AGENT, DEFAULTS, now))
    assert (note.state, note.base) == ("active", 1.0)
    assert decisions.renew(note, AGENT, DEFAULTS, now + DAY_MS) == []


def test_pins_are_put_and_taken_once() -> None:
    """pin and unpin are no-ops where they hold already, and refused for an ended note."""
    note = born()
    assert decisions.unpin(note, AGENT, NOW) == []
    pinned = after(note, decisions.pin(note, AGENT, NOW))
    assert pinned.pinned
    assert decisions.pin(pinned, AGENT, NOW) == []
    freed = after(pinned, decisions.unpin(pinned, AGENT, NOW))
    assert (freed.pinned, freed.ref_at) == (False, NOW)
    for act in (decisions.pin, decisions.unpin):
        with pytest.raises(IllegalTransition):
            act(ended("revoked"), HUMAN, NOW)


def test_a_task_is_done_once_and_only_a_task() -> None:
    """done is an expiry with the code completed; it can be taken back."""
    task = born("task")
    done = after(task, decisions.done(task, AGENT, NOW))
    assert (done.state, done.state_reason) == ("expired", "completed")
    assert decisions.done(done, AGENT, NOW) == []
    assert after(done, decisions.reinstate(done, AGENT, NOW)).state == "active"
    with pytest.raises(Refused) as refusal:
        decisions.done(born("fact"), AGENT, NOW)
    assert refusal.value.rule == "done-task-only"
    with pytest.raises(IllegalTransition) as late:
        decisions.done(ended("expired", "task"), AGENT, NOW)
    assert late.value.rule == "expired-from-expired"


# Promotion


def test_a_note_is_lifted_to_the_workspace_once() -> None:
    """promote drops the owner, so that its owner's end does not reach the note."""
    note = born(scope="session", owner="s1/a1", incarnation=4)
    lifted = after(note, decisions.promote(note, AGENT, NOW, to="workspace"))
    assert (lifted.scope, lifted.owner, lifted.incarnation) == ("workspace", None, None)
    assert decisions.promote(lifted, AGENT, NOW, to="workspace") == []


def test_provenance_goes_up_only_and_to_a_persons_word_only_by_a_person() -> None:
    """auto → agent by anyone; user-stated and human by a human; never down."""
    note = born(provenance="auto")
    assert after(note, decisions.promote(note, AGENT, NOW, to="agent")).provenance == "agent"
    assert after(note, decisions.promote(note, HUMAN, NOW, to="human")).provenance == "human"
    assert decisions.promote(note, AGENT, NOW, to="auto") == []
    for caller in (AGENT, FOR_USER):
        for to in ("user-stated", "human"):
            with pytest.raises(Forbidden):
                decisions.promote(note, caller, NOW, to=to)
    with pytest.raises(Refused) as refusal:
        decisions.promote(born(provenance="human"), HUMAN, NOW, to="agent")
    assert refusal.value.rule == "promote-upward"


@pytest.mark.parametrize(
    ("caller", "stated", "was", "becomes"),
    [
        (HUMAN, None, "agent", "human"),
        (HUMAN, "user-stated", "agent", "user-stated"),
        (FOR_USER, None, "agent", "user-stated"),
        (AGENT, None, "auto", "agent"),
        (AGENT, None, "human", None),
        (AGENT, "auto", "agent", None),
        (HUMAN, "agent", "agent", None),
    ],
)
def test_saying_a_text_again_lifts_its_provenance_to_the_writers(
    caller: Caller, stated: Any, was: str, becomes: str | None
) -> None:
    """C14: a text that lives already takes the provenance of whoever says it, upward only, by one event."""
    note = born("decision", provenance=was)
    made = decisions.restate(note, caller, DEFAULTS, NOW, provenance=stated)
    assert [event_type(event) for event in made] == (["promoted"] if becomes else [])
    assert after(note, made).provenance == (becomes or was)


def test_saying_a_text_again_claims_no_provenance_above_the_role() -> None:
    """V27: an agent cannot lift a note to human by repeating it."""
    for stated in ("human", "user-stated"):
        with pytest.raises(Forbidden):
            decisions.restate(born(), AGENT, DEFAULTS, NOW, provenance=stated)


def test_saying_a_decayed_text_again_renews_it_too() -> None:
    """C14: one unit carries the renewal and the lift, each with a version of its own."""
    note = settle(born(ttl_ms=30 * DAY_MS, curve="ebbinghaus"), DEFAULTS, T0 + 20 * DAY_MS)
    made = decisions.restate(note, HUMAN, DEFAULTS, T0 + 20 * DAY_MS)
    assert [event_type(event) for event in made] == ["renewed", "promoted"]
    assert (after(note, made).state, after(note, made).provenance) == ("active", "human")


def test_the_nth_access_gives_a_longer_life_once() -> None:
    """promote_after_accesses = 3: the third access lengthens a leased perishable to promoted_ttl, and no later one
    does."""
    by = msgspec.structs.replace(DEFAULTS, promote_after_accesses=3)
    note = born(ttl_ms=30 * DAY_MS)
    assert decisions.graduate(note, by, NOW, 2) == []
    assert decisions.graduate(note, DEFAULTS, NOW, 99) == []
    (event,) = decisions.graduate(note, by, NOW, 3)
    assert isinstance(event, Promoted)
    assert (event.actor, event.ttl_ms) == ("system", 365 * DAY_MS)
    assert decisions.graduate(after(note, [event]), by, NOW, 4) == []
    assert decisions.graduate(born(ttl_ms=400 * DAY_MS), by, NOW, 3) == []
    assert decisions.graduate(ended("revoked", "fact", ttl_ms=DAY_MS), by, NOW, 3) == []
    assert decisions.graduate(born(ttl_ms=DAY_MS, pinned=True), by, NOW, 3) == []


def test_graduation_never_writes_a_ttl_into_a_record() -> None:
    """A record that ages only by record_ttl stops ageing when that is switched off, however often it was read."""
    by = msgspec.structs.replace(DEFAULTS, promote_after_accesses=1, record_ttl="by-kind")
    assert decisions.graduate(born("finding"), by, NOW, 9) == []


# Editing


def test_an_edit_says_which_fields_changed() -> None:
    """Only what differs is named, with the new size; nothing different is no event."""
    before = Words(content="word", tags=("a",))
    assert decisions.edit(born(), AGENT, NOW, before=before, after=before) == []
    changed = Words(content="word", tags=("bb",), anchors=(Anchor("x"),), triggers=(Trigger(event="e"),))
    (event,) = decisions.edit(born(), AGENT, NOW, before=before, after=changed, ttl_ms=5000)
    assert isinstance(event, Edited)
    assert (event.fields, event.ttl_ms) == (("tags", "anchors", "triggers", "ttl_ms"), 5000)
    assert event.size == changed.size()
    leased = born(ttl_ms=5000)
    assert decisions.edit(leased, AGENT, NOW, before=before, after=before, ttl_ms=5000) == []
    freed = after(leased, decisions.edit(leased, AGENT, NOW, before=before, after=before, ttl_ms=None))
    assert freed.ttl_ms is None
    with pytest.raises(IllegalTransition):
        decisions.edit(ended("revoked"), HUMAN, NOW, before=before, after=changed)


@pytest.mark.parametrize("note", [born("directive"), born(pinned=True), born()])
def test_an_edit_may_not_give_a_ttl_where_none_may_be(note: Note) -> None:
    """V06: a directive or a pin never gets a TTL by the back door, nor any note an absurd one."""
    same = Words(content="word")
    ttl_ms = DAY_MS if note.pinned or note.kind == "directive" else 10**18
    with pytest.raises(Invalid) as refusal:
        decisions.edit(note, HUMAN, NOW, before=same, after=same, ttl_ms=ttl_ms)
    assert refusal.value.field == "ttl_ms"
    assert decisions.edit(note, HUMAN, NOW, before=same, after=same, ttl_ms=None) == []


# Erasure and restoration


def test_forgetting_is_final_and_a_repeat_says_so() -> None:
    """C21: a forgotten note stays forgotten, whoever asks again, system or person."""
    for state in ("revoked", "superseded", "expired"):
        note = ended(state)
        assert after(note, decisions.forget(note, HUMAN, NOW)).state_reason == "manual"
    gone = ended("forgotten")
    assert decisions.forget(gone, HUMAN, NOW) == []
    assert decisions.erase(gone, NOW, "evicted") == []


def test_an_owners_end_takes_pins_along_and_capacity_does_not() -> None:
    """SPEC 8, 9: a pin cannot outlive its bus; eviction never costs a live pin or a record, and may take ended
    perishables."""
    pinned = born(pinned=True)
    (event,) = decisions.erase(pinned, NOW, "agent-disposed")
    assert (event.actor, after(pinned, [event]).state_reason) == ("system", "agent-disposed")
    for safe in (pinned, born("finding"), ended("revoked")):
        with pytest.raises(Refused) as refusal:
            decisions.erase(safe, NOW, "evicted")
        assert refusal.value.rule == "never-evicted"
    for prey in (born(), ended("revoked", "fact", pinned=True)):
        assert after(prey, decisions.erase(prey, NOW, "evicted")).state_reason == "evicted"


def test_only_a_kept_copy_is_restored_and_only_once() -> None:
    """C30: live notes, erased words and a second time are refused, each with its reason."""

    def restore(note: Note, *, kept: bool = True) -> list[AnyNoteEvent]:
        return decisions.restore(note, HUMAN, NOW, to="n000000002", kept=kept)

    for note, way in ((born(), "nothing to restore"), (ended("revoked"), "reinstate")):
        with pytest.raises(Refused) as refusal:
            restore(note)
        assert refusal.value.rule == "restore-forgotten-only"
        assert way in refusal.value.hint
    gone = ended("forgotten")
    with pytest.raises(Refused) as refusal:
        restore(gone, kept=False)
    assert refusal.value.rule == "nothing-kept"
    again = after(gone, restore(gone))
    assert (again.state, again.restored_to) == ("forgotten", "n000000002")
    with pytest.raises(Refused) as refusal:
        restore(again)
    assert refusal.value.choices == ("n000000002",)


def test_a_refusal_holds_ids_and_never_words() -> None:
    """Errors are logged; the reason somebody gave is a note's words."""
    with pytest.raises(CallerError) as refusal:
        decisions.revoke(ended("forgotten"), HUMAN, NOW, reason="hunter2")
    assert "n000000001" in refusal.value.message
    assert "hunter2" not in refusal.value.message + refusal.value.hint


def test_events_are_made_by_one_version_after_another() -> None:
    """Two commands in a row number their events without a gap, the way the store expects them."""
    note = born()
    birth = create(Draft(id="n000000001", kind="fact", words=Words(content="word")), AGENT, DEFAULTS, T0)
    assert isinstance(birth, Created)
    first = decisions.pin(note, AGENT, NOW)
    second = decisions.unpin(after(note, first), AGENT, NOW)
    assert [birth.version, *(event.version for event in (*first, *second))] == [1, 2, 3]
