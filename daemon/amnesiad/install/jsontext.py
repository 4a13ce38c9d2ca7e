"""Editing a JSON file as text: what is not edited keeps its every byte, order, spacing and number format included.

People format their settings, and a file that comes back re-indented shows a change in every line. So a value is added
or taken out where it stands, found by its path of keys and places. Pure: text in, text out. It reads strict JSON alone;
comments, which some programs allow, are refused by ``parse`` rather than lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from amnesiad.errors import Invalid

Path = tuple[str | int, ...]

DEFAULT_INDENT: Final = "  "
_COMMENT: Final = re.compile(r"(?:^|[\s,{\[}\]])(?://|/\*)", re.MULTILINE)
_BLANKS: Final = " \t\r\n"
_decoder: Final = json.JSONDecoder()


class _Member(NamedTuple):
    """One member of an object or array: its key or place, where it begins (at the key) and where its value is."""

    key: str | int
    start: int
    value: int
    end: int


def parse(text: str, name: str) -> Any:
    """The value of a file called ``name``; an empty file is an empty object.

    Raises ``Invalid`` for what is no JSON, and says so where comments are the reason. It quotes nothing of the file.
    """
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        what = "has comments, which JSON has not" if _COMMENT.search(text) else f"is not JSON (line {line})"
        raise Invalid(
            f"{name} {what}", field="file", hint="mend it, or add by hand what the same command prints with --print"
        ) from None


def put(text: str, path: Path, value: Any) -> str:
    """The text with ``value`` at ``path``: replaced where it stands, else added as the last member of its container.

    Containers on the way that are missing are made: objects, or an array where the next step is a place.
    Raises ``Invalid`` where something on the way is neither.
    """
    if not text.strip():
        text = "{}\n"
    at = _start(text)
    for depth, step in enumerate(path):
        found = _member(text, at, step)
        if found is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value} if isinstance(missing, str) else [value]
            return _add(text, at, step, value)
        if depth == len(path) - 1:
            return text[: found.value] + _written(text, found.value, value) + text[found.end :]
        at = found.value
    raise Invalid("the whole of a file is not replaced", field="path")


def take(text: str, path: Path) -> str:
    """The text without the member at ``path``, and without the comma that it needed. Nothing there: the text as it
    is."""
    at = _start(text)
    for step in path[:-1]:
        found = _member(text, at, step)
        if found is None:
            return text
        at = found.value
    members = list(_members(text, at))
    place = next((n for n, member in enumerate(members) if member.key == path[-1]), None)
    if place is None:
        return text
    if len(members) == 1:
        return text[: at + 1] + text[_skip(text, members[0].end) :]
    if place == 0:
        return text[: members[0].start] + text[members[1].start :]
    return text[: members[place - 1].end] + text[members[place].end :]


def _start(text: str) -> int:
    return _skip(text, 0)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _member(text: str, at: int, step: str | int) -> _Member | None:
    """The member of the container at ``at``; of equal keys the last, which is the one that counts."""
    wanted, kind = ("{", "object") if isinstance(step, str) else ("[", "array")
    if text[at] != wanted:
        raise Invalid(f"something stands where an {kind} was expected", field="file", hint="mend the file by hand")
    return next((member for member in reversed(list(_members(text, at))) if member.key == step), None)


def _members(text: str, at: int) -> Iterator[_Member]:
    """The members of the object or array that begins at ``at``, in text that is known to be JSON."""
    keyed = text[at] == "{"
    at, place = _skip(text, at + 1), 0
    while text[at] not in "}]":
        start, key = at, place
        if keyed:
            key, at = _decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # behind the colon
        _, end = _decoder.raw_decode(text, at)
        yield _Member(key, start, at, end)
        place += 1
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _add(text: str, at: int, step: str | int, value: Any) -> str:
    """The text with a member added at the end of the container at ``at``, laid out as its neighbors are."""
    members = list(_members(text, at))
    lead = f"{json.dumps(step, ensure_ascii=False)}: " if isinstance(step, str) else ""
    newline, indent = _newline(text), _indent(text)
    if not members:
        outer = _margin(text, at)
        inner = outer + indent
        close = _skip(text, at + 1)
        body = lead + _laid_out(value, inner, indent, newline)
        return f"{text[: at + 1]}{newline}{inner}{body}{newline}{outer}{text[close:]}"
    last = members[-1]
    if "\n" in text[at : members[0].start]:
        inner = _margin(text, last.start)
        body = f",{newline}{inner}{lead}{_laid_out(value, inner, indent, newline)}"
    else:
        body = f", {lead}{json.dumps(value, ensure_ascii=False)}"
    return text[: last.end] + body + text[last.end :]


def _written(text: str, at: int, value: Any) -> str:
    """A value that takes the place of the one at ``at``: on one line if the whole file is, else laid out."""
    if "\n" not in text.strip():
        return json.dumps(value, ensure_ascii=False)
    return _laid_out(value, _margin(text, at), _indent(text), _newline(text))


def _laid_out(value: Any, margin: str, indent: str, newline: str) -> str:
    lines = json.dumps(value, indent=indent, ensure_ascii=False).split("\n")
    return (newline + margin).join(lines)


def _margin(text: str, at: int) -> str:
    """The blanks that begin the line in which ``at`` stands."""
    begin = text.rfind("\n", 0, at) + 1
    end = begin
    while end < at and text[end] in " \t":
        end += 1
    return text[begin:end]


def _indent(text: str) -> str:
    """One step of indentation: that of the file's first member, if it stands on a line of its own."""
    first = next(_members(text, _start(text)), None)
    if first is None or "\n" not in text[: first.start]:
        return DEFAULT_INDENT
    return _margin(text, first.start) or DEFAULT_INDENT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
