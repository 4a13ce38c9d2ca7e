"""The fold: every row of the transition table is a move, every other pair of state and event is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from tests.core.strategies import DEFAULTS, T0, born, commands, examples, newborns, run, words

from amnesiad.core import events
from amnesiad.core.errors import IllegalTransition
from amnesiad.core.events import (
    AnyNoteEvent,
    Created,
    Edited,
    Expired,
    Forgotten,
    Promoted,
    Reinstated,
    Renewed,
    Restored,
    Revoked,
    StaleFlagged,
    Superseded,
    Unpinned,
)
from amnesiad.core.notes import (
    ENDED,
    LIVE,
    STATES,
    TRANSITIONS,
    Anchor,
    Note,
    State,
    Trigger,
    Words,
    apply,
    decode_note,
    decode_words,
    encode_note,
    encode_words,
    fold,
)

_CLASSES = {str(cls.__struct_config__.tag): cls for cls in get_args(events.AnyNoteEvent)}
_FIELDS: dict[str, dict[str, Any]] = {
    "created": {"kind": "fact", "provenance": "agent", "size": 1},
    "superseded": {"by": "n000000009"},
    "stale_flagged": {"cause": "anchor"},
    "expired": {"reason": "ttl"},
    "renewed": {"base": 0.6},
    "edited": {"fields": ("tags",), "size": 12},
    "forgotten": {"reason": "manual"},
    "restored": {"to": "n000000002"},
    "mirrored": {"target": "mem0", "result": "hidden"},
}


def following(note: Note, name: str, /, **fields: Any) -> AnyNoteEvent:
    """The named event as the note's next."""
    facts = {"note": note.id, "version": note.version + 1, "at": T0 + 1000, "actor": "human"}
    return _CLASSES[name](**(facts | _FIELDS.get(name, {}) | fields))  # type: ignore[no-any-return]


def in_state(state: State) -> Note:
    """A note led to the state by the shortest legal way."""
    way = {"active": (), "stale": ("stale_flagged",)}.get(state, (state,))
    note = born()
    for name in way:
        note = apply(note, following(note, name))
    assert note.state == state
    return note


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", sorted(TRANSITIONS))
def test_the_table_alone_decides_which_moves_exist(state: State, name: str) -> None:
    """Every event from every state: a row of the table leads where it says, and anything else changes nothing."""
    note = in_state(state)
    row = TRANSITIONS[name]
    if state not in row.frm:
        with pytest.raises(IllegalTransition) as refusal:
            apply(note, following(note, name))
        assert refusal.value.rule == name
        assert note == in_state(state)
        return
    after = apply(note, following(note, name))
    assert after.version == note.version + 1
    assert after.state == (row.to or state)
    assert (after.state == "stale") == bool(after.causes)


def test_states_are_live_or_ended() -> None:
    """No state is both, none is neither, and the table starts from and leads to those states only."""
    assert set(STATES) == LIVE | ENDED
    assert not LIVE & ENDED
    assert {note.state for note in map(in_state, STATES) if note.live} == LIVE
    for row in TRANSITIONS.values():
        assert row.frm <= set(STATES)
        assert row.to is None or row.to in STATES


def test_a_fold_begins_with_a_birth_at_version_one() -> None:
    """Nothing, an event before birth, a second birth and a birth at a later version are refused."""
    note = born()
    birth = following(note, "created")
    with pytest.raises(IllegalTransition, match="nothing to fold"):
        fold([])
    with pytest.raises(IllegalTransition, match="does not exist"):
        fold([following(note, "pinned")])
    with pytest.raises(IllegalTransition, match="created already"):
        apply(note, birth)
    with pytest.raises(IllegalTransition, match="begins at 1"):
        fold([birth])
    assert fold([msgspec.structs.replace(birth, version=1)]).version == 1


def test_versions_follow_without_gaps_and_events_keep_to_their_note() -> None:
    """C21: an event that skips or repeats a version, or speaks of another note, is refused."""
    note = born()
    for wrong in ({"version": 1}, {"version": 3}, {"note": "n000000009"}):
        with pytest.raises(IllegalTransition) as refusal:
            apply(note, following(note, "pinned", **wrong))
        assert refusal.value.rule == "version"


def test_a_birth_carries_every_fact_into_the_note() -> None:
    """No fact of the created event is lost, and the clocks start at the birth."""
    birth = Created(
        note="n000000001",
        version=1,
        at=T0,
        actor="agent:a1",
        kind="episode",
        provenance="auto",
        size=7,
        scope="session",
        owner="s1/a1",
        incarnation=3,
        author="a1",
        source_ref="pr/12",
        ttl_ms=5000,
        curve="linear",
        pinned=True,
        base=0.5,
        supersedes=("n000000000",),
        restored_from="n000000009",
    )
    note = fold([birth])
    shared = set(Created.__struct_fields__) & set(Note.__struct_fields__)
    assert {name: getattr(note, name) for name in shared} == {name: getattr(birth, name) for name in shared}
    assert set(Created.__struct_fields__) - shared == {"note", "at", "actor", "on_behalf"}
    assert (note.id, note.created_at, note.ref_at, note.state_at) == ("n000000001", T0, T0, T0)
    assert note.regime == "perishable"
    assert note.live


def test_causes_add_up_and_only_their_own_remedy_removes_them() -> None:
    """V30: a decayed note whose file changes stays stale by its anchor when it is renewed, and says so."""
    note = born()
    for cause in ("anchor", "decayed", "decayed"):
        note = apply(note, following(note, "stale_flagged", cause=cause))
    assert note.causes == ("anchor", "decayed")
    assert note.state_reason == "decayed"
    note = apply(note, following(note, "renewed", at=T0 + 9000))
    assert (note.state, note.causes, note.state_reason) == ("stale", ("anchor",), "anchor")
    assert (note.base, note.ref_at, note.state_at) == (0.6, T0 + 9000, T0 + 1000)
    note = apply(note, following(note, "renewed", at=T0 + 9500))
    assert (note.state, note.state_reason) == ("stale", "anchor")
    note = apply(note, following(note, "reinstated", at=T0 + 9900))
    assert (note.state, note.causes, note.ref_at) == ("active", (), T0 + 9900)


def test_a_renewal_of_a_merely_decayed_note_makes_it_active() -> None:
    """With no cause left the note is active from that instant; renewing an active note moves no state time."""
    note = apply(born(), following(born(), "stale_flagged", cause="decayed"))
    note = apply(note, following(note, "renewed", at=T0 + 5000))
    assert (note.state, note.state_at, note.state_reason) == ("active", T0 + 5000, "renewed")
    again = apply(note, following(note, "renewed", at=T0 + 7000))
    assert (again.state_at, again.ref_at) == (T0 + 5000, T0 + 7000)


def test_ends_keep_their_time_and_code() -> None:
    """Each end says when and why; a reinstatement clears the successor and restarts the lease."""
    note = born("decision")
    expired = apply(note, following(note, "expired", at=T0 + 2))
    assert (expired.state_at, expired.state_reason) == (T0 + 2, "ttl")
    replaced = apply(expired, following(expired, "superseded", at=T0 + 3))
    assert (replaced.superseded_by, replaced.state_reason, replaced.state_at) == ("n000000009", "superseded", T0 + 3)
    refuted = apply(replaced, following(replaced, "revoked", at=T0 + 4))
    assert (refuted.state_reason, refuted.state_at) == ("refuted", T0 + 4)
    back = apply(refuted, following(refuted, "reinstated", at=T0 + 5, size=44))
    assert (back.state, back.superseded_by, back.ref_at, back.size) == ("active", None, T0 + 5, 44)
    gone = apply(back, following(back, "forgotten", at=T0 + 6))
    assert (gone.state, gone.state_reason, gone.state_at, gone.size) == ("forgotten", "manual", T0 + 6, 44)


def test_promotion_lifts_what_it_names_and_leaves_the_rest() -> None:
    """A lift to the workspace drops the owner; a step of provenance or a longer TTL leaves the scope alone."""
    note = born(scope="session", owner="s1/a1", incarnation=2, ttl_ms=1000)
    lifted = apply(note, following(note, "promoted", scope="workspace"))
    assert (lifted.scope, lifted.owner, lifted.incarnation, lifted.ttl_ms) == ("workspace", None, None, 1000)
    stepped = apply(note, following(note, "promoted", provenance="human", ttl_ms=9000))
    assert (stepped.scope, stepped.owner, stepped.provenance, stepped.ttl_ms) == ("session", "s1/a1", "human", 9000)


def test_an_edit_changes_the_ttl_only_if_it_names_it() -> None:
    """An edit of tags leaves the TTL; one that names it may also take it away."""
    note = born(ttl_ms=1000)
    assert apply(note, following(note, "edited", fields=("tags",))).ttl_ms == 1000
    assert apply(note, following(note, "edited", fields=("ttl_ms",), ttl_ms=5)).ttl_ms == 5
    assert apply(note, following(note, "edited", fields=("ttl_ms",), ttl_ms=None)).ttl_ms is None
    assert apply(note, following(note, "edited", size=99)).size == 99


def test_unpinning_restarts_the_lease() -> None:
    """The clock stood while pinned, and runs again from the unpinning."""
    note = apply(born(), following(born(), "pinned"))
    assert (note.pinned, note.ref_at) == (True, T0)
    note = apply(note, following(note, "unpinned", at=T0 + 7000))
    assert (note.pinned, note.ref_at) == (False, T0 + 7000)


def test_a_forgotten_note_is_restored_once() -> None:
    """C30: the second restoration of the same note is refused and names the first."""
    note = in_state("forgotten")
    note = apply(note, following(note, "restored"))
    assert (note.state, note.restored_to) == ("forgotten", "n000000002")
    with pytest.raises(IllegalTransition, match="n000000002"):
        apply(note, following(note, "restored", to="n000000003"))


@examples(100)
@given(newborns(DEFAULTS), commands())
def test_a_head_is_the_fold_in_storable_form(note: Note, sequence: list[Any]) -> None:
    """Whatever happened to a note, its head comes back from the store as it went in."""
    after, _, _ = run(note, sequence, DEFAULTS, passes=True)
    assert decode_note(encode_note(after)) == after


def test_a_head_of_an_unknown_kind_does_not_read_as_another() -> None:
    """V09: a head with a kind this version does not know is an error to report, never a guess."""
    raw = encode_note(born()).replace(b'"fact"', b'"hunch"')
    with pytest.raises(msgspec.ValidationError):
        decode_note(raw)


@examples(80)
@given(words())
def test_words_come_back_exactly(given_words: Words) -> None:
    """C24: text, tags and paths of any language and with any punctuation come back exactly, and count their bytes."""
    assert decode_words(encode_words(given_words)) == given_words
    assert given_words.size() >= len(given_words.content.encode())


def test_size_counts_every_text_but_ids() -> None:
    """C31: the capacity bounds count UTF-8 bytes of content, key, tags, anchor paths, trigger texts and reasons."""
    some = Words(
        content="é",
        key="kk",
        tags=("配置", "a"),
        anchors=(Anchor("a/b", "f" * 64), Anchor("c")),
        triggers=(Trigger(event="turn-end", path="*.py", command="rm *", words=("x", "yy")), Trigger(words=("z",))),
        reasons={"2": "because", "3": "né"},
    )
    assert some.size() == 2 + 2 + 7 + 4 + 4 + 4 + 3 + 1 + 7 + 3
    assert Words(content="abc").size() == 3


def test_each_note_event_of_a_life_follows_the_one_before() -> None:
    """A whole life folds in one go, and the same life folded step by step is the same note."""
    facts = {"note": "n000000001", "actor": "human"}
    life: list[AnyNoteEvent] = [
        Created(version=1, at=T0, kind="finding", provenance="human", size=3, **facts),  # type: ignore[arg-type]
        StaleFlagged(version=2, at=T0 + 1, cause="distrusted", **facts),  # type: ignore[arg-type]
        Renewed(version=3, at=T0 + 2, base=1.0, **facts),  # type: ignore[arg-type]
        Edited(version=4, at=T0 + 3, fields=("ttl_ms",), size=4, ttl_ms=10, **facts),  # type: ignore[arg-type]
        Expired(version=5, at=T0 + 12, reason="ttl", **facts),  # type: ignore[arg-type]
        Superseded(version=6, at=T0 + 13, by="n000000002", **facts),  # type: ignore[arg-type]
        Revoked(version=7, at=T0 + 14, **facts),  # type: ignore[arg-type]
        Reinstated(version=8, at=T0 + 15, **facts),  # type: ignore[arg-type]
        Promoted(version=9, at=T0 + 16, provenance="human", **facts),  # type: ignore[arg-type]
        Unpinned(version=10, at=T0 + 17, **facts),  # type: ignore[arg-type]
        Forgotten(version=11, at=T0 + 18, reason="manual", **facts),  # type: ignore[arg-type]
        Restored(version=12, at=T0 + 19, to="n000000003", **facts),  # type: ignore[arg-type]
    ]
    steps = [fold(life[:length]) for length in range(1, len(life) + 1)]
    assert steps[-1] == fold(life)
    assert all(
        later == apply(earlier, event) for (earlier, later), event in zip(pairwise(steps), life[1:], strict=True)
    )
