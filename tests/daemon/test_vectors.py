"""Vectors and models without a store: the matrix, words and meaning in one figure, and what that finds.

The quality of recall is measured on the labelled set, with the model that ships in a package.
"""

from __future__ import annotations

import sys
from itertools import islice

import numpy as np
import pytest
from tests.daemon import quality
from tests.daemon.quality import CJK, ENGLISH, PAIRS

from amnesiad import embedding
from amnesiad.core.notes import Words
from amnesiad.search import Fusion, Index, Vectors
from amnesiad.store import vectors as stored

FIRST = 5
USE = embedding.MODELS["use"]
Answers = dict[str, tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def found(encoder: embedding.Encoder) -> Answers:
    """By query of the labelled set: the first five by words alone, and with meaning."""
    notes = quality.notes()
    index, vectors = Index(), Vectors(USE.dimensions, USE.floor, USE.close, lambda: None)
    rows = encoder.notes(list(notes.values())).astype(stored.STORED).astype(np.float32)
    for (id_, content), row in zip(notes.items(), rows, strict=True):
        index.put(id_, Words(content=content))
        vectors.put(id_, row)
    answers = {}
    for pair in PAIRS:
        by_words = [id_ for id_, _ in islice(index.score(pair.query), FIRST)]
        both = scored(Fusion(index, pair.query, None, vectors, encoder.query(pair.query), lambda _: True), index)
        answers[pair.query] = by_words, list(both)[:FIRST]
    return answers


def scored(fusion: Fusion, index: Index) -> dict[str, float]:
    """All that is found, with its relevance, best first."""
    found = [
        (index.ids[slot], score)
        for layer in fusion.layers()
        for slot, score in zip(layer.slots.tolist(), layer.scores.tolist(), strict=True)
    ]
    return dict(sorted(found, key=lambda one: (-one[1], one[0])))


class TestQuality:
    """The labelled set: meaning finds what words cannot, and costs nothing of what they can."""

    def hits(self, found: Answers, pairs: tuple[quality.Pair, ...], half: str) -> tuple[float, float]:
        asked = [(f"p{PAIRS.index(pair)}", found[pair.query]) for pair in pairs if pair.half == half]
        return (
            sum(note in by_words for note, (by_words, _) in asked) / len(asked),
            sum(note in both for note, (_, both) in asked) / len(asked),
        )

    @pytest.mark.parametrize(("pairs", "least"), [(ENGLISH, 0.15), (CJK, 0.4)], ids=["english", "cjk"])
    def test_meaning_beats_words_on_paraphrases(
        self, found: Answers, pairs: tuple[quality.Pair, ...], least: float
    ) -> None:
        """Of questions in other words many more have their note among the first five."""
        by_words, both = self.hits(found, pairs, "paraphrase")
        assert both >= by_words + least

    @pytest.mark.parametrize("pairs", [ENGLISH, CJK], ids=["english", "cjk"])
    def test_meaning_takes_nothing_from_words(self, found: Answers, pairs: tuple[quality.Pair, ...]) -> None:
        """What words find stays found."""
        by_words, both = self.hits(found, pairs, "lexical")
        assert both >= by_words


# Both models are packaged for Linux; elsewhere the one that is.
@pytest.mark.parametrize("name", [name for name in embedding.MODELS if name == "use" or sys.platform == "linux"])
def test_a_model_is_what_is_said_of_it(name: embedding.Name, request: pytest.FixtureRequest) -> None:
    """Dimensions, length 1, and a floor between what is alike and what is not, in English and Chinese."""
    encoder = request.getfixturevalue("encoder") if name == "use" else embedding.load(name)
    model = embedding.MODELS[name]
    notes = encoder.notes(["The client hates pop-up windows.", "客户讨厌弹出窗口。", "Backups run at two at night."])
    assert notes.shape == (3, model.dimensions)
    assert np.linalg.norm(notes, axis=1) == pytest.approx(1, abs=1e-3)
    english, chinese, unlike = notes @ encoder.query("what does the client dislike?")
    assert min(english, chinese) > model.floor
    assert min(english, chinese) > unlike
    assert encoder.notes(["x" * 100_000, "\u0301", "  "]).shape == (3, model.dimensions)


class TestVectors:
    """The matrix in memory."""

    def test_put_and_drop_in_any_order(self) -> None:
        """After a thousand puts and drops each note that is there has its own vector, and none has another's."""
        random = np.random.default_rng(7)
        vectors, there = Vectors(8, 0.0, 1.0, lambda: None), {}
        for _ in range(1000):
            id_ = f"n{random.integers(80)}"
            if random.random() < 0.6:
                there[id_] = random.standard_normal(8).astype(np.float32)
                vectors.put(id_, there[id_])
            else:
                there.pop(id_, None)
                vectors.drop(id_)
        assert sorted(vectors.ids) == sorted(there)
        query = np.ones(8, np.float32)
        for id_, cosine in zip(vectors.ids, vectors.cosines(query), strict=True):
            assert cosine == pytest.approx(there[id_] @ query, abs=1e-5)

    def test_nothing_is_left_of_a_dropped_vector(self) -> None:
        """The row that a dropped note had is zeroed, not only passed over."""
        vectors = Vectors(4, 0.0, 1.0, lambda: None)
        for id_ in ("a", "b"):
            vectors.put(id_, [1, 0, 0, 0])
        vectors.drop("a")
        vectors.drop("b")
        assert not vectors._matrix.any()

    def test_relevance_is_the_sum_of_its_parts(self) -> None:
        """Words count by their share of the best, meaning by its share of the closest; below the floor it is
        nothing."""
        index, vectors = Index(), Vectors(2, 0.1, 0.7, lambda: None)
        for id_, content, vector in (
            ("both", "parcel", [1, 0]),
            ("words", "parcel parcel", [0, 1]),
            ("near", "box", [0.6, 0.8]),
            ("nothing", "fish", [0, 1]),
        ):
            index.put(id_, Words(content=content))
            vectors.put(id_, vector)
        fusion = Fusion(index, "parcel", None, vectors, np.array([1, 0], np.float32), lambda _: True)
        found = scored(fusion, index)
        assert found.keys() == {"both", "words", "near"}
        parts = {id_: fusion.parts(id_) for id_ in found}
        assert all(score == pytest.approx(parts[id_].words + parts[id_].meaning) for id_, score in found.items())
        assert parts["words"][:2] == (1, 0)
        assert parts["both"].meaning == 0.5
        assert 0 < parts["near"].meaning < 0.5
        assert [id_ for id_ in parts if parts[id_].close] == ["both"]

    def test_what_cannot_be_shown_lowers_nobody(self) -> None:
        """The best is the best of what the reader may have: an unseen closer note changes no score."""
        index, vectors, query = Index(), Vectors(2, 0.1, 0.5, lambda: None), np.array([1, 0], np.float32)
        for id_, group, content, vector in (
            ("a", "seen", "parcel", [0.8, 0.6]),
            ("b", "seen", "fish", [0, 1]),
            ("hidden", "unseen", "parcel parcel", [1, 0]),
            ("gone", "seen", "parcel parcel", [1, 0]),
        ):
            index.put(id_, Words(content=content), group)
            vectors.put(id_, vector)
        fusion = Fusion(index, "parcel", "seen".__eq__, vectors, query, lambda id_: id_ != "gone")
        assert scored(fusion, index)["a"] == pytest.approx(1.5)
        assert "hidden" not in scored(fusion, index)
