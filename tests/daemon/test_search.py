"""The index: what is written is found at once by whoever looks for it, and what is dropped leaves nothing behind."""

from __future__ import annotations

import math
import pickle
import random
import time
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amnesiad.core.notes import Anchor, Words
from amnesiad.search import Index, Standing, content_words, overlap, similar
from amnesiad.search.index import K1, MAX_QUERY_TERMS, B
from amnesiad.search.terms import query_terms, required_terms, terms

texts = st.text(st.characters(), max_size=60) | st.lists(
    st.sampled_from(
        ["port", "the", "get_user", "getUser", "src/app.py", "v1.2.3", "腾讯云", "しりとり", "🎉", "É", "ß"]
    ),
    max_size=12,
).map(" ".join)


def index_of(*contents: str) -> Index:
    index = Index()
    for number, content in enumerate(contents):
        index.put(f"n{number}", Words(content=content))
    return index


def found(index: Index, query: str) -> list[str]:
    return [id_ for id_, _ in index.score(query)]


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("用户服务器部署在腾讯云国内节点", "腾讯云"),
        ("今日は成語しりとりをした", "しりとり"),
        ("中文优先", "中文"),
        ("오늘 끝말잇기 게임을 했다", "끝말잇기"),
        ("用户服务器部署在腾讯云国内节点", "云"),
        ("ｶﾀｶﾅで書く", "カタカナ"),
        ("วันนี้อากาศดี", "อากาศ"),
        ("ភាសាខ្មែរពិរោះ", "ខ្មែរ"),
        ("မြန်မာစကားပြော", "စကား"),
        ("हिन्दी में लिखा", "हिन्दी"),
    ],
)
def test_c48_text_without_spaces_is_found(content: str, query: str) -> None:
    """C48: a word inside a run of Chinese, Japanese, Korean, Thai, Khmer or Burmese is found, also a single
    character."""
    index = index_of("nothing of the kind", content)
    assert found(index, query) == ["n1"]
    assert index.contains_all_words(query) == {"n1"}


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("call get_user_name first", "user"),
        ("call get_user_name first", "GET_USER_NAME"),
        ("call getHTTPResponse first", "response"),
        ("call getHTTPResponse first", "http"),
        ("call getHTTPResponse first", "gethttpresponse"),
        ("edit src/app/main.py.", "main.py"),
        ("edit src/app/main.py.", "app"),
        ("edit src/app/main.py.", "src/app/main.py"),
        ("run it with --allow-dangerous", "--allow-dangerous"),
        ("run it with --allow-dangerous", "dangerous"),
        ("pinned to v1.2.3", "v1.2.3"),
        ("Straße in MÜNCHEN", "strasse münchen"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("deployed 🎉 today", "🎉"),
        ("用腾讯云CDN加速x.py", "cdn"),
        (r"open C:\src\app.py", "app.py"),
        ("pool of MySQLClient", "mysql"),
        ("kept by GitHubActionsRunner", "github"),
        ("the OAuth2Token expired", "oauth2"),
        ("collect userIDs", "ids"),
        ("then parseURLs", "URLs"),
        ("zero\u200bwidth and soft\u00adhyphen", "zerowidth"),
        ("zero\u200bwidth and soft\u00adhyphen", "softhyphen"),
        ("a word\ufe0f beside a selector", "word"),
        ("zerowidth", "zero\u2060width"),
    ],
)
def test_identifiers_are_found_whole_and_in_parts(content: str, query: str) -> None:
    """Names in code, paths, flags and versions are found by the whole, by a part, and in any case."""
    assert found(index_of("something else entirely", content), query) == ["n1"]


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("meet at the café", "cafe"),
        ("meet at the cafe", "café"),
        ("meet at the cafe\u0301", "café"),
        ("Größe der Datei", "grosse"),
        ("le dépôt-fantôme", "depot"),
        ("все ещё стоит", "еще"),
        ("η Αθήνα", "αθηνα"),
        ("miasto Łódź", "lodz"),
        ("tiếng Việt đẹp", "dep"),
        ("rødgrød og æbler", "aebler"),
        ("ılık su", "ilik"),
        ("مَرْحَبًا بكم", "مرحبا"),
        ("أحمد هنا", "احمد"),
        ("שָׁלוֹם רב", "שלום"),
    ],
)
def test_a_word_is_found_however_it_is_accented(content: str, query: str) -> None:
    """Who types without accents finds what is written with them, and the other way round; to erase by a query it has to
    be the word that is there."""
    assert found(index_of("something else", content), query) == ["n1"]
    assert index_of("something else", content).contains_all_words(query) == ({"n1"} if "\u0301" in content else set())


def test_the_very_word_comes_before_one_with_other_accents() -> None:
    """Whoever writes an accent, or leaves it out, may mean just that."""
    index = index_of("the café there", "the cafe there")
    assert found(index, "cafe") == ["n1", "n0"]
    assert found(index, "café") == ["n0", "n1"]


def test_a_script_whose_marks_are_letters_keeps_them() -> None:
    """The marks of Japanese, Hindi and Hangul are no accents."""
    assert found(index_of("カキ", "か", "की", "한"), "ガ") == []
    assert found(index_of("が", "किताब"), "क") == []


def test_the_whole_ranks_above_its_parts() -> None:
    """Who asks for an identifier gets the note that has it before the one that has its words."""
    assert found(index_of("get the user's name", "call get_user_name"), "get_user_name") == ["n1", "n0"]


@pytest.mark.parametrize("tag", ["a,b", "a|b", "{x}", "配置", "🎉", "two\nlines"])
def test_c24_key_tags_and_anchors_are_indexed(tag: str) -> None:
    """C24: a note is found by what stands beside its content."""
    index = index_of("something else")
    index.put("t", Words(content="q", key="deploy-port", tags=("other", tag), anchors=(Anchor("src/app.py"),)))
    for query in (tag, "deploy-port", "src/app.py", "app.py"):
        assert found(index, query) == ["t"]


@settings(deadline=None)
@given(texts)
def test_a_note_is_found_by_its_own_text(text: str) -> None:
    """Every term looked up for a text is one it was indexed by, whatever the text."""
    assert set(query_terms(text)) <= set(terms(text))
    assert set(required_terms(text)) <= set(terms(text))
    index = index_of("zzz", text)
    assert ("n1" in found(index, text)) == bool(query_terms(text))
    assert index.contains_all_words(text) == ({"n1"} if required_terms(text) else set())


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), texts | st.none(), st.booleans()), max_size=24))
def test_found_at_once_and_gone_at_once(steps: list[tuple[str, str | None, bool]]) -> None:
    """After puts, replacements and drops in any order, with questions between, the index answers as a new one would."""
    index = Index()
    kept: dict[str, str] = {}
    for id_, content, ask in steps:
        if content is None:
            index.drop(id_)
            kept.pop(id_, None)
        else:
            index.put(id_, Words(content=content))
            kept[id_] = content
        if ask:
            assert_same(index, kept, [text for _, text, _ in steps if text is not None])
    assert_same(index, kept, [text for _, text, _ in steps if text is not None])


def assert_same(index: Index, kept: Mapping[str, str], queries: Iterable[str]) -> None:
    """To every query the index gives the very ids and scores of one built from the notes that are left."""
    fresh = Index()
    for id_, content in kept.items():
        fresh.put(id_, Words(content=content))
    assert len(index) == len(kept)
    assert {id_ for id_ in "abcdef" if id_ in index} == set(kept)
    for query in queries:
        assert list(index.score(query)) == list(fresh.score(query))
        assert index.contains_all_words(query) == fresh.contains_all_words(query)


def test_ten_thousand_writes_and_endings_are_seen_at_once() -> None:
    """V01: through distributions, sweeps and slots given away again no note is missed and no ended one returned."""
    rng = random.Random(4)
    index = Index()
    kept: dict[str, str] = {}
    for number in range(10_000):
        content = f"only{number} shared common{rng.randrange(40)} " + " ".join(
            f"w{rng.randrange(900)}" for _ in "12345678"
        )
        index.put(f"n{number}", Words(content=content))
        kept[f"n{number}"] = content
        assert found(index, f"only{number}") == [f"n{number}"]
        if len(kept) > 1500 or rng.random() < 0.2:
            ended = rng.choice(list(kept))
            index.drop(ended)
            word = kept.pop(ended).split()[0]
            assert found(index, word) == []
            assert not index.contains_all_words(word)
    fresh = Index()
    for id_, content in kept.items():
        fresh.put(id_, Words(content=content))
    for query in ("shared", "common7", "w1 w2 w3 common1 shared", "only9999 shared"):
        assert list(index.score(query)) == list(fresh.score(query))
        assert index.contains_all_words(query) == fresh.contains_all_words(query)


def test_what_is_dropped_is_swept_out() -> None:
    """The room that ended notes took is given away again: an index that turns over does not grow."""
    index = Index()
    for number in range(6000):
        index.put(
            f"n{number}", Words(content=f"only{number} and twelve words more that every one of these notes has alike")
        )
        if number >= 100:
            index.drop(f"n{number - 100}")
    assert found(index, "twelve words")[0] in {f"n{number}" for number in range(5900, 6000)}
    assert len(index.ids) < 1000
    assert len(index._postings) < 1000 * 15


def test_a_dropped_secret_is_nowhere_in_the_index() -> None:
    """Forgotten words leave no word behind, whether they were read from the queue or not; others stay found."""
    index = index_of("the password is hunter2", "the password is changed weekly")
    for _ in range(2):
        index.drop("n0")
        assert b"hunter2" not in pickle.dumps(vars(index))
        assert found(index, "password hunter2") == ["n1"]
        index.put("n0", Words(content="the password is hunter2"))
        assert found(index, "hunter2") == ["n0"]
    index.drop("n0")
    index.drop("n0")
    assert len(index) == 1


def test_c27_filters_come_before_limits() -> None:
    """C27: of 19 000 better matches of one owner and 700 of another, the second sees all 700 of its own."""
    index = Index()
    for number in range(19_000):
        index.put(f"a{number}", Words(content="port port port"))
    for number in range(700):
        index.put(f"b{number}", Words(content="the port is open"))
    assert sum(id_.startswith("b") for id_ in found(index, "port")) == 700


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), texts | st.none(), st.integers(0, 3)), max_size=20), texts)
def test_groups_leave_out_notes_and_change_no_score(steps: list[tuple[str, str | None, int]], query: str) -> None:
    """Asking among some groups gives their notes with the scores they have among all, whatever came and went."""
    index = Index()
    kept: dict[str, int] = {}
    for id_, content, group in steps:
        index.drop(id_)
        kept.pop(id_, None)
        if content is not None:
            index.put(id_, Words(content=content), group)
            kept[id_] = group
    everything = list(index.score(query))
    for wanted in (set(), {1}, {0, 2}, {0, 1, 2, 3}):
        asked: list[int] = []

        def among(group: int, wanted: set[int] = wanted, asked: list[int] = asked) -> bool:
            asked.append(group)
            return group in wanted

        assert list(index.score(query, among)) == [one for one in everything if kept[one[0]] in wanted]
        assert sorted(asked) == sorted(set(kept.values()))


@settings(deadline=None)
@given(
    st.lists(st.tuples(texts, st.sampled_from(["revoked", "superseded", "expired"])), max_size=8), texts, st.booleans()
)
def test_classes_leave_out_notes_and_change_no_score(
    notes: list[tuple[str, str]], query: str, asked_before: bool
) -> None:
    """Asking among some classes gives their notes as they come among all, whether or not they were indexed by then."""
    index = Index()
    for number, (content, state) in enumerate(notes):
        index.put(f"n{number}", Words(content=content), standing=Standing(state))
        if asked_before:
            list(index.score(query))
    for wanted in (set(), {"revoked"}, {"revoked", "superseded", "expired"}):
        some = list(index.score(query, classes=wanted.__contains__))
        assert some == [one for one in index.score(query) if notes[int(one[0][1:])][1] in wanted]


def test_results_are_sorted_and_positive() -> None:
    """Best first, equals by id, and no score of zero that a band could not be made of."""
    index = index_of("port", "port port and more words", "port", "nothing")
    scored = list(index.score("port"))
    assert scored == sorted(scored, key=lambda one: (-one[1], one[0]))
    assert found(index, "port")[-1] == "n1"
    assert all(score > 0 for _, score in scored)


def test_a_workspace_of_equals_comes_in_the_order_of_its_ids() -> None:
    """Ten thousand notes that say the same are told apart by their whole ids, however alike these begin."""
    ids = [f"{'same-start' if n % 2 else n}-{n}" for n in range(10_000)]
    index = Index()
    for id_ in ids:
        index.put(id_, Words(content="all alike"))
    assert found(index, "alike") == sorted(ids)


def test_nothing_is_left_out_however_far_one_reads() -> None:
    """What a common word alone finds comes after what the rare ones found, complete, in order, each note once."""
    rng = random.Random(7)
    contents = [
        " ".join(
            ["the"] * rng.randrange(4) + [f"rare{rng.randrange(12)}"] * rng.randrange(3) + ["x"] * rng.randrange(9)
        )
        for _ in range(9000)
    ]
    index = index_of(*contents)
    scored = list(index.score("the rare1 rare2"))
    expected = {f"n{n}" for n, text in enumerate(contents) if {"the", "rare1", "rare2"} & set(text.split())}
    assert {id_ for id_, _ in scored} == expected
    assert len(scored) == len(expected)
    assert scored == sorted(scored, key=lambda one: (-one[1], one[0]))
    assert dict(scored) == pytest.approx(bm25(contents, ["the", "rare1", "rare2"]))


def bm25(contents: Sequence[str], query: Iterable[str]) -> dict[str, float]:
    """The formula as the books have it, note by note."""
    notes = [text.split() for text in contents]
    average = sum(map(len, notes)) / len(notes)
    scores: dict[str, float] = {}
    for term in query:
        holding = sum(term in note for note in notes)
        weight = math.log(1 + (len(notes) - holding + 0.5) / (holding + 0.5))
        for number, note in enumerate(notes):
            if tf := note.count(term):
                part = weight * tf * (K1 + 1) / (tf + K1 * (1 - B + B * len(note) / average))
                scores[f"n{number}"] = scores.get(f"n{number}", 0.0) + part
    return scores


def test_rare_words_weigh_more_than_common_ones() -> None:
    """A note with the query's rare word stands above one with its common word."""
    assert found(index_of("port a", "port b", "port c", "valkey d"), "port valkey")[0] == "n3"


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("Is the port (of) staging open?", "port staging open?"),
        ("The, of", "The, of"),
        ("is_valid in src/a.py", "is_valid src/a.py"),
        ("do not", "not"),
        ("What should I do if we must not deploy?", "must not deploy?"),
        ("這是 the", "這是"),
        ("the !", "the !"),
        ("", ""),
    ],
)
def test_words_that_carry_no_statement_are_left_out_of_a_query(query: str, kept: str) -> None:
    """Unless it has no others: who asks for *the* alone means just that. A part of a name stays."""
    assert content_words(query) == kept


@pytest.mark.parametrize("query", ["", " ", "*", "?!", "\n"])
def test_a_query_without_words_finds_nothing(query: str) -> None:
    """Above all it is not everything, since forget asks here what to erase."""
    index = index_of("a note", "*")
    assert found(index, query) == []
    assert index.contains_all_words(query) == set()


def test_every_word_must_occur() -> None:
    """One word of three missing spares the note; parts of another word do not count as the word."""
    index = index_of("the staging port is 8080", "the port is closed", "call user_name in src/app/main.py")
    assert index.contains_all_words("port STAGING") == {"n0"}
    assert index.contains_all_words("the port") == {"n0", "n1"}
    assert index.contains_all_words("staging port closed") == set()
    assert index.contains_all_words("app/main.py") == {"n2"}
    assert index.contains_all_words("name_user") == set()


@settings(deadline=None)
@given(texts, texts, texts)
def test_a_tag_narrows_to_no_fewer_notes_than_have_it(content: str, other: str, tag: str) -> None:
    """Whatever signs a tag is made of, beside whatever text: the notes that may have it hold those that do."""
    index = Index()
    index.put("n0", Words(content=content, tags=(other, tag)))
    index.put("n1", Words(content=tag))
    flags = index.narrowed([tag])
    assert flags is None or flags[index.slots(["n0", "n1"])].all()


def test_a_pasted_document_is_looked_up_by_its_rarest_words() -> None:
    """A query of thousands of words still finds the note that shares its rare word."""
    index = index_of(*["common words everywhere"] * 50, "the needle lies here")
    query = " ".join(f"filler{number}" for number in range(5000)) + " common words everywhere needle"
    assert "n50" in found(index, query)
    many = index_of(" ".join(f"w{number}" for number in range(300)), "w0")
    assert len(list(many.score(" ".join(f"w{number}" for number in range(300)), max_terms=MAX_QUERY_TERMS))) >= 1


@pytest.mark.parametrize("piece", ["a", "aB", "a.", "a-", "_", "é", "中", "A", "/", "\\a"])
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """V25: half a megabyte of anything is split within moments (the test's time-out would tell)."""
    text = piece * (500_000 // len(piece)) + "!"
    index = index_of(text)
    assert len(found(index, text)) <= 1
    index.contains_all_words(text)


def test_writing_and_asking_stay_cheap() -> None:
    """Ten thousand notes are indexed and asked with time to spare: bounds ten times what was measured."""
    vocabulary = [f"word{number}" for number in range(5000)]
    contents = [" ".join(vocabulary[(n * k) % 5000] for k in range(1, 31)) for n in range(10_000)]
    started = time.process_time()
    index = index_of(*contents)
    found(index, "word1")
    assert time.process_time() - started < 5
    started = time.process_time()
    for number in range(100):
        list(index.score(f"word{number} word{number * 7} word{number * 31}"))
    assert time.process_time() - started < 5


def test_similar_texts_are_told_from_merely_related_ones() -> None:
    """Equal texts overlap in full; most words shared is similar; one word shared is a topic."""
    assert overlap("The port is 8080.", "port 8080") == 1.0
    assert overlap("the staging port is 8080 today", "port 8080 on staging") == 1.0
    assert overlap("love tabs", "hate tabs") == 0.0
    assert overlap("redis", "redis keeps everything in memory") == 0.0
    assert overlap("用户服务器部署在腾讯云", "服务器部署在腾讯云国内") > 0.6
    assert overlap("", "!") == overlap("", "") == 0.0
    assert overlap("the", "the") == 1.0


@settings(deadline=None)
@given(texts, texts)
def test_overlap_is_symmetric_and_bounded(a: str, b: str) -> None:
    """It is a share, and does not depend on which text came first."""
    assert 0 <= overlap(a, b) == overlap(b, a) <= 1
    assert overlap(a, a) == (1.0 if query_terms(a) else 0.0)


def test_c29_the_same_text_is_found_among_the_ended() -> None:
    """C29: an ended note of the same or nearly the same words is found, closest first; hidden ones are not."""
    contents = ["the staging port is 8080", "staging port moved to 8080 yesterday", "the sky is blue", "port of call"]
    index = index_of(*contents)

    def content(id_: str) -> str:
        return contents[int(id_[1:])]

    assert [id_ for id_, _ in similar("The staging port is 8080", index, content)] == ["n0", "n1"]
    assert [id_ for id_, _ in similar("The staging port is 8080", index, content, lambda id_: id_ != "n0")] == ["n1"]
    assert similar("something new", index, content) == []
    assert similar("anything", Index(), content) == []
