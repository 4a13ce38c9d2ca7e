"""What a recall returns and in which order: filters, trust, relevance bands, and paths.

Relevance comes first and age only settles ties: scores fall into bands, and within a band trust, rank and creation
decide. Age can therefore never push a relevant note out, nor lift an irrelevant one above it. Visibility is not here
(``callers.visible``), nor is any index: scores are arguments. Specification, section 7.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from amnesiad.core import clocks
from amnesiad.core.events import Provenance, Scope
from amnesiad.core.globs import path_matches
from amnesiad.core.invisible import seen
from amnesiad.core.kinds import Kind
from amnesiad.core.notes import Note, State, Words
from amnesiad.core.policy import Policy

POOL_CAP: Final = 2000
"""No recall ranks more candidates than this: a band may hold every note of a workspace, a request may not."""

MIN_TIE_WIDTH: Final = 2.0**-53
"""The spacing of doubles below 1: a narrower band could not tell two scores apart anyway, and would overflow."""

MATCH_SHARE: Final = 0.25
"""Of the best relevance by words, what a note must reach to count as matched by the query, and not merely found."""

_WITHOUT_CANDIDATE: Final = itemgetter(slice(0, -1))

GRADE_EXACT: Final = 3
GRADE_COVERED: Final = 2
GRADE_MENTIONED: Final = 1
GRADE_NONE: Final = 0

# Without the two marks that voice a kana: behind anything else they are marks like others.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u3098\u309b-\u30ff\u3400-\u9fff\uac00-\ud7af\uff66-\uff9f"
)
# A word character, except in scripts that are written without spaces: 修改src/app.py文件 mentions a path.
_SPACED: Final = re.compile(rf"[^\W{_UNSPACED}]")
_LETTER: Final = re.compile(r"\w")
_OF_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")


class Parts(NamedTuple):
    """What a relevance by words and by meaning is the sum of: a share of the best note's words, in [0, 1], and what its
    meaning adds. ``close``: the meaning alone makes it what was asked for, not merely something near it."""

    words: float
    meaning: float
    close: bool


class Candidate(msgspec.Struct, frozen=True):
    """A note that may be returned: settled at ``now``, visible and past the filters.

    ``score`` is its relevance (any scale, higher is better, 0 without a query); ``parts`` is what that is the sum of,
    ``None`` where it goes by words alone; ``band`` is set by the orders below.
    """

    note: Note
    words: Words
    score: float = 0.0
    band: int = 0
    parts: Parts | None = None

    @property
    def stale(self) -> bool:
        """Whether the answer must mark it."""
        return self.note.state == "stale"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What a request narrows a read to; applied before any limit. An empty field asks for nothing.

    ``tags``: every one of them is there, exactly. ``paths``: the note has to do with one of them (``path_grade``).
    ``since`` and ``until`` are epoch milliseconds, both included, and look at the note's creation.
    """

    kinds: frozenset[Kind] = frozenset()
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    scope: Scope | None = None
    owner: str | None = None
    states: frozenset[State] = frozenset()
    since: int | None = None
    until: int | None = None

    def matches(self, note: Note, words: Words, state: State) -> bool:
        """Whether the note passes. ``state`` is its state settled at ``now``, which the recorded one may lag behind."""
        if self.states and state not in self.states:
            return False
        if self.kinds and note.kind not in self.kinds:
            return False
        if self.owner is not None and note.owner != self.owner:
            return False
        if self.scope is not None and note.scope != self.scope:
            return False
        if self.since is not None and note.created_at < self.since:
            return False
        if self.until is not None and note.created_at > self.until:
            return False
        if self.tags and not all(tag in words.tags for tag in self.tags):
            return False
        return not self.paths or path_grade(words, self.paths) > GRADE_NONE


def trust(provenance: Provenance, policy: Policy) -> float:
    """How far a note of this provenance is trusted, in [0, 1], by the settings ``trust_*``."""
    match provenance:
        case "human":
            return policy.trust_human
        case "user-stated":
            return policy.trust_user_stated
        case "agent":
            return policy.trust_agent
        case "auto":
            return policy.trust_auto


def standing(kind: Kind, provenance: Provenance, policy: Policy) -> tuple[float, int | None]:
    """What notes of this kind and provenance are trusted, and the half-life in milliseconds by which their rank falls,
    ``None`` where it stays 1.0. A task is an obligation: neither doubt nor age lowers it."""
    if kind == "task":
        return 1.0, None
    return trust(provenance, policy), policy.kinds.half_life_ms[kind]


def worth(note: Note, policy: Policy, now: int) -> tuple[float, float, int, str]:
    """What the orders below go by, all descending: (trust, rank, created_at, id), a task's trust and rank in full."""
    trusted, half_life = standing(note.kind, note.provenance, policy)
    rank = 1.0 if half_life is None else clocks.rank(note, policy, now)
    return trusted, rank, note.created_at, note.id


def order_without_query(candidates: Iterable[Candidate], policy: Policy, now: int) -> list[Candidate]:
    """Pinned first, then trust, rank, creation and id, all descending. There is one band, 0.

    Without relevance there are no ties to settle within, so a stale note stands where trust and rank put it.
    """
    return sorted(candidates, key=lambda one: (one.note.pinned, *worth(one.note, policy, now)), reverse=True)


def order_by_relevance(
    scored: Sequence[Candidate], policy: Policy, now: int, limit: int | None = None
) -> list[Candidate]:
    """The candidates with their bands, best first: by band, active before stale, then trust, rank, creation and id.

    ``band = floor((1 - score / best) / tie_width)``. Give it whole bands (``whole_bands``); ``limit`` cuts the order.
    """
    best = max((one.score for one in scored), default=0.0)
    return _in_bands(((band(one.score, best, policy.tie_width), one) for one in scored), policy, now, limit)


def order_by_path(candidates: Iterable[Candidate], paths: Sequence[str], policy: Policy, now: int) -> list[Candidate]:
    """For a recall by path alone: exact anchors (band 0), covered paths (1), mentions (2); the rest is left out."""
    graded = ((path_grade(one.words, paths), one) for one in candidates)
    return _in_bands(((GRADE_EXACT - grade, one) for grade, one in graded if grade > GRADE_NONE), policy, now)


def _in_bands(
    banded: Iterable[tuple[int, Candidate]], policy: Policy, now: int, limit: int | None = None
) -> list[Candidate]:
    # A band may hold two thousand notes of which ten are wanted: only these are made anew with their band.
    keyed = [(-number, one.note.state != "stale", *worth(one.note, policy, now), one) for number, one in banded]
    keyed.sort(key=_WITHOUT_CANDIDATE, reverse=True)
    return [msgspec.structs.replace(row[-1], band=-row[0]) for row in keyed[:limit]]


def matched(ranked: Sequence[Candidate]) -> list[Candidate]:
    """Those of the notes that a query found which are what it is about: by a fair share of the words of the best, or by
    a meaning that is close. A note that shares neither is returned as near, but no step asked for it."""
    best = max((one.score for one in ranked), default=0.0)

    def is_match(one: Candidate) -> bool:
        if one.parts is None:
            return one.score >= MATCH_SHARE * best
        return one.parts.words >= MATCH_SHARE or one.parts.close

    return [one for one in ranked if is_match(one)]


def decided_by(before: Candidate, one: Candidate, policy: Policy, now: int, *, banded: bool) -> str:
    """What put ``one`` behind ``before``: the first thing in which they differ, of what the order goes by.

    ``banded`` for the orders by relevance and by path, which know bands and put stale notes last in theirs.
    """
    first, second = worth(before.note, policy, now), worth(one.note, policy, now)
    differences = (
        ("band", before.band != one.band),
        (
            "stale" if banded else "pinned",
            before.stale != one.stale if banded else before.note.pinned != one.note.pinned,
        ),
        ("trust", first[0] != second[0]),
        ("rank", first[1] != second[1]),
        ("created_at", first[2] != second[2]),
    )
    return next((name for name, differs in differences if differs), "id")


def band(score: float, best: float, tie_width: float) -> int:
    """How many tie widths, as shares of the best score, a score lies below it. 0 where no score is above zero."""
    if best <= 0:
        return 0
    return math.floor((1 - score / best) / max(tie_width, MIN_TIE_WIDTH))


def whole_bands(scores: Sequence[float], limit: int, tie_width: float) -> int:
    """How many of the scores (sorted descending) form the whole bands that cover ``limit``; at most ``POOL_CAP``.

    Fetch that many candidates: only then can the order inside the last band not depend on where the pool was cut.
    """
    size = min(len(scores), POOL_CAP)
    if limit <= 0 or size == 0:
        return 0
    if limit >= size:
        return size
    best = scores[0]
    last = band(scores[limit - 1], best, tie_width)
    end = limit
    while end < size and band(scores[end], best, tie_width) == last:
        end += 1
    return end


def path_grade(words: Words, paths: Sequence[str]) -> int:
    """How closely the note has to do with the best of the paths, by whole path components.

    3 it is anchored to exactly that path · 2 a trigger's glob covers the path, or the path is a directory that holds
    an anchor · 1 the content mentions it · 0 none of these. Paths are canonical (``intake.check_path``).
    """
    asked = frozenset(paths)  # a step may name a thousand files, and a thousand notes may be about them
    covered = False
    for anchor in words.anchors:
        if anchor.path in asked:
            return GRADE_EXACT
        covered = covered or not asked.isdisjoint(_folders(anchor.path))
    globs = [trigger.path for trigger in words.triggers if trigger.path is not None]
    if covered or any(path_matches(glob, path) for glob in globs for path in paths):
        return GRADE_COVERED
    content = words.content
    return GRADE_MENTIONED if any(path in content and _mentions(content, path) for path in paths) else GRADE_NONE


def _folders(path: str) -> Iterator[str]:
    """The folders above a path."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def _mentions(content: str, path: str) -> bool:
    """Whether the path stands in the text with nothing on either side that would make it part of another name.

    The text is taken as it is seen, which is how an index of its words takes it (``pathindex.words_of_mention``).
    """
    content, path = seen(content), seen(path)
    before, after = (_SPACED if edge.isascii() else _LETTER for edge in (path[:1], path[-1:]))
    # Compiling a pattern for each path would cost more than all of the looking.
    start = content.find(path) if path else -1
    while start >= 0:
        end = start + len(path)
        ahead, behind, beyond = content[max(0, start - 1) : start], content[end : end + 1], content[end + 1 : end + 2]
        joined = _joins(ahead, before) or ahead == "." or _joins(behind, after)
        if not joined and not (behind == "." and _SPACED.match(beyond)):
            return True
        start = content.find(path, start + 1)
    return False


def _joins(char: str, letter: re.Pattern[str]) -> bool:
    """Whether the character beside a path, if there is one, makes it part of another name."""
    return char == "-" or letter.match(char) is not None or (char != "" and _is_mark(char))


def _is_mark(char: str) -> bool:
    """Whether it belongs to the letter beside it, and makes that another one."""
    return unicodedata.category(char).startswith("M") and not _OF_UNSPACED.match(char)
