"""BM25 over the words of one set of notes, in memory: put, drop, score.

Every note has a slot, a small integer, and every term a sorted array of packed postings (slot and term frequency in
four bytes), so that 100 000 notes fit in tens of megabytes rather than hundreds. A note is found as soon as ``put``
returns and gone, with every term only it had, as soon as ``drop`` returns. BM25 after Robertson and Zaragoza (2009).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Final

from amnesiad.core.notes import Words
from amnesiad.search.terms import query_terms, required_terms, terms

K1: Final = 1.2
B: Final = 0.75

MAX_QUERY_TERMS: Final = 64
"""A longer query is looked up by its rarest terms: a pasted document must not walk through every posting there is."""

_TF_BITS: Final = 4
_TF_MAX: Final = (1 << _TF_BITS) - 1
"""Frequencies above 15 count as 15; BM25 saturates long before."""


class Index:
    """The notes of one workspace that are alike in one respect (live, or ended), by their words."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        # By slot; a free slot has the id "".
        self._ids: list[str] = []
        self._lengths: array[int] = array("I")
        self._holds: list[array[int]] = []
        self._free_slots: list[int] = []
        self._total_length = 0
        # By term number; a free number has the name "".
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._postings: list[array[int]] = []
        self._free_numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._slots

    def put(self, id_: str, words: Words) -> None:
        """Index content, key, tags and anchor paths under the id, in place of what it was indexed by before."""
        if id_ in self._slots:
            self.drop(id_)
        found = terms(_text(words))
        if self._free_slots:
            slot = self._free_slots.pop()
        else:
            slot = len(self._ids)
            self._ids.append("")
            self._lengths.append(0)
            self._holds.append(_NONE)
        base = slot << _TF_BITS
        numbers, postings = self._numbers, self._postings
        holds: list[int] = []
        hold = holds.append
        for term, count in Counter(found).items():
            number = numbers.get(term)
            if number is None:
                number = self._new_number(term)
            hold(number)
            posting = base | (count if count < _TF_MAX else _TF_MAX)
            row = postings[number]
            if not row or row[-1] < posting:
                row.append(posting)
            else:
                row.insert(bisect_left(row, base), posting)
        self._slots[id_] = slot
        self._ids[slot] = id_
        self._holds[slot] = array("I", holds)
        self._lengths[slot] = len(found)
        self._total_length += len(found)

    def _new_number(self, term: str) -> int:
        if self._free_numbers:
            number = self._free_numbers.pop()
            self._names[number] = term
            self._postings[number] = array("I")
        else:
            number = len(self._names)
            self._names.append(term)
            self._postings.append(array("I"))
        self._numbers[term] = number
        return number

    def drop(self, id_: str) -> None:
        """Take the note out, with every term that no other note has. An unknown id is no error: it is out already."""
        slot = self._slots.pop(id_, None)
        if slot is None:
            return
        base = slot << _TF_BITS
        for number in self._holds[slot]:
            row = self._postings[number]
            del row[bisect_left(row, base)]
            if not row:
                del self._numbers[self._names[number]]
                self._names[number] = ""
                self._postings[number] = _NONE
                self._free_numbers.append(number)
        self._total_length -= self._lengths[slot]
        self._ids[slot] = ""
        self._lengths[slot] = 0
        self._holds[slot] = _NONE
        self._free_slots.append(slot)

    def score(
        self, query: str, allow: Callable[[str], bool] | None = None, *, max_terms: int = MAX_QUERY_TERMS
    ) -> list[tuple[str, float]]:
        """Every note that shares a term with the query and passes ``allow``, with its relevance, best first.

        Sorted by score descending, then id. ``allow`` sees each id once, before anything is cut off, so that a filter
        never costs results. Of more than ``max_terms`` terms only the rarest are looked up. Scores are above 0.
        """
        rows = [
            self._postings[number] for term in query_terms(query) if (number := self._numbers.get(term)) is not None
        ]
        if len(rows) > max_terms:
            rows = sorted(rows, key=len)[:max_terms]
        if not rows:
            return []
        scores = self._accumulate(rows)
        ids = self._ids
        if allow is None:
            result = [(ids[slot], score) for slot, score in scores.items()]
        else:
            result = [(id_, score) for slot, score in scores.items() if allow(id_ := ids[slot])]
        result.sort()
        result.sort(key=_by_score, reverse=True)
        return result

    def _accumulate(self, rows: list[array[int]]) -> dict[int, float]:
        """Slot -> BM25 score, summed term by term."""
        count = len(self._slots)
        flat = K1 * (1 - B)
        slope = K1 * B * count / self._total_length
        lengths = self._lengths
        scores: dict[int, float] = {}
        get = scores.get
        for row in rows:
            weight = (K1 + 1) * math.log(1 + (count - len(row) + 0.5) / (len(row) + 0.5))
            for posting in row:
                slot = posting >> _TF_BITS
                tf = posting & _TF_MAX
                scores[slot] = get(slot, 0.0) + weight * tf / (tf + flat + slope * lengths[slot])
        return scores

    def contains_all_words(self, query: str) -> set[str]:
        """The ids of all notes in which every word of the query occurs; none for a query without a word.

        Words are wholes: ``user`` finds ``user_name``, ``user_name`` does not find ``user``. A run of an unspaced
        script occurs where all its pairs of neighbours do.
        """
        rows: list[array[int]] = []
        for term in required_terms(query):
            number = self._numbers.get(term)
            if number is None:
                return set()
            rows.append(self._postings[number])
        if not rows:
            return set()
        rows.sort(key=len)
        slots = {posting >> _TF_BITS for posting in rows[0]}
        for row in rows[1:]:
            slots &= {posting >> _TF_BITS for posting in row}
        return {self._ids[slot] for slot in slots}


_NONE: Final[array[int]] = array("I")
"""In place of what a free slot or term number held. Never written to: a number in use has an array of its own."""


def _by_score(result: tuple[str, float]) -> float:
    return result[1]


def _text(words: Words) -> str:
    """Everything about a note that a query may find it by."""
    if not (words.key or words.tags or words.anchors):
        return words.content
    return "\n".join((words.content, words.key or "", *words.tags, *(anchor.path for anchor in words.anchors)))
