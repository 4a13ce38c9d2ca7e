"""LangGraph's store contract, run against its own in-memory store and against ours; then what only ours does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypedDict

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from redis.asyncio import Redis
from tests.daemon.desk import HUMAN, ManualClock, call, problems, recalled
from tests.integrations.running import run_example
from tests.support import dump

from amnesiad.errors import DaemonUnreachable, Invalid, TooLarge
from amnesiad.integrations.langgraph import MAX_DEPTH, AmnesiaStore
from amnesiad.service import Service

MINUTE: Final = 60_000
WORKSPACE: Final = "desk"
THREADS: Final = ThreadPoolExecutor(8)
"""Of blocking code. Not the loop's own threads: those the daemon needs, which is in this process."""


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


class Face:
    """One store asked in one way, blocking (in a thread, as blocking code would be) or asynchronously."""

    def __init__(self, store: BaseStore, asynchronous: bool) -> None:
        self.store = store
        self._asynchronous = asynchronous

    async def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._asynchronous:
            return await getattr(self.store, f"a{name}")(*args, **kwargs)
        work = partial(getattr(self.store, name), *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(THREADS, work)

    async def put(self, namespace: tuple[str, ...], key: str, value: dict[str, Any], **options: Any) -> None:
        await self._ask("put", namespace, key, value, **options)

    async def get(self, namespace: tuple[str, ...], key: str, **options: Any) -> Item | None:
        found: Item | None = await self._ask("get", namespace, key, **options)
        return found

    async def value(self, namespace: tuple[str, ...], key: str) -> dict[str, Any] | None:
        item = await self.get(namespace, key)
        return None if item is None else item.value

    async def delete(self, namespace: tuple[str, ...], key: str) -> None:
        await self._ask("delete", namespace, key)

    async def search(self, prefix: tuple[str, ...], **options: Any) -> list[SearchItem]:
        found: list[SearchItem] = await self._ask("search", prefix, **options)
        return found

    async def keys(self, prefix: tuple[str, ...], **options: Any) -> list[str]:
        return [item.key for item in await self.search(prefix, **options)]

    async def namespaces(self, **options: Any) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = await self._ask("list_namespaces", **options)
        return found

    async def batch(self, ops: list[Op]) -> list[Result]:
        results: list[Result] = await self._ask("batch", ops)
        return results


@pytest.fixture(params=["blocking", "asynchronous"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "asynchronous")


@pytest.fixture
async def amnesia(daemon: str) -> AsyncIterator[AmnesiaStore]:
    async with AmnesiaStore(daemon, workspace=WORKSPACE) as store:
        yield store


@pytest.fixture
async def ours(amnesia: AmnesiaStore, asynchronous: bool) -> Face:
    return Face(amnesia, asynchronous)


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


class TestEnding:
    """Shelf lives in LangGraph's minutes."""

    async def test_an_item_ends_at_its_minute(self, ours: Face, clock: ManualClock, service: Service) -> None:
        """C10: dead at its time is dead, swept or not, for get, search and namespaces; and not a moment earlier."""
        await ours.put(("a",), "k", {"text": "tea"}, ttl=1.5)
        clock.advance(90_000 - 1)
        assert await ours.get(("a",), "k", refresh_ttl=False) is not None
        assert await ours.keys(("a",), query="tea", refresh_ttl=False) == ["k"]
        clock.advance(1)
        assert await ours.get(("a",), "k") is None
        assert await ours.search(("a",)) == []
        assert await ours.search(("a",), query="tea") == []
        assert await ours.namespaces() == []
        assert await problems(service) == ()

    async def test_reads_refresh_by_default(self, ours: Face, clock: ManualClock, service: Service) -> None:
        """V29: a get, a search and a search with a query each start the TTL again; one that says not to does not."""
        for read in (ours.value(("a",), "k"), ours.keys(("a",)), ours.keys(("a",), query="tea")):
            await ours.put(("a",), "k", {"text": "tea"}, ttl=10)
            clock.advance(9 * MINUTE)
            assert await read
            await service.quiesce()
            clock.advance(9 * MINUTE)
            assert await ours.get(("a",), "k", refresh_ttl=False) is not None
            assert await ours.search(("a",), query="tea", refresh_ttl=False)
            await service.quiesce()
            clock.advance(MINUTE)
            assert await ours.get(("a",), "k") is None

    async def test_a_search_refreshes_only_what_it_returns(self, ours: Face, clock: ManualClock) -> None:
        """What a limit or a filter left out lives no longer for it."""
        for n in range(3):
            await ours.put(("a",), f"k{n}", {"n": n, "text": f"tea {n}"}, ttl=10)
            clock.advance(1)
        clock.advance(9 * MINUTE)
        assert await ours.keys(("a",), limit=1, query="tea 1") == ["k1"]
        assert await ours.keys(("a",), filter={"n": 2}) == ["k2"]
        clock.advance(2 * MINUTE)
        assert sorted(await ours.keys(("a",))) == ["k1", "k2"]

    async def test_a_put_starts_again(self, ours: Face, clock: ManualClock) -> None:
        """The same value under another TTL ends by the new one; without a TTL it ends no more."""
        await ours.put(("a",), "k", {"v": 1}, ttl=10)
        clock.advance(9 * MINUTE)
        await ours.put(("a",), "k", {"v": 1}, ttl=10)
        clock.advance(9 * MINUTE)
        await ours.put(("a",), "k", {"v": 1}, ttl=3)
        clock.advance(2 * MINUTE)
        assert await ours.get(("a",), "k", refresh_ttl=False) is not None
        await ours.put(("a",), "k", {"v": 1})
        clock.advance(500_000 * MINUTE)
        assert await ours.value(("a",), "k") == {"v": 1}

    async def test_defaults(self, daemon: str, asynchronous: bool, clock: ManualClock) -> None:
        """LangGraph's own configuration is heeded: a default TTL, no refresh by reads, and both overridden by a call."""
        async with AmnesiaStore(
            daemon, workspace=WORKSPACE, ttl={"default_ttl": 10, "refresh_on_read": False}
        ) as store:
            ours = Face(store, asynchronous)
            for key in "kl":
                await ours.put(("a",), key, {"v": key})
            await ours.put(("a",), "m", {"v": "m"}, ttl=None)
            clock.advance(9 * MINUTE)
            assert await ours.get(("a",), "k") is not None
            assert await ours.get(("a",), "l", refresh_ttl=True) is not None
            clock.advance(MINUTE)
            assert sorted(await ours.keys(("a",))) == ["l", "m"]

    @pytest.mark.parametrize("ttl", [0, -1, 1e15])
    async def test_a_ttl_out_of_range(self, ours: Face, ttl: float) -> None:
        """V11: it is refused by name and nothing is put."""
        with pytest.raises(Invalid) as refusal:
            await ours.put(("a",), "k", {"v": 1}, ttl=ttl)
        assert "ttl_ms" in refusal.value.message
        assert await ours.search(()) == []


class TestNotes:
    """What the items are to the rest of amnesiad."""

    async def test_a_delete_erases_every_value_there_was(self, ours: Face, service: Service, redis: Redis) -> None:
        """The words of the item and of those it replaced are nowhere in the store; its neighbors stay."""
        for word in ("firstword", "secondword"):
            await ours.put(("a",), "k", {"text": word})
        await ours.put(("a",), "l", {"text": "otherword"})
        await ours.delete(("a",), "k")
        await service.quiesce()
        kept = str(await dump(redis, "*"))
        assert "firstword" not in kept
        assert "secondword" not in kept
        assert "otherword" in kept
        assert await problems(service) == ()

    async def test_a_put_supersedes(self, ours: Face, service: Service) -> None:
        """C12: the old value is retained as superseded until it is deleted or its retention ends."""
        for n in (1, 2):
            await ours.put(("a",), "k", {"v": n})
        notes = (await call(service, "list", states=["active", "superseded"])).notes
        (live,) = (note for note in notes if note.state == "active")
        (old,) = (note for note in notes if note.state == "superseded")
        assert old.superseded_by == live.id

    async def test_two_stores_race_for_one_item(self, ours: Face, daemon: str, asynchronous: bool) -> None:
        """V27: one live value each time, whoever was last."""
        async with AmnesiaStore(daemon, workspace=WORKSPACE) as store:
            other = Face(store, asynchronous)
            for n in range(20):
                await asyncio.gather(
                    ours.put(("a",), "k", {"v": n, "by": 1}), other.put(("a",), "k", {"v": n, "by": 2})
                )
                assert [item.value["v"] for item in await ours.search(())] == [n]

    async def test_other_notes_of_the_workspace_are_no_items(self, ours: Face, service: Service) -> None:
        """Notes that agents wrote are not found by the store, nor those that merely wear its tags."""
        await call(service, "remember", content="tea is at four")
        await call(service, "remember", content="not an item", tags=["lg", "lg:a"])
        await call(service, "remember", content='["a"] {"v": 1}', tags=["lg", "lg:a"])
        await call(service, "remember", content='["a", "k"] [1]', tags=["lg", "lg:a"])
        await ours.put(("a",), "k", {"v": 1})
        assert await ours.keys(()) == ["k"]
        assert await ours.keys(("a",), query="item") == ["k"]
        assert await recalled(service, "four") == ["tea is at four"]

    async def test_workspaces_are_apart(self, ours: Face, daemon: str, asynchronous: bool) -> None:
        """C25: the same address in another workspace is another item."""
        async with AmnesiaStore(daemon, workspace="elsewhere") as store:
            other = Face(store, asynchronous)
            await ours.put(("a",), "k", {"secret": True})
            assert await other.get(("a",), "k") is None
            assert await other.search(()) == []
            assert await other.namespaces() == []

    async def test_a_value_that_is_too_large(self, ours: Face) -> None:
        """V25: it is refused with the limit named, and the value that was there stays."""
        await ours.put(("a",), "k", {"v": 1})
        with pytest.raises(TooLarge, match="2048"):
            await ours.put(("a",), "k", {"v": "x" * 3000})
        assert await ours.value(("a",), "k") == {"v": 1}

    async def test_a_namespace_that_is_too_deep(self, ours: Face) -> None:
        """It is refused with the limit named."""
        deepest = tuple(str(n) for n in range(MAX_DEPTH))
        await ours.put(deepest, "k", {"v": 1})
        assert await ours.value(deepest, "k") == {"v": 1}
        with pytest.raises(InvalidNamespaceError, match=str(MAX_DEPTH)):
            await ours.put((*deepest, "x"), "k", {"v": 1})

    @pytest.mark.parametrize("value", [{"v": object()}, {"v": float("nan")}, {"v": {1, 2}}])
    async def test_a_value_that_is_no_json(self, ours: Face, value: dict[str, Any]) -> None:
        """It is refused before anything is sent."""
        with pytest.raises((TypeError, ValueError)):
            await ours.put(("a",), "k", value)
        assert await ours.search(()) == []

    async def test_one_refusal_in_a_batch(self, ours: Face) -> None:
        """The refusal is raised once everything was tried: the other items of the batch are put."""
        with pytest.raises(TooLarge):
            await ours.batch([PutOp(("a",), "k", {"v": "x" * 3000}), PutOp(("a",), "l", {"v": 1})])
        assert await ours.keys(()) == ["l"]

    async def test_more_than_a_page(self, ours: Face) -> None:
        """A batch and a search beyond one request's bounds are complete."""
        await ours.batch([PutOp(("a",), f"k{n}", {"n": n}) for n in range(1203)])
        assert len(await ours.search((), limit=5000)) == 1203
        assert len(await ours.search((), limit=5000, filter={"n": {"$gte": 3}})) == 1200

    async def test_more_matches_than_are_ranked(self, ours: Face) -> None:
        """Behind the hundred that a query ranks the others follow, each once, without a score."""
        await ours.batch([PutOp(("a",), f"k{n}", {"text": f"tea {n}"}) for n in range(130)])
        found = await ours.search((), query="tea", limit=200)
        assert [item.score is not None for item in found] == [True] * 100 + [False] * 30
        assert len({item.key for item in found}) == 130

    async def test_records_keep_what_ended(self, daemon: str, service: Service, clock: ManualClock) -> None:
        """A store of records ends its items too, and their words stay for whoever looks for them."""
        async with AmnesiaStore(daemon, workspace=WORKSPACE, kind="finding") as store:
            await store.aput(("a",), "k", {"text": "kept"}, ttl=1)
            clock.advance(MINUTE)
            assert await store.aget(("a",), "k") is None
        (note,) = (await call(service, "list", states=["expired"], with_content=True, caller=HUMAN)).notes
        assert "kept" in note.content

    async def test_a_daemon_that_is_not_there(self, place: Any, asynchronous: bool) -> None:
        """C44: the error says where nothing listens, at once."""
        async with AmnesiaStore(place / "none.sock", workspace=WORKSPACE) as store:
            with pytest.raises(DaemonUnreachable):
                await Face(store, asynchronous).get(("a",), "k")


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


async def test_in_a_graph(ours: Face, asynchronous: bool) -> None:
    """A graph compiled with the store hands it to its nodes, in threads and on the loop."""

    class State(TypedDict):
        seen: int

    def blocking(state: State, *, store: BaseStore) -> State:
        store.put(("a",), "k", {"seen": state["seen"] + 1})
        item = store.get(("a",), "k")
        return {"seen": 0 if item is None else item.value["seen"]}

    async def on_the_loop(state: State, *, store: BaseStore) -> State:
        await store.aput(("a",), "k", {"seen": state["seen"] + 1})
        item = await store.aget(("a",), "k")
        return {"seen": 0 if item is None else item.value["seen"]}

    builder = StateGraph(State)
    builder.add_node("node", on_the_loop if asynchronous else blocking)
    builder.add_edge(START, "node")
    graph = builder.compile(store=ours.store)
    given = State(seen=41)
    if asynchronous:
        assert await graph.ainvoke(given) == {"seen": 42}
    else:
        assert await asyncio.get_running_loop().run_in_executor(THREADS, graph.invoke, given) == {"seen": 42}


async def test_the_loop_is_not_blocked(daemon: str) -> None:
    """An asynchronous read that waits for the daemon lets everything else on the loop go on."""
    async with AmnesiaStore(daemon, workspace=WORKSPACE) as store:
        turns = 0

        async def spin() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        spinner = asyncio.create_task(spin())
        await store.aget(("a",), "k")
        spinner.cancel()
        assert turns > 1


async def test_one_store_in_several_loops(daemon: str) -> None:
    """A store made once serves one loop after the other, and blocking code in between."""
    store = AmnesiaStore(daemon, workspace=WORKSPACE)

    async def once(n: int) -> None:
        async with store:
            await store.aput(("a",), "k", {"n": n})

    def program() -> None:
        for n in range(3):
            asyncio.run(once(n))
            item = store.get(("a",), "k")
            assert item is not None
            assert item.value == {"n": n}
        store.__exit__(None, None, None)

    await asyncio.get_running_loop().run_in_executor(THREADS, program)


async def test_the_example_runs(daemon: str) -> None:
    """Two items are put, one is found by its words and a filter, and deleted."""
    told = (await run_example("langgraph_store.py", daemon)).splitlines()
    assert told == ["('users', 'ada') tea {'likes': 'green tea', 'since': 2024}", "['editor']"]
