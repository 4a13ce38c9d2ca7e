"""When a note asks to be shown by itself: matching triggers against what an agent is about to do. Pure.

Inside a trigger every part given must match (AND); a note with several triggers matches by any of them. Which notes
have been shown already is the ledger's business, not this module's.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from amnesiad.core.globs import path_matches
from amnesiad.core.notes import Trigger, Words


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """What is about to happen: the event's name, the paths and command concerned, and the prompt's text."""

    event: str | None = None
    paths: Sequence[str] = ()
    command: str | None = None
    prompt: str | None = None


def matching(words: Words, occasion: Occasion) -> Trigger | None:
    """The note's first trigger that the occasion matches, or ``None``."""
    return next((trigger for trigger in words.triggers if matches(trigger, occasion)), None)


def matches(trigger: Trigger, occasion: Occasion) -> bool:
    """Whether every part of the trigger matches. Words must all occur in the prompt or command, whatever their case."""
    if trigger.event is not None and trigger.event != occasion.event:
        return False
    if trigger.path is not None and not any(path_matches(trigger.path, path) for path in occasion.paths):
        return False
    if trigger.command is not None and not fnmatchcase(occasion.command or "", trigger.command):
        return False
    if not trigger.words:
        return True
    text = folded(text_of(occasion))
    return all(folded(word) in text for word in trigger.words)


def may_fire(shown: tuple[int, str] | None, cooldown_ms: int | None, turn: str, now: int) -> bool:
    """Whether a note that was ``shown`` at that instant (epoch ms) in that turn may be shown to the same context again.

    Never twice in one turn; in a later one only where the trigger has a cooldown that is over.
    """
    if shown is None:
        return True
    at, in_turn = shown
    return cooldown_ms is not None and now - at >= cooldown_ms and not (turn and turn == in_turn)


def text_of(occasion: Occasion) -> str:
    """The text in which a trigger's words are looked for."""
    return " ".join(part for part in (occasion.prompt, occasion.command) if part)


def folded(text: str) -> str:
    """The form in which words are compared."""
    return unicodedata.normalize("NFKC", text).casefold()
