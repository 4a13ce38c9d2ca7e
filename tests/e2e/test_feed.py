"""The feed over a real daemon's socket: every transition once, in order, to those who may see it, whatever happens."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from tests.support import PATIENCE_S, Fleet, wait_until

from amnesiad import AsyncClient, wire
from amnesiad.errors import AmnesiaError

FEEDS = 48
"""More than the store's connections that the verbs share."""


@pytest.fixture
def workspace() -> str:
    """The name of a workspace that no other test knows."""
    return f"feed-{secrets.token_hex(4)}"


@asynccontextmanager
async def following(client: AsyncClient, after: str | None = None) -> AsyncIterator[Any]:
    """An open feed, behind the item that says so."""
    async with aclosing(client.feed(after=after)) as feed:  # type: ignore[type-var]  # an async generator
        assert (await anext(feed)).type == "opened"
        yield feed


async def take(feed: AsyncIterator[wire.FeedItem], count: int) -> list[wire.FeedItem]:
    """The next items, but for what the worker does in its own time."""
    found: list[wire.FeedItem] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            item = await anext(feed)
            if item.type != "scrubbed":
                found.append(item)
    return found


async def until(feed: AsyncIterator[wire.FeedItem], type_: str) -> list[wire.FeedItem]:
    """The next items, up to one of that type."""
    found: list[wire.FeedItem] = []
    async with asyncio.timeout(PATIENCE_S):
        async for item in feed:
            found.append(item)
            if item.type == type_:
                break
    return found


async def test_every_transition_is_told_in_order_and_without_words(daemon: str, second: str, workspace: str) -> None:
    """A note's life, partly through another daemon: each transition and injection comes once, with codes and
    numbers."""
    async with (
        AsyncClient(daemon, workspace=workspace, role="human") as client,
        AsyncClient(second, workspace=workspace, role="human") as other,
    ):
        first = await client.remember("quokka one", kind="fact")
        async with following(client) as feed:
            note = await other.remember("quokka two", kind="finding", tags=["marsupial"], source_ref="wombat.md")
            shown = await client.inject(query="quokka")
            await client.recall("quokka")
            await other.revoke(note.id, reason="kangaroo")
            await client.reinstate(note.id)
            await client.forget(first.id, reason="koala")
            await client.policy(set={"tie_width": 0.2})
            found = await until(feed, "policy_changed")
    told = [(item.type, item.data) for item in found if item.type not in ("renewed", "scrubbed")]
    assert [type_ for type_, _ in told] == [
        "written", "injected", "revoked", "reinstated", "forgotten", "policy_changed",
    ]  # fmt: skip
    data = [one for _, one in told]
    assert {key: data[0][key] for key in ("id", "kind", "ttl")} == {"id": note.id, "kind": "finding", "ttl": None}
    assert (data[1]["ids"], data[1]["tokens"]) == (list(shown.ids), shown.tokens)
    assert (data[2]["id"], data[2]["actor"]) == (note.id, "human")
    assert (data[4]["id"], data[4]["reason"], data[4]["at"] > 0) == (first.id, "manual", True)
    assert (data[5]["name"], data[5]["new"]) == ("tie_width", 0.2)
    for word in ("quokka", "marsupial", "wombat", "kangaroo", "koala"):
        assert word not in repr(told)


async def test_it_resumes_behind_every_item_without_a_gap_or_a_repeat(daemon: str, workspace: str) -> None:
    """Whatever item a reader saw last, log or ledger, going on behind its id gives exactly the items after it."""
    async with AsyncClient(daemon, workspace=workspace, session="s1") as client:
        await client.remember("zero", kind="finding")
        async with following(client, "0-0") as feed:
            opened = await take(feed, 1)
            for n in range(4):
                await client.remember(f"number {n}", kind="finding")
                await client.inject(query=f"number {n}")
            whole = opened + await take(feed, 8)
        assert [item.type for item in whole] == ["written"] + ["written", "injected"] * 4
        assert len({item.seq for item in whole}) == len(whole)
        for n, item in enumerate(whole[:-1]):
            async with following(client, item.seq) as feed:
                assert await take(feed, len(whole) - n - 1) == whole[n + 1 :]
        last = await client.remember("the last", kind="finding")
        async with following(client, last.seq) as feed:
            after = await client.remember("behind a write's own seq", kind="finding")
            assert [item.data["id"] for item in await take(feed, 1)] == [after.id]


async def test_each_sees_what_it_may_see(daemon: str, workspace: str) -> None:
    """A child sees its own notes and the directives, another session neither, a fresh agent nothing; and an injection
    is told to the session it went to."""
    who: dict[str, dict[str, Any]] = {
        "child": {"session": "s1", "agent": "a1", "agent_kind": "subagent"},
        "main": {"session": "s1"},
        "other": {"session": "s2"},
        "fresh": {"session": "s1", "agent_kind": "fresh"},
        "human": {"role": "human"},
    }
    clients = {name: AsyncClient(daemon, workspace=workspace, **caller) for name, caller in who.items()}
    human = clients["human"]
    first = await human.remember("the first", kind="finding")
    own = await clients["child"].remember("the child's own", kind="finding")
    rule = await human.remember("a rule for all", kind="directive")
    secret = await clients["main"].remember("of the session", kind="finding", scope="session")
    await clients["main"].inject()
    await human.forget(secret.id, confirm=True)
    end = await human.remember("the end", kind="directive")
    seen: dict[str, list[tuple[str, str]]] = {}
    for name, client in clients.items():
        async with following(client, "0-0") as feed:
            if name == "fresh":
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await anext(feed)
                continue
            found = await take(feed, {"child": 3, "main": 6, "other": 3, "human": 7}[name])
        seen[name] = [(item.type, item.data.get("id", "")) for item in found]
        assert seen[name][-1] == ("written", end.id)
    for client in clients.values():
        await client.aclose()
    assert seen["child"] == [("written", own.id), ("written", rule.id), ("written", end.id)]
    assert seen["other"] == [("written", first.id), ("written", rule.id), ("written", end.id)]
    mine = [("written", secret.id), ("injected", ""), ("forgotten", secret.id)]
    assert seen["main"] == [("written", first.id), ("written", rule.id), *mine, ("written", end.id)]
    assert set(seen["human"]) == {*seen["main"], ("written", own.id)}


async def test_a_feed_that_cannot_be_is_refused(daemon: str, workspace: str) -> None:
    """An unknown workspace and a child that does not say who it is get their own refusal, not an empty stream."""
    async with AsyncClient(daemon, workspace=workspace) as client:
        with pytest.raises(AmnesiaError) as refusal:
            await anext(client.feed())
        assert (refusal.value.code, refusal.value.field) == ("not_found", "workspace")
    async with AsyncClient(daemon, workspace=workspace, agent_kind="subagent") as client:
        with pytest.raises(AmnesiaError) as refusal:
            await anext(client.feed())
        assert (refusal.value.code, refusal.value.rule) == ("refused", "unidentified-child")


async def test_it_ends_when_the_workspace_is_dropped(daemon: str, second: str, workspace: str) -> None:
    """A drop through another daemon ends the feed in order, also when the name is in use again at once."""
    async with (
        AsyncClient(daemon, workspace=workspace, role="human") as client,
        AsyncClient(second, workspace=workspace, role="human") as other,
    ):
        await client.remember("goes with it")
        async with following(client) as feed:
            await other.workspaces(drop=workspace, confirm=True)
            new = await other.remember("another workspace of the name")
            async with asyncio.timeout(PATIENCE_S):
                assert new.id not in [item.data.get("id") async for item in feed]


async def test_a_slow_reader_costs_nobody_else_and_misses_nothing(daemon: str, workspace: str) -> None:
    """A reader that does not read while 3000 notes are written finds them all in order later; writes go on
    meanwhile."""
    async with AsyncClient(daemon, workspace=workspace) as client:
        await client.remember("zero", kind="finding")
        async with following(client) as feed:
            written: list[str] = []
            for start in range(0, 3000, 500):
                bodies = [
                    ("remember", {"content": f"note number {n}", "kind": "finding"}) for n in range(start, start + 500)
                ]
                written += [answer["id"] for answer in (await client.batch(bodies)).answers]
            assert [item.data["id"] for item in await take(feed, 3000)] == written


async def test_many_feeds_leave_the_verbs_their_connections(fleet: Fleet, workspace: str) -> None:
    """More feeds than the verbs have connections: verbs answer, each feed tells, and closing them frees the store's
    connections; at a stop of the daemon those still open end in order."""
    await fleet.store()
    daemon = await fleet.daemon()
    client, redis = fleet.client(workspace=workspace), fleet.redis()
    await client.remember("zero", kind="finding")

    async def connected() -> int:
        return int((await redis.info("clients"))["connected_clients"])

    before = await connected()
    feeds: list[Any] = [client.feed() for _ in range(FEEDS)]
    for feed in feeds:
        assert (await anext(feed)).type == "opened"
    note = await client.remember("told to all", kind="finding")
    for feed in feeds:
        assert [item.data["id"] for item in await take(feed, 1)] == [note.id]
    assert (await client.recall("told")).notes[0].id == note.id
    assert await connected() <= before + 64
    for feed in feeds[1:]:
        await feed.aclose()
    daemon.signal(15)
    async with asyncio.timeout(PATIENCE_S):
        assert [item.type async for item in feeds[0]] == []
    assert await daemon.ended() == 0, daemon.said
    assert "stream-broken" not in daemon.said


async def test_an_outage_of_the_store_loses_nothing(fleet: Fleet, workspace: str) -> None:
    """C41: the store goes away and comes back under an open feed: what is written afterwards is told."""
    store = await fleet.store()
    await fleet.daemon()
    client = fleet.client(workspace=workspace)
    await client.remember("zero", kind="finding")
    async with following(client) as feed:
        one = await client.remember("before", kind="finding")
        assert [item.data["id"] for item in await take(feed, 1)] == [one.id]
        await store.stop()
        await store.start()
        written: list[str] = []

        async def again() -> bool:
            try:
                written.append((await client.remember("after", kind="finding")).id)
            except AmnesiaError:
                return False
            return True

        await wait_until(again, PATIENCE_S)
        assert [item.data["id"] for item in await take(feed, 1)] == written[-1:]
