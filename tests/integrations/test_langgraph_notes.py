"""What only our LangGraph store does: items that end, notes behind them, and work in graphs, threads and loops."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    BaseStore,
    InvalidNamespaceError,
    PutOp,
)
from redis.asyncio import Redis
from tests.daemon.desk import HUMAN, ManualClock, call, problems, recalled
from tests.integrations.running import run_example
from tests.integrations.stores import THREADS, WORKSPACE, Face
from tests.support import dump

from amnesiad.errors import DaemonUnreachable, Invalid, TooLarge
from amnesiad.integrations.langgraph import MAX_DEPTH, AmnesiaStore
from amnesiad.service import Service

MINUTE: Final = 60_000


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
        """LangGraph's own configuration is heeded: a default TTL, no refresh by reads, and both overridden by a
        call."""
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
