"""LangGraph's store contract, run against its own in-memory store and against ours."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from tests.daemon.desk import problems
from tests.integrations.stores import Face

from amnesiad.integrations.langgraph import AmnesiaStore
from amnesiad.service import Service

CONDITIONS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"color": "red"}, "ace"),
    ({"color": "red", "size": 3}, "c"),
    ({"size": {"$gt": 2}}, "cde"),
    ({"size": {"$gte": 2}}, "bcde"),
    ({"size": {"$lt": 2}}, "a"),
    ({"size": {"$lte": 2}}, "ab"),
    ({"size": {"$gte": 2, "$lt": 4}}, "bc"),
    ({"color": {"$ne": "red"}}, "bd"),
    ({"color": {"$eq": "red"}, "size": {"$ne": 1}}, "ce"),
    ({"shape": {"corners": 4}}, "bd"),
    ({"shape": {"corners": {"$gt": 3}}}, "bde"),
    ({"tags": ["x", "y"]}, "ac"),
    ({"shape": {"corners": 4, "missing": None}}, "bd"),
    ({"missing": None}, "abcde"),
    ({"missing": "x"}, ""),
    ({}, "abcde"),
]
"""Filters over the items a to e, and which of them pass."""


class Letters(Embeddings):
    """Vectors that count letters: enough for an in-memory store to rank by."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0 + text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class TestContract:
    """What every LangGraph store does, ours and the library's own alike, blocking and asynchronously."""

    @pytest.fixture(params=["in-memory", "amnesia"])
    def store(self, request: pytest.FixtureRequest, asynchronous: bool) -> Face:
        if request.param == "amnesia":
            return Face(request.getfixturevalue("amnesia"), asynchronous)
        return Face(InMemoryStore(index={"dims": 26, "embed": Letters()}), asynchronous)

    async def test_what_is_put_is_got(self, store: Face) -> None:
        """Values come back as they went in: nested, empty, in every script; and so does the item's address."""
        values: list[dict[str, Any]] = [
            {"theme": "dark"},
            {},
            {"n": 1, "x": 1.5, "t": True, "none": None, "deep": {"list": [1, {"a": []}]}},
            {"text": '用户服务器 "quoted"\nnew line\t🍵 \x00'},
        ]
        for n, value in enumerate(values):
            await store.put(("users", "123"), f"k{n}", value)
            item = await store.get(("users", "123"), f"k{n}")
            assert item is not None
            assert (item.value, item.key, item.namespace) == (value, f"k{n}", ("users", "123"))

    async def test_what_is_not_there(self, store: Face) -> None:
        """An absent item is None, an absent namespace finds nothing, and deleting either is no error."""
        assert await store.get(("users",), "k") is None
        assert await store.search(("users",)) == []
        await store.delete(("users",), "k")
        await store.put(("users",), "k", {"a": 1})
        assert await store.get(("users",), "other") is None
        assert await store.get(("users",), "\ud83d") is None
        assert await store.get(("users", "123"), "k") is None
        assert await store.get(("user",), "k") is None

    async def test_a_put_replaces(self, store: Face) -> None:
        """C13: the newest value is the only one, however often it goes back and forth."""
        for value in ({"v": 1}, {"v": 2}, {"v": 1}, {"v": 1}):
            await store.put(("a",), "k", value)
            assert await store.value(("a",), "k") == value
            assert len(await store.search(("a",))) == 1

    async def test_a_delete_is_of_one_item(self, store: Face) -> None:
        """What is deleted is gone, twice deleted too, and its neighbors stay; it can be put again."""
        for key in ("k", "l"):
            await store.put(("a",), key, {"v": key})
        for _ in range(2):
            await store.delete(("a",), "k")
            assert await store.get(("a",), "k") is None
            assert await store.keys(("a",)) == ["l"]
        await store.put(("a",), "k", {"v": "again"})
        assert await store.value(("a",), "k") == {"v": "again"}

    async def test_the_same_value_under_two_addresses_is_two_items(self, store: Face) -> None:
        """C14 does not reach across addresses: neither put nor delete of one touches the other."""
        addresses = [(("a",), "k"), (("a",), "l"), (("b",), "k"), (("a", "b"), "k")]
        for namespace, key in addresses:
            await store.put(namespace, key, {"same": True})
        await store.delete(("a",), "k")
        for namespace, key in addresses[1:]:
            assert await store.value(namespace, key) == {"same": True}

    async def test_addresses_are_never_confused(self, store: Face) -> None:
        """C24: labels and keys with separators, quotation marks and other scripts stay apart."""
        addresses = [
            (("a", "b"), "c"), (("a",), "b/c"), (("a/b",), "c"), (("a",), "b.c"), (('a","b',), "c"), (("a", "b", "c"), ""),
            (("配置",), "🍵"), (("a:b",), "c"), (("*",), "c"), (("a ",), "c"), (("A",), "c"), (("lg",), "c"),
        ]  # fmt: skip
        for n, (namespace, key) in enumerate(addresses):
            await store.put(namespace, key, {"n": n})
        for n, (namespace, key) in enumerate(addresses):
            assert await store.value(namespace, key) == {"n": n}
            assert n in [item.value["n"] for item in await store.search(namespace, limit=100)]
        assert len(await store.search((), limit=100)) == len(addresses)

    async def test_long_addresses(self, store: Face) -> None:
        """Labels and keys beyond what a key or a tag of ours holds work all the same."""
        long, other = "l" * 200, "l" * 199 + "m"
        for namespace, key in (((long, "x"), "k"), ((other, "x"), "k"), (("x",), long), (("x",), other)):
            await store.put(namespace, key, {"at": [*namespace, key]})
        assert await store.value((long, "x"), "k") == {"at": [long, "x", "k"]}
        assert await store.value(("x",), other) == {"at": ["x", other]}
        assert [item.namespace for item in await store.search((other,))] == [(other, "x")]
        assert await store.namespaces(prefix=(long,)) == [(long, "x")]

    async def test_times(self, store: Face) -> None:
        """Times have a zone, and an item is updated no earlier than it was created."""
        await store.put(("a",), "k", {"v": 1})
        for item in (await store.get(("a",), "k"), *(await store.search(("a",)))):
            assert item is not None
            assert item.created_at.tzinfo is not None
            assert item.created_at <= item.updated_at
            assert abs(datetime.now(UTC) - item.updated_at) < timedelta(minutes=1)

    async def test_a_search_finds_what_lies_below_a_prefix(self, store: Face) -> None:
        """C25: a prefix is whole labels, itself and everything below it; the empty one is everything."""
        places = [("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("b", "a")]
        for namespace in places:
            await store.put(namespace, "k", {"at": list(namespace)})

        async def found(*prefix: str) -> set[tuple[str, ...]]:
            return {item.namespace for item in await store.search(prefix)}

        assert await found() == set(places)
        assert await found("a") == {("a",), ("a", "b"), ("a", "b", "c")}
        assert await found("a", "b") == {("a", "b"), ("a", "b", "c")}
        assert await found("b") == {("b", "a")}
        assert await found("c") == set()

    async def test_filters(self, store: Face) -> None:
        """Equality, operators, several at once, nested objects and lists select as the in-memory store does."""
        for size, key in enumerate("abcde", start=1):
            value = {
                "color": "red" if size % 2 else "blue",
                "size": size,
                "shape": {"corners": 3 if size in (1, 3) else 4 if size < 5 else 5, "name": key},
                "tags": ["x", "y"] if size in (1, 3) else ["y", "x"] if size == 2 else [],
            }
            await store.put(("shapes",), key, value)
        found = [sorted(await store.keys(("shapes",), filter=condition)) for condition, _ in CONDITIONS]
        assert found == [list(expected) for _, expected in CONDITIONS]

    async def test_an_unknown_operator_is_an_error(self, store: Face) -> None:
        """A typo selects neither everything nor nothing."""
        await store.put(("a",), "k", {"v": 1})
        with pytest.raises(ValueError, match="near"):
            await store.search(("a",), filter={"v": {"$near": 1}})

    async def test_pages_cover_everything_once(self, store: Face) -> None:
        """Limit and offset cut one order that stays the same between two searches."""
        for n in range(25):
            await store.put(("a", str(n % 3)), f"k{n}", {"n": n})
        assert len(await store.search(("a",))) == 10
        pages = [await store.keys(("a",), limit=10, offset=offset) for offset in (0, 10, 20, 30)]
        assert [len(page) for page in pages] == [10, 10, 5, 0]
        assert sorted(key for page in pages for key in page) == sorted(f"k{n}" for n in range(25))
        assert await store.keys(("a",), limit=0) == []

    async def test_filters_come_before_limits(self, store: Face) -> None:
        """C27: the one item that passes is found behind any number that do not, with and without a query."""
        await store.put(("a",), "rare", {"kind": "rare", "text": "tea"})
        for n in range(30):
            await store.put(("a",), f"k{n}", {"kind": "common", "text": f"tea tea {n}"})
        assert await store.keys(("a",), filter={"kind": "rare"}, limit=1) == ["rare"]
        assert await store.keys(("a",), filter={"kind": "rare"}, limit=1, query="tea") == ["rare"]
        assert len(await store.keys(("a",), filter={"kind": "common"}, limit=7, offset=25)) == 5

    async def test_a_query_puts_the_best_first(self, store: Face) -> None:
        """What a query is about comes first, with a score that falls; whatever else lies there may follow."""
        await store.put(("docs",), "tea", {"text": "zzz zebra zoo"})
        await store.put(("docs",), "coffee", {"text": "espresso"})
        await store.put(("docs", "deep"), "more", {"text": "zebra"})
        await store.put(("other",), "far", {"text": "zebra zebra"})
        found = await store.search(("docs",), query="zebra")
        assert {item.key for item in found} <= {"tea", "more", "coffee"}
        assert found[0].key in ("tea", "more")
        assert found[0].score is not None
        scores = [item.score for item in found if item.score is not None]
        assert scores == sorted(scores, reverse=True)
        assert await store.keys(("docs",), query="zebra", limit=1) == [found[0].key]

    async def test_a_query_that_says_nothing(self, store: Face) -> None:
        """An empty query is no query: everything is found."""
        await store.put(("a",), "k", {"v": 1})
        assert await store.keys(("a",), query="") == ["k"]

    @pytest.mark.parametrize("query", ["tea " * 5000, "tea \x00", "tea \ud83d", " \0"])
    async def test_any_text_is_a_query(self, query: str, store: Face) -> None:
        """V25: agents search with what people write, and people paste."""
        await store.put(("a",), "k", {"text": "tea"})
        assert await store.keys(("a",), query=query) == ["k"]

    async def test_namespaces(self, store: Face) -> None:
        """Each once, in order, by prefix, suffix and wildcard, cut at a depth, in pages."""
        for namespace in (
            ("a", "b", "c"),
            ("a", "b", "d", "e"),
            ("a", "b", "d", "i"),
            ("a", "b", "f"),
            ("a", "c", "f"),
        ):
            for key in "kl":
                await store.put(namespace, key, {"v": 1})
        everything = await store.namespaces()
        assert everything == sorted(set(everything))
        assert len(everything) == 5
        assert await store.namespaces(prefix=("a", "b"), max_depth=3) == [
            ("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f"),
        ]  # fmt: skip
        assert await store.namespaces(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
        assert await store.namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
        assert await store.namespaces(prefix=("a",), suffix=("d", "*")) == [("a", "b", "d", "e"), ("a", "b", "d", "i")]
        assert await store.namespaces(prefix=("a", "b", "c", "d", "e")) == []
        assert await store.namespaces(max_depth=1) == [("a",)]
        assert await store.namespaces(limit=2, offset=1) == everything[1:3]
        assert await store.namespaces(prefix=("x",)) == []

    @pytest.mark.parametrize("namespace", [(), ("",), ("a.b",), ("a", ""), ("langgraph",), (1,)])
    async def test_bad_namespaces(self, store: Face, namespace: tuple[Any, ...]) -> None:
        """V26: an empty namespace, label, a period, the reserved root and a number are refused, and nothing is put."""
        with pytest.raises(InvalidNamespaceError):
            await store.put(namespace, "k", {"v": 1})
        assert await store.search(()) == []

    async def test_a_batch_answers_in_order(self, store: Face) -> None:
        """Results stand where their operations stood; reads see what was there before; the last put of an item wins."""
        await store.put(("a",), "k", {"v": 1})
        ops: list[Op] = [
            PutOp(("a",), "k", {"v": 2}),
            GetOp(("a",), "k"),
            PutOp(("b",), "l", {"v": 3}),
            SearchOp(("b",)),
            PutOp(("a",), "k", {"v": 4}),
            ListNamespacesOp(),
            GetOp(("nowhere",), "k"),
            PutOp(("a",), "gone", None),
        ]
        results = await store.batch(ops)
        assert [results[n] for n in (0, 2, 4, 6, 7)] == [None] * 5
        got = results[1]
        assert isinstance(got, Item)
        assert (got.value, results[3]) == ({"v": 1}, [])
        assert ("a",) in results[5]  # type: ignore[operator]
        assert await store.value(("a",), "k") == {"v": 4}
        assert await store.value(("b",), "l") == {"v": 3}
        assert await store.batch([]) == []

    async def test_a_hundred_at_once(self, store: Face) -> None:
        """C01: concurrent puts and gets lose nothing."""
        await asyncio.gather(*(store.put(("a",), f"k{n}", {"n": n}) for n in range(100)))
        values = await asyncio.gather(*(store.value(("a",), f"k{n}") for n in range(100)))
        assert values == [{"n": n} for n in range(100)]

    async def test_a_caller_cannot_change_what_is_stored(self, store: Face) -> None:
        """The value is taken as it is when it is put."""
        value = {"v": 1}
        await store.put(("a",), "k", value)
        value["v"] = 2
        assert await store.value(("a",), "k") == {"v": 1}

    async def test_a_ttl_is_supported_or_refused(self, store: Face) -> None:
        """A store that cannot end an item says so instead of keeping it."""
        if store.store.supports_ttl:
            await store.put(("a",), "k", {"v": 1}, ttl=5)
            assert await store.value(("a",), "k") == {"v": 1}
        else:
            with pytest.raises(NotImplementedError):
                await store.put(("a",), "k", {"v": 1}, ttl=5)
        await store.put(("a",), "l", {"v": 1}, ttl=None)
        assert await store.value(("a",), "l") == {"v": 1}


@pytest.mark.parametrize("seed", range(4))
async def test_random_work_on_both_stores(amnesia: AmnesiaStore, service: Service, seed: int) -> None:
    """Whatever is put, replaced and deleted in whatever order, both stores hold the same and answer filters alike."""
    dice, reference = random.Random(seed), InMemoryStore()
    labels, keys = ("a", "b", "c d"), ("k", "l", "")
    for _ in range(60):
        namespace = tuple(dice.choice(labels) for _ in range(dice.randint(1, 3)))
        key, value = dice.choice(keys), {"n": dice.randint(0, 3), "of": list(namespace)[: dice.randint(0, 2)]}
        ops: list[Op] = [PutOp(namespace, key, None if dice.random() < 0.3 else value)]
        if dice.random() < 0.3:
            ops.append(PutOp(namespace[:1], dice.choice(keys), value))
        for store in (reference, amnesia):
            await store.abatch(ops)
        prefix = namespace[: dice.randint(0, 2)]
        condition = dice.choice([None, {"n": {"$gte": 2}}, {"n": value["n"]}, {"of": value["of"]}, {"n": {"$ne": 1}}])
        found = [await store.asearch(prefix, filter=condition, limit=100) for store in (reference, amnesia)]
        held = [sorted((item.namespace, item.key, str(item.value)) for item in items) for items in found]
        assert held[0] == held[1], (prefix, condition)
    everything = {item.namespace for item in await reference.asearch((), limit=100)}
    assert await amnesia.alist_namespaces() == sorted(everything)
    assert await problems(service) == ()
