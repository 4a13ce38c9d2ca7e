"""Editing JSON as text: the value is what was asked for, and every other byte is what it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amnesiad.errors import Invalid
from amnesiad.install.jsontext import parse, put, take

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\{}[],: é\n', max_size=5)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("kx", max_size=2), inner, max_size=3), max_leaves=8)  # fmt: skip
OBJECTS = st.dictionaries(st.text("abc ", min_size=1, max_size=3), VALUES, max_size=4)
INDENTS = st.sampled_from([None, 2, 4, "\t"])


@given(OBJECTS, INDENTS, VALUES)
def test_what_is_put_is_there_and_taking_it_restores_every_byte(
    value: dict[str, Any], indent: int | str | None, added: Any
) -> None:
    """Adding a member changes no other, and taking it away gives the text that was."""
    text = json.dumps(value, indent=indent)
    after = put(text, ("hooks", "Stop", 0), added)
    assert json.loads(after) == {**value, "hooks": {"Stop": [added]}}
    assert json.loads(take(after, ("hooks",))) == value
    if value:
        assert take(after, ("hooks",)) == text


@given(OBJECTS.filter(bool), INDENTS, VALUES, st.data())
def test_any_member_can_be_replaced_and_taken(
    value: dict[str, Any], indent: int | str | None, new: Any, data: st.DataObject
) -> None:
    """Whatever stands before and behind it."""
    text, key = json.dumps(value, indent=indent), data.draw(st.sampled_from(sorted(value)))
    assert json.loads(put(text, (key,), new)) == {**value, key: new}
    assert json.loads(take(text, (key,))) == {name: its for name, its in value.items() if name != key}


@given(st.lists(VALUES, min_size=1, max_size=4), INDENTS, st.data())
def test_any_place_of_an_array_can_be_taken(values: list[Any], indent: int | str | None, data: st.DataObject) -> None:
    """The first, the last and those between."""
    place = data.draw(st.integers(0, len(values) - 1))
    text = json.dumps({"list": values}, indent=indent)
    assert json.loads(take(text, ("list", place))) == {"list": values[:place] + values[place + 1 :]}


def test_spacing_of_the_rest_stays() -> None:
    """A file laid out by a person keeps its layout, its line ends and its numbers as they were written."""
    text = '{\r\n   "a" : 1.50,\r\n   "b":{"x":  [1 ,2]}\r\n}\r\n'
    assert put(text, ("c",), {"d": 1}) == (
        '{\r\n   "a" : 1.50,\r\n   "b":{"x":  [1 ,2]},\r\n   "c": {\r\n      "d": 1\r\n   }\r\n}\r\n'
    )
    assert take(put(text, ("b", "x", 2), 3), ("b", "x", 2)) == text


def test_of_equal_keys_the_last_counts() -> None:
    """As it does for every JSON parser."""
    assert json.loads(put('{"a": 1, "a": {}}', ("a", "b"), 2)) == {"a": {"b": 2}}


def test_taking_what_is_not_there_changes_nothing() -> None:
    """Neither a key nor anything below one."""
    for path in (("b",), ("b", "c"), ("a", "x")):
        assert take('{"a": {}}', path) == '{"a": {}}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, // why\n"b": 2}', "comments"),
        ('// settings\n{"a": 1}', "comments"),
        ('{\n  /* no */\n  "a": 1\n}', "comments"),
        ('{"secret": ', "line 1"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_what_is_no_json_is_refused_unquoted(text: str, words: str) -> None:
    """Comments are refused rather than lost, and nothing of the file is repeated."""
    with pytest.raises(Invalid) as refused:
        parse(text, "settings.json")
    assert words in refused.value.message
    assert "secret" not in refused.value.message
    assert "--print" in (refused.value.hint or "")


def test_a_step_through_a_scalar_is_refused() -> None:
    """Nothing is thrown away to make room."""
    with pytest.raises(Invalid):
        put('{"hooks": "no"}', ("hooks", "Stop", 0), 1)
    with pytest.raises(Invalid):
        put("[]", ("hooks",), 1)
