"""Field types that check and convert a value while a request is decoded, and name the field when they refuse.

Beside each check stands what it takes, as JSON schema; a field that the service checks says so in its annotation. A
schema never refuses what the check takes: where it cannot say all (bytes, impossible dates) it takes more.

To the type checker each is a plain ``int`` or ``str``, and after decoding each holds one: the classes exist only as
marks for msgspec's ``dec_hook``. The meaning of times, durations and ids is ``core.times`` and ``core.intake``'s; this
module only ties them to fields, so that every verb reads a duration or refuses an id in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec

from amnesiad.core.errors import CallerError, Invalid
from amnesiad.core.intake import (
    ID_PATTERN,
    MAX_ANCHORS,
    MAX_ID_CHARS,
    MAX_KEY_BYTES,
    MAX_PATH_BYTES,
    MAX_QUERY_CHARS,
    MAX_REASON_CHARS,
    MAX_TAG_BYTES,
    MAX_TAGS,
    MAX_TRIGGER_BYTES,
    MAX_TRIGGER_WORDS,
    MAX_TRIGGERS,
    MIN_PREFIX,
    NOTE_ID_ALPHABET,
    NOTE_ID_LENGTH,
    SOURCE_PATTERN,
    check_id,
    check_name,
    check_note_address,
    check_owner,
    check_source_ref,
)
from amnesiad.core.lifecycle import MAX_PATHS
from amnesiad.core.policy import LIVE_RULES
from amnesiad.core.rules import Size
from amnesiad.core.times import (
    DURATION_PATTERN,
    MAX_DURATION_MS,
    MAX_TIME_MS,
    MIN_NUMERIC_TIME_MS,
    TIME_PATTERN,
    parse_duration,
    parse_time,
    quoted,
)

MAX_WORKSPACE_BYTES: Final = 4096
"""A workspace is usually named by its path: PATH_MAX of Linux."""
MAX_LISTED: Final = 1000
"""Items in a list of ids, paths or filters: as many as a batch may hold."""
MAX_FILTERS: Final = 32
"""Kinds, tags and states of a filter: as many tags as a note may have."""
MAX_CURSOR_CHARS: Final = 256
"""A cursor is made by the daemon and is never longer."""

_SEQ: Final = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")
_MAX_SEQ_PART: Final = 2**64 - 1
"""Either half of a stream id is a number of 64 bits; the store takes no other."""

HERE: Final = "\ue000"
"""Stands in a check's message for the field's name, which is known only once msgspec has added the path."""


class _Mark(type):
    # msgspec accepts what the hook returns only if it is an instance of the mark; the checked plain value is.
    def __instancecheck__(cls, instance: object) -> bool:
        return True


if TYPE_CHECKING:
    TimeMs = int
    DurationMs = int
    Token = str
    TurnId = str
    OwnerId = str
    NoteId = str
    SourceRef = str
    Seq = str
    WorkspaceName = str
else:

    class TimeMs(metaclass=_Mark):
        """Epoch milliseconds; sent as such or as ISO 8601."""

    class DurationMs(metaclass=_Mark):
        """Milliseconds above 0; sent as such or like ``15s 12h 7d``."""

    class Token(metaclass=_Mark):
        """An opaque id: session, agent, team, request, event name."""

    class TurnId(metaclass=_Mark):
        """An opaque id of a turn; agents that count turns send a number."""

    class OwnerId(metaclass=_Mark):
        """A session or team id, or ``session/agent``."""

    class NoteId(metaclass=_Mark):
        """A note id, or a prefix of one."""

    class SourceRef(metaclass=_Mark):
        """A pointer to where a note came from."""

    class Seq(metaclass=_Mark):
        """A stream id of the log."""

    class WorkspaceName(metaclass=_Mark):
        """The path or name that a workspace is known by."""


def _says(**schema: Any) -> msgspec.Meta:
    """What the service will ask of a field: for its readers; decoding does not look at it."""
    return msgspec.Meta(extra_json_schema=schema)


def _at_most(limit: int) -> msgspec.Meta:
    return _says(minLength=1, maxLength=limit)  # a text of at most so many bytes has at most so many characters


Limited = Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_LISTED)]
Filter = Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_FILTERS)]
Cursor = Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_CHARS)]

Content = Annotated[
    str, _says(minLength=1, maxLength=cast(Size, LIVE_RULES["max_item_bytes"]).at_most, description="A statement.")
]
Key = Annotated[str, _at_most(MAX_KEY_BYTES)]
Tags = Annotated[tuple[Annotated[str, _at_most(MAX_TAG_BYTES)], ...], _says(maxItems=MAX_TAGS)]
AnchorPath = Annotated[str, _at_most(MAX_PATH_BYTES)]
ChangedPaths = Annotated[tuple[AnchorPath, ...], msgspec.Meta(max_length=MAX_PATHS)]
Anchors = Annotated[tuple[AnchorPath, ...], _says(maxItems=MAX_ANCHORS)]
TriggerText = Annotated[str, _at_most(MAX_TRIGGER_BYTES)]
TriggerWords = Annotated[tuple[TriggerText, ...], _says(maxItems=MAX_TRIGGER_WORDS)]
MOST_TRIGGERS: Final = _says(maxItems=MAX_TRIGGERS)
Query = Annotated[str, _says(maxLength=MAX_QUERY_CHARS)]
Reason = Annotated[str, _at_most(MAX_REASON_CHARS)]
SettingName = Annotated[str, _says(enum=list(LIVE_RULES))]
SETTING_NAMES: Final = _says(propertyNames={"enum": list(LIVE_RULES)})


def _text(check: Callable[[str, str], str]) -> Callable[[object, str], object]:
    def checked(value: object, field: str) -> str:
        if not isinstance(value, str):
            raise Invalid(f"{field} must be text, not {quoted(value)}", field=field)
        return check(value, field)

    return checked


def _check_seq(value: str, field: str) -> str:
    if not _SEQ.fullmatch(value) or any(int(part) > _MAX_SEQ_PART for part in value.split("-")):
        raise Invalid(
            f"{field} must be a stream id like 1760000000000-0, not {quoted(value)}",
            field=field,
            hint="use the seq of an earlier answer",
        )
    return value


def _check_workspace(value: str, field: str) -> str:
    return check_name(value, field, MAX_WORKSPACE_BYTES)


def _check_source(value: str, field: str) -> str:  # noqa: ARG001 - the check names its only field itself
    return check_source_ref(value)


def _check_turn(value: object, field: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise Invalid(f"{field} must be an id or a number, not {quoted(value)}", field=field)
    return check_id(value, field)


_CHECKS: Final[Mapping[Any, Callable[[object, str], object]]] = {
    TimeMs: lambda value, field: parse_time(value, field=field),
    DurationMs: lambda value, field: parse_duration(value, field=field),
    Token: _text(check_id),
    TurnId: _check_turn,
    OwnerId: _text(check_owner),
    NoteId: _text(check_note_address),
    SourceRef: _text(_check_source),
    Seq: _text(_check_seq),
    WorkspaceName: _text(_check_workspace),
}

_BLANKS: Final = r"\s*"  # both readers of times and durations leave out the blanks around a text
_NO_CONTROLS: Final = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$"
_ADDRESS: Final = "".join(dict.fromkeys(NOTE_ID_ALPHABET + NOTE_ID_ALPHABET.upper()))

SCHEMAS: Final[Mapping[Any, Mapping[str, Any]]] = {
    TimeMs: {
        "description": "An instant: epoch milliseconds, or ISO 8601; a bare date or a naive time is UTC.",
        "anyOf": [
            {"type": "number", "minimum": MIN_NUMERIC_TIME_MS, "exclusiveMaximum": MAX_TIME_MS + 1},
            {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            {"type": "string", "pattern": f"^{_BLANKS}(?:{TIME_PATTERN}){_BLANKS}$"},
        ],
        "examples": [1893456000000, "2030-01-01", "2030-01-01T09:00:00+08:00"],
    },
    DurationMs: {
        "description": "A duration: milliseconds, or text like 15s, 12h, 7d, 1d12h; above 0 and at most 100 years.",
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_DURATION_MS},
            {"type": "string", "minLength": 1, "pattern": f"^{_BLANKS}{DURATION_PATTERN}{_BLANKS}$"},
        ],
        "examples": ["7d", 604800000],
    },
    Token: {
        "description": "An opaque id of a session, an agent, a team, a request or an event.",
        "type": "string",
        "pattern": f"^{ID_PATTERN}$",
        "maxLength": MAX_ID_CHARS,
    },
    TurnId: {
        "description": "An opaque id of a turn, or its number.",
        "anyOf": [
            {"type": "string", "pattern": f"^{ID_PATTERN}$", "maxLength": MAX_ID_CHARS},
            {"type": "integer", "minimum": 0},
        ],
    },
    OwnerId: {
        "description": "A session or team id, or session/agent.",
        "type": "string",
        "pattern": f"^{ID_PATTERN}(?:/{ID_PATTERN})?$",
        "maxLength": 2 * MAX_ID_CHARS + 1,
    },
    NoteId: {
        "description": f"A note's id, or a prefix of one of {MIN_PREFIX} characters or more that no other note has.",
        "type": "string",
        "pattern": f"^[{_ADDRESS}]{{{MIN_PREFIX},{NOTE_ID_LENGTH}}}$",
    },
    SourceRef: {
        "description": "A pointer to where a note came from, not text.",
        "type": "string",
        "pattern": f"^{SOURCE_PATTERN}$",
        "maxLength": MAX_ID_CHARS,
    },
    Seq: {"description": "A stream id of the log.", "type": "string", "pattern": f"^{_SEQ.pattern}$"},
    WorkspaceName: {
        "description": "The path or name of a workspace: usually the git common directory of a repository.",
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_WORKSPACE_BYTES,
        "pattern": _NO_CONTROLS,
    },
}
"""What each mark takes on the wire."""


class FieldRefused(ValueError):
    """Carries a refusal through msgspec, which adds the path to a ``ValueError`` and nothing else."""

    def __init__(self, refusal: CallerError) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def check_field(mark: type, value: object) -> Any:
    """msgspec's ``dec_hook``: the checked value, or ``FieldRefused``."""
    try:
        if isinstance(value, list | dict):  # not quoted, unlike a wrong scalar: it may hold words from elsewhere
            shape = "a list" if isinstance(value, list) else "an object"
            raise Invalid(f"{HERE} must be a single value, not {shape}", field=HERE)
        return _CHECKS[mark](value, HERE)
    except CallerError as refusal:
        raise FieldRefused(refusal) from refusal
