"""What enters a context: a greedy choice under a token budget, and the block it becomes.

Order: pinned, directives, what the step matched (in recall's order), then the rest by strength, last access and id. A
note that does not fit is skipped, never cut, and counted. Revoked notes that match the step come as deterrents; they
are charged right after the matched notes, before the rest, because a warning about this step must not be crowded out
by whatever else is strong. Nothing here knows how tokens are counted or where notes live. Specification, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop
from typing import Final

import msgspec

from amnesiad.core import clocks, render
from amnesiad.core.notes import Note, Words
from amnesiad.core.policy import Policy
from amnesiad.core.tokens import Counter, block_cost, line_cost

MAX_OMITTED_IDS: Final = 20
"""Ids of omitted notes that are named, the first in order; the count is always exact. An answer must stay small."""

_ANCHOR_ONLY: Final = ("anchor",)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the step asked for matched. ``matched``: live ids in recall's order. ``on_path``: those among them that a
    path of the step matched. ``deterrents``: revoked notes, the most relevant first."""

    matched: Sequence[str] = ()
    on_path: Collection[str] = frozenset()
    deterrents: Sequence[Note] = ()


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. ``tokens`` is what the counter charges for ``text``, 0 for an empty one; never above the budget.

    ``ids`` and ``deterrents`` are in the order of the lines. ``matched`` are the ids selected because of the step, for
    renewal. ``omitted_ids`` names the first ``MAX_OMITTED_IDS`` of ``omitted_count``.
    """

    text: str = ""
    tokens: int = 0
    budget_tokens: int
    ids: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    deterrents: tuple[str, ...] = ()
    omitted_count: int = 0
    omitted_ids: tuple[str, ...] = ()


def note_cost(note: Note, words: Words, policy: Policy, counter: Counter) -> int:
    """An upper bound of what the note's line costs, whatever the time: keep it until the note's version changes."""
    return line_cost(counter, render.widest_memory_line(note, words, policy))


def select(
    notes: Iterable[Note],
    words: Mapping[str, Words],
    step: Step,
    *,
    cost: Callable[[str], int],
    last_access: Callable[[str], int],
    counter: Counter,
    budget_tokens: int,
    policy: Policy,
    now: int,
) -> Selection:
    """Choose among the notes (visible to the caller, settled at ``now``) and compose the block.

    ``words`` holds those of every note and deterrent. ``cost(id)`` is ``note_cost``, cached by the caller, so that a
    choice costs look-ups and not counting; ``last_access(id)`` is epoch milliseconds, 0 for never. The finished block
    is counted again, and gives up its last lines should an estimate have been too low.
    """
    eligible = {note.id: note for note in notes if _eligible(note, step.on_path)}
    left = budget_tokens - _frame_cost(counter, budget_tokens)
    chosen: list[Note] = []
    omitted: list[str] = []

    def take(note: Note) -> None:
        nonlocal left
        price = cost(note.id)
        if price <= left:
            left -= price
            chosen.append(note)
        else:
            omitted.append(note.id)

    def strongest_first(group: Iterable[Note]) -> Iterator[Note]:
        heap = [(-clocks.strength(note, policy, now), -last_access(note.id), note.id) for note in group]
        heapify(heap)
        while heap:
            yield eligible[heappop(heap)[2]]

    first = _asked_first(eligible, step.matched, strongest_first)
    for note in first.values():
        take(note)
    warnings: list[tuple[str, str]] = []
    for note in step.deterrents:
        if len(warnings) == policy.max_deterrents:
            break
        line = render.deterrent(note, words.get(note.id))
        price = line_cost(counter, line)
        if price <= left:
            left -= price
            warnings.append((note.id, line))
    rest = [note for id_, note in eligible.items() if id_ not in first]
    cheapest = min((cost(note.id) for note in rest), default=0)
    for note in strongest_first(rest):
        if left < cheapest and len(omitted) >= MAX_OMITTED_IDS:
            break  # nothing that follows can fit, and no more of it is named
        take(note)

    lines = [render.memory_line(note, words[note.id], policy, now) for note in chosen]
    lines += [line for _, line in warnings]
    kept, text, tokens = _compose(lines, counter, budget_tokens)
    ids = tuple(note.id for note in chosen[:kept])
    asked = frozenset(step.matched)
    return Selection(
        text=text,
        tokens=tokens,
        budget_tokens=budget_tokens,
        ids=ids,
        matched=tuple(id_ for id_ in ids if id_ in asked),
        deterrents=tuple(id_ for id_, _ in warnings[: max(0, kept - len(chosen))]),
        omitted_count=len(eligible) - len(ids),
        omitted_ids=tuple([*(note.id for note in chosen[kept:]), *omitted][:MAX_OMITTED_IDS]),
    )


def _eligible(note: Note, on_path: Collection[str]) -> bool:
    """Active notes; of the stale ones those whose only cause is a changed file, and only where the step is about it."""
    if note.state == "active":
        return True
    return note.state == "stale" and note.causes == _ANCHOR_ONLY and note.id in on_path


def _asked_first(
    eligible: Mapping[str, Note], matched: Sequence[str], strongest_first: Callable[[Iterable[Note]], Iterable[Note]]
) -> dict[str, Note]:
    """Pinned notes, directives and those that the step matched, by id, in that order and each once."""
    pinned = [note for note in eligible.values() if note.pinned]
    directives = [note for note in eligible.values() if note.kind == "directive" and not note.pinned]
    first = {note.id: note for group in (pinned, directives) for note in strongest_first(group)}
    for id_ in matched:
        if id_ in eligible:
            first.setdefault(id_, eligible[id_])
    return first


def _frame_cost(counter: Counter, budget_tokens: int) -> int:
    """What header and footer cost at most."""
    return counter.tokens(render.block((), budget_tokens, budget_tokens)) + 1


def _compose(lines: Sequence[str], counter: Counter, budget_tokens: int) -> tuple[int, str, int]:
    """How many of the lines fit as counted on the finished block, the text, and its tokens; nothing → ``(0, "", 0)``.

    Found by halving: giving up one line after another would count a large block once for each.
    """
    low, high = 0, len(lines)
    best = (0, "", 0)
    trial = high
    while low < high:
        text, tokens = _finish(lines[:trial], counter, budget_tokens)
        if tokens <= budget_tokens:
            best = (trial, text, tokens)
            low = trial
        else:
            high = trial - 1
        trial = (low + high + 1) // 2
    return best


def _finish(lines: Sequence[str], counter: Counter, budget_tokens: int) -> tuple[str, int]:
    """The block whose footer states its own cost: repeated until the figure and the count agree.

    The figure only grows from one round to the next, and a number's cost depends on its digits alone, so this ends.
    """
    tokens = 0
    while True:
        text = render.block(lines, tokens, budget_tokens)
        counted = block_cost(counter, text, len(lines))
        if counted <= tokens:
            return text, tokens
        tokens = counted
