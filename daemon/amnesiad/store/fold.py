"""The log of a workspace folded from its first entry, up to exactly one stream id.

This is the truth that ``verify`` holds everything else against. It reads the log alone, keeps one ``Note`` for each id
ever issued, and goes on past entries it cannot read: it says which note they leave unknown. It never writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import msgspec
from redis.asyncio import Redis

from amnesiad.core.errors import IllegalTransition
from amnesiad.core.events import AnyNoteEvent, Event, Forgotten, PolicyChanged, Scrubbed, decode
from amnesiad.core.notes import Note, apply
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.log import READ_COUNT, START, at_or_past, seq_key

Report = Callable[[str, str, str], None]
"""Takes an id, the name of a structure and what is wrong there."""

LOG: Final = "log"
"""The structure and, where an entry belongs to no note, the id under which the log's own faults are reported."""


class Folded(NamedTuple):
    """A note as the log has it: its state, the stream id of its last event, and who forgot it, if anyone."""

    note: Note
    seq: str
    forgotten_by: str


class LogFold:
    """What the log amounts to up to ``position``. ``report`` hears of entries that do not fold."""

    def __init__(self, redis: Redis, keys: Keys, report: Report) -> None:
        self._redis = redis
        self._keys = keys
        self._report = report
        self.position = START
        self.entries = 0
        self.notes: dict[str, Folded] = {}
        self.unknown: set[str] = set()
        """Notes of which an entry cannot be read or does not fold: nothing can be said about their state."""
        self.members: dict[str, set[str]] = {}
        self.policy: dict[str, object] = {}
        self.policy_version = 0
        self._forgotten: list[str] = []

    @property
    def unscrubbed(self) -> int:
        """Erasures since the last confirmed scrub: the most that the data files may still hold."""
        return len(self._forgotten)

    async def read_to(self, seq: str) -> None:
        """Read the log forward to ``seq`` and no further; nothing where that lies behind."""
        while not at_or_past(self.position, seq):
            with store_errors():
                page = cast(
                    list[tuple[bytes, dict[bytes, bytes]]],
                    await self._redis.xrange(self._keys.log, min=f"({self.position}", max=seq, count=READ_COUNT),
                )
            for raw_seq, fields in page:
                self._take(raw_seq.decode(), fields)
            if len(page) < READ_COUNT:
                self.position = seq

    def _take(self, seq: str, fields: dict[bytes, bytes]) -> None:
        self.position = seq
        self.entries += 1
        try:
            event = decode(fields[b"e"])
            previous = fields[b"p"].decode()
        except (msgspec.DecodeError, KeyError, UnicodeDecodeError):
            self._give_up(_note_of(fields.get(b"e", b"")), f"entry {seq} cannot be read")
            return
        self._fold(seq, event, previous)

    def _fold(self, seq: str, event: Event, previous: str) -> None:
        if isinstance(event, PolicyChanged):
            self.policy_version = max(self.policy_version, event.policy_version)
            if event.reset:
                self.policy.pop(event.name, None)
            else:
                self.policy[event.name] = event.new
        elif isinstance(event, Scrubbed):
            if event.result == "done":
                through = seq_key(event.through)
                self._forgotten = [erased for erased in self._forgotten if seq_key(erased) > through]
        elif event.note not in self.unknown:
            self._fold_note(seq, event, previous)

    def _fold_note(self, seq: str, event: AnyNoteEvent, previous: str) -> None:
        known = self.notes.get(event.note)
        try:
            note = apply(None if known is None else known.note, event)
        except IllegalTransition as error:
            self._give_up(event.note, f"entry {seq} does not fold: {error.message}")
            return
        if previous != ("" if known is None else known.seq):
            self._report(event.note, LOG, f"entry {seq} does not name the note's entry before it")
        by = event.actor if isinstance(event, Forgotten) else ("" if known is None else known.forgotten_by)
        if isinstance(event, Forgotten):
            self._forgotten.append(seq)
        self._move(note.id, _owner(known), None if note.state == "forgotten" else note.owner)
        self.notes[note.id] = Folded(note, seq, by)

    def _give_up(self, note_id: str, problem: str) -> None:
        self._report(note_id or LOG, LOG, problem)
        if note_id:
            self._move(note_id, _owner(self.notes.pop(note_id, None)), None)
            self.unknown.add(note_id)

    def _move(self, note_id: str, frm: str | None, to: str | None) -> None:
        if frm is not None and frm != to:
            self.members[frm].discard(note_id)
        if to is not None:
            self.members.setdefault(to, set()).add(note_id)


def _owner(folded: Folded | None) -> str | None:
    return None if folded is None or folded.note.state == "forgotten" else folded.note.owner


def _note_of(raw: bytes) -> str:
    """The note an unreadable event belongs to, as far as it tells; ``""`` if it does not."""
    try:
        event: Any = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return ""
    note_id = event.get("note") if isinstance(event, dict) else None
    return note_id if isinstance(note_id, str) else ""
