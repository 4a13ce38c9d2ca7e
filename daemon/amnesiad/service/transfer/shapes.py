"""The lines of an export: their shapes, and how much of one that comes back is believed.

One JSON object a line, told apart by ``line``: a header, the policy, owners, notes, the workspace's own facts, and a
closing line with counts, so that a file that was cut off is noticed. A note is one line with its *whole* history and
its words, at the place in the log where it last changed: so a note arrives whole or not at all, a line can be taken in
without the ones before it, and neither end ever holds more than a page. (A very long history is continued on the next
line, ``more``.) Words of forgotten notes are in no line, kept copies included: a file is no way around erasure.

Pure: nothing here reads or writes a store. What is read is checked as if a stranger had typed it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from amnesiad.core import intake
from amnesiad.core.decisions import MAX_TTL_MS
from amnesiad.core.errors import IllegalTransition, Invalid, TooLarge
from amnesiad.core.events import (
    HUMAN,
    SYSTEM,
    AnyNoteEvent,
    Created,
    Edited,
    Forgotten,
    Mirrored,
    Promoted,
    Reasoned,
    Renewed,
    Restored,
    Superseded,
)
from amnesiad.core.kinds import EXEMPT_KINDS
from amnesiad.core.notes import Note, Words, apply
from amnesiad.core.times import MINUTE_MS, parse_time
from amnesiad.limits import MAX_LINE_BYTES
from amnesiad.service.writing.change import MAX_REASONS
from amnesiad.wire.lines import Line, NoteLine

FORMAT: Final = 1
"""Raised when an older version could no longer read what a newer one writes."""
CLOCK_TOLERANCE_MS: Final = 5 * MINUTE_MS
"""How far another machine's clock may be ahead of ours before its dates count as lying in the future."""
MAX_EVENTS_BYTES: Final = MAX_LINE_BYTES // 4
"""Events on one line; words of any legal length then still fit beside them."""
MAX_EVENTS: Final = 100_000
"""Events of one note that are taken in: many times what thinned renewals can add up to in a long life."""
MAX_INCARNATION: Final = 2**31
"""Lives of one owner; a forged larger number would be the last that any counter reaches."""

_decoder: Final = msgspec.json.Decoder(Line)
_encoder: Final = msgspec.json.Encoder()
_WHERE: Final = re.compile(r".* - at `\$\.?(?P<field>[\w.\[\]]+)`", re.DOTALL)
_PLACE: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_ACTOR: Final = re.compile(rf"{HUMAN}|{SYSTEM}|agent:[A-Za-z0-9][A-Za-z0-9._:@#+=-]*")


def encode_line(line: Line) -> bytes:
    """The line with its line break."""
    return _encoder.encode(line) + b"\n"


def note_lines(whole: NoteLine) -> Iterator[bytes]:
    """A note as one line, or as several where its history is long."""
    part: list[AnyNoteEvent] = []
    size = 0
    for event in whole.events:
        size += len(_encoder.encode(event))
        if part and size > MAX_EVENTS_BYTES:
            yield encode_line(NoteLine(id=whole.id, events=tuple(part), more=True))
            part, size = [], 0
        part.append(event)
    yield encode_line(msgspec.structs.replace(whole, events=tuple(part)))


def read_line(raw: bytes) -> Line | dict[str, msgspec.Raw]:
    """One line: of an export, or in the plain form an object with ``content``.

    Raises ``Invalid``, quoting nothing, and ``TooLarge`` for a line past ``MAX_LINE_BYTES``, of which it may be a part.
    """
    if len(raw) > MAX_LINE_BYTES:
        raise TooLarge(f"the line exceeds {MAX_LINE_BYTES} bytes", field="line", hint="one object a line")
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid("the line is not a JSON object in UTF-8", field="line", hint="one JSON object a line") from None
    if "line" not in fields:
        if "content" not in fields:
            raise Invalid("the line has neither line nor content", field="content", hint='{"content": "…"} at least')
        return fields
    try:
        return _placed(_decoder.decode(raw))
    except msgspec.ValidationError as error:
        found = _WHERE.fullmatch(str(error))
        field = found["field"] if found else "line"
        raise Invalid(f"{field} is nothing that an export holds", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid("the line is not strict JSON in UTF-8", field="line") from None


def _placed(line: Line) -> Line:
    """The line if the places it names in a log are such places. Raises ``Invalid``."""
    for field in ("seq", "after"):
        place = getattr(line, field, None)
        if place and not _PLACE.fullmatch(place):
            raise Invalid(f"{field} is no place in a log", field=field)
    return line


def stated_date(raw: msgspec.Raw, field: str, now: int) -> int:
    """The time (epoch ms) that a plain line states for a note, see ``check_date``. Raises ``Invalid``."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.ValidationError:
        raise Invalid(f"{field} is a number that is out of range", field=field) from None
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(f"{field} is not JSON in UTF-8", field=field) from None
    return check_date(parse_time(value, field=field), field, now)


def joined(parts: Sequence[NoteLine]) -> NoteLine:
    """One note line made of its parts."""
    if len(parts) == 1:
        return parts[0]
    return msgspec.structs.replace(parts[-1], events=tuple(event for part in parts for event in part.events))


def check_note(line: NoteLine, max_item_bytes: int, now: int) -> Note:
    """The note that the line's events fold to, if all of it is what amnesiad itself could have written by ``now``.

    Raises ``Invalid`` (or ``TooLarge``) naming the field, ``IllegalTransition`` for a history that does not fold.
    """
    if len(line.id) != intake.NOTE_ID_LENGTH or intake.check_note_address(line.id, "id") != line.id:
        raise Invalid("id is not a whole note id", field="id")
    if line.content_hash is not None and not _HASH.fullmatch(line.content_hash):
        raise Invalid("content_hash is not one", field="content_hash")
    note: Note | None = None
    for index, event in enumerate(line.events):
        if event.note != line.id:
            raise Invalid(f"events[{index}] belongs to another note", field=f"events[{index}].note")
        _check_event(event, f"events[{index}]", now)
        note = apply(note, event)
    if note is None:
        raise IllegalTransition("the note has no events", rule="created")
    if line.words is not None:
        check_words(line.words, max_item_bytes)
        if note.state != "forgotten" and note.size != line.words.size():
            raise Invalid("the words are not as long as the events say", field="words")
    return note


def check_date(at: int, field: str, now: int) -> int:
    """A time (epoch ms) that has come, give or take a clock. Raises ``Invalid`` for one that lies in the future."""
    if at > now + CLOCK_TOLERANCE_MS:
        raise Invalid(f"{field} lies in the future", field=field, hint="set the clock right, or correct the date")
    if at < 0:
        raise Invalid(f"{field} lies before 1970", field=field)
    return at


def check_incarnation(number: int, field: str) -> None:
    """A life of an owner, counted from 1. Raises ``Invalid``."""
    if not 1 <= number <= MAX_INCARNATION:
        raise Invalid(f"{field} is out of range", field=field)


def _check_event(event: AnyNoteEvent, where: str, now: int) -> None:
    check_date(event.at, f"{where}.at", now)
    if len(event.actor) > intake.MAX_ID_CHARS + len("agent:") or not _ACTOR.fullmatch(event.actor):
        raise Invalid(f"{where}.actor is nobody amnesiad knows", field=f"{where}.actor")
    if isinstance(event, Reasoned) and event.size is not None and event.size < 0:
        raise Invalid(f"{where}.size is below 0", field=f"{where}.size")
    match event:
        case Created():
            _check_birth(event, where)
        case Renewed(base=base):
            _check_base(base, f"{where}.base")
        case Edited(ttl_ms=ttl_ms) | Promoted(ttl_ms=ttl_ms):
            _check_ttl(ttl_ms, f"{where}.ttl_ms")
        case Superseded(by=other) | Restored(to=other):
            _check_id(other, where)
        case Mirrored(target=target):
            intake.check_id(target, f"{where}.target")
        case _:
            pass


def _check_birth(event: Created, where: str) -> None:
    _check_base(event.base, f"{where}.base")
    _check_ttl(event.ttl_ms, f"{where}.ttl_ms")
    if event.kind in EXEMPT_KINDS and event.ttl_ms is not None:
        raise Invalid(f"a {event.kind} has no TTL: it is exempt at any age", field=f"{where}.ttl_ms")
    if event.size < 0:
        raise Invalid(f"{where}.size is below 0", field=f"{where}.size")
    if (event.scope == "workspace") != (event.owner is None):
        raise Invalid(f"{where}: a scoped note has an owner, and no other has", field=f"{where}.owner")
    if event.owner is not None:
        intake.check_owner(event.owner, f"{where}.owner")
    if event.incarnation is not None:
        check_incarnation(event.incarnation, f"{where}.incarnation")
    if event.author is not None:
        intake.check_id(event.author, f"{where}.author")
    if event.source_ref is not None:
        intake.check_source_ref(event.source_ref)
    for other in (*event.supersedes, *([event.restored_from] if event.restored_from else [])):
        _check_id(other, where)


def _check_id(note_id: str, where: str) -> None:
    if len(note_id) != intake.NOTE_ID_LENGTH:
        raise Invalid(f"{where} names something that is no note", field=where)
    intake.check_note_address(note_id, where)


def _check_base(base: float, field: str) -> None:
    if not (math.isfinite(base) and 0 < base <= 1):
        raise Invalid(f"{field} must be above 0 and at most 1", field=field)


def _check_ttl(ttl_ms: int | None, field: str) -> None:
    if ttl_ms is not None and not 1 <= ttl_ms <= MAX_TTL_MS:
        raise Invalid(f"{field} must be from 1 ms to 100 years", field=field)


def check_words(words: Words, max_item_bytes: int) -> None:
    """Words within the limits that the door keeps; anchors and triggers exactly as it would have written them."""
    intake.check_content(words.content, max_item_bytes)
    if words.key is not None:
        intake.check_key(words.key)
    paths = tuple(anchor.path for anchor in words.anchors)
    if intake.check_tags(words.tags) != words.tags or intake.check_anchors(paths) != paths:
        raise Invalid("tags and anchors must stand once each, in their plain form", field="words")
    if any(anchor.sha256 is not None and not _HASH.fullmatch(anchor.sha256) for anchor in words.anchors):
        raise Invalid("an anchor's sha256 is not one", field="words.anchors")
    intake.check_triggers(words.triggers)
    if len(words.reasons) > MAX_REASONS or not all(version.isdecimal() for version in words.reasons):
        raise Invalid("the reasons are not those of a note", field="words.reasons")
    for reason in words.reasons.values():
        intake.check_reason(reason)


def ends_forgotten(line: NoteLine) -> bool:
    """Whether the line's own history ends in erasure: then no words of it are taken, whatever the line holds."""
    return any(isinstance(event, Forgotten) for event in line.events)
