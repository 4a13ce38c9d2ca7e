"""What enters a context: a greedy choice under a token budget, and the block it becomes.

Order: pinned, directives, what the step matched (in recall's order), then the rest by strength, last access and id:
four tiers. A note that does not fit is skipped, never cut, and counted; a tier in which ``MAX_PASSED_OVER`` notes in a
row did not fit is given up, so that a nearly full budget does not have every note of a workspace counted. Revoked notes
that match the step come as deterrents; they are charged right after the matched notes, before the rest, because a
warning about this step must not be crowded out by whatever else is strong. Corrections of what was shown before come
first of all: an agent that goes on believing what was taken back is worse off than one that is told less. What
superseded a corrected note stands before what the step matched, so that the new text is there with its correction.
Nothing here knows how tokens are counted, who may see a note or where notes live. Specification, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from typing import Final, Protocol

import msgspec

from amnesiad.core import render
from amnesiad.core.notes import Note, Words
from amnesiad.core.policy import Policy
from amnesiad.core.strongest import Tier, strength_order, tier_of
from amnesiad.core.tokens import Counter, line_cost

MAX_OMITTED_IDS: Final = 20
"""Ids of omitted notes that are named, the first in order; the count is always exact. An answer must stay small."""
MAX_PASSED_OVER: Final = 40
"""Notes in a row that may fail to fit before a tier is given up. More than are named, so that those named are always
the first; few enough that counting the tokens of notes never tried before takes milliseconds."""

FRAMES_KEPT: Final = 4096
"""Frames whose cost is remembered: the figures in them repeat, since budgets do."""

_ANCHOR_ONLY: Final = ("anchor",)


class Pool(Protocol):
    """The active notes that a caller may be shown, as they are at one instant."""

    @property
    def count(self) -> int:
        """How many they are."""

    def strongest(self, tier: Tier) -> Iterable[Note]:
        """Those of one tier by ``strength_order``; read only as far as they are wanted."""


class Listed:
    """A pool of notes that were found by other means; ``notes`` settled at ``now`` and visible to the caller."""

    def __init__(self, notes: Iterable[Note], policy: Policy, last_access: Callable[[str], int], now: int) -> None:
        active = [note for note in notes if note.state == "active"]
        self.count = len(active)
        self._notes = sorted(active, key=lambda note: strength_order(note, policy, last_access(note.id), now))

    def strongest(self, tier: Tier) -> Iterable[Note]:
        """As ``Pool.strongest``."""
        return (note for note in self._notes if tier_of(note) == tier)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the step asked for matched. ``matched``: live ids in recall's order. ``on_path``: those among them that a
    path of the step matched. ``deterrents``: revoked notes, the most relevant first. ``corrections``: notes that were
    taken back after they had been shown, each with its line, and ``successors`` what took their place."""

    corrections: Sequence[tuple[str, str]] = ()
    successors: Sequence[str] = ()
    matched: Sequence[str] = ()
    on_path: Collection[str] = frozenset()
    deterrents: Sequence[Note] = ()


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. ``tokens`` is what the counter charges for ``text``, 0 for an empty one; never above the budget.

    ``corrections``, ``ids`` and ``deterrents`` are in the order of the lines. ``matched`` are the ids selected because
    of the step, for renewal. ``omitted_ids`` names the first ``MAX_OMITTED_IDS`` of ``omitted_count``.
    """

    text: str = ""
    tokens: int = 0
    budget_tokens: int
    corrections: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    deterrents: tuple[str, ...] = ()
    omitted_count: int = 0
    omitted_ids: tuple[str, ...] = ()
    left: Mapping[str, int] = {}
    """For each note that was tried and did not fit: the tokens that were left when its turn came."""


def note_cost(
    note: Note, words: Words, policy: Policy, counter: Counter, units: Callable[[str], int] | None = None
) -> int:
    """An upper bound of what the note's line costs, whatever the time: keep it until the note's version changes.

    ``units`` is ``line_units`` of this counter where somebody keeps what it has counted: most lines are shown as they
    are priced.
    """
    line = render.widest_memory_line(note, words, policy)
    return line_cost(counter, line) if units is None else counter.charge(units(line)) + counter.per_note


def select(
    pool: Pool,
    find: Callable[[str], Note | None],
    words: Mapping[str, Words],
    step: Step,
    *,
    cost: Callable[[str], int],
    units: Callable[[str, str], int],
    last_access: Callable[[str], int],
    counter: Counter,
    budget_tokens: int,
    policy: Policy,
    now: int,
) -> Selection:
    """Choose among the notes of the pool, and of the stale ones that the step is about, and compose the block.

    ``find(id)`` is the live note settled at ``now`` if the caller may see it. ``words`` holds those of every note and
    deterrent. ``cost(id)`` is ``note_cost`` and is asked only for notes that are tried; ``units(id, line)`` is
    ``line_units``. Both are worth keeping. ``last_access(id)`` is epoch milliseconds, 0 for never. The finished block
    is counted again, and gives up its last lines should an estimate have been too low.
    """
    room = _Room(counter, budget_tokens - _frame_cost(counter, budget_tokens), cost)
    corrected = [(id_, line) for id_, line in step.corrections if room.take(line_cost(counter, line))]

    def order(note: Note) -> tuple[float, int, str]:
        return strength_order(note, policy, last_access(note.id), now)

    asked_for = dict.fromkeys([*step.successors, *step.matched])
    matched = [note for id_ in asked_for if (note := find(id_)) and _eligible(note, step.on_path)]
    stale = sorted((note for note in matched if note.state == "stale"), key=order)
    tiers: tuple[Tier, ...] = ("pinned", "directive")
    for tier in tiers:
        room.fill(merge(pool.strongest(tier), [note for note in stale if tier_of(note) == tier], key=order))
    room.fill(note for note in matched if tier_of(note) == "rest")
    told = {id_ for id_, _ in corrected}
    warnings: list[tuple[str, str]] = []
    for note in step.deterrents:
        if note.id not in told and len(warnings) < policy.max_deterrents:
            line = render.deterrent(note, words.get(note.id))
            if room.take(line_cost(counter, line)):
                warnings.append((note.id, line))
    tried = {note.id for note in matched}
    room.fill(note for note in pool.strongest("rest") if note.id not in tried)

    chosen = room.chosen
    lines = corrected + [(note.id, render.memory_line(note, words[note.id], policy, now)) for note in chosen] + warnings
    kept, text, tokens = _compose(lines, units, counter, budget_tokens)
    kept_notes = max(0, kept - len(corrected))
    ids = tuple(note.id for note in chosen[:kept_notes])
    asked = frozenset(step.matched)
    return Selection(
        text=text,
        tokens=tokens,
        budget_tokens=budget_tokens,
        corrections=tuple(id_ for id_, _ in corrected[:kept]),
        ids=ids,
        matched=tuple(id_ for id_ in ids if id_ in asked),
        deterrents=tuple(id_ for id_, _ in warnings[: max(0, kept_notes - len(chosen))]),
        omitted_count=pool.count + len(stale) - len(ids),
        omitted_ids=tuple([*(note.id for note in chosen[kept_notes:]), *room.omitted][:MAX_OMITTED_IDS]),
        left=room.omitted,
    )


class _Room:
    """What is left of a budget, the notes that got a place in it, and those that did not."""

    def __init__(self, counter: Counter, tokens: int, cost: Callable[[str], int]) -> None:
        self._counter = counter
        self._left = tokens
        self._cost = cost
        self.chosen: list[Note] = []
        self.omitted: dict[str, int] = {}
        """Note id → the tokens that were left when its turn came."""

    def take(self, tokens: int) -> bool:
        """Spend so many, if they are left."""
        if tokens > self._left:
            return False
        self._left -= tokens
        return True

    def fill(self, notes: Iterable[Note]) -> None:
        """Choose what fits, in the order given; what does not is skipped, and the rest given up once it looks full."""
        least, passed_over = self._counter.per_note, 0
        for note in notes:
            if self._left > least and self.take(self._cost(note.id)):
                self.chosen.append(note)
                passed_over = 0
                continue
            self.omitted[note.id] = self._left
            passed_over += 1
            if passed_over == MAX_PASSED_OVER or (self._left <= least and len(self.omitted) >= MAX_OMITTED_IDS):
                return


def _eligible(note: Note, on_path: Collection[str]) -> bool:
    """Active notes; of the stale ones those whose only cause is a changed file, and only where the step is about it."""
    if note.state == "active":
        return True
    return note.state == "stale" and note.causes == _ANCHOR_ONLY and note.id in on_path


def _frame_cost(counter: Counter, budget_tokens: int) -> int:
    """What header and footer cost at most."""
    return counter.charge(_frame_units(counter, budget_tokens, budget_tokens)) + 1


@lru_cache(maxsize=FRAMES_KEPT)
def _frame_units(counter: Counter, tokens: int, budget_tokens: int) -> int:
    """What header and footer add to the units of a block. No note's words are in them, so they may be remembered."""
    header, _, footer = render.block((), tokens, budget_tokens).partition("\n")
    return line_units(counter, header) + counter.units(footer)


def line_units(counter: Counter, line: str) -> int:
    """What a line adds to the units of a block."""
    return counter.units(line + "\n")


def _compose(
    lines: Sequence[tuple[str, str]], units: Callable[[str, str], int], counter: Counter, budget_tokens: int
) -> tuple[int, str, int]:
    """How many of the lines fit as counted on the finished block, the text, and its tokens; nothing → ``(0, "", 0)``.

    Lines are counted one by one, once: the units of a block are those of its lines (``Counter.units``).
    """
    added = [units(id_, line) for id_, line in lines]
    total = sum(added)
    for kept in range(len(lines), 0, -1):
        tokens = _own_cost(total, kept, counter, budget_tokens)
        if tokens <= budget_tokens:
            return kept, render.block([line for _, line in lines[:kept]], tokens, budget_tokens), tokens
        total -= added[kept - 1]
    return 0, "", 0


def _own_cost(line_units_: int, lines: int, counter: Counter, budget_tokens: int) -> int:
    """The cost of a block whose footer states it: repeated until the figure and the count agree.

    The figure only grows from one round to the next, and a number's cost depends on its digits alone, so this ends.
    """
    tokens = 0
    while True:
        counted = counter.charge(line_units_ + _frame_units(counter, tokens, budget_tokens)) + counter.per_note * lines
        if counted <= tokens:
            return tokens
        tokens = counted
