"""What enters a context: never above the budget, in the order promised, and nothing that has ended as a fact."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.strategies import DEFAULTS, T0, born

from amnesiad.core import render
from amnesiad.core.inject import (
    MAX_OMITTED_IDS,
    MAX_PASSED_OVER,
    Listed,
    Selection,
    Step,
    line_units,
    note_cost,
    select,
)
from amnesiad.core.kinds import DAY_MS
from amnesiad.core.notes import Note, Words
from amnesiad.core.policy import Policy
from amnesiad.core.tokens import ByteCounter, Counter, MarginCounter, block_cost
from amnesiad.tokens import counter_for

NOW = T0 + DAY_MS
BYTES = ByteCounter()
WORDS_COUNTED = MarginCounter(name="words", count=lambda text: len(text.split()), margin=1.6)
O200K = counter_for(DEFAULTS)


def note(number: int, kind: str = "finding", at: int = T0, **facts: Any) -> Note:
    state = {key: facts.pop(key) for key in ("state", "causes", "state_reason") if key in facts}
    return msgspec.structs.replace(born(kind, at=at, **facts), id=f"n{number:09d}", **state)


def choose(
    notes: Sequence[Note],
    step: Step | None = None,
    *,
    budget: int = 100_000,
    words: dict[str, Words] | None = None,
    access: dict[str, int] | None = None,
    counter: Counter = BYTES,
    policy: Policy = DEFAULTS,
    cost: dict[str, int] | None = None,
) -> Selection:
    step = step or Step()
    texts = {one.id: Words(content=f"says {one.id}") for one in (*notes, *step.deterrents)} | (words or {})
    prices = cost or {one.id: note_cost(one, texts[one.id], policy, counter) for one in notes}

    def last_access(id_: str) -> int:
        return (access or {}).get(id_, 0)

    return select(
        Listed(notes, policy, last_access, NOW),
        {one.id: one for one in notes}.get,
        texts,
        step,
        cost=prices.__getitem__,
        units=lambda _, line: line_units(counter, line),
        last_access=last_access,
        counter=counter,
        budget_tokens=budget,
        policy=policy,
        now=NOW,
    )


def numbers(ids: Sequence[str]) -> list[int]:
    return [int(id_[1:]) for id_ in ids]


contents = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=60)


@settings(deadline=None)
@given(
    st.lists(contents, max_size=12),
    st.integers(0, 1200),
    st.sampled_from([BYTES, WORDS_COUNTED, O200K]),
    st.integers(0, 1000),
    st.integers(0, 3),
)
def test_a_selection_never_exceeds_the_budget(
    texts: list[str], budget: int, counter: Counter, guess: int, deterrents: int
) -> None:
    """C45: by the counter's own count of the finished text, also where the prices given were far too low or high."""
    notes = [note(number, kind="fact", ttl_ms=30 * DAY_MS) for number in range(len(texts))]
    revoked = [note(100 + number, state="revoked") for number in range(deterrents)]
    words = {one.id: Words(content=text) for one, text in zip(notes, texts, strict=True)}
    step = Step(matched=[one.id for one in notes[::2]], deterrents=revoked)
    for cost in (None, {one.id: guess for one in notes}):
        made = choose(notes, step, budget=budget, words=words, counter=counter, cost=cost)
        lines = len(made.ids) + len(made.deterrents)
        assert made.tokens <= budget
        assert block_cost(counter, made.text, lines) <= made.tokens
        assert bool(made.text) == bool(lines) == bool(made.tokens)
        assert len(made.text.split("\n")) == (lines + 2 if lines else 1)
        assert made.omitted_count == len(notes) - len(made.ids)
        assert not set(made.omitted_ids) & set(made.ids)


@settings(deadline=None)
@given(st.integers(0, 900), st.integers(0, 4), st.integers(0, 4))
def test_corrections_come_first_and_within_the_budget(budget: int, corrections: int, count: int) -> None:
    """C45: what took the place of a corrected note stands right behind; one that is corrected warns no second time."""
    notes = [note(number, kind="fact", ttl_ms=30 * DAY_MS) for number in range(count)]
    old = [note(100 + number, state="revoked") for number in range(corrections)]
    lines = [(one.id, f"[CORRECTION] [{one.id}], shown at noon, was revoked: no") for one in old]
    step = Step(corrections=lines, successors=[notes[-1].id] if notes else [], deterrents=old)
    made = choose(notes, step, budget=budget, counter=BYTES)
    assert made.tokens <= budget
    assert [line for line in made.text.split("\n") if line.startswith("[CORRECTION] ")] == [
        line for id_, line in lines if id_ in made.corrections
    ]
    if made.ids and made.corrections:
        assert made.ids[0] == notes[-1].id
        assert made.matched == (), "a successor was not asked for, so it is not renewed for it"
    assert not set(made.corrections) & set(made.deterrents)
    assert bool(made.text) == bool(made.corrections or made.ids or made.deterrents)


def test_the_block_is_framed_and_states_its_cost() -> None:
    """It opens with the memory's name, has one line for each note, and closes with the budget used."""
    made = choose([note(1, kind="fact", ttl_ms=30 * DAY_MS), note(2, pinned=True)], budget=2000)
    first, *middle, last = made.text.split("\n")
    assert first.startswith("AMNESIA MEMORY")
    assert middle == [
        "[n000000002] finding pinned agent: says n000000002",
        "[n000000001] fact 29d agent: says n000000001",
    ]
    assert last == f"END AMNESIA MEMORY ({made.tokens} of 2000 tokens)"
    assert made.text == render.block(middle, made.tokens, 2000)


def test_pinned_then_directives_then_matched_then_the_strongest() -> None:
    """Each tier comes whole before the next; matched notes keep recall's order, the rest goes by strength."""
    notes = [
        note(1),
        note(2, at=T0 - 90 * DAY_MS),
        note(3, kind="directive"),
        note(4),
        note(5, pinned=True, at=T0 - 300 * DAY_MS),
        note(6),
        note(7),
    ]
    step = Step(matched=["n000000007", "n000000002", "n000000003"])
    made = choose(notes, step, access={"n000000006": 5, "n000000004": 9})
    assert numbers(made.ids) == [5, 3, 7, 2, 4, 6, 1]
    assert numbers(made.matched) == [3, 7, 2]


def test_a_note_that_does_not_fit_is_skipped_and_counted() -> None:
    """A long note is left out, never cut, and the shorter ones behind it still go in."""
    notes = [note(1, pinned=True), note(2), note(3)]
    made = choose(notes, words={"n000000001": Words(content="long " * 100)}, budget=300)
    assert sorted(numbers(made.ids)) == [2, 3]
    assert (made.omitted_count, numbers(made.omitted_ids)) == (1, [1])
    assert "long" not in made.text


def test_a_tier_is_given_up_after_many_notes_in_a_row_that_do_not_fit() -> None:
    """A nearly full budget does not have every note counted; tiers are given up one by one, and the count stays
    exact."""
    long = [note(number, pinned=True) for number in range(100)] + [note(number) for number in range(200, 300)]
    short = [note(150, pinned=True), note(350, kind="directive"), note(351)]
    tried: list[str] = []
    prices = {one.id: 10_000 for one in long} | {one.id: 50 for one in short}

    class Asked(dict[str, int]):
        def __getitem__(self, id_: str) -> int:
            tried.append(id_)
            return super().__getitem__(id_)

    made = choose([*long, *short], budget=1000, cost=Asked(prices))
    assert numbers(made.ids) == [350]
    assert len(tried) == 2 * MAX_PASSED_OVER + 1
    assert made.omitted_count == len(long) + len(short) - 1
    assert numbers(made.omitted_ids) == list(range(MAX_OMITTED_IDS))


def test_nothing_to_show_costs_nothing() -> None:
    """Without notes, or with a budget that does not even hold the frame, there is no text at all."""
    for made in (choose([]), choose([note(1)], budget=10)):
        assert (made.text, made.tokens, made.ids) == ("", 0, ())
    assert choose([note(1)], budget=10).omitted_count == 1


def test_stale_notes_stay_out_but_for_a_changed_file_on_the_path() -> None:
    """A note whose file changed is shown, marked, where the step is about that file; no other stale note is."""
    stale = [
        note(1, state="stale", causes=("anchor",)),
        note(2, state="stale", causes=("anchor",)),
        note(3, state="stale", causes=("decayed",)),
        note(4, state="stale", causes=("anchor", "distrusted")),
        note(5, state="stale", causes=("anchor",), pinned=True),
    ]
    step = Step(matched=[one.id for one in stale], on_path={"n000000001", "n000000003", "n000000004"})
    made = choose(stale, step)
    assert numbers(made.ids) == [1]
    assert "(file changed since; verify): says n000000001" in made.text


@pytest.mark.parametrize("state", ["expired", "superseded", "revoked", "forgotten"])
def test_an_ended_note_is_never_a_fact(state: str) -> None:
    """Even if it is handed in as one."""
    made = choose([note(1, state=state)], Step(matched=["n000000001"], on_path={"n000000001"}))
    assert made.text == ""


def test_revoked_notes_that_match_come_as_deterrents() -> None:
    """At most ``max_deterrents``, after the notes, worded as warnings."""
    revoked = [note(number, state="revoked", state_reason="refuted") for number in range(10, 15)]
    made = choose([note(1)], Step(deterrents=revoked))
    assert numbers(made.deterrents) == [10, 11, 12]
    assert numbers(made.ids) == [1]
    assert made.text.count("Do not re-derive this without verification.") == 3
    none = choose([], Step(deterrents=revoked), policy=msgspec.structs.replace(DEFAULTS, max_deterrents=0))
    assert none.text == ""


def test_a_warning_about_the_step_is_not_crowded_out() -> None:
    """Deterrents are charged after the matched notes and before what is merely strong."""
    notes = [note(number) for number in range(50)]
    revoked = note(60, state="revoked")
    made = choose(notes, Step(matched=["n000000049"], deterrents=[revoked]), budget=500)
    assert numbers(made.deterrents) == [60]
    assert numbers(made.ids)[0] == 49
    assert made.omitted_count > 0


def test_a_deterrent_that_does_not_fit_is_left_out() -> None:
    """The budget holds for warnings too; a shorter one behind a long one still goes in."""
    revoked = [note(10, state="revoked"), note(11, state="revoked")]
    made = choose([], Step(deterrents=revoked), words={"n000000010": Words(content="x" * 900)}, budget=600)
    assert numbers(made.deterrents) == [11]


def test_estimates_that_were_too_low_cost_the_last_lines() -> None:
    """The finished block is counted again: deterrents go first, then the weakest notes, and are counted as omitted."""
    notes = [note(number) for number in range(100)]
    step = Step(matched=[one.id for one in notes], deterrents=[note(200, state="revoked")])
    made = choose(notes, step, budget=600, cost=dict.fromkeys((one.id for one in notes), 0))
    assert 0 < len(made.ids) < 100
    assert numbers(made.ids) == list(range(len(made.ids)))
    assert made.deterrents == ()
    assert made.omitted_count == 100 - len(made.ids)
    assert numbers(made.omitted_ids)[0] == len(made.ids)


@settings(deadline=None)
@given(contents, st.integers(0, 60), st.sampled_from([BYTES, WORDS_COUNTED, O200K]))
def test_a_price_holds_at_any_time(text: str, days: int, counter: Counter) -> None:
    """A note's cached price is never below its line's cost, however much of its life remains."""
    one, words = note(1, kind="fact", ttl_ms=60 * DAY_MS), Words(content=text)
    line = render.memory_line(one, words, DEFAULTS, T0 + days * DAY_MS)
    price = note_cost(one, words, DEFAULTS, counter)
    assert counter.tokens(line + "\n") + counter.per_note <= price + 2
    assert note_cost(one, words, DEFAULTS, counter, lambda widest: line_units(counter, widest)) == price


def test_c45_ten_thousand_notes_and_500_tokens() -> None:
    """C45: at most 500 by the stated counter, the rest counted, a bounded number named, and quickly."""
    notes = [note(number, kind="fact", ttl_ms=30 * DAY_MS) for number in range(10_000)]
    prices = {one.id: 50 for one in notes}
    started = time.process_time()
    made = choose(notes, budget=500, counter=O200K, cost=prices)
    assert time.process_time() - started < 2
    assert 0 < made.tokens <= 500
    assert O200K.tokens(made.text) + O200K.per_note * len(made.ids) <= made.tokens
    assert made.omitted_count == 10_000 - len(made.ids)
    assert len(made.omitted_ids) == MAX_OMITTED_IDS
