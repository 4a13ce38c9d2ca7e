"""One attempt at one unit: decisions about several notes, made against one projection at one instant.

A change settles each note it touches first, so that what time owes a note is written in the same unit as what is done
to it. It collects; ``finish`` hands out the unit. If the unit conflicts, the attempt is thrown away and made anew.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from amnesiad.core import clocks, decisions
from amnesiad.core.errors import NotFound, StoreFull
from amnesiad.core.events import AnyNoteEvent, Created, Reasoned
from amnesiad.core.intake import NOTE_ID_ALPHABET, NOTE_ID_LENGTH
from amnesiad.core.notes import Note, Words, apply
from amnesiad.projection import Slot, Text
from amnesiad.service.writing.eviction import giving_way
from amnesiad.store.log import Unit
from amnesiad.store.owners import Owner, expect_open, reopened, set_owner
from amnesiad.store.units import Builder
from amnesiad.workspace import Workspace

_ID_BITS: Final = 5 * NOTE_ID_LENGTH
_PAIRS: Final = [first + second for first in NOTE_ID_ALPHABET for second in NOTE_ID_ALPHABET]
_random: Final = random.Random(secrets.randbits(256))  # noqa: S311
MAX_REASONS: Final = 32
"""Reasons kept with a note: its latest ones, so that endless doubt cannot grow its words without end."""


def new_note_id() -> str:
    """A random id: ten characters of lower-case Crockford base32. The store refuses one that was ever used.

    An id is no secret (what may be seen is decided by ``callers.visible``), so a generator seeded once will do.
    """
    bits = _random.getrandbits(_ID_BITS)
    return "".join([_PAIRS[(bits >> shift) & 1023] for shift in range(0, _ID_BITS, 10)])


class _Touched:
    __slots__ = ("before", "events", "new_words", "now", "words")

    def __init__(self, before: Note | None, now: Note | None, events: list[AnyNoteEvent], words: Words | None) -> None:
        self.before = before
        self.now = now
        self.events = events
        self.words = words
        self.new_words: Words | None = None


class Change:
    """Collects what one command does. ``now`` is store time, read once for the whole attempt."""

    def __init__(self, workspace: Workspace, now: int) -> None:
        self.workspace = workspace
        self.policy = workspace.policy
        self.now = now
        self.builder = Builder(workspace.keys, workspace.keyring, workspace.policy, workspace.policy_version)
        self.opened: dict[str, Owner] = {}
        """Owners that begin another life with this change."""
        self._touched: dict[str, _Touched] = {}
        self._written: dict[str, None] = {}
        self._results: list[tuple[Note, Words | None]] = []

    def settled(self, note_id: str) -> Note:
        """The note at this instant, with what this change has already decided about it. Raises ``NotFound``."""
        touched = self._touch(note_id)
        if touched.now is None:
            raise NotFound(f"there is no note {note_id}", field="id")
        return touched.now

    def owed(self, note_id: str) -> tuple[AnyNoteEvent, ...]:
        """What time owes the note at this instant, and what this change has decided about it. Raises ``NotFound``."""
        return tuple(self._touch(note_id).events)

    def words(self, note_id: str) -> Words:
        """The note's words as they will stand after this change. Raises ``NotFound``."""
        touched = self._touch(note_id)
        words = touched.new_words or touched.words
        if words is None:
            raise NotFound(f"there is no note {note_id}", field="id")
        return words

    def _touch(self, note_id: str) -> _Touched:
        touched = self._touched.get(note_id)
        if touched is None:
            before = self.workspace.notes.get(note_id)
            if before is None:
                raise NotFound(f"there is no note {note_id}", field="id", hint="amnesia list shows what there is")
            events = clocks.due_events(before, self.policy, self.now)
            after: Note = before
            for event in events:
                after = apply(after, event)
            touched = self._touched[note_id] = _Touched(before, after, events, self.workspace.words.get(note_id))
        return touched

    def born(self, event: Created, words: Words) -> Note:
        """A new note."""
        note = apply(None, event)
        touched = self._touched[event.note] = _Touched(None, note, [event], None)
        touched.new_words = words
        self._written[event.note] = None
        return note

    def add(
        self, note_id: str, events: Sequence[AnyNoteEvent], *, words: Words | None = None, reason: str | None = None
    ) -> Note:
        """Decided events of a note, after what time owed it. No events, no change.

        ``words`` are its new words; ``reason`` is kept with them under the version of the first event, which then
        carries the size of the words with it.
        """
        touched = self._touch(note_id)
        if touched.now is None:
            raise NotFound(f"there is no note {note_id}", field="id")
        if not events:
            return touched.now
        self._written[note_id] = None
        if words is not None:
            touched.new_words = words
        first, *others = events
        base = touched.new_words or touched.words
        if reason is not None and base is not None and isinstance(first, Reasoned):
            touched.new_words = _with_reason(base, first.version, reason)
            first = msgspec.structs.replace(first, size=touched.new_words.size())
        for event in (first, *others):
            touched.now = apply(touched.now, event)
            touched.events.append(event)
        return touched.now

    def owe(self, note_id: str) -> Note:
        """Write what time owes the note, if anything, even if nothing else happens to it."""
        touched = self._touch(note_id)
        if touched.events:
            self._written[note_id] = None
        return self.settled(note_id)

    def holder_of_text(self, text: Text) -> Note | None:
        """The live note that says exactly this. One that time has ended gives the text up in this very unit."""
        return self._living(self.workspace.holder_of_text(text))

    def holder_of_slot(self, slot: Slot) -> Note | None:
        """The live note in this slot. One that time has ended gives it up in this very unit."""
        return self._living(self.workspace.holder_of_slot(slot))

    def _living(self, holder: str | None) -> Note | None:
        note = None if holder is None else self.owe(holder)
        return note if note is not None and note.live else None

    def own(self, owner: str, agent_kind: str | None) -> int:
        """Compare the owner's cell in this unit; a closed or unknown owner opens. Returns the incarnation written
        in."""
        known = self.workspace.owners[owner]
        if known.open:
            expect_open(self.builder.unit, owner, known)
            return known.incarnation
        opened = reopened(known, self.now, agent_kind=agent_kind)
        set_owner(self.builder.unit, self.workspace.keys, owner, known, opened, self.now)
        self.opened[owner] = opened
        return opened.incarnation

    def make_room(self) -> list[str]:
        """Evict perishables until this change fits ``max_store_bytes``; returns the ids that go.

        Ended ones go first, oldest end first, then the weakest unpinned. Raises ``StoreFull`` when that does not do.
        """
        grown = sum(
            (touched.now.size if touched.now is not None and touched.now.state != "forgotten" else 0)
            - (touched.before.size if touched.before is not None else 0)
            for touched in (self._touched[note_id] for note_id in self._written)
            if touched.now is not None and touched.now.regime == "perishable"
        )
        limit = self.policy.max_store_bytes
        over = self.workspace.bytes["perishable"] + grown - limit
        if grown <= 0 or over <= 0:
            return []
        evicted = []
        for note_id in giving_way(self.workspace, self.now):
            if over <= 0:
                break
            if note_id in self._written:
                continue
            settled = self.owe(note_id)
            self.add(note_id, decisions.erase(settled, self.now, "evicted"))
            over -= settled.size
            evicted.append(note_id)
        if over > 0:
            raise StoreFull(
                f"the workspace's perishable notes would exceed max_store_bytes ({limit}) by {over} bytes",
                rule="max_store_bytes",
                hint="forget or unpin something, or raise max_store_bytes",
            )
        return evicted

    def finish(self) -> Unit | None:
        """The unit, or ``None`` when there is nothing to write."""
        unit = self.builder.unit
        if not (self._written or unit.sets or unit.events or unit.notes):
            return None
        for note_id in self._written:
            touched = self._touched[note_id]
            after = self.builder.change(touched.before, touched.events, touched.words, touched.new_words)
            if after is not None:
                gone = after.state == "forgotten"
                self._results.append((after, None if gone else touched.new_words or touched.words))
        return self.builder.build()

    @property
    def results(self) -> list[tuple[Note, Words | None]]:
        """The notes after the change with their words, for the projection; filled by ``finish``."""
        return self._results


def _with_reason(words: Words, version: int, reason: str) -> Words:
    return Words(
        content=words.content,
        key=words.key,
        tags=words.tags,
        anchors=words.anchors,
        triggers=words.triggers,
        reasons=dict([*words.reasons.items(), (str(version), reason)][-MAX_REASONS:]),
    )
