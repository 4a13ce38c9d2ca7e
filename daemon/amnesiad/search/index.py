"""BM25 over the words of one set of notes, in memory: put, drop, score.

Every note has a slot, a small integer; ``postings`` tells which slots hold which term. A put only queues the note, and
whatever asks first reads the queue: a write costs next to nothing and is found all the same as soon as ``put`` returns.
A drop marks the slot dead, so the note is gone when ``drop`` returns; its postings, numbers without words, are taken
out later, shard by shard, and only then is the slot given to another note. Every score is made from the notes that are
there at that moment, whether they came now or long ago. BM25 after Robertson and Zaragoza (2009).

What notes are chosen by beside their words stands by slot too (``standing``), for ``choice`` to read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from amnesiad.core.notes import Words
from amnesiad.search.foremost import foremost, nth_best
from amnesiad.search.groups import Groups
from amnesiad.search.postings import SHARDS, TF_BITS, TF_MAX, Flags, Postings, Row
from amnesiad.search.standing import NO_STANDING, Standing, Standings
from amnesiad.search.terms import accent_terms, query_terms, required_terms, terms

K1: Final = 1.2
B: Final = 0.75

MAX_QUERY_TERMS: Final = 64
"""A longer query is looked up by its rarest terms: a pasted document must not walk through every posting there is."""

ACCENT_SHARE: Final = 0.5
"""What a word with other accents than the query's counts, of what the very word counts: it is found, and comes
behind."""

QUEUE: Final = 64
QUEUE_CHARS: Final = 16 * 1024
"""Notes that may wait to be indexed, and how much they may say: whoever asks next pays for them, two milliseconds."""
FIRST_CHUNK: Final = 128
"""Results sorted at first; each time they do not suffice, four times as many. Most readers stop within the first."""
DEAD: Final = 256
DEAD_SHARE: Final = 8
"""Dead slots are swept out when they are more than 256 and more than the eighth part of the living."""
SPARSE: Final = 8
"""Fewer postings than the eighth part of all slots are summed by sorting them, more by an array of all slots."""
COMMON: Final = 2000
"""Notes from which on a term is worth leaving out: shorter rows are summed faster than the attempt takes."""
ORDER_BYTES: Final = 6
"""Of an id, as a number by which ids may be ordered first: so many a double holds exactly."""

Slots = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float64]


class Layer(NamedTuple):
    """Notes that a query found, by slot, in no order. All others it found score less than ``reach``."""

    slots: Slots
    scores: Scores
    reach: float


class Index:
    """The notes of one workspace that are alike in one respect (live, or ended), by their words."""

    def __init__(self) -> None:
        self._queue: dict[str, tuple[Words, Hashable, Standing]] = {}
        self._queued_chars = 0
        self._slots: dict[str, int] = {}
        self._postings = Postings()
        # By slot.
        self.ids: list[str] = []
        self.standings = Standings()
        self._alive: Flags = np.zeros(0, np.bool_)
        self._lengths: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)
        self.order: Scores = np.zeros(0, np.float64)
        """The higher, the earlier the id, as far as its first letters tell."""
        self._group: Slots = np.zeros(0, np.intp)
        self._groups = Groups()
        self._total_length = 0
        # Whether a note may hold a word with accents; most workspaces never do.
        self._accented = False
        self._norms_known: Scores | None = None
        # Slots that may be given away; that died; and that died before the sweep under way began.
        self._free: list[int] = []
        self._dead: list[int] = []
        self._leaving: list[int] = []
        self._swept = SHARDS

    def __len__(self) -> int:
        return len(self._slots) + len(self._queue)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._slots or id_ in self._queue

    def put(self, id_: str, words: Words, group: Hashable = None, standing: Standing = NO_STANDING) -> None:
        """Index content, key, tags and anchor paths under the id, in place of what it was indexed by before.

        ``group`` is what ``score`` lets a reader tell notes apart by, before any of them is looked at; ``standing`` is
        what ``choice`` chooses by.
        """
        self.drop(id_)
        self._queue[id_] = words, group, standing
        self._queued_chars += len(words.content)
        if len(self._queue) > QUEUE or self._queued_chars > QUEUE_CHARS:
            self._read_queue()

    def stand(self, id_: str, standing: Standing) -> None:
        """Change where a note stands that is in here; its words are what they were."""
        queued = self._queue.get(id_)
        if queued is not None:
            self._queue[id_] = queued[0], queued[1], standing
        else:
            self.standings.change(self._slots[id_], standing)

    def drop(self, id_: str) -> None:
        """Take the note out. An unknown id is no error: it is out already."""
        if self._queue.pop(id_, None) is not None:
            return
        slot = self._slots.pop(id_, None)
        if slot is None:
            return
        self.ids[slot] = ""
        self._alive[slot] = False
        self._groups.leave(int(self._group[slot]))
        self.standings.drop(slot)
        self._total_length -= int(self._lengths[slot])
        self._norms_known = None
        self._dead.append(slot)
        self._sweep()

    def _read_queue(self) -> None:
        if not self._queue:
            return
        every: list[str] = []
        slots: list[int] = []
        lengths: list[int] = []
        groups: list[int] = []
        order: list[int] = []
        for id_, (words, group, _) in self._queue.items():
            text = _text(words)
            found = terms(text)
            every += found
            self._accented = self._accented or not text.isascii()
            slot = self._free.pop() if self._free else self._new_slot()
            slots.append(slot)
            lengths.append(len(found))
            self._slots[id_] = slot
            self.ids[slot] = id_
            groups.append(self._groups.join(group))
            order.append(-int.from_bytes(id_.encode()[:ORDER_BYTES].ljust(ORDER_BYTES, b"\0")))
        self._alive[slots] = True
        self._lengths[slots] = lengths
        self._group[slots] = groups
        self.order[slots] = order
        self.standings.put(slots, [standing for _, _, standing in self._queue.values()])
        self._total_length += len(every)
        numbers = np.fromiter(map(hash, every), np.int64, len(every))
        self._postings.add(numbers, np.repeat(np.array(slots, np.uint32), lengths))
        self._queue.clear()
        self._queued_chars = 0
        self._norms_known = None
        self._sweep()

    def _new_slot(self) -> int:
        slot = len(self.ids)
        self.ids.append("")
        if slot == len(self._alive):
            more = max(QUEUE, slot // 4)
            self._alive = np.concatenate((self._alive, np.zeros(more, np.bool_)))
            self._lengths = np.concatenate((self._lengths, np.zeros(more, np.uint32)))
            self.order = np.concatenate((self.order, np.zeros(more, np.float64)))
            self._group = np.concatenate((self._group, np.zeros(more, np.intp)))
            self.standings.grow(more)
        return slot

    def _sweep(self) -> None:
        """Take the dead out of one more shard, if there are enough of them to begin with."""
        if self._swept == SHARDS:
            if len(self._dead) <= max(DEAD, len(self._slots) // DEAD_SHARE):
                return
            # Nothing of theirs may come into a shard behind the sweep.
            self._postings.distribute()
            self._leaving, self._dead = self._dead, []
            self._swept = 0
        self._postings.purge(self._swept, self._alive)
        self._swept += 1
        if self._swept == SHARDS:
            self._free += self._leaving
            self._leaving = []

    def score(
        self,
        query: str,
        among: Callable[[Any], bool] | None = None,
        *,
        classes: Callable[[Any], bool] | None = None,
        max_terms: int = MAX_QUERY_TERMS,
    ) -> Iterator[tuple[str, float]]:
        """Every note that shares a term with the query, with its relevance, best first.

        ``among`` tells for each group, once, whether its notes are wanted, and ``classes`` for each class, as it is
        recorded. Their scores are the same as without.

        Ordered by score descending, then id, and found and sorted only as far as it is read: filter what comes, and
        stop when there is enough. Read it before the index changes. Of more than ``max_terms`` terms only the rarest
        are looked up. Scores are above 0.
        """
        self._read_queue()
        wanted = None if classes is None else self.standings.classes.wanted(classes)
        for slots, scores, _ in self.layers(query, among, max_terms=max_terms):
            if wanted is not None:
                keep = wanted[self.standings.numbers[slots]]
                slots, scores = slots[keep], scores[keep]
            yield from self._best_first(slots, scores)

    def layers(
        self, query: str, among: Callable[[Any], bool] | None = None, *, max_terms: int = MAX_QUERY_TERMS
    ) -> Iterator[Layer]:
        """What ``score`` yields, by slot and in no order: the best at once, all others if they are asked for."""
        self._read_queue()
        asked = [(row, 1.0) for term in query_terms(query) if len(row := self._row(term))]
        if self._accented or not query.isascii():
            asked += [(row, ACCENT_SHARE) for term in accent_terms(query) if len(row := self._row(term))]
        # Rarest first: what is left out costs least, and sums are made in one order whatever is left out.
        asked.sort(key=lambda one: len(one[0]))
        rows = [row for row, _ in asked[:max_terms]]
        weights = [share * self._weight(len(row)) for row, share in asked[:max_terms]]
        if among is not None and (wanted := self._groups.wanted(among)) is not None:
            rows = [row[wanted[self._group[row >> TF_BITS]]] for row in rows]
        return self._walk(rows, weights)

    def everything(self, among: Callable[[Any], bool] | None = None) -> Slots:
        """The slots of all notes, or of those whose groups are wanted."""
        return np.flatnonzero(self.seen(among))

    def seen(self, among: Callable[[Any], bool] | None = None) -> Flags:
        """By slot, whether there is a note whose group is wanted."""
        self._read_queue()
        if among is None or (wanted := self._groups.wanted(among)) is None:
            return self._alive
        return self._alive & wanted[self._group]

    def slots(self, ids: Sequence[str]) -> Slots:
        """The slots of these notes; all of them must be in here."""
        self._read_queue()
        return np.array([self._slots[id_] for id_ in ids], np.intp)

    def _row(self, term: str) -> Row:
        """The postings of the living."""
        row = self._postings.row(hash(term))
        if self._dead or self._leaving:
            row = row[self._alive[row >> TF_BITS]]
        return row

    def _walk(self, rows: list[Row], weights: list[float]) -> Iterator[Layer]:
        if not any(map(len, rows)):
            return
        reach = math.inf
        pruned = self._prune(rows, weights)
        if pruned is not None:
            reach, few = pruned
            slots, scores = self._sum(few, weights)
            enough = scores >= reach
            yield Layer(slots[enough], scores[enough], reach)
        slots, scores = self._sum(rows, weights)
        left = scores < reach
        yield Layer(slots[left], scores[left], 0.0)

    def _weight(self, found: int) -> float:
        """What a term that so many notes hold adds to a score at most."""
        return (K1 + 1) * math.log(1 + (len(self._slots) - found + 0.5) / (found + 0.5))

    def _prune(self, rows: list[Row], weights: list[float]) -> tuple[float, list[Row]] | None:
        """A score that at least ``FIRST_CHUNK`` notes reach, and the rows cut down to those that may reach it.

        After MaxScore (Turtle and Flood, 1995): where the rare terms alone lift enough notes above all that the common
        ones can add, notes with only the common ones need not be looked at. ``None`` where it would not pay.
        """
        for split in range(1, len(rows)):
            rest = sum(weights[split:])
            if len(rows[split]) < COMMON or sum(map(len, rows[:split])) < FIRST_CHUNK or rest >= sum(weights[:split]):
                continue
            slots, scores = self._sum(rows[:split], weights)
            if len(scores) < FIRST_CHUNK:
                continue
            reach = nth_best(scores, FIRST_CHUNK)
            if reach > rest:
                may = np.zeros(len(self.ids), np.bool_)
                may[slots[scores + rest >= reach]] = True
                return reach, [row[may[row >> TF_BITS]] for row in rows]
        return None

    def _sum(self, rows: list[Row], weights: list[float]) -> tuple[Slots, Scores]:
        """The slots in these rows, each once, and their BM25 scores, summed in the order of the rows."""
        every = np.concatenate(rows)
        slots = (every >> TF_BITS).astype(np.intp)
        parts = (every & TF_MAX).astype(np.float64)
        norms = self._norms()[slots]
        norms += parts
        parts /= norms
        start = 0
        for row, weight in zip(rows, weights, strict=False):
            parts[start : start + len(row)] *= weight
            start += len(row)
        if len(rows) == 1:
            return slots, parts
        if len(every) * SPARSE < len(self.ids):
            touched, inverse = np.unique(slots, return_inverse=True)
            return touched, np.bincount(inverse, parts).astype(np.float64, copy=False)
        sums = np.bincount(slots, parts).astype(np.float64, copy=False)
        touched = np.flatnonzero(sums)
        return touched, sums[touched]

    def _norms(self) -> Scores:
        """By slot: what a note's length adds to the divisor of BM25."""
        if self._norms_known is None:
            norms = self._lengths.astype(np.float64)
            norms *= K1 * B * len(self._slots) / self._total_length
            norms += K1 * (1 - B)
            self._norms_known = norms
        return self._norms_known

    def _best_first(self, slots: Slots, scores: Scores) -> Iterator[tuple[str, float]]:
        ids = self.ids
        size = FIRST_CHUNK
        while len(scores):
            chosen = foremost(scores, self.order[slots], size)
            chunk = zip((-scores[chosen]).tolist(), slots[chosen].tolist(), strict=True)
            for score, id_ in sorted([(score, ids[slot]) for score, slot in chunk]):
                yield id_, -score
            scores, slots = scores[~chosen], slots[~chosen]
            size *= 4

    def contains_all_words(self, query: str) -> set[str]:
        """The ids of all notes in which every word of the query occurs; none for a query without a word.

        Words are wholes: ``user`` finds ``user_name``, ``user_name`` does not find ``user``. A run of an unspaced
        script occurs where all its pairs of neighbors do.
        """
        words = required_terms(query)
        return {self.ids[slot] for slot in self._with_all(words).tolist()} if words else set()

    def narrowed(self, texts: Sequence[str]) -> Flags | None:
        """By slot, which notes may hold all of these texts, as far as their words tell; ``None`` for all of them."""
        words = [word for text in texts for word in required_terms(text)]
        if not words:
            return None
        slots = self._with_all(words)
        flags = np.zeros(len(self.ids), np.bool_)
        flags[slots] = True
        return flags

    def _with_all(self, words: Sequence[str]) -> Slots:
        self._read_queue()
        rarest, *rows = sorted(map(self._row, words), key=len)
        common: Slots = (rarest >> TF_BITS).astype(np.intp)
        for row in rows:
            if not len(common):
                break
            held = np.zeros(len(self.ids), np.bool_)
            held[common] = True
            slots = row >> TF_BITS
            common = slots[held[slots]].astype(np.intp)
        return common


def _text(words: Words) -> str:
    """Everything about a note that a query may find it by."""
    if not (words.key or words.tags or words.anchors):
        return words.content
    return "\n".join((words.content, words.key or "", *words.tags, *(anchor.path for anchor in words.anchors)))
