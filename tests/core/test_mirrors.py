"""A note's pointers into other stores, and the results that are recorded of them."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.strategies import AGENT, HUMAN, T0, born, examples

from amnesiad.core.callers import Caller
from amnesiad.core.errors import Invalid, Refused
from amnesiad.core.events import AnyNoteEvent, Expired, MirrorResult, Revoked
from amnesiad.core.mirrors import mirror, mirror_ref, mirrors_of
from amnesiad.core.notes import Note, Words, apply
from amnesiad.core.render import correction, deterrent
from amnesiad.core.undo import undo

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,11}", fullmatch=True)
ITEMS = st.from_regex(r"[A-Za-z0-9._:@#=/-]{1,20}", fullmatch=True)


def after(note: Note, events: list[AnyNoteEvent]) -> Note:
    """The note with these events applied."""
    for event in events:
        note = apply(note, event)
    return note


@examples(100)
@given(st.dictionaries(NAMES, ITEMS, min_size=1, max_size=3))
def test_pointers_come_back_as_they_went_in(items: dict[str, str]) -> None:
    """What ``mirror_ref`` writes, ``mirrors_of`` reads, for any names and ids that fit."""
    assert mirrors_of(mirror_ref(items)) == items


def test_what_is_no_pointer_is_left_out() -> None:
    """A source_ref that means something else points at no other store."""
    assert mirrors_of(None) == mirrors_of("transcript/3.jsonl") == mirrors_of("mem0:") == mirrors_of(":4f2a") == {}
    assert mirrors_of("dialog+mem0:4f2a") == {"mem0": "4f2a"}


@pytest.mark.parametrize(
    "items", [{}, {"": "1"}, {"mem 0": "1"}, {"mem0": ""}, {"mem0": "a+b"}, {"mem0": "a b"}, {"mem0": "x" * 128}]
)
def test_a_pointer_that_does_not_fit_is_refused(items: dict[str, str]) -> None:
    """It enters the log, so it is a short token or nothing."""
    with pytest.raises(Invalid) as refusal:
        mirror_ref(items)
    assert refusal.value.field == "source_ref"


def test_a_result_is_recorded_once_and_moves_no_state() -> None:
    """A repeat is a no-op, another result is news, and each target has a record of its own."""
    note = born(source_ref="mem0:4f2a+cache:7")
    for result in get_args(MirrorResult):
        made = mirror(note, AGENT, T0, target="mem0", result=result)
        note = after(note, made)
        assert len(made) == 1
        assert note.state == "active"
        assert mirror(note, HUMAN, T0, target="mem0", result=result) == []
    note = after(note, mirror(note, HUMAN, T0, target="cache", result="deleted"))
    assert dict(note.mirrored) == {"mem0": "failed", "cache": "deleted"}


def test_a_target_that_the_note_does_not_point_at_is_refused() -> None:
    """Nobody can fill a note's history with stores it has nothing in."""
    for note in (born(), born(source_ref="mem0:4f2a")):
        with pytest.raises(Refused) as refusal:
            mirror(note, HUMAN, T0, target="cache", result="deleted")
        assert refusal.value.rule == "no-mirror"


def test_a_refuted_note_keeps_its_reason_whatever_happens_elsewhere() -> None:
    """What a refuted note is shown with is the reason it was refuted for, after any number of results."""
    note = born(source_ref="mem0:4f2a+cache:7")
    note = after(note, [Revoked(note=note.id, version=2, at=T0, actor="human", reason="refuted")])
    words = Words(content="the port is 8080", reasons={"2": "it is 9090"})
    news: list[tuple[str, MirrorResult]] = [("mem0", "failed"), ("cache", "deleted"), ("mem0", "deleted")]
    for target, result in news:
        note = after(note, mirror(note, HUMAN, T0, target=target, result=result))
        assert "reason: it is 9090)" in deterrent(note, words)
        assert correction(note, words, T0).endswith("was revoked: it is 9090")


@pytest.mark.parametrize("reinstated", [False, True])
def test_undo_looks_past_what_happened_elsewhere(reinstated: bool) -> None:
    """A result recorded after a transition does not stand in the way of taking that transition back."""
    from amnesiad.core.events import Created, Reinstated

    caller = Caller(role="human")
    birth = Created(
        note="n000000001", version=1, at=T0, actor="human", kind="task", provenance="human", size=1,
        source_ref="mem0:4f2a",
    )  # fmt: skip
    history: list[AnyNoteEvent] = [birth, Expired(note=birth.note, version=2, at=T0, actor="human", reason="completed")]
    if reinstated:
        history.append(Reinstated(note=birth.note, version=3, at=T0, actor="human"))
    note = after(apply(None, birth), history[1:])
    history += mirror(note, caller, T0, target="mem0", result="hidden")
    undone = undo(history, caller, T0, words=Words(content="x"), note_of=lambda _: note)
    assert undone.event == ("reinstated" if reinstated else "expired")
    final = after(after(apply(None, birth), history[1:]), undone.events)
    assert final.state == ("expired" if reinstated else "active")
    assert not isinstance(undone.events[0], Revoked)
