"""The index: what is written is found at once by whoever looks for it, and what is dropped leaves nothing behind."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amnesiad.core.notes import Anchor, Words
from amnesiad.search import Index, overlap, similar
from amnesiad.search.index import MAX_QUERY_TERMS
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
        ("हिन्दी में लिखा", "हिन्दी"),
    ],
)
def test_c48_text_without_spaces_is_found(content: str, query: str) -> None:
    """C48: a word inside a run of Chinese, Japanese, Korean or Thai is found, also a single character."""
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
    ],
)
def test_identifiers_are_found_whole_and_in_parts(content: str, query: str) -> None:
    """Names in code, paths, flags and versions are found by the whole, by a part, and in any case."""
    assert found(index_of("something else entirely", content), query) == ["n1"]


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
@given(st.lists(texts, max_size=8), st.data())
def test_dropping_leaves_exactly_what_was_never_there(contents: list[str], data: st.DataObject) -> None:
    """After puts, replacements and drops in any order the index answers as one built from the survivors alone."""
    index = Index()
    kept: dict[str, str] = {}
    for content in contents:
        id_ = data.draw(st.sampled_from(["a", "b", "c"]))
        if data.draw(st.booleans()):
            index.put(id_, Words(content=content))
            kept[id_] = content
        else:
            index.drop(id_)
            kept.pop(id_, None)
    fresh = Index()
    for id_, content in kept.items():
        fresh.put(id_, Words(content=content))
    assert len(index) == len(kept)
    assert {id_ for id_ in "abc" if id_ in index} == set(kept)
    assert set(index._numbers) == set(fresh._numbers)
    assert index._total_length == fresh._total_length
    for content in contents:
        assert index.score(content) == fresh.score(content)
    for id_ in kept:
        index.drop(id_)
    assert not index._numbers
    assert not any(index._names)
    assert not any(index._postings)
    assert not any(index._holds)


def test_a_dropped_secret_is_nowhere_in_the_index() -> None:
    """Forgotten words leave no term, no posting and no name behind; words shared with others stay found."""
    index = index_of("the password is hunter2", "the password is changed weekly")
    index.drop("n0")
    assert "hunter2" not in repr(vars(index))
    assert found(index, "password hunter2") == ["n1"]
    index.drop("n0")
    assert len(index) == 1


def test_c27_filters_come_before_limits() -> None:
    """C27: of 19 000 better matches of one owner and 700 of another, the second sees all 700 of its own."""
    index = Index()
    for number in range(19_000):
        index.put(f"a{number}", Words(content="port port port"))
    for number in range(700):
        index.put(f"b{number}", Words(content="the port is open"))
    assert len(index.score("port", lambda id_: id_.startswith("b"))) == 700


def test_results_are_sorted_and_positive() -> None:
    """Best first, equals by id, and no score of zero that a band could not be made of."""
    index = index_of("port", "port port and more words", "port", "nothing")
    scored = index.score("port")
    assert scored == sorted(scored, key=lambda one: (-one[1], one[0]))
    assert found(index, "port")[-1] == "n1"
    assert all(score > 0 for _, score in scored)


def test_rare_words_weigh_more_than_common_ones() -> None:
    """A note with the query's rare word stands above one with its common word."""
    assert found(index_of("port a", "port b", "port c", "valkey d"), "port valkey")[0] == "n3"


@pytest.mark.parametrize("query", ["", " ", "*", "?!", "\n"])
def test_a_query_without_words_finds_nothing(query: str) -> None:
    """Above all it is not everything, since forget asks here what to erase."""
    index = index_of("a note", "*")
    assert index.score(query) == []
    assert index.contains_all_words(query) == set()


def test_every_word_must_occur() -> None:
    """One word of three missing spares the note; parts of another word do not count as the word."""
    index = index_of("the staging port is 8080", "the port is closed", "call user_name in src/app/main.py")
    assert index.contains_all_words("port STAGING") == {"n0"}
    assert index.contains_all_words("the port") == {"n0", "n1"}
    assert index.contains_all_words("staging port closed") == set()
    assert index.contains_all_words("app/main.py") == {"n2"}
    assert index.contains_all_words("name_user") == set()


def test_a_pasted_document_is_looked_up_by_its_rarest_words() -> None:
    """A query of thousands of words still finds the note that shares its rare word."""
    index = index_of(*["common words everywhere"] * 50, "the needle lies here")
    query = " ".join(f"filler{number}" for number in range(5000)) + " common words everywhere needle"
    assert "n50" in found(index, query)
    many = index_of(" ".join(f"w{number}" for number in range(300)), "w0")
    assert len(many.score(" ".join(f"w{number}" for number in range(300)), max_terms=MAX_QUERY_TERMS)) >= 1


@pytest.mark.parametrize("piece", ["a", "aB", "a.", "a-", "_", "é", "中", "A", "/", "\\a"])
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """V25: half a megabyte of anything is split within moments (the test's time-out would tell)."""
    text = piece * (500_000 // len(piece)) + "!"
    index = index_of(text)
    index.score(text)
    index.contains_all_words(text)


def test_writing_and_asking_stay_cheap() -> None:
    """Ten thousand notes are indexed and asked with time to spare: bounds ten times what was measured."""
    vocabulary = [f"word{number}" for number in range(5000)]
    contents = [" ".join(vocabulary[(n * k) % 5000] for k in range(1, 31)) for n in range(10_000)]
    started = time.process_time()
    index = index_of(*contents)
    assert time.process_time() - started < 5
    started = time.process_time()
    for number in range(100):
        index.score(f"word{number} word{number * 7} word{number * 31}")
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
