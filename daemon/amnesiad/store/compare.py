"""One stored value beside what the fold of the log says it should be. Pure; words are sized and never told."""

from __future__ import annotations

from typing import Final

import msgspec

from amnesiad.core.errors import Invalid
from amnesiad.core.notes import Note, Words, decode_words
from amnesiad.core.policy import parse_setting
from amnesiad.errors import Bug
from amnesiad.store.fold import Folded
from amnesiad.store.log import parse_stored
from amnesiad.store.vault import Tomb, Unreadable, read_head, read_tomb

OP: Final = "rebuilt"
"""The operation id of what a rebuild wrote."""


def stored_form(folded: Folded, value: bytes) -> bytes:
    return f"{folded.note.version}|{OP}|{folded.seq}|".encode() + value


def stamp_of(raw: bytes | None) -> str | None:
    """The stamp of a cell; ``None`` for one that is absent or malformed."""
    try:
        return None if raw is None else parse_stored(raw).stamp
    except (Bug, UnicodeDecodeError):
        return None


def head_problem(folded: Folded, raw: bytes | None) -> str:
    if raw is None:
        return "there is no head"
    head = read_head(folded.note.id, raw)
    if isinstance(head, Unreadable):
        return head.problem
    if fields := _fields_apart(head.note, folded.note):
        return f"not as in the log: {', '.join(fields)}"
    if head.seq != folded.seq or stamp_of(raw) != str(folded.note.version):
        return "not as in the log: the place of its last event"
    return ""


def tomb_problem(folded: Folded, raw: bytes | None) -> tuple[str, Tomb]:
    """What is wrong with a tomb, and the tomb as it should be: with the hash and copy that are still there."""
    bare = Tomb(folded.note, folded.forgotten_by)
    if raw is None:
        return "there is no tomb", bare
    try:
        grave = read_tomb(raw)
    except (msgspec.DecodeError, Bug, UnicodeDecodeError):
        return "the tomb cannot be read", bare
    tomb = grave.tomb
    right = Tomb(folded.note, folded.forgotten_by, tomb.content_hash, tomb.kept, tomb.purge_at)
    if fields := _fields_apart(tomb.note, folded.note):
        return f"not as in the log: {', '.join(fields)}", right
    if tomb.actor != folded.forgotten_by:
        return "not as in the log: who forgot it", right
    if grave.seq != folded.seq or stamp_of(raw) != str(folded.note.version):
        return "not as in the log: the place of its last event", right
    if tomb.purge_at is None and (tomb.content_hash or tomb.kept):
        return "a hash or copy is kept without an end", bare
    return "", right


def _fields_apart(found: Note, wanted: Note) -> list[str]:
    return [name for name in Note.__struct_fields__ if getattr(found, name) != getattr(wanted, name)]


def read_words(raw: bytes | None) -> tuple[Words | None, str]:
    if raw is None:
        return None, "its words are lost"
    try:
        return decode_words(raw), ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, "its words cannot be read"


def number_of(raw: bytes) -> int | None:
    try:
        return int(raw)
    except ValueError:
        return None


def setting_of(name: str, raw: bytes) -> object:
    try:
        return parse_setting(name, msgspec.json.decode(raw))
    except (Invalid, msgspec.DecodeError):
        return msgspec.UNSET


def canonical(name: str, value: object) -> object:
    try:
        return parse_setting(name, value)
    except Invalid:
        return value
