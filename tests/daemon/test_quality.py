"""The quality of recall on a labelled set: what shares its words with the question is among the first five."""

from __future__ import annotations

from itertools import islice

import pytest
from tests.daemon import quality
from tests.daemon.quality import CJK, ENGLISH, PAIRS

from amnesiad.core.notes import Words
from amnesiad.search import Index

FIRST = 5


@pytest.fixture(scope="module")
def index() -> Index:
    """All notes of the set in one index."""
    index = Index()
    for id_, content in quality.notes().items():
        index.put(id_, Words(content=content))
    return index


def hits(index: Index, pairs: tuple[quality.Pair, ...], half: str) -> float:
    """The share of the queries of this half whose note is among the first five."""
    asked = [(f"p{PAIRS.index(pair)}", pair.query) for pair in pairs if pair.half == half]
    return sum(note in [id_ for id_, _ in islice(index.score(query), FIRST)] for note, query in asked) / len(asked)


def test_the_set_is_what_it_claims_to_be() -> None:
    """At least 60 English and 30 Chinese, Japanese and Korean pairs, half of each to be found by words, none twice."""
    assert len(ENGLISH) >= 60
    assert len(CJK) >= 30
    for pairs in (ENGLISH, CJK):
        assert sum(pair.half == "lexical" for pair in pairs) * 2 == len(pairs)
    contents = list(quality.notes().values())
    assert len(set(contents)) == len(contents)
    assert all(pair.note and pair.query for pair in PAIRS)


@pytest.mark.parametrize("pairs", [ENGLISH, CJK], ids=["english", "cjk"])
def test_words_find_what_shares_them(index: Index, pairs: tuple[quality.Pair, ...]) -> None:
    """Of the lexically answerable questions at least four of five have their note among the first five."""
    assert hits(index, pairs, "lexical") >= 0.8


@pytest.mark.parametrize("pairs", [ENGLISH, CJK], ids=["english", "cjk"])
def test_paraphrases_are_beyond_words(index: Index, pairs: tuple[quality.Pair, ...]) -> None:
    """The other half measures meaning only if words alone leave much of it unfound."""
    assert hits(index, pairs, "paraphrase") <= 0.6
