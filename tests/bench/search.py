"""The index beside SQLite FTS5 and a linear scan: the same notes, the same queries, in turns, in one process."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from itertools import accumulate, islice
from typing import NamedTuple

from tests.bench.figures import Figure

from amnesiad.core.notes import Words
from amnesiad.search import Index
from amnesiad.search.terms import query_terms

SIZES = (10_000, 100_000)
WORDS = 30
"""Words of a note, about 200 bytes."""
VOCABULARY = 20_000
LIMIT = 10
TOP = "select rowid, rank from notes where notes match ? order by rank limit ?"
QUERIES = 200
SCANS = 20
"""Queries that also a linear scan must answer: at 100 000 notes each takes a tenth of a second."""
WRITES = 1000
SEED = 1


class Corpus(NamedTuple):
    """Notes and queries whose words are as unevenly common as those of a language."""

    contents: list[str]
    queries: list[str]


async def figures() -> list[Figure]:
    """All figures of the search, at each size."""
    return [figure for size in SIZES for figure in measure(size)]


def corpus(size: int) -> Corpus:
    """The same notes and queries each time: two to five words that some note has."""
    rng = random.Random(SEED)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    vocabulary = list({"".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(2 * VOCABULARY)})
    rng.shuffle(vocabulary)
    vocabulary = vocabulary[:VOCABULARY]
    weights = list(accumulate(1 / (place + 3) for place in range(len(vocabulary))))
    contents = [" ".join(rng.choices(vocabulary, cum_weights=weights, k=WORDS)) for _ in range(size)]
    queries = [" ".join(rng.sample(rng.choice(contents).split(), rng.randint(2, 5))) for _ in range(QUERIES)]
    return Corpus(contents, queries)


def measure(size: int) -> Iterator[Figure]:
    """Ask, write and ask between writes, with so many notes."""
    contents, queries = corpus(size)
    index = Index()
    fts = sqlite3.connect(":memory:", isolation_level=None)
    fts.execute("create virtual table notes using fts5(content)")

    def put(number: int, content: str) -> None:
        index.put(f"n{number}", Words(content=content))

    def insert(number: int, content: str) -> None:
        fts.execute("insert into notes(rowid, content) values (?, ?)", (number, content))

    def ours(query: str) -> object:
        return list(islice(index.score(query), LIMIT))

    def theirs(query: str) -> object:
        match = " OR ".join(query_terms(query))
        return fts.execute(TOP, (match, LIMIT)).fetchall()

    def scan(query: str) -> object:
        words = query_terms(query)
        return nlargest(LIMIT, contents, key=lambda content: sum(word in content for word in words))

    mine, bare = fill(put, contents), fill(insert, contents)
    ours(queries[0])
    yield Figure(f"index a note, {size:,} of them", mine * 1e6, "FTS5 insert", bare * 1e6, "µs")
    quiet, fts5 = asked(queries, ours, theirs)
    yield Figure(f"query, {size:,} notes, p50", at(quiet, 0.5), "FTS5", at(fts5, 0.5), "µs")
    yield Figure(f"query, {size:,} notes, p99", at(quiet, 0.99), "FTS5", at(fts5, 0.99), "µs")
    few, scans = asked(queries[:SCANS], ours, scan)
    yield Figure(f"query, {size:,} notes, p50", at(few, 0.5), "linear scan", at(scans, 0.5), "µs")
    busy = between_writes(index, contents, queries)
    yield Figure(f"query after each write, {size:,} notes, p99", at(busy, 0.99), "quiet p99", at(quiet, 0.99), "µs")
    fts.close()


def fill(write: Callable[[int, str], None], contents: Sequence[str]) -> float:
    """Seconds a note takes, all written one after another."""
    started = time.perf_counter()
    for number, content in enumerate(contents):
        write(number, content)
    return (time.perf_counter() - started) / len(contents)


def asked(
    queries: Sequence[str], ours: Callable[[str], object], theirs: Callable[[str], object]
) -> tuple[list[float], list[float]]:
    """How long every query took each, in microseconds, sorted; asked in turns so that both meet the same weather."""
    took: tuple[list[float], list[float]] = ([], [])
    for query in queries:
        for times, ask in zip(took, (ours, theirs), strict=True):
            started = time.perf_counter()
            assert ask(query)
            times.append((time.perf_counter() - started) * 1e6)
    return sorted(took[0]), sorted(took[1])


def between_writes(index: Index, contents: Sequence[str], queries: Sequence[str]) -> list[float]:
    """How long queries take when each follows a note that came, which it must find, and one that went."""
    took = []
    for number in range(WRITES):
        index.put(f"new{number}", Words(content=f"only{number} {contents[number]}"))
        index.drop(f"n{number}")
        started = time.perf_counter()
        list(islice(index.score(queries[number % len(queries)]), LIMIT))
        took.append((time.perf_counter() - started) * 1e6)
        assert next(index.score(f"only{number}"))[0] == f"new{number}"
    return sorted(took)


def at(times: Sequence[float], share: float) -> float:
    """The time that this share of all did not exceed."""
    return times[int(share * (len(times) - 1))]
