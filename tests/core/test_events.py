"""The union of events is closed, its codec loses nothing, and no event has room for words."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from tests.core.strategies import T0, any_events, examples

from amnesiad.core import events
from amnesiad.core.events import Created, Event, Expired, Pinned, PolicyChanged, decode, encode, event_type
from amnesiad.core.notes import TRANSITIONS


@examples(150)
@given(any_events())
def test_the_codec_loses_nothing(event: Event) -> None:
    """Every event comes back from its stored form as it went in, and under the name it has in the log."""
    raw = encode(event)
    assert decode(raw) == event
    assert msgspec.json.decode(raw)["type"] == event_type(event)


def test_what_is_outside_the_union_is_refused() -> None:
    """An unknown type, an unknown kind and an unknown code are errors, never a guess."""
    good = {"type": "created", "note": "n1", "version": 1, "at": T0, "actor": "human", "kind": "fact"}
    good |= {"provenance": "human", "size": 1}
    assert isinstance(decode(msgspec.json.encode(good)), Created)
    wrong: list[dict[str, object]] = [
        {**good, "type": "merged"},
        {**good, "kind": "hunch"},
        {**good, "scope": "planet"},
        {**good, "at": "yesterday"},
        {"type": "expired", "note": "n1", "version": 2, "at": T0, "actor": "system", "reason": "bored"},
        {"type": "promoted", "note": "n1", "version": 2, "at": T0, "actor": "human", "scope": "session"},
        {key: value for key, value in good.items() if key != "type"},
    ]
    for fact in wrong:
        with pytest.raises(msgspec.ValidationError):
            decode(msgspec.json.encode(fact))


def test_absent_defaults_are_not_stored() -> None:
    """A log is kept for ever, so that an event stores only what it says."""
    raw = encode(Pinned(note="n1", version=2, at=T0, actor="human"))
    assert msgspec.json.decode(raw) == {"type": "pinned", "note": "n1", "version": 2, "at": T0, "actor": "human"}
    assert decode(b'{"type":"policy_changed","at":1,"actor":"human","name":"auto_expire"}') == PolicyChanged(
        at=1, actor="human", name="auto_expire"
    )


def test_no_event_of_a_note_has_room_for_words() -> None:
    """The log holds codes, ids and numbers: no event declares a field for content, key, tags, paths or reason texts."""
    for cls in get_args(events.AnyNoteEvent):
        names = set(cls.__struct_fields__)
        assert not names & {"content", "key", "tags", "anchors", "triggers", "path", "paths", "text", "words"}, cls
        if "reason" in names:
            field = next(info for info in msgspec.structs.fields(cls) if info.name == "reason")
            assert field.type is not str, cls


def test_every_event_of_a_note_has_a_row_in_the_table() -> None:
    """The union and the transition table name the same events."""
    tags = {str(cls.__struct_config__.tag) for cls in get_args(events.AnyNoteEvent)}
    assert tags == set(TRANSITIONS)
    assert event_type(Expired(note="n1", version=2, at=T0, actor="system", reason="ttl")) == "expired"
