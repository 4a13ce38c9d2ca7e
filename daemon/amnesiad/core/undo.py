"""Taking back a note's last transition, by one more event. Nothing is ever removed from the log.

Undo knows no moves of its own: it looks at what happened last and decides the command that leads back, with the same
authority and the same refusals as that command has by itself. An undo of an undo is one more event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from amnesiad.core import decisions
from amnesiad.core.callers import Caller, check_authority
from amnesiad.core.errors import Refused
from amnesiad.core.events import (
    AnyNoteEvent,
    Expired,
    Mirrored,
    Pinned,
    Reinstated,
    Revoked,
    StaleFlagged,
    Superseded,
    Unpinned,
    event_type,
)
from amnesiad.core.notes import Note, Words, fold

_WAYS_OUT: Final = {
    "created": "forget it",
    "renewed": "a use cannot be unmade; forget or revoke it if it should not live on",
    "edited": "edit it again, with what it was before",
    "promoted": "remember it anew where it belongs, and forget this one",
    "forgotten": "its words are erased; restore works where a copy was kept",
    "restored": "forget the note it was restored as",
}


class Undone(NamedTuple):
    """The events that lead back, the type of the event taken back, and the words of a reason that go with them."""

    events: list[AnyNoteEvent]
    event: str
    reason: str | None


def undo(
    history: Sequence[AnyNoteEvent],
    caller: Caller,
    now: int,
    *,
    words: Words,
    note_of: Callable[[str], Note],
    reason: str | None = None,
    size: int | None = None,
) -> Undone:
    """Take back the last event of ``history``: every event of the note, oldest first, with what time owes it at
    ``now``.

    ``words`` are the note's, ``note_of(id)`` another note settled at ``now``, ``size`` as in ``decisions.reinstate``.
    Raises ``Refused`` with the way out where the table has no way back, and whatever the command that leads back does.
    """
    note = fold(history)
    # What became of an item elsewhere is no transition of the note: the one before it is meant.
    place = next(index for index in reversed(range(len(history))) if not isinstance(history[index], Mirrored))
    last = history[place]
    name = event_type(last)
    match last:
        case Pinned():
            return Undone(decisions.unpin(note, caller, now, reason=reason), name, reason)
        case Unpinned():
            return Undone(decisions.pin(note, caller, now, reason=reason), name, reason)
        case StaleFlagged() if len(note.causes) > 1:
            raise Refused(
                f"note {note.id} was in doubt already: one of several doubts cannot be taken back by itself",
                rule="undo-one-doubt",
                hint="reinstate clears them all",
            )
        case Revoked() | Superseded() | Expired() | StaleFlagged():
            return Undone(decisions.reinstate(note, caller, now, reason=reason, size=size), name, reason)
        case Reinstated():
            before = fold(history[:place])
            why = reason or words.reasons.get(str(before.reason_version))
            return Undone(_back(before, note, caller, now, why, note_of), name, why)
    raise Refused(
        f"note {note.id} was last {name.replace('_', ' ')}, and that cannot be undone",
        rule=f"undo-{name}",
        hint=_WAYS_OUT[name],
    )


def _back(
    before: Note, note: Note, caller: Caller, now: int, why: str | None, note_of: Callable[[str], Note]
) -> list[AnyNoteEvent]:
    """The events that make a reinstated note again what it was before."""
    if before.state == "revoked":
        return decisions.revoke(note, caller, now, reason=why or "")
    if before.state == "superseded":
        by = note_of(before.superseded_by or "")
        return decisions.supersede(note, by, caller, now, reason=why, successor=lambda id_: note_of(id_).superseded_by)
    if before.state == "expired" and before.state_reason == "completed":
        return decisions.done(note, caller, now, reason=why)
    check_authority(note, caller, "undo", why)
    facts = {"note": note.id, "at": now, "actor": caller.actor, "on_behalf": caller.on_behalf}
    if before.state == "expired":
        code = "decayed" if before.state_reason == "decayed" else "ttl"
        return [Expired(**facts, version=note.version + 1, reason=code)]  # type: ignore[arg-type]
    return [
        StaleFlagged(**facts, version=note.version + 1 + index, cause=cause)  # type: ignore[arg-type]
        for index, cause in enumerate(before.causes)
    ]
