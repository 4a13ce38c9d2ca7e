"""The OpenAPI document by itself: complete, well-formed, and no narrower than the decoder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator, meta
from typer.testing import CliRunner

from amnesiad import wire
from amnesiad.api.app import _FIXED
from amnesiad.cli import app as command_line
from amnesiad.wire import fields
from amnesiad.wire.openapi import EXAMPLES, SUMMARIES, document


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(part)


@cache
def accepts(name: str) -> Draft202012Validator:
    """What the document says of a component."""
    told = document()
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": told["components"]})


def test_every_route_is_there() -> None:
    """Each verb has its path and its sentence, and so has each route beside them."""
    told = document()
    assert set(SUMMARIES) == set(wire.VERBS)
    assert {f"/v1/{verb}" for verb in wire.VERBS} | set(_FIXED) <= set(told["paths"])
    operations = [operation for path in told["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in operations)


def test_it_is_well_formed() -> None:
    """Every schema is one, and whatever is referred to is there."""
    told = document()
    for schema in told["components"]["schemas"].values():
        assert meta.is_valid(schema)
    for part in parts(told):
        if isinstance(ref := part.get("$ref"), str):
            place: Any = told
            for step in ref.removeprefix("#/").split("/"):
                place = place[step]
    assert document() == told


def test_the_codes_of_refusals_are_a_closed_set() -> None:
    """Each status of a refusal names its codes, and every code has its status."""
    told = document()["components"]
    codes = {
        int(name.removeprefix("Refusal")): part["enum"]
        for name, response in told["responses"].items()
        for part in parts(response)
        if "enum" in part
    }
    assert {code: status for status, several in codes.items() for code in several} == wire.STATUS
    assert told["schemas"]["ErrorBody"]["properties"]["code"]["enum"] == list(wire.STATUS)


@pytest.mark.parametrize("verb", EXAMPLES)
def test_every_example_is_a_request(verb: str) -> None:
    """What is shown can be sent as it stands."""
    assert wire.decode(verb, json.dumps(EXAMPLES[verb]).encode())


def test_it_is_printed_without_a_daemon() -> None:
    """``amnesia openapi`` prints the document that the daemon serves."""
    result = CliRunner().invoke(command_line, ["openapi"])
    assert json.loads(result.stdout) == document()


MARKS: Final = sorted(fields.SCHEMAS, key=lambda mark: mark.__name__)
SAMPLES: Final[tuple[Any, ...]] = (
    *("", " ", "0", "7d", "1d12h", " 15s ", "7dd", "1h1d", "abcd", "ABCD", "oops", "0123456789", "01234567890", "a/b"),
    *("a/b/c", "/a", "2030-01-01", "2030-13-01", "2030-01-01T00:00:00+08:00", "1893456000000", "1-0", "1-", "-1", "\n"),
    *("a b", "x" * 128, "x" * 129, "x" * 257, "1" * 20, "1" * 21, "\u2028", "\x00", "💡", "http://a.b/c?d=1"),
    *(
        0,
        1,
        -1,
        0.0,
        0.5,
        1.5,
        1e11,
        1e11 - 1,
        253402300799999,
        253402300800000,
        1e300,
        2**64,
        True,
        False,
        None,
        [],
        {},
    ),
)


@pytest.mark.parametrize("mark", MARKS)
class TestMarks:
    """A schema refuses nothing that its check takes; what it says beyond that is tried against a daemon that runs."""

    @pytest.mark.parametrize("value", SAMPLES)
    def test_samples(self, mark: Any, value: Any) -> None:
        """Values at the edge of what somebody might send."""
        assert accepts(mark.__name__).is_valid(value) or not _taken(mark, value)

    @given(value=st.one_of(st.text(max_size=12), st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
    def test_anything(self, mark: Any, value: Any) -> None:
        """Values that nobody has thought of."""
        assert _taken(mark, value) is False or accepts(mark.__name__).is_valid(value)

    def test_examples(self, mark: Any) -> None:
        """What the schema shows is taken."""
        for value in fields.SCHEMAS[mark].get("examples", ()):
            assert _taken(mark, value)


def _taken(mark: Any, value: Any) -> bool:
    try:
        fields.check_field(mark, value)
    except fields.FieldRefused:
        return False
    return True
