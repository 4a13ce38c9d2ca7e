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
from amnesiad.search import Index, Vectors, fused
from amnesiad.store import vectors as stored

FIRST = 5
USE = embedding.MODELS["use"]
Answers = dict[str, tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def found(encoder: embedding.Encoder) -> Answers:
    """By query of the labelled set: the first five by words alone, and with meaning."""
    notes = quality.notes()
    index, vectors = Index(), Vectors(USE.dimensions, USE.floor, lambda: None)
    rows = encoder.notes(list(notes.values())).astype(stored.STORED).astype(np.float32)
    for (id_, content), row in zip(notes.items(), rows, strict=True):
        index.put(id_, Words(content=content))
        vectors.put(id_, row)
    answers = {}
    for pair in PAIRS:
        by_words = [id_ for id_, _ in islice(index.score(pair.query), FIRST)]
        both = fused(index.score(pair.query), vectors, encoder.query(pair.query), lambda _: True)
        answers[pair.query] = by_words, [id_ for id_, _ in islice(both, FIRST)]
    return answers


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
        vectors, there = Vectors(8, 0.0, lambda: None), {}
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
        vectors = Vectors(4, 0.0, lambda: None)
        for id_ in ("a", "b"):
            vectors.put(id_, [1, 0, 0, 0])
        vectors.drop("a")
        vectors.drop("b")
        assert not vectors._matrix.any()

    def test_all_are_read_past_the_depth(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reader who takes everything gets every note once, scores never rising, however deep the first look was."""
        index, vectors = Index(), Vectors(2, 0.1, lambda: None)
        for number in range(40):
            index.put(f"w{number:02}", Words(content="parcel " * (number % 5 + 1) + str(number)))
            vectors.put(f"w{number:02}", [1, 0] if number % 2 else [0.6, 0.8])
            vectors.put(f"v{number:02}", [0.8, 0.6] if number % 3 else [0, 1])
        query = np.array([1, 0], np.float32)
        whole = dict(fused(index.score("parcel"), vectors, query, lambda _: True))
        monkeypatch.setattr("amnesiad.search.fusion.DEPTHS", (3, 10, None))
        shallow = list(fused(index.score("parcel"), vectors, query, lambda _: True))
        assert len(shallow) == len(dict(shallow))
        assert dict(shallow).keys() == whole.keys()
        scores = [score for _, score in shallow]
        assert scores == sorted(scores, reverse=True)
        assert min(scores) > 0

    def test_what_cannot_be_shown_lowers_nobody(self) -> None:
        """The best is the best of what the reader may have: an unseen closer note changes no score."""
        vectors, query = Vectors(2, 0.1, lambda: None), np.array([1, 0], np.float32)
        vectors.put("a", [0.8, 0.6])
        vectors.put("b", [0, 1])
        vectors.put("hidden", [1, 0])
        found = dict(fused(iter([("hidden", 9.0), ("a", 3.0)]), vectors, query, lambda id_: id_ != "hidden"))
        assert found["a"] == pytest.approx(1.5)
