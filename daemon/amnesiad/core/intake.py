"""What may come in: the limits of a note's words and of identifiers, each a named constant with its reason.

Pure checks that raise ``Invalid`` or ``TooLarge`` naming the field and the limit, and return the canonical value.
Nothing is shortened, repaired or guessed: a value either fits or is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from amnesiad.core.errors import Invalid, TooLarge
from amnesiad.core.invisible import shows_nothing
from amnesiad.core.notes import Trigger
from amnesiad.core.times import MAX_DURATION_MS, quoted

MAX_TAGS: Final = 32
MAX_TAG_BYTES: Final = 128
MAX_KEY_BYTES: Final = 128
MAX_ANCHORS: Final = 64
MAX_PATH_BYTES: Final = 1024
MAX_TRIGGERS: Final = 16
MAX_TRIGGER_BYTES: Final = 1024
MAX_TRIGGER_WORDS: Final = 16
MAX_REASON_CHARS: Final = 500
MAX_QUERY_CHARS: Final = 8192
"""A query, a prompt or a command that notes are looked for with is a question, not a document."""
MAX_ID_CHARS: Final = 128
"""Session, agent and team ids, source references and request ids: opaque tokens that may enter the log."""

ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:@#+=-]*"
SOURCE_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:@#+=/-]*"
_ID: Final = re.compile(ID_PATTERN)
_SOURCE: Final = re.compile(SOURCE_PATTERN)
NOTE_ID_LENGTH: Final = 10
NOTE_ID_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Lower-case Crockford base32: no i, l, o, u, so that an id can be read out and typed."""
MIN_PREFIX: Final = 4


def check_text(value: str, field: str, limit_bytes: int, *, shorter: str = "say it shorter") -> str:
    """``value`` if it is 1..``limit_bytes`` UTF-8 bytes without NUL or lone surrogates. ``shorter``: the hint past
    them."""
    if not value:
        raise Invalid(f"{field} is empty", field=field, hint="give it at least one character")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(
            f"{field} holds a lone surrogate, which is not text", field=field, hint="send valid UTF-8"
        ) from None
    if size > limit_bytes:
        raise TooLarge(f"{field} has {size} bytes, the limit is {limit_bytes}", field=field, hint=shorter)
    if "\x00" in value:
        raise Invalid(f"{field} holds a NUL byte", field=field, hint="send text, not binary data")
    return value


def check_content(value: str, max_item_bytes: int) -> str:
    """The statement itself; text that shows nothing says nothing and is refused."""
    shorter = "say it shorter: the policy's max_item_bytes is the limit"
    check_text(value, "content", max_item_bytes, shorter=shorter)
    if shows_nothing(value):
        raise Invalid("content is blank", field="content", hint="say something, in one sentence")
    return value


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags as given, exact, in order, each once."""
    if len(tags) > MAX_TAGS:
        raise TooLarge(f"tags has {len(tags)} items, the limit is {MAX_TAGS}", field="tags")
    for index, tag in enumerate(tags):
        check_text(tag, f"tags[{index}]", MAX_TAG_BYTES)
    return tuple(dict.fromkeys(tags))


def check_key(key: str) -> str:
    """The name of a slot: at most one live note per key, scope and owner."""
    return check_text(key, "key", MAX_KEY_BYTES)


def check_path(path: str, field: str) -> str:
    """A workspace-relative path in canonical form (``./`` and doubled slashes dropped).

    Absolute paths and ``..`` are refused: an anchor outside the workspace would let a note watch any file.
    """
    check_text(path, field, MAX_PATH_BYTES)
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", path):
        raise Invalid(f"{field} must be relative to the workspace, not absolute", field=field, hint="src/app.py")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Invalid(f"{field} must stay inside the workspace: '..' is refused", field=field, hint="src/app.py")
    if not parts:
        raise Invalid(f"{field} names no file", field=field, hint="src/app.py")
    return "/".join(parts)


def check_anchors(paths: Sequence[str]) -> tuple[str, ...]:
    """Anchor paths, canonical, each once."""
    if len(paths) > MAX_ANCHORS:
        raise TooLarge(f"anchors has {len(paths)} items, the limit is {MAX_ANCHORS}", field="anchors")
    return tuple(dict.fromkeys(check_path(path, f"anchors[{index}]") for index, path in enumerate(paths)))


def check_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """The paths of a request, canonical, in their order."""
    return tuple(check_path(path, f"paths[{index}]") for index, path in enumerate(paths))


def check_query(text: str | None, field: str) -> None:
    """Raises ``TooLarge`` for what notes are to be looked for with, if it is too long to be that."""
    if text is not None and len(text) > MAX_QUERY_CHARS:
        raise TooLarge(
            f"{field} has {len(text)} characters, the limit is {MAX_QUERY_CHARS}", field=field, hint="ask it shorter"
        )


def check_triggers(triggers: Sequence[Trigger]) -> tuple[Trigger, ...]:
    """Triggers that each ask for something; globs and words within their limits."""
    if len(triggers) > MAX_TRIGGERS:
        raise TooLarge(f"triggers has {len(triggers)} items, the limit is {MAX_TRIGGERS}", field="triggers")
    for index, trigger in enumerate(triggers):
        field = f"triggers[{index}]"
        if not (trigger.event or trigger.path or trigger.command or trigger.words):
            raise Invalid(f"{field} asks for nothing", field=field, hint="give event, path, command or words")
        if trigger.event is not None:
            check_id(trigger.event, f"{field}.event")
        if trigger.path is not None:
            check_text(trigger.path, f"{field}.path", MAX_TRIGGER_BYTES)
        if trigger.command is not None:
            check_text(trigger.command, f"{field}.command", MAX_TRIGGER_BYTES)
        if len(trigger.words) > MAX_TRIGGER_WORDS:
            raise TooLarge(
                f"{field}.words has {len(trigger.words)} items, the limit is {MAX_TRIGGER_WORDS}",
                field=f"{field}.words",
            )
        for word in trigger.words:
            check_text(word, f"{field}.words", MAX_TRIGGER_BYTES)
            if shows_nothing(word):
                raise Invalid(f"{field}.words holds a blank word", field=f"{field}.words", hint="any text has blanks")
        if trigger.cooldown_ms is not None and not 0 <= trigger.cooldown_ms <= MAX_DURATION_MS:
            raise Invalid(
                f"{field}.cooldown_ms must be from 0 to 100 years, not {quoted(trigger.cooldown_ms)}",
                field=f"{field}.cooldown_ms",
            )
    return tuple(triggers)


def check_reason(reason: str) -> str:
    """The words of a reason; they go to the vault and are erased with the note."""
    if len(reason) > MAX_REASON_CHARS:
        raise TooLarge(f"reason has {len(reason)} characters, the limit is {MAX_REASON_CHARS}", field="reason")
    check_text(reason, "reason", 4 * MAX_REASON_CHARS)
    if shows_nothing(reason):
        raise Invalid("reason is blank", field="reason", hint="say why, in one sentence")
    return reason


def check_name(value: str, field: str, limit_bytes: int) -> str:
    """A name or path that reads as it is: without control characters and line breaks, and not blank."""
    check_text(value, field, limit_bytes)
    if shows_nothing(value) or any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in value):
        raise Invalid(
            f"{field} is blank or holds a control character",
            field=field,
            hint="name it by its path, or by a plain word",
        )
    return value


def check_id(value: str, field: str) -> str:
    """An opaque token (session, agent, team, request id). It may enter the log, so it cannot carry prose."""
    if len(value) > MAX_ID_CHARS or not _ID.fullmatch(value):
        raise Invalid(
            f"{field} must be 1 to {MAX_ID_CHARS} letters, digits or ._:@#+=- starting with a letter or digit",
            field=field,
        )
    return value


def check_owner(value: str, field: str = "owner") -> str:
    """An owner id: a session or team id, or ``session/agent``."""
    for part in value.split("/", 1):
        check_id(part, field)
    return value


def check_source_ref(value: str) -> str:
    """A pointer to where a note came from; like an id, with slashes. It may enter the log, so it cannot carry prose."""
    if len(value) > MAX_ID_CHARS or not _SOURCE.fullmatch(value):
        raise Invalid(
            f"source_ref must be 1 to {MAX_ID_CHARS} letters, digits or ._:@#+=/-: it is a pointer, not text",
            field="source_ref",
        )
    return value


def check_note_address(value: str, field: str = "id") -> str:
    """A note id, or a prefix of one of at least four characters."""
    text = value.lower()
    if not MIN_PREFIX <= len(text) <= NOTE_ID_LENGTH or any(char not in NOTE_ID_ALPHABET for char in text):
        raise Invalid(
            f"{field} must be a note id: {NOTE_ID_LENGTH} characters of {NOTE_ID_ALPHABET}, or a prefix of "
            f"{MIN_PREFIX} or more",
            field=field,
        )
    return text
