"""Which slots hold which term, in arrays: 100 000 notes of thirty words in some thirty megabytes.

A term is known by its number (``hash`` of the word, 64 bits, keyed anew in each process), so no word stands here and a
note that is dropped leaves none behind. A posting packs the slot and the term's frequency into four bytes.

New postings lie unsorted in a small buffer that every look-up scans, so they are found at once. From there they move to
the shard of their term, and when a shard has gathered enough, into its settled rows. A shard is the 64th part of all
terms: no single write ever pays for sorting more than that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.uint32]
Terms = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TF_BITS: Final = 4
TF_MAX: Final = (1 << TF_BITS) - 1
"""Frequencies above 15 count as 15; BM25 saturates long before."""

SHARD_BITS: Final = 6
SHARDS: Final = 1 << SHARD_BITS

FRESH: Final = 8192
"""Postings in the buffer, about 250 notes: scanning them takes microseconds, distributing them half a millisecond."""
TURNS: Final = 8
"""Shards that may sort in what waits at each distribution: all at once would be a pause, and they fill alike."""
WAITING_SHARE: Final = 8
"""A shard waits for the eighth part of what it holds: so a posting is copied some ten times in its life, not
thousands."""


class Settled(NamedTuple):
    """Rows in the order of their terms: row ``i`` is ``postings[starts[i]:starts[i + 1]]`` and belongs to
    ``terms[i]``."""

    terms: Terms
    starts: npt.NDArray[np.int64]
    postings: Row


_NO_TERMS: Final[Terms] = np.empty(0, np.int64)
NO_ROW: Final[Row] = np.empty(0, np.uint32)
_EMPTY: Final = Settled(_NO_TERMS, np.zeros(1, np.int64), NO_ROW)


class Postings:
    """Rows of postings by term number. Knows nothing of notes: whoever asks leaves out the slots that are dead."""

    def __init__(self) -> None:
        self._fresh_terms = np.empty(FRESH, np.int64)
        self._fresh = np.empty(FRESH, np.uint32)
        self._filled = 0
        self._shards = [_Shard() for _ in range(SHARDS)]
        self._next = 0

    def add(self, terms: Terms, slots: Row) -> None:
        """Put each slot into the row of the term beside it. A slot's terms stand together, as often as they occur."""
        order = np.argsort(terms, kind="stable")
        terms, slots = terms[order], slots[order]
        first = np.ones(len(terms), np.bool_)
        np.logical_or(terms[1:] != terms[:-1], slots[1:] != slots[:-1], out=first[1:])
        at = np.flatnonzero(first)
        counts = np.minimum(np.diff(at, append=len(terms)), TF_MAX)
        self._buffer(terms[at], ((slots[at] << TF_BITS) | counts).astype(np.uint32))

    def _buffer(self, terms: Terms, postings: Row) -> None:
        while len(terms):
            end = min(self._filled + len(terms), FRESH)
            now = end - self._filled
            self._fresh_terms[self._filled : end] = terms[:now]
            self._fresh[self._filled : end] = postings[:now]
            self._filled = end
            terms, postings = terms[now:], postings[now:]
            if end == FRESH:
                self.distribute()

    def distribute(self) -> None:
        """Empty the buffer into the shards, and let the next few of them sort in what waits there."""
        terms, postings = self._fresh_terms[: self._filled], self._fresh[: self._filled]
        self._filled = 0
        order = np.argsort(terms, kind="stable")
        terms, postings = terms[order], postings[order]
        bounds = [*np.searchsorted(terms, _SHARD_BOUNDS).tolist(), len(terms)]
        for shard, start, end in zip(self._shards, bounds, bounds[1:], strict=False):
            shard.take(terms[start:end], postings[start:end])
        for number in range(self._next, self._next + TURNS):
            self._shards[number].settle_enough()
        self._next = (self._next + TURNS) % SHARDS

    def row(self, term: int) -> Row:
        """Every posting of the term, in no order, those of dead slots among them."""
        found = self._shards[(term >> (64 - SHARD_BITS)) + SHARDS // 2].rows(term)
        here = np.flatnonzero(self._fresh_terms[: self._filled] == term)
        if len(here):
            found.append(self._fresh[here])
        if not found:
            return NO_ROW
        return found[0] if len(found) == 1 else np.concatenate(found)

    def purge(self, number: int, alive: Flags) -> None:
        """Take every posting of a slot that is not alive out of one shard."""
        self._shards[number].purge(alive)

    def __len__(self) -> int:
        return self._filled + sum(len(shard) for shard in self._shards)


class _Shard:
    """The rows of the terms within one range of numbers."""

    def __init__(self) -> None:
        self._settled = _EMPTY
        self._waiting_terms = _NO_TERMS
        self._waiting = NO_ROW

    def __len__(self) -> int:
        return len(self._settled.postings) + len(self._waiting)

    def take(self, terms: Terms, postings: Row) -> None:
        self._waiting_terms = np.concatenate((self._waiting_terms, terms))
        self._waiting = np.concatenate((self._waiting, postings))

    def settle_enough(self) -> None:
        """Sort in what waits, if it is worth the copy."""
        if len(self._waiting) > len(self._settled.postings) // WAITING_SHARE:
            self._settle()

    def rows(self, term: int) -> list[Row]:
        found: list[Row] = []
        terms, starts, postings = self._settled
        at = int(terms.searchsorted(term))
        if at < len(terms) and terms[at] == term:
            found.append(postings[starts[at] : starts[at + 1]])
        if len(self._waiting):
            here = np.flatnonzero(self._waiting_terms == term)
            if len(here):
                found.append(self._waiting[here])
        return found

    def purge(self, alive: Flags) -> None:
        self._settle()
        terms, starts, postings = self._settled
        if not len(postings):
            return
        keep = alive[postings >> TF_BITS]
        counts = np.add.reduceat(keep, starts[:-1], dtype=np.int64)
        self._settled = Settled(terms[counts > 0], _starts(counts[counts > 0]), postings[keep])

    def _settle(self) -> None:
        """Sort what waits into the rows: a few copies of the shard, without sorting what is sorted already."""
        if not len(self._waiting):
            return
        order = np.argsort(self._waiting_terms, kind="stable")
        waiting_terms, waiting = self._waiting_terms[order], self._waiting[order]
        self._waiting_terms, self._waiting = _NO_TERMS, NO_ROW
        terms, starts, postings = self._settled
        # Each new posting goes to the end of its term's row, or where that row would stand.
        postings = np.insert(postings, starts[np.searchsorted(terms, waiting_terms, side="right")], waiting)
        new, added = np.unique(waiting_terms, return_counts=True)
        at = np.searchsorted(terms, new)
        known = np.zeros(len(new), np.bool_)
        inside = at < len(terms)
        known[inside] = terms[at[inside]] == new[inside]
        counts = np.diff(starts)
        counts[at[known]] += added[known]
        counts = np.insert(counts, at[~known], added[~known])
        self._settled = Settled(np.insert(terms, at[~known], new[~known]), _starts(counts), postings)


_SHARD_BOUNDS: Final = (np.arange(SHARDS, dtype=np.int64) - SHARDS // 2) << (64 - SHARD_BITS)


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts
