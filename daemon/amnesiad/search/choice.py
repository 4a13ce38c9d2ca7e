"""The notes among which the first of an order are, found in arrays: only these need to be looked at one by one.

An order first goes by bands of relevance, where there is a query, then by a *worth* that notes of one class share, and
inside a worth by what falls with age, the same way for all notes of one clock: so among those the youngest come first.
What is chosen holds the first notes of the order and few others; whoever asks puts them in order and decides. It is
exact: a whole band and every class is weighed, however large.

A note that is of another class by now than its standing says (``Standing.until``), and every note where standings do
not tell enough (``Asked.certain``), is looked at before it counts for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from amnesiad.search.foremost import Flags, Numbers, foremost, nth_best
from amnesiad.search.index import Index, Layer

LOOKED_AT: Final = 256
"""Doubtful notes that are looked at in one go; each time they were not all, four times as many."""

Places = npt.NDArray[np.intp]


class Worth(NamedTuple):
    """The higher the level, the earlier; inside a level notes of one clock come youngest first, then by id, the highest
    first."""

    level: tuple[float, ...]
    clock: Any


class Asked(NamedTuple):
    """What is asked of notes beside their words. ``now`` is an instant, ``since`` and ``until`` are the first and the
    last of creation; epoch milliseconds."""

    among: Callable[[Any], bool]
    """Whether the notes of a group are wanted."""
    worth: Callable[[Any], Worth | None]
    """What those of a class are worth; ``None`` for a class that is not wanted."""
    look: Callable[[str], Any | None]
    """The class of a note as it is now; ``None`` for one that is not wanted, or not there."""
    now: int
    since: int | None = None
    until: int | None = None
    only: Flags | None = None
    """By slot, what else is wanted of a note."""
    certain: bool = True
    """Whether group, class and creation tell all there is to ask; if not, each note is looked at before it counts."""


def by_worth(index: Index, asked: Asked, limit: int) -> list[str]:
    """Ids, in no order, that hold the first ``limit`` notes by worth."""
    slots = index.everything(asked.among)
    pool = _Pool(index, asked)
    pool.add(Layer(slots, np.zeros(len(slots)), 0.0))
    ahead = limit
    while pool.doubts(few := pool.first(pool.places(), limit)):
        # Those that turn out not to be wanted let as many others move up.
        pool.look(pool.first(pool.places(), ahead))
        ahead *= 4
    return [index.ids[slot] for slot in pool.slots[few].tolist()]


def by_relevance(
    index: Index, layers: Iterator[Layer], asked: Asked, limit: int, *, tie_width: float, cap: int
) -> list[tuple[str, float]]:
    """Ids with their relevance, in no order, that hold the first ``limit`` notes by band, then worth; and the best.

    ``layers`` are what a query found (``Index.layers``), of the groups that are asked for. A band is as wide as this
    share of the best score. No more than ``cap`` notes are weighed: the most relevant, then by id.
    """
    pool = _Pool(index, asked)
    limit, ahead = min(limit, cap), LOOKED_AT
    reach = pool.add(next(layers, _NOTHING))
    while True:
        if reach and not pool.covers(limit, cap, tie_width, reach):
            reach = pool.add(next(layers, _NOTHING))
            continue
        weighed, last = pool.whole_bands(limit, cap, tie_width)
        if not pool.doubts(weighed):
            break
        pool.look(np.union1d(weighed, pool.best(pool.places(), ahead)))
        ahead *= 4
    if not len(weighed):
        return []
    inside = _bands(pool.scores[weighed], float(pool.scores.max()), tie_width) == last
    before = weighed[~inside]
    best = weighed[[np.argmax(pool.scores[weighed])]]
    few = np.unique(np.concatenate((best, before, pool.first(weighed[inside], limit - len(before)))))
    return [
        (index.ids[slot], score)
        for slot, score in zip(pool.slots[few].tolist(), pool.scores[few].tolist(), strict=True)
    ]


def _bands(scores: Numbers, best: float, tie_width: float) -> Numbers:
    """As ``core.recall.band`` has them, of scores above 0."""
    found: Numbers = np.floor((1 - scores / best) / tie_width)
    return found


def _band(score: float, best: float, tie_width: float) -> float:
    return float(_bands(np.array([score]), best, tie_width)[0])


_NOTHING: Final = Layer(np.empty(0, np.intp), np.empty(0, np.float64), 0.0)


class _Pool:
    """The notes that may be chosen, in arrays beside one another; a *place* is an index into them."""

    def __init__(self, index: Index, asked: Asked) -> None:
        self._index = index
        self._asked = asked
        self._worths: dict[int, Worth | None] = index.standings.classes.each(asked.worth)
        # Classes that only a note which was looked at has.
        self._more: dict[Any, int] = {}
        self._wanted = np.zeros(max(self._worths, default=0) + 1, np.bool_)
        self._wanted[[number for number, worth in self._worths.items() if worth is not None]] = True
        self.slots, self.scores = _NOTHING.slots, _NOTHING.scores
        self._numbers: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._doubtful: Flags = np.empty(0, np.bool_)

    def add(self, layer: Layer) -> float:
        """Take in those that may be wanted. Returns the layer's reach."""
        standings, asked = self._index.standings, self._asked
        slots = layer.slots
        numbers = standings.numbers[slots]
        passed = standings.until[slots] <= asked.now
        ends = standings.ends[slots]
        doubtful = passed & ~ends
        keep = (self._wanted[numbers] | doubtful) & ~(passed & ends)
        if asked.only is not None:
            keep &= asked.only[slots]
        if not asked.certain:
            doubtful[:] = True
        if asked.since is not None:
            keep &= standings.created_at[slots] >= asked.since
        if asked.until is not None:
            keep &= standings.created_at[slots] <= asked.until
        scores = layer.scores
        if not keep.all():
            slots, scores, numbers, doubtful = slots[keep], scores[keep], numbers[keep], doubtful[keep]
        if len(self.slots):
            slots, scores = np.concatenate((self.slots, slots)), np.concatenate((self.scores, scores))
            numbers = np.concatenate((self._numbers, numbers))
            doubtful = np.concatenate((self._doubtful, doubtful))
        self.slots, self.scores, self._numbers, self._doubtful = slots, scores, numbers, doubtful
        return layer.reach

    def places(self) -> Places:
        """All of them."""
        return np.arange(len(self.slots))

    def doubts(self, places: Places) -> bool:
        """Whether one of these must be looked at."""
        return bool(self._doubtful[places].any())

    def look(self, places: Places) -> None:
        """Look at those of these that are in doubt. Places are others afterwards."""
        doubtful = places[self._doubtful[places]]
        gone = []
        for place in doubtful.tolist():
            class_ = self._asked.look(self._index.ids[self.slots[place]])
            worth = None if class_ is None else self._asked.worth(class_)
            if worth is None:
                gone.append(place)
                continue
            number = self._more.setdefault(class_, len(self._wanted) + len(self._more))
            self._worths[number] = worth
            self._numbers[place] = number
        self._doubtful[doubtful] = False
        if gone:
            stays = np.ones(len(self.slots), np.bool_)
            stays[gone] = False
            self.slots, self.scores = self.slots[stays], self.scores[stays]
            self._numbers, self._doubtful = self._numbers[stays], self._doubtful[stays]

    def covers(self, limit: int, cap: int, tie_width: float, reach: float) -> bool:
        """Whether no note that scores less than ``reach`` can be among those to be weighed."""
        if len(self.scores) < limit:
            return False
        weighed, last = self.whole_bands(limit, cap, tie_width)
        return len(weighed) == cap or _band(reach, float(self.scores.max()), tie_width) > last

    def whole_bands(self, limit: int, cap: int, tie_width: float) -> tuple[Places, float]:
        """The whole bands that cover the limit, at most ``cap`` notes, and which is the last."""
        if not len(self.scores):
            return np.empty(0, np.intp), 0.0
        best = float(self.scores.max())
        banded = _bands(self.scores, best, tie_width)
        if len(self.scores) <= limit:
            return self.places(), float(banded.max())
        last = _band(nth_best(self.scores, limit), best, tie_width)
        return self.best(np.flatnonzero(banded <= last), cap), last

    def best(self, places: Places, most: int) -> Places:
        """The highest scores of these, equals by id."""
        if len(places) <= most:
            return places
        chosen = places[foremost(self.scores[places], self._index.order[self.slots[places]], most)]
        if len(chosen) > most:
            ids = self._index.ids
            ranked = sorted(chosen.tolist(), key=lambda place: (-self.scores[place], ids[self.slots[place]]))
            chosen = np.array(ranked[:most], np.intp)
        return chosen

    def first(self, places: Places, most: int) -> Places:
        """Those of these among which the first ``most`` by worth are; and those whose worth only a look would tell."""
        if len(places) <= most:
            return places
        numbers = self._numbers[places]
        levels: dict[tuple[float, ...], dict[Any, list[int]]] = {}
        chosen = np.zeros(len(places), np.bool_)
        known = np.bincount(numbers)
        for number in np.flatnonzero(known).tolist():
            worth = self._worths[number]
            if worth is None:
                chosen[numbers == number] = True
            else:
                levels.setdefault(worth.level, {}).setdefault(worth.clock, []).append(number)
        slots = self.slots[places]
        for level in sorted(levels, reverse=True):
            if most <= 0:
                break
            found = 0
            for alike in levels[level].values():
                of_them = np.zeros(len(known), np.bool_)
                of_them[alike] = True
                inside = np.flatnonzero(of_them[numbers])
                found += len(inside)
                made = self._index.standings.created_at[slots[inside]]
                chosen[inside[foremost(made, -self._index.order[slots[inside]], most)]] = True
            most -= found
        return places[chosen]
