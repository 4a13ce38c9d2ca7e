"""From a change of folded state to what it does to the store: the only mapping from the fold to keys.

``derived`` says which cells, sets, due time and totals a note's state implies. A commit writes the difference
between before and after; ``rebuild`` writes the whole of it; so the two can never drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from amnesiad.core import clocks
from amnesiad.core.events import AnyNoteEvent, Forgotten, encode
from amnesiad.core.notes import Note, Words, apply, encode_note, encode_words
from amnesiad.core.policy import Policy
from amnesiad.errors import Bug
from amnesiad.store.keyring import Keyring
from amnesiad.store.keys import Keys
from amnesiad.store.log import Cell, NoteOp, Unit
from amnesiad.store.vault import Tomb, encode_tomb
from amnesiad.store.workspaces import POLICY_CELL

PERISHABLE_BYTES: Final = "perishable_bytes"
RECORD_BYTES: Final = "record_bytes"
FORGOTTEN: Final = "forgotten"
UNSCRUBBED: Final = "unscrubbed"
"""Erasures whose bytes the data files may still hold."""
SCRUB_CELL: Final = "scrub"
"""Its stamp is the log's end and the count that the last scrub spoke of, its payload what came of it."""


class Derived(NamedTuple):
    """What a note's folded state implies beside its head."""

    cells: frozenset[str]
    owner: str | None
    anchored: bool
    due: int | None
    total: str
    bytes: int


def text_cell(note: Note, words: Words, keyring: Keyring) -> str:
    """The cell that holds this text for its scope, owner and kind: at most one live note each."""
    return keyring.cell("text", note.scope, note.owner or "", note.kind, words.content)


def slot_cell(note: Note, key: str, keyring: Keyring) -> str:
    """The cell of a keyed slot: at most one live note per scope, owner and key."""
    return keyring.cell("slot", note.scope, note.owner or "", key)


def derived(note: Note, words: Words | None, policy: Policy, keyring: Keyring) -> Derived:
    """Everything that follows from the fold for a note that is not forgotten."""
    step = clocks.next_transition(note, policy)
    return _held(note, words, keyring)._replace(due=None if step is None else step.at)


def _held(note: Note, words: Words | None, keyring: Keyring) -> Derived:
    """``derived`` without the due time, whose search is most of its cost."""
    cells = set()
    if note.live and words is not None:
        cells.add(text_cell(note, words, keyring))
        if words.key is not None:
            cells.add(slot_cell(note, words.key, keyring))
    total = PERISHABLE_BYTES if note.regime == "perishable" else RECORD_BYTES
    watched = note.live and words is not None and any(anchor.sha256 is not None for anchor in words.anchors)
    return Derived(frozenset(cells), note.owner, watched, None, total, note.size)


def left_of(tomb: Tomb, policy: Policy, now: int) -> Tomb:
    """What is kept of a forgotten note at ``now``, whether or not a pass has been there: hash and copy for
    ``audit_retention``, the copy only while copies are kept."""
    if tomb.purge_at is None:
        return tomb
    purge_at = tomb.note.state_at + policy.audit_retention
    if purge_at <= now:
        return msgspec.structs.replace(tomb, content_hash=None, kept=None, purge_at=None)
    return msgspec.structs.replace(tomb, kept=tomb.kept if policy.restorable else None, purge_at=purge_at)


_NOTHING: Final = Derived(frozenset(), None, False, None, "", 0)


class Builder:
    """Collects the changes of one unit, which conflicts if the policy has moved from ``policy_version`` meanwhile."""

    def __init__(self, keys: Keys, keyring: Keyring, policy: Policy, policy_version: int) -> None:
        self.keys = keys
        self.keyring = keyring
        self.policy = policy
        self.unit = Unit()
        self._cells: dict[str, tuple[str, str]] = {}
        self._totals: dict[str, int] = {}
        self._changed: set[str] = set()
        self._policy_stamp = str(policy_version)

    def change(
        self,
        before: Note | None,
        events: Sequence[AnyNoteEvent],
        words: Words | None,
        new_words: Words | None = None,
        *,
        content_hash: str | None = None,
    ) -> Note | None:
        """Add a note's new events. ``words`` are its words before (``None`` at birth), ``new_words`` after, if changed.

        ``content_hash`` is for a note that comes in forgotten, without the words its tomb's hash could be made of.

        Returns the note after. Does nothing for no events. A note changes once in a unit, so give all its events here;
        a forgotten one changes by ``retomb``. Raises ``Bug`` otherwise, ``IllegalTransition`` as the fold does.
        """
        if not events:
            return before
        if before is not None and before.state == "forgotten":
            raise Bug(f"note {before.id} is forgotten: only its tomb can change")
        after = before
        for event in events:
            after = apply(after, event)
        if after is None:
            raise Bug("events without a note")
        self._once(after.id)
        kept = new_words if new_words is not None else words
        old = _NOTHING if before is None else _held(before, words, self.keyring)
        source: Literal["h", "-"] = "-" if before is None else "h"
        encoded = tuple(encode(event) for event in events)
        expected = 0 if before is None else before.version
        if after.state == "forgotten":
            new = _NOTHING
            tomb = self._tomb(after, events, kept, content_hash)
            self.unit.notes.append(NoteOp(after.id, source, expected, "t", after.version, encode_tomb(tomb), encoded))
            self._bury(after, tomb, had_words=before is not None)
        else:
            new = derived(after, kept, self.policy, self.keyring)
            self.unit.notes.append(NoteOp(after.id, source, expected, "h", after.version, encode_note(after), encoded))
            if new_words is not None:
                self.unit.words.append((after.id, encode_words(new_words)))
            # Filed at every change, though it may be the same: the old entry may stem from an older policy.
            self.unit.due.append((after.id, new.due))
        self._difference(after.id, old, new)
        return after

    def release(self, cells: Sequence[str], note_id: str) -> None:
        """Free the cells that a note holds, and what else followed from its words, where these are not there to
        tell."""
        for cell in cells:
            self._move(cell, note_id, "")
        self.unit.sets.append((self.keys.anchored, "SREM", note_id, ""))

    def _once(self, note_id: str) -> None:
        if note_id in self._changed:
            raise Bug(f"note {note_id} changes twice in one unit: the second would conflict with the first")
        self._changed.add(note_id)

    def retomb(self, tomb: Tomb, events: Sequence[AnyNoteEvent] = (), *, now: int) -> None:
        """Rewrite the tomb of a forgotten note as what is ``left_of`` it, with its new events.

        A purge moves no version, so ``tomb`` may have been read before one: what is kept no more is never put back. A
        copy that goes stays in the data files until the next scrub.
        """
        self._once(tomb.note.id)
        after = left_of(tomb, self.policy, now)
        if tomb.kept is not None and after.kept is None:
            self._totals[UNSCRUBBED] = self._totals.get(UNSCRUBBED, 0) + 1
        note = tomb.note
        for event in events:
            note = apply(note, event)
        value = encode_tomb(msgspec.structs.replace(after, note=note))
        encoded = tuple(encode(event) for event in events)
        self.unit.notes.append(NoteOp(note.id, "t", tomb.note.version, "t", note.version, value, encoded))
        self.unit.due.append((note.id, after.purge_at))

    def _tomb(self, note: Note, events: Sequence[AnyNoteEvent], words: Words | None, content_hash: str | None) -> Tomb:
        end = next(event for event in reversed(events) if isinstance(event, Forgotten))
        return Tomb(
            note=note,
            actor=end.actor,
            content_hash=content_hash if words is None else self.keyring.content_hash(words.content),
            kept=words if self.policy.restorable else None,
            purge_at=note.state_at + self.policy.audit_retention,
        )

    def _bury(self, note: Note, tomb: Tomb, *, had_words: bool) -> None:
        unit = self.unit
        if had_words:
            unit.words.append((note.id, b""))
            self._totals[UNSCRUBBED] = self._totals.get(UNSCRUBBED, 0) + 1
        self._totals[FORGOTTEN] = self._totals.get(FORGOTTEN, 0) + 1
        unit.due.append((note.id, tomb.purge_at))
        unit.sets.append((self.keys.audit, "ZADD", note.id, note.state_at))

    def _difference(self, note_id: str, old: Derived, new: Derived) -> None:
        for cell in old.cells - new.cells:
            self._move(cell, note_id, "")
        for cell in new.cells - old.cells:
            self._move(cell, "", note_id)
        if old.owner != new.owner:
            if old.owner is not None:
                self.unit.sets.append((self.keys.members(old.owner), "SREM", note_id, ""))
            if new.owner is not None:
                self.unit.sets.append((self.keys.members(new.owner), "SADD", note_id, ""))
        if old.anchored != new.anchored:
            self.unit.sets.append((self.keys.anchored, "SADD" if new.anchored else "SREM", note_id, ""))
        if old.total:
            self._totals[old.total] = self._totals.get(old.total, 0) - old.bytes
        if new.total:
            self._totals[new.total] = self._totals.get(new.total, 0) + new.bytes

    def _move(self, cell: str, frm: str, to: str) -> None:
        """A cell released and taken in one unit moves straight from one holder to the next."""
        held = self._cells.get(cell)
        if held is None:
            self._cells[cell] = (frm, to)
        elif held[1] == frm:
            self._cells[cell] = (held[0], to)
        elif held[0] == to:
            self._cells[cell] = (frm, held[1])
        else:
            raise Bug("two notes of one unit want the same cell")

    def build(self) -> Unit:
        """The finished unit. Capacity limits are enforced by the script, in the same step that writes."""
        unit = self.unit
        unit.cells.append(Cell(POLICY_CELL, self._policy_stamp, "="))
        unit.cells += [Cell(field, frm, to) for field, (frm, to) in self._cells.items() if frm != to]
        limits = {PERISHABLE_BYTES: self.policy.max_store_bytes, RECORD_BYTES: self.policy.max_record_bytes}
        unit.totals += [(name, delta, limits.get(name)) for name, delta in self._totals.items() if delta]
        return unit
