"""The order of a recall: relevance decides, age only settles ties, and filters look at what is settled."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.strategies import DEFAULTS, T0, born

from amnesiad.core.globs import path_matches
from amnesiad.core.kinds import DAY_MS
from amnesiad.core.notes import Anchor, Note, Trigger, Words
from amnesiad.core.recall import (
    POOL_CAP,
    Candidate,
    Filter,
    Parts,
    band,
    matched,
    order_by_path,
    order_by_relevance,
    order_without_query,
    path_grade,
    trust,
    whole_bands,
)

NOW = T0 + 400 * DAY_MS
widths = st.floats(0, 1, exclude_min=True)
scores = st.floats(0, 1e6)
relevances = st.lists(scores, min_size=1, max_size=40)


def note(number: int = 0, kind: str = "finding", age_days: float = 1, **facts: Any) -> Note:
    made = born(kind, at=NOW - round(age_days * DAY_MS), **facts)
    return msgspec.structs.replace(made, id=f"n{number:09d}")


def candidate(number: int, score: float = 1.0, state: str = "active", **facts: Any) -> Candidate:
    made = msgspec.structs.replace(note(number, **facts), state=state)
    return Candidate(made, Words(content="x"), score)


def numbers(ordered: list[Candidate]) -> list[int]:
    return [int(one.note.id[1:]) for one in ordered]


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    return [
        candidate(
            number,
            score,
            state=draw(st.sampled_from(["active", "stale"])),
            kind=draw(st.sampled_from(["finding", "task", "directive", "operational"])),
            age_days=draw(st.integers(0, 1000)),
            provenance=draw(st.sampled_from(["human", "user-stated", "agent", "auto"])),
        )
        for number, score in enumerate(draw(relevances))
    ]


@settings(deadline=None)
@given(candidates(), widths)
def test_age_never_moves_a_note_out_of_its_band(pool: list[Candidate], width: float) -> None:
    """Whatever the ages, trust and states, bands come in order, and a note's band is that of its score alone."""
    policy = msgspec.structs.replace(DEFAULTS, tie_width=width)
    ordered = order_by_relevance(pool, policy, NOW)
    best = max(one.score for one in pool)
    assert sorted(numbers(ordered)) == list(range(len(pool)))
    assert [one.band for one in ordered] == sorted(band(one.score, best, width) for one in pool)


@settings(deadline=None)
@given(candidates())
def test_inside_a_band_stale_notes_come_last_and_worth_falls(pool: list[Candidate]) -> None:
    """In one band every active note stands before every stale one."""
    for one, following in zip(ordered := order_by_relevance(pool, DEFAULTS, NOW), ordered[1:], strict=False):
        assert one.band < following.band or one.stale <= following.stale


@settings(deadline=None)
@given(scores, scores, scores, widths)
def test_bands_are_monotone_and_never_fail(a: float, b: float, best: float, width: float) -> None:
    """A better score never lies in a worse band, for every width, also ones narrower than doubles can tell apart."""
    best, (low, high) = max(a, b, best), sorted((a, b))
    assert 0 <= band(high, best, width) <= band(low, best, width)
    assert band(best, best, width) == 0


@pytest.mark.parametrize("width", [5e-324, 1e-300, 1e-17, 0.1, 1.0])
def test_no_positive_score_means_one_band(width: float) -> None:
    """Where nothing is relevant nothing is told apart."""
    assert band(0, 0, width) == band(-1, 0, width) == 0
    assert band(0, 1e300, width) >= 1


@settings(deadline=None)
@given(relevances.map(lambda found: sorted(found, reverse=True)), st.integers(0, 50), widths)
def test_a_pool_holds_whole_bands(found: list[float], limit: int, width: float) -> None:
    """The pool covers the limit, and the first score left out belongs to a later band than the last one taken."""
    size = whole_bands(found, limit, width)
    assert size >= min(limit, len(found))
    if 0 < size < len(found):
        assert band(found[size], found[0], width) > band(found[size - 1], found[0], width)
        assert band(found[size - 1], found[0], width) == band(found[limit - 1], found[0], width)


@settings(deadline=None)
@given(candidates(), st.integers(1, 40))
def test_the_pool_decides_nothing(pool: list[Candidate], limit: int) -> None:
    """Ranking only the whole bands gives the same first notes as ranking everything."""
    by_score = sorted(pool, key=lambda one: -one.score)
    size = whole_bands([one.score for one in by_score], limit, DEFAULTS.tie_width)
    some = order_by_relevance(by_score[:size], DEFAULTS, NOW)[:limit]
    assert some == order_by_relevance(pool, DEFAULTS, NOW)[:limit]


def test_a_pool_is_capped() -> None:
    """Ten thousand equally relevant notes do not make a request rank them all."""
    assert whole_bands([1.0] * 10_000, 10, 0.1) == POOL_CAP
    assert whole_bands([], 10, 0.1) == whole_bands([1.0], 0, 0.1) == 0


def test_ties_go_by_trust_then_rank_then_creation_then_id() -> None:
    """Each criterion decides only where the one before it is equal."""
    pool = [
        candidate(1, provenance="agent", age_days=1),
        candidate(2, provenance="human", age_days=300),
        candidate(3, provenance="agent", age_days=2),
        candidate(4, provenance="agent", age_days=2),
        candidate(5, provenance="agent", age_days=2, kind="operational"),
        candidate(6, 0.5, provenance="human", age_days=0),
    ]
    assert numbers(order_by_relevance(pool, DEFAULTS, NOW)) == [2, 1, 4, 3, 5, 6]


def test_a_task_counts_in_full() -> None:
    """A task an agent wrote long ago stands beside what a human said today, and creation decides between them."""
    pool = [candidate(1, kind="task", age_days=300, provenance="auto"), candidate(2, age_days=1, provenance="agent")]
    assert numbers(order_by_relevance(pool, DEFAULTS, NOW)) == [1, 2]


def test_v01_a_fresh_finding_is_returned_beside_old_notes() -> None:
    """V01: among equally relevant notes of one provenance the fresh finding comes first."""
    pool = [candidate(number, age_days=300) for number in range(10)] + [candidate(10, age_days=0)]
    assert numbers(order_by_relevance(pool, DEFAULTS, NOW))[0] == 10


def test_without_a_query_pinned_notes_come_first() -> None:
    """A pin outweighs trust; below it trust outweighs age."""
    pool = [
        candidate(1, age_days=0),
        candidate(2, provenance="human", age_days=90),
        candidate(3, provenance="auto", age_days=300, pinned=True),
    ]
    assert numbers(order_without_query(pool, DEFAULTS, NOW)) == [3, 2, 1]


def test_matched_is_more_than_found() -> None:
    """A step matched what has a fair share of the best words, or a close meaning; not what is merely near."""
    assert numbers(matched([candidate(1, 8.0), candidate(2, 2.0), candidate(3, 1.9)])) == [1, 2]
    assert matched([]) == []
    fused = [
        msgspec.structs.replace(candidate(number, words + meaning), parts=Parts(words, meaning, close))
        for number, (words, meaning, close) in enumerate(
            [(0.0, 0.5, True), (0.0, 0.5, False), (0.3, 0.0, False), (0.2, 0.2, False), (0.2, 0.4, True)]
        )
    ]
    assert numbers(matched(fused)) == [0, 2, 4]


def test_trust_follows_the_settings() -> None:
    """Every provenance has its own setting."""
    policy = msgspec.structs.replace(DEFAULTS, trust_human=0.4, trust_user_stated=0.3, trust_agent=0.2, trust_auto=0.1)
    assert [trust(name, policy) for name in ("human", "user-stated", "agent", "auto")] == [0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize("tag", ["a,b", "a|b", "*", "{x}", ":", "two\nlines", "🎉", "配置"])
def test_c24_tags_filter_exactly(tag: str) -> None:
    """C24: a tag matches itself and nothing else, whatever signs it is made of."""
    wanted = Filter(tags=(tag,))
    assert wanted.matches(note(), Words(content="x", tags=("other", tag)), "active")
    assert not wanted.matches(note(), Words(content=tag, tags=("a", "b", tag + "x")), "active")


def test_every_tag_asked_for_must_be_there() -> None:
    """Two tags narrow more than one."""
    wanted = Filter(tags=("a", "b"))
    assert wanted.matches(note(), Words(content="x", tags=("b", "c", "a")), "active")
    assert not wanted.matches(note(), Words(content="x", tags=("a",)), "active")


def test_filters_narrow_by_each_field() -> None:
    """Kind, scope, owner, settled state and both ends of the time range each refuse what they do not name."""
    made = note(kind="task", scope="session", owner="s1", age_days=1)
    words = Words(content="x", anchors=(Anchor("src/app.py"),))
    passing = [
        Filter(),
        Filter(kinds=frozenset({"task"})),
        Filter(scope="session"),
        Filter(owner="s1"),
        Filter(states=frozenset({"stale"})),
        Filter(since=made.created_at, until=made.created_at),
        Filter(paths=("lib/x.py", "src/app.py")),
    ]
    refusing = [
        Filter(kinds=frozenset({"fact"})),
        Filter(scope="team"),
        Filter(owner="s2"),
        Filter(states=frozenset({"active"})),
        Filter(since=made.created_at + 1),
        Filter(until=made.created_at - 1),
        Filter(paths=("src/app",)),
    ]
    assert all(one.matches(made, words, "stale") for one in passing)
    assert not any(one.matches(made, words, "stale") for one in refusing)


def test_paths_are_graded_by_whole_components() -> None:
    """An anchor is worth most, then a covering trigger or directory, then a mention; half a name is nothing."""
    anchored = Words(content="x", anchors=(Anchor("src/app.py"),))
    triggered = Words(content="x", triggers=(Trigger(event="turn-end"), Trigger(path="src/*.py")))
    mentioned = Words(content="Look into src/app.py.")
    assert path_grade(anchored, ("lib/x.py", "src/app.py")) == 3
    assert path_grade(anchored, ("src",)) == 2
    assert path_grade(triggered, ("src/app.py",)) == 2
    assert path_grade(mentioned, ("src/app.py",)) == 1
    assert path_grade(anchored, ("src/app.p", "sr", "app.py")) == 0
    assert path_grade(anchored, ()) == 0


@pytest.mark.parametrize(
    "content",
    ["see src/app.py", "(src/app.py)", "./src/app.py:12", "修改src/app.py文件", "แก้src/app.pyแล้ว", "src/app.py"],
)
def test_a_mention_is_found(content: str) -> None:
    """Punctuation, a line number or a script without spaces around a path does not hide it."""
    assert path_grade(Words(content=content), ("src/app.py",)) == 1


@pytest.mark.parametrize("content", ["mysrc/app.py", "src/app.pyc", "src/app.py.bak", "x-src/app.py", "src/app.py-old"])
def test_a_longer_name_is_not_a_mention(content: str) -> None:
    """A path that is part of another name is not that path."""
    assert path_grade(Words(content=content), ("src/app.py",)) == 0


def test_a_recall_by_path_leaves_out_what_has_nothing_to_do_with_it() -> None:
    """Anchored, covered, mentioned, each a band; the rest is not returned."""
    contents = [
        Words(content="x"),
        Words(content="see src/app.py"),
        Words(content="x", triggers=(Trigger(path="*.py"),)),
        Words(content="x", anchors=(Anchor("src/app.py"),)),
    ]
    pool = [Candidate(note(number, age_days=number), words) for number, words in enumerate(contents)]
    ordered = order_by_path(pool, ("src/app.py",), DEFAULTS, NOW)
    assert numbers(ordered) == [3, 2, 1]
    assert [one.band for one in ordered] == [0, 1, 2]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "src/app.py"),
        ("Makefile", "sub/Makefile"),
        ("src/*.py", "src/app.py"),
        ("src/**", "src/a/b.py"),
        ("src/**/b.py", "src/b.py"),
        ("**/b.py", "src/a/b.py"),
        ("./src/a?p.py", "src/app.py"),
        ("src/[ab]pp.py", "src/app.py"),
        ("src/", "src/deep/x"),
        ("**/a/**/z", "a/b/a/c/z"),
    ],
)
def test_a_glob_matches(pattern: str, path: str) -> None:
    """Stars stay within a component, double stars cross them, a bare name lies anywhere."""
    assert path_matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("src/*.py", "src/a/b.py"),
        ("src/*.py", "lib/src/a.py"),
        ("app.p", "app.py"),
        ("src/**/b.py", "src/a/c.py"),
        ("SRC/*.py", "src/a.py"),
        ("src", "src/a.py"),
        ("", "a"),
        ("/", "a"),
        ("src/a/b", "src/a"),
    ],
)
def test_a_glob_refuses(pattern: str, path: str) -> None:
    """What is not covered by whole components is not covered."""
    assert not path_matches(pattern, path)


def test_a_hostile_glob_is_matched_at_once() -> None:
    """A pattern of many stars against a long path takes no exponential time (the test's time-out would tell)."""
    assert not path_matches("**/a/" * 100 + "z", "/".join(["a"] * 500))
    assert not path_matches("*a" * 200 + "z", "a" * 1000)


def test_a_thousand_paths_and_as_many_notes_are_graded_at_once() -> None:
    """A step that names many files is not asked file by file of every note: bound ten times what was measured."""
    paths = tuple(f"src/module_{number}.py" for number in range(1000))
    notes = [Words(content=f"note {number}", anchors=(Anchor(path),)) for number, path in enumerate(paths)]
    started = time.process_time()
    assert all(path_grade(words, paths) == 3 for words in notes)
    assert time.process_time() - started < 0.3


def test_a_thousand_mentions_are_looked_for_at_once() -> None:
    """As many notes that only mention such a file hold nobody up either: no pattern is made for each path."""
    paths = tuple(f"src/module_{number}.py" for number in range(1000))
    notes = [Words(content=f"look at {path} first") for path in paths]
    started = time.process_time()
    assert all(path_grade(words, paths) == 1 for words in notes)
    assert time.process_time() - started < 0.6
