"""Active notes in the order in which strength puts them, at any instant, without a walk through all of them. Pure.

Strength falls with time, but among notes whose clocks run alike (same curve, TTL and base; same half-life) the order
never changes. Such notes form a *group*, sorted once. Reading merges the groups: the strength of a group's next note
bounds all that follow it there, so only as many notes are looked at as are asked for, and one more a group.

``clocks.strength`` decides in the end: a group's key is a closed formula that may round differently, so whatever
lies within the clock's ``slack`` of the best is compared by its true strength before it is handed out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush
from itertools import chain, takewhile
from typing import Any, Final, Literal, NamedTuple

from amnesiad.core import clocks
from amnesiad.core.events import Scope
from amnesiad.core.kinds import Kind
from amnesiad.core.notes import Note
from amnesiad.core.ordered import Ordered
from amnesiad.core.policy import Policy

Tier = Literal["pinned", "directive", "rest"]
TIERS: Final[tuple[Tier, ...]] = ("pinned", "directive", "rest")
Audience = tuple[Scope, str | None, Kind]
"""All that decides who may see a note."""
_Order = tuple[float, int, str]
"""As ``strength_order`` gives it."""

SLACK: Final = 1e-12
"""Rounding of the strength itself, as a share of it: some thousand times the spacing of doubles."""
PLACE_ERROR_MS: Final = 4e-3
"""Rounding of a place on the time line, in milliseconds: some ten times the spacing of doubles at such numbers."""


def tier_of(note: Note) -> Tier:
    """Where an active note stands in an injection, the step aside."""
    if note.pinned:
        return "pinned"
    return "directive" if note.kind == "directive" else "rest"


def strength_order(note: Note, policy: Policy, last_access: int, now: int) -> _Order:
    """To be sorted ascending: strongest first, then last shown last, then id."""
    return -clocks.strength(note, policy, now), -last_access, note.id


class _Clock(NamedTuple):
    """What the notes of a group have in common.

    ``point`` is where on it a note stands: ``(-place, -reference, -base)``, ascending from the strongest. Notes of one
    point are equally strong at any time. ``strength`` is ``clocks.strength`` of a note at an instant (epoch ms), with
    what it asks of each note answered once. ``slack`` is by which share a note may be stronger than one before it.
    """

    point: Callable[[Note], tuple[float, float, float]]
    strength: Callable[[Note, int], float]
    slack: float = SLACK


def _clock_of(note: Note, policy: Policy) -> tuple[Any, ...]:
    """The name of the clock that the note's strength follows."""
    if note.pinned:
        return ("still", note.base)
    ttl = clocks.lease_ttl(note, policy)
    if ttl is None:
        half_life = policy.kinds.half_life_ms[note.kind]
        return ("still", 1.0) if half_life is None else ("rank", half_life)
    if note.curve == "ebbinghaus" and note.base > 0:
        return ("ebbinghaus", ttl)
    return ("linear", ttl, note.base) if note.curve == "linear" else ("still", note.base)


def _clock(name: tuple[Any, ...], policy: Policy) -> _Clock:
    steepness = policy.ebbinghaus_k
    match name:
        case ("rank", half_life):
            return _Clock(
                lambda note: (-note.created_at, 0.0, 0.0),
                lambda note, now: clocks.halved(now - note.created_at, half_life),
            )
        case ("linear", ttl, base):
            return _Clock(
                lambda note: (-note.ref_at, 0.0, 0.0),
                lambda note, now: clocks.fallen("linear", base, steepness, max(0, now - note.ref_at) / ttl),
            )
        case ("ebbinghaus", ttl):
            # base * exp(-k * age / ttl): a lower base is the same as an earlier reference.
            lead = ttl / steepness
            return _Clock(
                lambda note: (-(note.ref_at + math.log(note.base) * lead), -note.ref_at, -note.base),
                lambda note, now: clocks.fallen("ebbinghaus", note.base, steepness, max(0, now - note.ref_at) / ttl),
                SLACK + PLACE_ERROR_MS * steepness / ttl,
            )
    _, base = name
    return _Clock(lambda _note: (0.0, 0.0, 0.0), lambda _note, _now: base)


class Strongest:
    """The notes of one workspace that are active, by who may see them, by tier and by clock.

    ``due(id)`` is when time alone ends the note's being active (epoch ms), ``None`` for never; ``last_access(id)`` is
    epoch milliseconds, 0 for never. Neither may change while the note is in here: drop it first, then put it again.
    """

    def __init__(self, policy: Policy, due: Callable[[str], int | None], last_access: Callable[[str], int]) -> None:
        self._policy = policy
        self._due = due
        self._last_access = last_access
        self._shelves: dict[tuple[Scope, str | None], dict[Kind, _Shelf]] = {}
        self._by_due: Ordered[Note] = Ordered(self._due_key)
        self._overdue: dict[str, Note] = {}
        self._seen_at = 0

    def __len__(self) -> int:
        return sum(shelf.size for shelves in self._shelves.values() for shelf in shelves.values())

    def put(self, note: Note) -> None:
        """Take in an active note that is not here."""
        due = self._due(note.id)
        if due is not None:
            if due <= self._seen_at:
                self._overdue[note.id] = note
                return
            self._by_due.add(note)
        self._file(note)

    def drop(self, note: Note) -> None:
        """Take out a note that is here, exactly as it was put in."""
        if self._overdue.pop(note.id, None) is not None:
            return
        if self._due(note.id) is not None:
            self._by_due.remove(note)
        self._unfile(note)

    def shown(self, note: Note, record: Callable[[], None]) -> None:
        """The note's last access changes while ``record`` runs: its place among equals changes with it."""
        if note.id in self._overdue:
            record()
            return
        group = self._group(note)
        group.notes.remove(note)
        record()
        group.notes.add(note)

    def view(
        self, now: int, places: Iterable[tuple[Scope, str | None]] | None, sees: Callable[[Audience], bool]
    ) -> View:
        """The notes that are still active at ``now`` in these places (scope and owner; ``None``: all) and that
        ``sees`` lets through. Read it before anything changes."""
        self._settle(now)
        wanted = self._shelves if places is None else dict.fromkeys(places)
        shelves = [
            shelf
            for scope, owner in wanted
            for kind, shelf in self._shelves.get((scope, owner), {}).items()
            if sees((scope, owner, kind))
        ]
        return View(shelves, now)

    def _due_key(self, note: Note) -> tuple[int, str]:
        return self._due(note.id) or 0, note.id

    def _settle(self, now: int) -> None:
        """Set those aside that time has ended by ``now``; each once, so that an absent worker costs nobody anything."""
        while (note := self._by_due.first()) is not None and self._due_key(note)[0] <= now:
            self._by_due.remove(note)
            self._unfile(note)
            self._overdue[note.id] = note
        if now < self._seen_at:
            # The clock was set back, or somebody asks about the past.
            for note in [one for one in self._overdue.values() if self._due_key(one)[0] > now]:
                del self._overdue[note.id]
                self._by_due.add(note)
                self._file(note)
        self._seen_at = now

    def _file(self, note: Note) -> None:
        shelves = self._shelves.setdefault((note.scope, note.owner), {})
        shelf = shelves.get(note.kind)
        if shelf is None:
            shelf = shelves[note.kind] = _Shelf()
        shelf.size += 1
        groups, name = shelf.tiers[tier_of(note)], _clock_of(note, self._policy)
        group = groups.get(name)
        if group is None:
            group = groups[name] = Group(_clock(name, self._policy), self._last_access)
        group.notes.add(note)

    def _group(self, note: Note) -> Group:
        return self._shelves[note.scope, note.owner][note.kind].tiers[tier_of(note)][_clock_of(note, self._policy)]

    def _unfile(self, note: Note) -> None:
        place = note.scope, note.owner
        shelf = self._shelves[place][note.kind]
        groups, name = shelf.tiers[tier_of(note)], _clock_of(note, self._policy)
        groups[name].notes.remove(note)
        if not len(groups[name].notes):
            del groups[name]
        shelf.size -= 1
        if not shelf.size:
            del self._shelves[place][note.kind]
            if not self._shelves[place]:
                del self._shelves[place]


class _Shelf:
    """The notes of one audience."""

    __slots__ = ("size", "tiers")

    def __init__(self) -> None:
        self.size = 0
        self.tiers: Mapping[Tier, dict[tuple[Any, ...], Group]] = {tier: {} for tier in TIERS}


class Group:
    """Notes of one clock, strongest first; equals by last access, then id."""

    __slots__ = ("_last_access", "clock", "notes")

    def __init__(self, clock: _Clock, last_access: Callable[[str], int]) -> None:
        self.clock = clock
        self._last_access = last_access
        self.notes: Ordered[Note] = Ordered(self._key)

    def _key(self, note: Note) -> tuple[tuple[float, float, float], int, str]:
        return self.clock.point(note), -self._last_access(note.id), note.id

    def order(self, note: Note, now: int) -> _Order:
        """As ``strength_order``."""
        return -self.clock.strength(note, now), -self._last_access(note.id), note.id

    def runs(self) -> Iterator[tuple[Note, Iterator[Note]]]:
        """The runs of equals: the first note of each, and the others to be read at any time."""
        following = iter(self.notes)
        first = next(following, None)
        while first is not None:
            point = self.clock.point(first)
            second = next(following, None)
            if second is None or self.clock.point(second) != point:
                yield first, iter(())
                first = second
                continue
            yield first, takewhile(partial(self._stands_at, point), chain((second,), following))
            # Whoever reads the run uses up the iterator: what follows the run is looked up.
            following = self.notes.beyond((point, math.inf, ""))
            first = next(following, None)

    def _stands_at(self, point: tuple[float, float, float], note: Note) -> bool:
        return self.clock.point(note) == point


class View:
    """What one reader may be shown of the active notes, at one instant."""

    def __init__(self, shelves: list[_Shelf], now: int) -> None:
        self._shelves = shelves
        self._now = now
        self.count = sum(shelf.size for shelf in shelves)
        """How many there are, of all tiers."""

    def strongest(self, tier: Tier) -> Iterator[Note]:
        """The notes of the tier, strongest first, then by last access (latest first) and id."""
        # Groups by the best that their next run may hold, and runs by what their next note is.
        closed: list[tuple[float, int, _Order, Note, Iterator[Note], Group, Iterator[tuple[Note, Iterator[Note]]]]] = []
        opened: list[tuple[_Order, int, Note, Iterator[Note], Group]] = []
        number = 0

        def close(group: Group, runs: Iterator[tuple[Note, Iterator[Note]]]) -> None:
            nonlocal number
            if (run := next(runs, None)) is not None:
                number += 1
                order = group.order(run[0], self._now)
                heappush(closed, (order[0] * (1 + group.clock.slack), number, order, *run, group, runs))

        for shelf in self._shelves:
            for group in shelf.tiers[tier].values():
                close(group, group.runs())
        while closed or opened:
            while closed and (not opened or closed[0][0] <= opened[0][0][0]):
                _, place, order, note, others, group, runs = heappop(closed)
                heappush(opened, (order, place, note, others, group))
                close(group, runs)
            _, place, note, others, group = heappop(opened)
            yield note
            if (following := next(others, None)) is not None:
                heappush(opened, (group.order(following, self._now), place, following, others, group))
