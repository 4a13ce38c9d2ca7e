"""What one workspace's notes are, held in memory with every index over them, so that a question costs no walk. No I/O.

Notes are put in and taken out; which of them a caller may be shown at an instant is answered here. It decides nothing
(that is ``core``), reads nothing from the store and does not know how far into the log it stands (that is
``workspace``). All of it is derived and disposable.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from amnesiad.core import clocks
from amnesiad.core.callers import Caller, visible
from amnesiad.core.events import Provenance, Scope
from amnesiad.core.inject import line_units, note_cost
from amnesiad.core.kinds import Kind
from amnesiad.core.notes import LIVE, Anchor, Note, State, Trigger, Words
from amnesiad.core.pathindex import PathIndex, words_of_mention
from amnesiad.core.policy import Policy
from amnesiad.core.strongest import Strongest, View
from amnesiad.core.triggerindex import TriggerIndex
from amnesiad.core.triggers import Occasion, matching
from amnesiad.search import Index, Standing, Vectors
from amnesiad.tokens import counter_for

Text = tuple[str, str | None, str, str]
Slot = tuple[str, str | None, str]
Group = tuple[Scope, str | None, Kind]
Class = tuple[Kind, Provenance, bool, State]

COUNTED_AT_ONCE: Final = 500
"""Notes whose tokens one look at the whole workspace may count: some 30 ms, during which nobody else is answered."""
MAX_AUDIENCES: Final = 256
"""Callers whose view of the groups is kept: the sessions of a busy machine, each a few kilobytes."""


class Use(NamedTuple):
    """How often a note was shown, and when last (epoch ms, 0 never). Beside the fold."""

    times: int = 0
    last_at: int = 0


class Audience(dict[Group, bool]):
    """What one caller may see, group by group, found out when first asked."""

    def __init__(self, caller: Caller, policy: Policy) -> None:
        super().__init__()
        self._caller = caller
        self._policy = policy

    def __missing__(self, group: Group) -> bool:
        scope, owner, kind = group
        any_of_them = Note(
            id="", version=0, kind=kind, provenance="agent", created_at=0, size=0, scope=scope, owner=owner
        )
        self[group] = seen = visible(any_of_them, self._caller, self._policy)
        return seen


class Projection:
    """The notes of one workspace under one policy. One event loop; not shared between threads."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.policy_version = 0
        self.vectors: Vectors | None = None
        """Of the live notes; ``None`` where search goes by words alone. Whoever fills it sets it before notes are
        put."""
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        self.notes: dict[str, Note] = {}
        self.words: dict[str, Words] = {}
        self.use: dict[str, Use] = {}
        self.due: dict[str, int] = {}
        self._soonest = math.inf
        """No live note is due before this (epoch ms)."""
        self._costs: dict[str, int] = {}
        self._units: dict[str, tuple[int, int]] = {}
        self._active = self._ranking()
        self.live = Index()
        self.ended = Index()
        if self.vectors is not None:
            self.vectors.clear()
        self.triggered = TriggerIndex()
        self.pathed = PathIndex()
        self.revoked: dict[str, None] = {}
        self.ended_perishables: dict[str, None] = {}
        """Ids in the order in which they ended: the first to be evicted."""
        self.unreadable: dict[str, str] = {}
        self.bytes = {"perishable": 0, "record": 0}
        self._audiences: dict[tuple[Caller, int], Audience] = {}
        # By hash alone: the text itself stands in the note's words already.
        self._texts: dict[int, str] = {}
        self._slots: dict[Slot, str] = {}

    # -- what is held --------------------------------------------------------------------------------------------

    def govern(self, policy: Policy, version: int) -> None:
        """Be under another policy. One by which notes weaken and end otherwise costs a walk through all of them."""
        before, self.policy, self.policy_version = self.policy, policy, version
        self._costs.clear()
        if clocks.same_timing(before, policy):
            return
        self._active = self._ranking()
        for note in self.notes.values():
            (self.live if note.live else self.ended).stand(note.id, self._file(note))
            if note.state == "active":
                self._active.put(note)

    def set_aside(self, note_id: str, problem: str) -> None:
        """A note that cannot be read is shown nowhere and named by verify; it stops nothing else."""
        self.remove(note_id)
        self.unreadable[note_id] = problem

    def put(self, note: Note, words: Words) -> None:
        """Take a note in, in place of what is known of it."""
        _share(note, words)
        old, indexed = self.notes.get(note.id), None
        triggers: tuple[Trigger, ...] = ()
        anchors: tuple[Anchor, ...] = ()
        if old is not None:
            before = self.words[note.id]
            triggers, anchors = before.triggers, before.anchors
            indexed = (before.content, before.key, before.tags, before.anchors)
            self._unlink(old)
            self._costs.pop(note.id, None)
        self.notes[note.id] = note
        self.words[note.id] = words
        self.unreadable.pop(note.id, None)
        self.bytes[note.regime] += note.size
        standing = self._file(note)
        index, other = (self.live, self.ended) if note.live else (self.ended, self.live)
        if (
            old is None
            or old.live != note.live
            or indexed != (words.content, words.key, words.tags, words.anchors)
            or group_of(old) != group_of(note)
        ):
            other.drop(note.id)
            index.put(note.id, words, group_of(note), standing)
            if self.vectors is not None:
                (self.vectors.expect if note.live else self.vectors.drop)(note.id)
        else:
            index.stand(note.id, standing)
        filed = (triggers, anchors) if old is not None and old.live else ((), ())
        if filed != ((words.triggers, words.anchors) if note.live else ((), ())):
            self.triggered.put(note.id, words.triggers if note.live else ())
            if note.live:
                self.pathed.put(note.id, words)
            else:
                self.pathed.drop(note.id)
        if note.state == "revoked":
            self.revoked[note.id] = None
        else:
            self.revoked.pop(note.id, None)
        if note.regime == "perishable" and not note.live:
            self.ended_perishables[note.id] = None
        else:
            self.ended_perishables.pop(note.id, None)
        if note.live:
            self._texts[hash(text_of(note, words))] = note.id
            if words.key is not None:
                self._slots[slot_of(note, words.key)] = note.id
        if note.state == "active":
            self._active.put(note)

    def _file(self, note: Note) -> Standing:
        step = clocks.next_transition(note, self.policy)
        if step is None:
            self.due.pop(note.id, None)
            return Standing(class_of(note), note.created_at)
        self.due[note.id] = step.at
        self._soonest = min(self._soonest, step.at)
        return Standing(class_of(note), note.created_at, step.at, step.to not in LIVE)

    def _unlink(self, note: Note) -> None:
        words = self.words[note.id]
        if note.state == "active":
            self._active.drop(note)
        self.bytes[note.regime] -= note.size
        if self._texts.get(text := hash(text_of(note, words))) == note.id:
            del self._texts[text]
        if words.key is not None and self._slots.get(slot := slot_of(note, words.key)) == note.id:
            del self._slots[slot]

    def remove(self, note_id: str) -> None:
        """Take a note out with its words, wherever it is filed; an unknown one is out already."""
        self.unreadable.pop(note_id, None)
        note = self.notes.get(note_id)
        if note is None:
            return
        self._unlink(note)
        self.live.drop(note_id)
        self.ended.drop(note_id)
        if self.vectors is not None:
            self.vectors.drop(note_id)
        del self.notes[note_id], self.words[note_id]
        self.due.pop(note_id, None)
        self.triggered.drop(note_id)
        self.pathed.drop(note_id)
        self.revoked.pop(note_id, None)
        self.ended_perishables.pop(note_id, None)
        self._costs.pop(note_id, None)
        self._units.pop(note_id, None)
        self.use.pop(note_id, None)

    def count_use(self, ids: Iterable[str], now: int) -> None:
        """Mirror what the store's use counters were just told."""
        for note_id in ids:
            note = self.notes.get(note_id)
            if note is None:
                continue
            used = Use(self.use.get(note_id, Use()).times + 1, now)
            record = partial(self.use.__setitem__, note_id, used)
            if note.state == "active":
                self._active.shown(note, record)
            else:
                record()

    def last_access(self, note_id: str) -> int:
        """When the note was last shown (epoch ms), 0 for never."""
        use = self.use.get(note_id)
        return 0 if use is None else use.last_at

    def _ranking(self) -> Strongest:
        return Strongest(self.policy, self.due.get, self.last_access)

    # -- what is asked -------------------------------------------------------------------------------------------

    def settled(self, note_id: str, now: int) -> Note | None:
        """The note's state at ``now``, whether or not a pass has run; ``None`` for one that is not here."""
        note = self.notes.get(note_id)
        if note is None or (due := self.due.get(note_id)) is None or due > now:
            return note
        return clocks.settle(note, self.policy, now)

    def cost(self, note_id: str) -> int:
        """Tokens the note's line costs at most; counted once for each version and policy."""
        known = self._costs.get(note_id)
        if known is None:
            known = self._costs[note_id] = note_cost(
                self.notes[note_id],
                self.words[note_id],
                self.policy,
                counter_for(self.policy),
                partial(self.units, note_id),
            )
        return known

    def cost_of_all(self, note_ids: Iterable[str]) -> int:
        """Tokens that these notes cost together. At most ``COUNTED_AT_ONCE`` of them are counted anew; those beyond are
        taken to cost what the counted ones do by their size, until a later call has counted them too."""
        counted = counted_size = waiting_size = news = 0
        for note_id in note_ids:
            if note_id not in self._costs:
                news += 1
                if news > COUNTED_AT_ONCE:
                    waiting_size += self.notes[note_id].size
                    continue
            counted += self.cost(note_id)
            counted_size += self.notes[note_id].size
        return counted + (waiting_size * counted // max(1, counted_size))

    def units(self, note_id: str, line: str) -> int:
        """What this line of a note adds to a block; counted again only when the line has become another.

        The line is remembered by its hash: the words of a note must not stay behind in a cache.
        """
        counter = counter_for(self.policy)
        name = hash((line, counter.name))
        known = self._units.get(note_id)
        if known is None or known[0] != name:
            known = self._units[note_id] = name, line_units(counter, line)
        return known[1]

    def active(self, caller: Caller, now: int) -> View:
        """The notes that are active at ``now`` and that this caller may see, by strength; read without a walk."""
        own = [owner for owner in (caller.session, caller.team, *caller.owners) if owner]
        scopes: tuple[Scope, ...] = ("session", "team")
        places: list[tuple[Scope, str | None]] = [("workspace", None)]
        places += [(scope, owner) for owner in own for scope in scopes]
        return self._active.view(now, None if caller.role == "human" else places, self.audience(caller))

    def visible_live(self, caller: Caller, now: int, ids: Iterable[str] | None = None) -> Iterator[Note]:
        """Those notes that this caller may see whose state settled at ``now`` is live."""
        for note_id in self.notes if ids is None else ids:
            note = self.live_note(note_id, caller, now)
            if note is not None:
                yield note

    def concerning(self, paths: Sequence[str]) -> Iterable[str]:
        """The ids of all live notes that may have to do with one of the paths, in no order."""
        found = self.pathed.candidates(paths)
        for path in paths:
            words = words_of_mention(path)
            if words is None:
                return self.notes
            found |= self.live.contains_all_words(words)
        return found

    def triggered_by(self, occasion: Occasion, caller: Caller, now: int) -> Iterator[tuple[Note, Trigger]]:
        """The live notes that the occasion asks for, with the trigger it matched; costs what matches."""
        for note_id in self.triggered.candidates(occasion):
            trigger = matching(self.words[note_id], occasion)
            if trigger is not None and (note := self.live_note(note_id, caller, now)) is not None:
                yield note, trigger

    def live_note(self, note_id: str, caller: Caller, now: int) -> Note | None:
        """The note settled at ``now`` if it is live then and this caller may see it."""
        note = self.settled(note_id, now)
        if note is None or note.state not in LIVE or not visible(note, caller, self.policy):
            return None
        return note

    def visible_ended(self, caller: Caller, now: int, ids: Iterable[str]) -> Iterator[Note]:
        """Ended but not forgotten notes the caller may see; for deterrents, warnings and explicit expansion only."""
        for note_id in ids:
            note = self.settled(note_id, now)
            if note is None or note.state in LIVE or note.state == "forgotten":
                continue
            if visible(note, caller, self.policy):
                yield note

    def overdue(self, now: int) -> bool:
        """Whether there are notes filed as live that time has moved on at ``now`` and no event has."""
        if now < self._soonest:
            return False
        living = self.live.seen()
        self._soonest = float(self.live.standings.until[living].min(initial=math.inf))
        return now >= self._soonest

    def audience(self, caller: Caller) -> Callable[[Group], bool]:
        """Whether this caller may see the notes of a group: for an index to leave the others out at once.

        Whoever reads still asks of each note, ``live_note`` or ``visible_ended``: this is the faster question only.
        """
        known = self._audiences.get((caller, self.policy_version))
        if known is None:
            if len(self._audiences) >= MAX_AUDIENCES:
                self._audiences.clear()
            known = self._audiences[caller, self.policy_version] = Audience(caller, self.policy)
        return known.__getitem__

    def holder_of_text(self, text: Text) -> str | None:
        """The note that holds this text as folded (time may have ended it since)."""
        holder = self._texts.get(hash(text))
        if holder is None or text_of(self.notes[holder], self.words[holder]) != text:
            return None
        return holder

    def holder_of_slot(self, slot: Slot) -> str | None:
        """The note that holds this slot as folded (time may have ended it since)."""
        return self._slots.get(slot)


_NO_REASONS: Final[dict[str, str]] = {}


def _share(note: Note, words: Words) -> None:
    """Let equal values of a note be one object: decoding makes each anew, two hundred bytes a note."""
    share = msgspec.structs.force_setattr
    for name in ("ref_at", "state_at"):
        if getattr(note, name) == note.created_at:
            share(note, name, note.created_at)
    for name in ("owner", "author"):
        if (text := getattr(note, name)) is not None:
            share(note, name, sys.intern(text))
    if not words.reasons:
        share(words, "reasons", _NO_REASONS)


def text_of(note: Note, words: Words) -> Text:
    """What makes two live notes the same text."""
    return note.scope, note.owner, note.kind, words.content


def group_of(note: Note) -> Group:
    """All that decides who may see a note (``callers.visible``)."""
    return note.scope, note.owner, note.kind


def class_of(note: Note) -> Class:
    """All that decides where a recall puts a note, but for its words and its age."""
    return note.kind, note.provenance, note.pinned, note.state


def slot_of(note: Note, key: str) -> Slot:
    """What makes two live notes the same slot."""
    return note.scope, note.owner, key
