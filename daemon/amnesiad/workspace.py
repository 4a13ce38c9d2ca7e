"""One workspace as this process knows it: its projection, kept up with the log.

It loads heads and words, follows the log, and takes in our own commits at once; the questions are answered by
``projection``, which it extends. It decides nothing (that is ``core``) and writes nothing (that is ``store.log``).

Position: ``position`` is a stream id such that every event up to it is reflected here. A commit of ours that directly
follows it moves it on; anything else waits for ``catch_up`` to read the log. Versions make both orders safe.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from amnesiad.core.events import PolicyChanged, Revoked, Scrubbed, Superseded
from amnesiad.core.intake import NOTE_ID_LENGTH
from amnesiad.core.notes import Note, Words, decode_words
from amnesiad.core.policy import Policy
from amnesiad.projection import Projection, Use
from amnesiad.store import vault
from amnesiad.store.connect import Store
from amnesiad.store.keyring import Keyring
from amnesiad.store.keys import Keys
from amnesiad.store.log import READ_COUNT, START, Entry, Log, Outcome, at_or_past, seq_key
from amnesiad.store.owners import Owner
from amnesiad.store.policies import read_policy
from amnesiad.store.witness import Witness

RETRACTED: Final = frozenset({"revoked", "superseded"})
"""States of notes that somebody took back; whoever was shown one may have to be told."""
MAX_RETRACTED: Final = 4096
"""Retractions that are remembered in their order, for those who ask only for what is new."""
MAX_OWNERS: Final = 4096
"""Owners whose cells, and whose latest signs of life, are known here: those of a busy machine's week. Any other is read
anew."""
V = TypeVar("V")


class Recent(OrderedDict[str, V]):
    """A mapping that holds at most ``limit`` entries: those set last."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: str, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._limit:
            self.popitem(last=False)


class Workspace(Projection):
    """One workspace. One event loop; not shared between threads."""

    def __init__(self, name: str, ws: str, redis: Store, keyring: Keyring, base: Policy) -> None:
        super().__init__(base)
        self.name = name
        self.ws = ws
        self.redis = redis
        self.keyring = keyring
        self.keys = Keys(ws)
        self.log = Log(redis, self.keys)
        self.witness = Witness(redis, self.keys)
        self.base = base
        self.overrides: dict[str, object] = {}
        self.owners: Recent[Owner] = Recent(MAX_OWNERS)
        """As last read or written. What is needed at an instant is looked for then: it may have given way meanwhile."""
        self.signs: Recent[int] = Recent(MAX_OWNERS)
        self.last_injection: tuple[int, int, int] | None = None
        """Of this process: notes, tokens, epoch ms."""
        self.used_at = 0
        self.found_at = 0
        """When its name was last looked up (epoch ms)."""
        self.position = START
        self.retractions = 0
        """How many notes were taken back, as this process heard of it; what it loads anew may hide some more."""
        self._retracted: deque[str] = deque(maxlen=MAX_RETRACTED)
        self._ahead: dict[str, str] = {}
        self._ahead_bound = READ_COUNT
        self._absorbed: dict[str, int] = {}
        self._catching_up = asyncio.Lock()

    # -- following the log ---------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything anew. Raises ``NotFound`` when the workspace was dropped, ``StoreUnavailable``."""
        async with self._catching_up:
            await self._load()
        await self.catch_up()

    async def _load(self) -> None:
        position = await self.log.last_id()
        effective = await read_policy(self.redis, self.keys, self.base)
        self.clear()
        self.position = START
        self.retractions += 1
        self._retracted.clear()
        self._ahead, self._ahead_bound, self._absorbed = {}, READ_COUNT, {}
        # Whatever its version: a store that was put back to an older copy has an older policy.
        self.overrides = effective.overrides
        self.govern(effective.policy, effective.version)
        counters = await vault.use_counters(self.redis, self.keys)
        self.use = {note_id: Use(count, last_at) for note_id, (count, last_at) in counters.items()}
        async for page in vault.scan(self.redis, self.keys):
            self._take(page)
        self.use = {note_id: use for note_id, use in self.use.items() if note_id in self.notes}
        by_end = sorted(self.ended_perishables, key=lambda id_: (self.notes[id_].state_at, id_))
        self.ended_perishables = dict.fromkeys(by_end)
        self.position = position

    async def reload_policy(self) -> None:
        """Read the policy anew, and with it when each note is due.

        What was read is dropped if a later policy was taken in meanwhile: with an older one every write would conflict.
        """
        effective = await read_policy(self.redis, self.keys, self.base)
        if effective.version < self.policy_version:
            return
        self.overrides = effective.overrides
        self.govern(effective.policy, effective.version)

    async def _update(self, ids: Iterable[str]) -> None:
        """Bring these notes up to date with the store."""
        self._take(await vault.standing(self.redis, self.keys, list(ids)))

    def _take(self, found: Mapping[str, vault.Standing]) -> None:
        """Take in notes as they stand in the store; one without a head is gone."""
        for id_, (raw_head, raw_words) in found.items():
            if raw_head is None:
                self.remove(id_)
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
                self.put(head.note, text)

    async def reread(self, ids: Iterable[str]) -> None:
        """Read notes anew that were set aside: what was damaged may have been mended since."""
        async with self._catching_up:
            await self._update(ids)

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
                while last != self.position and (page := await self.log.read(self.position, READ_COUNT)):
                    moved = True
                    await self._follow(page)
                    if at_or_past(self.position, last):
                        break
            finally:
                self._absorbed = {}
            return moved

    async def _follow(self, page: Sequence[Entry]) -> None:
        events = [entry.event for entry in page]
        if any(isinstance(event, PolicyChanged) for event in events):
            await self.reload_policy()
        touched: dict[str, None] = {}
        for event in events:
            if not isinstance(event, PolicyChanged | Scrubbed):
                known = self.notes.get(event.note)
                if known is None or known.version < event.version:
                    touched[event.note] = None
        await self._update(touched)
        self._retract([event.note for event in events if isinstance(event, Revoked | Superseded)])
        self._advance(page[-1].seq)

    def absorb(self, outcome: Outcome, changes: Iterable[tuple[Note, Words | None]]) -> None:
        """Take in our own commit: the notes after it, with their words (``None`` for forgotten ones)."""
        for note, words in changes:
            known = self.notes.get(note.id)
            self._absorbed[note.id] = note.version
            if known is not None and known.version > note.version:
                continue
            if note.state == "forgotten" or words is None:
                self.remove(note.id)
            else:
                self.put(note, words)
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
        """The notes taken back since the count ``retractions`` stood at this; ``None`` where that is not known any
        more.

        One that is named may have been named before, and may stand again.
        """
        news = self.retractions - retractions
        if news > len(self._retracted):
            return None
        return list(islice(reversed(self._retracted), max(0, news)))

    async def matching_ids(self, prefix: str) -> list[str]:
        """Every id ever issued here that begins with ``prefix``, forgotten ones included, sorted."""
        if len(prefix) == NOTE_ID_LENGTH:
            return [prefix]
        found = {id_ for id_ in self.notes if id_.startswith(prefix)}
        found.update(id_ for id_ in self.unreadable if id_.startswith(prefix))
        return sorted(found | await vault.forgotten_ids(self.redis, self.keys, prefix))
