"""Why a request cannot be read, in our words and with the name of the field; msgspec says it in its own.

Refusals quote types, limits and allowed values, never what was sent as words: those may be a note's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from amnesiad.core.errors import CallerError, Invalid, TooLarge
from amnesiad.core.rules import suggestion
from amnesiad.wire.fields import HERE, FieldRefused

_PATH: Final = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[a-z_]+)`")
_WORD: Final = re.compile(r"Invalid enum value '(?P<word>[A-Za-z_-]{1,24})'")
_MAX_NAME_CHARS: Final = 64
"""How much of an unknown field's name an error repeats."""
_NOT_FINITE: Final = "a number that is not finite"

_WRONG_TYPE: Final = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`")
_BOUND: Final = re.compile(r"Expected `[^`]+` (?P<sign>[<>]=) (?P<limit>\S+)")
_TOO_LONG: Final = re.compile(r"Expected `(?P<type>array|str)` of length <= (?P<limit>\d+)")
_TOO_SHORT: Final = re.compile(r"Expected `(?P<type>array|str)` of length >= (?P<limit>\d+)")
_TYPES: Final[Mapping[str, str]] = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "text",
}
"""JSON's types in words; what msgspec calls them is Python's business."""


def refusal(error: msgspec.ValidationError, request: Any) -> CallerError:
    """Why JSON is no ``request``: ``Invalid``, or ``TooLarge`` for a list or text past its limit, naming the field."""
    parts = _PATH.fullmatch(str(error))
    what, path = (parts["what"], parts["path"] or "") if parts else (str(error), "")
    if isinstance(error.__cause__, FieldRefused):
        refused = error.__cause__.refusal
        field = path if refused.field == HERE else (refused.field or path)
        return type(refused)(refused.message.replace(HERE, path), hint=refused.hint, field=field)
    if unknown := _UNKNOWN.fullmatch(what):
        return _unknown(unknown["name"][:_MAX_NAME_CHARS], path, request)
    if missing := _MISSING.fullmatch(what):
        field = _join(path, missing["name"])
        return Invalid(f"{field} is missing", field=field)
    field = path or "body"
    if what.startswith("Invalid enum value"):
        return _none_of_its_words(field, _WORD.fullmatch(what), _allowed(request, path))
    if long := _TOO_LONG.fullmatch(what):
        return TooLarge(f"{field} must have at most {_counted(long)}", field=field, hint="send less at a time")
    return Invalid(f"{field} {_in_words(what)}", field=field)


def _in_words(what: str) -> str:
    """What is wrong with a value, without the names that Python has for the types of JSON."""
    if wrong := _WRONG_TYPE.fullmatch(what):
        wanted = [_TYPES.get(name, name) for name in wrong["wanted"].split(" | ")]
        return f"must be {' or '.join(wanted)}, not {_TYPES.get(wrong['got'], wrong['got'])}"
    if bound := _BOUND.fullmatch(what):
        return f"must be {'at least' if bound['sign'] == '>=' else 'at most'} {bound['limit']}"
    if short := _TOO_SHORT.fullmatch(what):
        return f"must have at least {_counted(short)}"
    return f"is not acceptable: {what.replace('`', '')}"


def _counted(bound: re.Match[str]) -> str:
    unit = "item" if bound["type"] == "array" else "character"
    return f"{bound['limit']} {unit}{'' if bound['limit'] == '1' else 's'}"


def _none_of_its_words(field: str, given: re.Match[str] | None, allowed: list[str]) -> Invalid:
    """The refusal of a value that is none of those there are. It repeats a single word, and never a text: that may be a
    note's."""
    said = f"{field} must be one of {', '.join(allowed)}" if allowed else f"{field} is none of its words"
    if given is None:
        return Invalid(said, field=field)
    word = given["word"]
    meant = [one for one in allowed if one.startswith(word)]
    hint = f"did you mean {' or '.join(meant)}?" if meant else suggestion(word, allowed)
    return Invalid(f"{said}, not {word}", field=field, hint=hint)


def _unknown(name: str, path: str, request: Any) -> Invalid:
    field = _join(path, name)
    known = _fields_at(request, path)
    hint = suggestion(name, known) or (f"known are {', '.join(known)}" if known else "")
    return Invalid(f"{field!r} is not a field of this request", field=field, hint=hint)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type_at(request: Any, path: str) -> list[msgspec.inspect.Type]:
    """Every type that may stand at ``caller.role``, ``kinds[3]`` …, unions taken apart."""
    found = _flat(msgspec.inspect.type_info(request))
    for step in re.findall(r"[^.\[\]]+|\[[^\]]*\]", path):
        deeper: list[msgspec.inspect.Type] = []
        for kind in found:
            if step.startswith("[") and isinstance(kind, msgspec.inspect.VarTupleType):
                deeper += _flat(kind.item_type)
            elif isinstance(kind, msgspec.inspect.StructType):
                deeper += [part for field in kind.fields if field.encode_name == step for part in _flat(field.type)]
        found = deeper
    return found


def _flat(kind: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _flat(kind.type)
    return (
        [part for one in kind.types for part in _flat(one)] if isinstance(kind, msgspec.inspect.UnionType) else [kind]
    )


def _allowed(request: Any, path: str) -> list[str]:
    return [
        str(value)
        for kind in _type_at(request, path)
        if isinstance(kind, msgspec.inspect.LiteralType)
        for value in kind.values
    ]


def _fields_at(request: Any, path: str) -> list[str]:
    return [
        field.encode_name
        for kind in _type_at(request, path)
        if isinstance(kind, msgspec.inspect.StructType)
        for field in kind.fields
    ]


def malformed(raw: bytes) -> Invalid:
    """Why msgspec could not read it, by way of a more lenient reader that can still name the field."""
    if not raw.strip():
        return Invalid("the body is empty", field="body", hint="send one JSON object")
    try:
        value = json.loads(raw)
    except RecursionError:
        return too_deep()
    except UnicodeDecodeError as error:
        return Invalid(f"the body is not UTF-8 (byte {error.start})", field="body")
    except json.JSONDecodeError as error:
        return Invalid(f"the body is not JSON: {error.msg} (character {error.pos})", field="body")
    except ValueError:  # an integer of more digits than Python reads
        return Invalid("the body holds a number of thousands of digits", field="body")
    try:
        for name, bad in bad_texts(value, ""):
            return text_refusal(name, bad)
    except RecursionError:
        return too_deep()
    return Invalid("the body is not strict JSON in UTF-8", field="body")


def text_refusal(field: str, bad: str) -> Invalid:
    """The refusal of what ``bad_texts`` found."""
    hint = "send a number that is one" if bad == _NOT_FINITE else "send plain text as UTF-8"
    return Invalid(f"{field or 'body'} holds {bad}", field=field or "body", hint=hint)


def too_deep() -> Invalid:
    """The refusal of what no reader gets to the bottom of."""
    return Invalid("the body is nested too deeply", field="body", hint="no request needs more than four levels")


def bad_texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Each field with something no field may hold, and what: NUL, a lone surrogate, a number that is none."""
    if isinstance(value, str):
        if "\x00" in value:
            yield path, "a NUL byte"
        elif not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            yield path, "a lone surrogate, which is not text"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield path, _NOT_FINITE
    elif isinstance(value, dict):
        for name, part in value.items():
            for _, bad in bad_texts(name, ""):
                yield path, f"a field name with {bad}"
            yield from bad_texts(part, _join(path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from bad_texts(part, f"{path}[{index}]")
