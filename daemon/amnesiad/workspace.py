"""The projection of one workspace: what the log says, held in memory, so that reads cost no walk through the store.

It loads heads and words, follows the log, takes in our own commits at once, and answers questions about notes at an
instant. It is derived and disposable: everything here can be thrown away and loaded again. It decides nothing (that is
``core``) and writes nothing (that is ``store.log``).

Position: ``position`` is a stream id such that every event up to it is reflected here. A commit of ours that directly
follows it moves it on; anything else waits for ``catch_up`` to read the log. Versions make both orders safe.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from amnesiad.core import clocks
from amnesiad.core.callers import Caller, visible
from amnesiad.core.events import PolicyChanged, Provenance, Revoked, Scope, Scrubbed, Superseded
from amnesiad.core.inject import line_units, note_cost
from amnesiad.core.intake import NOTE_ID_LENGTH
from amnesiad.core.kinds import Kind
from amnesiad.core.notes import LIVE, Anchor, Note, State, Trigger, Words, decode_words
from amnesiad.core.pathindex import PathIndex, words_of_mention
from amnesiad.core.policy import Policy
from amnesiad.core.strongest import Strongest, View
from amnesiad.core.triggerindex import TriggerIndex
from amnesiad.core.triggers import Occasion, matching
from amnesiad.search import Index, Standing, Vectors
from amnesiad.store import vault
from amnesiad.store.connect import Store
from amnesiad.store.keyring import Keyring
from amnesiad.store.keys import Keys
from amnesiad.store.log import READ_COUNT, START, Log, Outcome, at_or_past, seq_key
from amnesiad.store.owners import Owner
from amnesiad.store.policies import read_policy
from amnesiad.store.witness import Witness
from amnesiad.tokens import counter_for

Text = tuple[str, str | None, str, str]
Slot = tuple[str, str | None, str]
Group = tuple[Scope, str | None, Kind]
Class = tuple[Kind, Provenance, bool, State]

COUNTED_AT_ONCE: Final = 500
"""Notes whose tokens one look at the whole workspace may count: some 30 ms, during which nobody else is answered."""
RETRACTED: Final = frozenset({"revoked", "superseded"})
"""States of notes that somebody took back; whoever was shown one may have to be told."""
MAX_RETRACTED: Final = 4096
"""Retractions that are remembered in their order, for those who ask only for what is new."""
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


class Workspace:
    """One workspace as this process knows it. One event loop; not shared between threads."""

    def __init__(self, name: str, ws: str, redis: Store, keyring: Keyring, base: Policy) -> None:
        self.name = name
        self.ws = ws
        self.redis = redis
        self.keyring = keyring
        self.keys = Keys(ws)
        self.log = Log(redis, self.keys)
        self.witness = Witness(redis, self.keys)
        self.base = base
        self.policy = base
        self.policy_version = 0
        self.overrides: dict[str, object] = {}
        self.owners: dict[str, Owner] = {}
        self.signs: dict[str, int] = {}
        self.last_injection: tuple[int, int, int] | None = None
        """Of this process: notes, tokens, epoch ms."""
        self.used_at = 0
        self.found_at = 0
        """When its name was last looked up (epoch ms)."""
        self.vectors: Vectors | None = None
        """Of the live notes; ``None`` where search goes by words alone. Whoever fills it sets it before ``load``."""
        self.retractions = 0
        """How many notes were taken back, as this process heard of it; what it loads anew may hide some more."""
        self._catching_up = asyncio.Lock()
        self._clear()

    def _clear(self) -> None:
        self.position = START
        self.notes: dict[str, Note] = {}
        self.words: dict[str, Words] = {}
        self.use: dict[str, Use] = {}
        self.due: dict[str, int] = {}
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
        self.retractions += 1
        self._retracted: deque[str] = deque(maxlen=MAX_RETRACTED)
        self.bytes = {"perishable": 0, "record": 0}
        self._audiences: dict[tuple[Caller, int], Audience] = {}
        # By hash alone: the text itself stands in the note's words already.
        self._texts: dict[int, str] = {}
        self._slots: dict[Slot, str] = {}
        self._ahead: dict[str, str] = {}
        self._ahead_bound = READ_COUNT
        self._absorbed: dict[str, int] = {}

    # -- following the log ---------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything anew. Raises ``NotFound`` when the workspace was dropped, ``StoreUnavailable``."""
        async with self._catching_up:
            await self._load()
        await self.catch_up()

    async def _load(self) -> None:
        position = await self.log.last_id()
        # Whatever its version: a store that was put back to an older copy has an older policy.
        self.policy, self.policy_version, self.overrides = await read_policy(self.redis, self.keys, self.base)
        self._clear()
        counters = await vault.use_counters(self.redis, self.keys)
        self.use = {note_id: Use(count, last_at) for note_id, (count, last_at) in counters.items()}
        async for page in vault.scan(self.redis, self.keys):
            self._take(page)
        self.use = {note_id: use for note_id, use in self.use.items() if note_id in self.notes}
        by_end = sorted(self.ended_perishables, key=lambda id_: (self.notes[id_].state_at, id_))
        self.ended_perishables = dict.fromkeys(by_end)
        self.position = position

    async def reload_policy(self) -> None:
        """Read the policy anew, and with it when each note is due: the one permitted scan.

        What was read is dropped if a later policy was taken in meanwhile: with an older one every write would conflict.
        """
        effective = await read_policy(self.redis, self.keys, self.base)
        if effective.version < self.policy_version:
            return
        self.policy, self.policy_version, self.overrides = effective
        self._costs.clear()
        self._active = self._ranking()
        for note in self.notes.values():
            (self.live if note.live else self.ended).stand(note.id, self._file(note))
            if note.state == "active":
                self._active.put(note)

    async def _update(self, ids: Iterable[str]) -> None:
        """Bring these notes up to date with the store."""
        self._take(await vault.standing(self.redis, self.keys, list(ids)))

    def _take(self, found: Mapping[str, vault.Standing]) -> None:
        """Take in notes as they stand in the store; one without a head is gone."""
        for id_, (raw_head, raw_words) in found.items():
            if raw_head is None:
                self._remove(id_)
                continue
            head = vault.read_head(id_, raw_head)
            if isinstance(head, vault.Unreadable):
                self.set_aside(id_, head.problem)
                continue
            known = self.notes.get(id_)
            if known is not None and known.version > head.note.version:
                continue
            if self._absorbed.get(id_, -1) >= head.note.version:
                continue
            try:
                text = None if raw_words is None else decode_words(raw_words)
            except msgspec.MsgspecError:
                text = None
            if text is None:
                self.set_aside(id_, "words: missing or malformed")
            else:
                self._put(head.note, text)

    async def reread(self, ids: Iterable[str]) -> None:
        """Read notes anew that were set aside: what was damaged may have been mended since."""
        async with self._catching_up:
            await self._update(ids)

    def set_aside(self, note_id: str, problem: str) -> None:
        """A note that cannot be read is shown nowhere and named by verify; it stops nothing else."""
        self._remove(note_id)
        self.unreadable[note_id] = problem

    async def catch_up(self) -> bool:
        """Read the log forward to its end. Returns whether there was anything new.

        If the log ends before our position the store has lost its tail (restored from an older copy, or dropped and
        made anew): then everything is loaded again.
        """
        async with self._catching_up:
            moved = False
            before = self.position
            last = await self.log.last_id()
            # Held against where we stood when we asked: a commit of ours may have moved us past the answer meanwhile.
            if not at_or_past(last, before):
                await self._load()
                moved = True
                last = await self.log.last_id()
            if last == START:
                # Nothing tells an empty log from that of a workspace which was dropped, but the policy cell.
                await self.reload_policy()
            self._absorbed = {}
            try:
                while last != self.position:
                    page = await self.log.read(self.position, READ_COUNT)
                    if not page:
                        break
                    moved = True
                    touched: dict[str, None] = {}
                    retracted = [one.event.note for one in page if isinstance(one.event, Revoked | Superseded)]
                    for entry in page:
                        if isinstance(entry.event, PolicyChanged):
                            await self.reload_policy()
                        elif not isinstance(entry.event, Scrubbed):
                            known = self.notes.get(entry.event.note)
                            if known is None or known.version < entry.event.version:
                                touched[entry.event.note] = None
                    await self._update(touched)
                    self._retract(retracted)
                    self._advance(page[-1].seq)
                    if at_or_past(self.position, last):
                        break
            finally:
                self._absorbed = {}
            return moved

    def absorb(self, outcome: Outcome, changes: Iterable[tuple[Note, Words | None]]) -> None:
        """Take in our own commit: the notes after it, with their words (``None`` for forgotten ones)."""
        for note, words in changes:
            known = self.notes.get(note.id)
            self._absorbed[note.id] = note.version
            if known is not None and known.version > note.version:
                continue
            if note.state == "forgotten" or words is None:
                self._remove(note.id)
            else:
                self._put(note, words)
            if note.state in RETRACTED:
                self._retract([note.id])
        if outcome.status == "ok":
            self._ahead[outcome.previous] = outcome.seq
            self._advance(self.position)

    def _advance(self, position: str) -> None:
        if at_or_past(position, self.position):
            self.position = position
        while (following := self._ahead.pop(self.position, None)) is not None:
            self.position = following
        if len(self._ahead) > self._ahead_bound:
            here = seq_key(self.position)
            self._ahead = {frm: to for frm, to in self._ahead.items() if seq_key(frm) > here}
            # Behind an entry of others all of them may have to stay, until somebody reads.
            self._ahead_bound = max(READ_COUNT, 2 * len(self._ahead))

    def _retract(self, ids: Sequence[str]) -> None:
        self._retracted.extend(ids)
        self.retractions += len(ids)

    def retracted_since(self, retractions: int) -> list[str] | None:
        """The notes taken back since the count ``retractions`` stood at this; ``None`` where that is not known any more.

        One that is named may have been named before, and may stand again.
        """
        news = self.retractions - retractions
        if news > len(self._retracted):
            return None
        return list(islice(reversed(self._retracted), max(0, news)))

    # -- the notes -----------------------------------------------------------------------------------------------

    def _put(self, note: Note, words: Words) -> None:
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

    def _remove(self, note_id: str) -> None:
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

    def _ranking(self) -> Strongest:
        return Strongest(self.policy, self.due.get, self.last_access)

    def last_access(self, note_id: str) -> int:
        """When the note was last shown (epoch ms), 0 for never."""
        use = self.use.get(note_id)
        return 0 if use is None else use.last_at

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
        """The one way to read notes: those this caller may see whose state settled at ``now`` is live."""
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

    async def matching_ids(self, prefix: str) -> list[str]:
        """Every id ever issued here that begins with ``prefix``, forgotten ones included, sorted."""
        if len(prefix) == NOTE_ID_LENGTH:
            return [prefix]
        found = {id_ for id_ in self.notes if id_.startswith(prefix)}
        found.update(id_ for id_ in self.unreadable if id_.startswith(prefix))
        return sorted(found | await vault.forgotten_ids(self.redis, self.keys, prefix))


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
