"""Active notes by strength: merged from sorted groups, and always what sorting every note would give."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.strategies import DEFAULTS, KINDS, T0, born, callers, examples, newborns, policies

from amnesiad.core import clocks
from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import CallerError
from amnesiad.core.inject import Listed
from amnesiad.core.kinds import DAY_MS
from amnesiad.core.notes import Note
from amnesiad.core.ordered import CHUNK, Ordered
from amnesiad.core.policy import Policy
from amnesiad.core.strongest import TIERS, Strongest, strength_order

MAIN = Caller(session="s1")


def identified(note: Note, number: int, **facts: Any) -> Note:
    return msgspec.structs.replace(note, id=f"n{number:09d}", **facts)


class Shelf:
    """Notes with their due times and last accesses, and what ``Strongest`` makes of them."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.notes: dict[str, Note] = {}
        self.due: dict[str, int] = {}
        self.access: dict[str, int] = {}
        self.strongest = Strongest(policy, self.due.get, self.last_access)

    def last_access(self, id_: str) -> int:
        return self.access.get(id_, 0)

    def put(self, note: Note, access: int = 0) -> None:
        self.drop(note.id)
        self.notes[note.id] = note
        step = clocks.next_transition(note, self.policy)
        if step is not None:
            self.due[note.id] = step.at
        self.access[note.id] = access
        self.strongest.put(note)

    def shown(self, id_: str, at: int) -> None:
        def record() -> None:
            self.access[id_] = at

        self.strongest.shown(self.notes[id_], record)

    def drop(self, id_: str) -> None:
        if (note := self.notes.pop(id_, None)) is not None:
            self.strongest.drop(note)
            self.due.pop(id_, None)

    def sorted(self, caller: Caller, now: int) -> Listed:
        """All that the caller may see, settled and sorted one by one."""
        settled = (clocks.settle(note, self.policy, now) for note in self.notes.values())
        seen = [note for note in settled if note.state == "active" and visible(note, caller, self.policy)]
        return Listed(seen, self.policy, self.last_access, now)

    def merged(self, caller: Caller, now: int) -> Any:
        def sees(audience: Any) -> bool:
            scope, owner, kind = audience
            return visible(identified(born(kind, scope=scope, owner=owner), 0), caller, self.policy)

        return self.strongest.view(now, None, sees)


ages = st.integers(-2, 3) | st.integers(-DAY_MS, 400 * DAY_MS)


@st.composite
def shelves(draw: st.DrawFn) -> tuple[Shelf, list[Note]]:
    policy = draw(policies())
    shelf, notes = Shelf(policy), []
    for number in range(draw(st.integers(0, 14))):
        note = draw(newborns(policy))
        at = T0 - draw(ages)
        note = identified(note, number, created_at=at, ref_at=at + draw(st.sampled_from([0, 0, 1, 5, DAY_MS])))
        if draw(st.booleans()):
            note = msgspec.structs.replace(note, base=draw(st.sampled_from([0.0, 0.3, 0.6, 1.0])))
        notes.append(note)
        shelf.put(note, draw(st.sampled_from([0, 0, T0, T0 + 1])))
    return shelf, notes


@given(shelves(), callers(), st.lists(ages, min_size=1, max_size=3), st.data())
@examples(300)
def test_the_groups_merged_are_what_sorting_everything_gives(
    made: tuple[Shelf, list[Note]], caller: Caller, instants: list[int], data: st.DataObject
) -> None:
    """Ids, their order and their number, for any caller, at any instants, later or earlier, whatever changed
    between."""
    shelf, notes = made
    for instant in instants:
        now = T0 + instant
        try:
            wanted = shelf.sorted(caller, now)
            view = shelf.merged(caller, now)
        except CallerError:
            return
        assert view.count == wanted.count
        for tier in TIERS:
            assert [one.id for one in view.strongest(tier)] == [one.id for one in wanted.strongest(tier)]
        for note in data.draw(st.lists(st.sampled_from(notes), max_size=3)) if notes else []:
            match data.draw(st.sampled_from(["drop", "shown", "renewed"])):
                case "drop":
                    shelf.drop(note.id)
                case "shown" if note.id in shelf.notes:
                    shelf.shown(note.id, T0 + instant)
                case _:
                    shelf.put(msgspec.structs.replace(note, ref_at=now, base=0.7))
    for note in notes:
        shelf.drop(note.id)
    assert not len(shelf.strongest)


def test_equals_in_the_thousands_cost_only_those_asked_for() -> None:
    """Notes of one millisecond, as a batch or an import leaves them, are not sorted anew by every reader."""
    shelf = Shelf(DEFAULTS)
    for number in range(20_000):
        shelf.put(identified(born("fact", ttl_ms=30 * DAY_MS, curve="ebbinghaus"), number))
    first = [f"n{number:09d}" for number in range(20)]

    def read() -> list[str]:
        found = iter(shelf.merged(MAIN, T0 + DAY_MS).strongest("rest"))
        return [next(found).id for _ in range(20)]

    assert read() == first
    assert least_time(read) < 0.02


def least_time(work: Callable[[], object]) -> float:
    """Process time of the fastest of a few runs, in seconds."""
    times = []
    for _ in range(5):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


@pytest.mark.parametrize("size", [10, 3 * CHUNK])
def test_a_sorted_list_stays_sorted(size: int) -> None:
    """Whatever is put in and taken out, and wherever the chunks end."""
    dice = random.Random(size)
    items: Ordered[int] = Ordered(lambda item: item)
    held: set[int] = set()
    for _ in range(6 * size):
        item = dice.randrange(2 * size)
        if item in held:
            items.remove(item)
            held.discard(item)
        else:
            items.add(item)
            held.add(item)
        assert len(items) == len(held)
        if dice.random() < 0.05:
            assert list(items) == sorted(held)
            assert list(items.beyond(item)) == sorted(one for one in held if one > item)
            assert items.first() == min(held, default=None)
    with pytest.raises(ValueError, match="not in the list"):
        items.remove(2 * size)


def test_an_overdue_note_costs_its_removal_once() -> None:
    """With the worker away, notes that time has ended are set aside by the first reader that meets them."""
    policy = msgspec.structs.replace(DEFAULTS, kinds=KINDS)
    shelf = Shelf(policy)
    for number in range(5_000):
        shelf.put(identified(born("fact", ttl_ms=DAY_MS, curve="flat"), number))
    assert shelf.merged(MAIN, T0 + DAY_MS - 1).count == 5_000
    assert shelf.merged(MAIN, T0 + DAY_MS).count == 0
    assert least_time(lambda: shelf.merged(MAIN, T0 + 2 * DAY_MS)) < 0.005
    assert shelf.merged(MAIN, T0 + DAY_MS - 1).count == 5_000


def test_the_order_is_strength_then_last_access_then_id() -> None:
    """As the specification has it."""
    one, two = (identified(born("finding"), number) for number in (1, 2))
    assert strength_order(one, DEFAULTS, 0, T0) < strength_order(two, DEFAULTS, 0, T0)
    assert strength_order(two, DEFAULTS, 5, T0) < strength_order(one, DEFAULTS, 0, T0)
    assert strength_order(one, DEFAULTS, 0, T0) < strength_order(two, DEFAULTS, 5, T0 + DAY_MS)
