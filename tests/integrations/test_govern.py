"""Notes that govern items of other stores: a LangGraph store, a real mem0, and plain objects that misbehave."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.memory import InMemoryStore
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, log_types, problems, remember
from tests.integrations.running import run_example
from tests.support import wait_until

from amnesiad import wire
from amnesiad.api.app import App
from amnesiad.api.serve import serve
from amnesiad.errors import Invalid
from amnesiad.integrations import govern
from amnesiad.integrations.govern import Governor, LangGraphItems, Mem0Items, mirror_ref
from amnesiad.service import Service
from amnesiad.tasks import end


class Drawer:
    """A store that deletes, and keeps what was asked of it."""

    def __init__(self, *ids: str) -> None:
        self.ids = set(ids)
        self.asked: list[str] = []

    def delete(self, id: str) -> None:  # noqa: A002
        self.asked.append(f"delete {id}")
        self.ids.remove(id)


class Curtain(Drawer):
    """A store that can also hide, asynchronously."""

    def __init__(self, *ids: str) -> None:
        super().__init__(*ids)
        self.hidden: set[str] = set()

    async def hide(self, id: str) -> None:  # noqa: A002
        self.asked.append(f"hide {id}")
        self.hidden.add(id)

    async def show(self, id: str) -> Any:  # noqa: A002
        self.asked.append(f"show {id}")
        self.hidden.remove(id)


@asynccontextmanager
async def governing(daemon: str, targets: dict[str, Any], **options: Any) -> AsyncIterator[Governor]:
    """A governor that runs until the block ends."""
    async with Governor(targets, daemon, workspace="desk", first_pause_s=0.001, **options) as governor:
        running = asyncio.create_task(governor.run())
        try:
            yield governor
        finally:
            await end(running)


async def view(service: Service, note_id: str) -> wire.NoteView:
    answer: wire.InspectAnswer = await call(service, "inspect", id=note_id, caller=HUMAN)
    return answer.note


def known(service: Service, note_id: str, **results: str) -> Callable[[], Awaitable[bool]]:
    """Whether these are the results that the note's history has for its targets."""

    async def holds() -> bool:
        return (await view(service, note_id)).mirrored == results

    return holds


async def results(service: Service, note_id: str) -> list[tuple[str, str]]:
    """Target and result of each entry of the note's history that records one, oldest first."""
    events = (await call(service, "history", id=note_id, caller=HUMAN)).events
    return [(event.facts["target"], event.facts["result"]) for event in events if event.type == "mirrored"]


async def test_an_item_goes_with_its_note(daemon: str, service: Service) -> None:
    """Whatever ends a note deletes its item where a store can only delete; others stay. The result is in the
    history."""
    drawer = Drawer("1", "2", "3", "4")
    notes = [await remember(service, f"note {n}", source_ref=f"drawer:{n}") for n in (1, 2, 3, 4)]
    await remember(service, "no mirror")
    async with governing(daemon, {"drawer": drawer}):
        await call(service, "forget", id=notes[0])
        await call(service, "revoke", id=notes[1], reason="wrong")
        await call(service, "supersede", id=notes[2], content="note 3, better")
        for note_id in notes[:3]:
            await wait_until(known(service, note_id, drawer="deleted"))
    assert drawer.ids == {"4"}
    assert [(await view(service, note_id)).state for note_id in notes] == [
        "forgotten",
        "revoked",
        "superseded",
        "active",
    ]
    for note_id in notes[:3]:
        assert await results(service, note_id) == [("drawer", "deleted")]
    assert await results(service, notes[3]) == []
    assert await problems(service) == ()


async def test_hidden_shown_and_deleted(daemon: str, service: Service) -> None:
    """A store that can hide hides what ended and shows what was reinstated; erasure alone deletes."""
    curtain = Curtain("1")
    note_id = await remember(service, "the port is 8080", kind="finding", source_ref="curtain:1")
    async with governing(daemon, {"curtain": curtain}):
        await call(service, "revoke", id=note_id, reason="wrong")
        await wait_until(known(service, note_id, curtain="hidden"))
        assert curtain.hidden == {"1"}
        await call(service, "undo", id=note_id)
        await wait_until(known(service, note_id, curtain="shown"))
        assert curtain.hidden == set()
        await call(service, "forget", id=note_id)
        await wait_until(known(service, note_id, curtain="deleted"))
    assert curtain.asked == ["hide 1", "show 1", "delete 1"]
    assert await results(service, note_id) == [("curtain", result) for result in ("hidden", "shown", "deleted")]


async def test_each_target_has_its_own_result(daemon: str, service: Service) -> None:
    """A note may mirror items in several stores; one that is not governed here is left alone."""
    drawer, curtain = Drawer("1"), Curtain("2")
    ref = mirror_ref({"drawer": "1", "curtain": "2", "elsewhere": "3"})
    note_id = await remember(service, "in three places", source_ref=ref)
    async with governing(daemon, {"drawer": drawer, "curtain": curtain}):
        await call(service, "revoke", id=note_id, reason="wrong")
        await wait_until(known(service, note_id, drawer="deleted", curtain="hidden"))


async def test_the_end_of_a_shelf_life(daemon: str, service: Service, clock: ManualClock) -> None:
    """An item whose note runs out goes when the worker has written it down; nobody has to touch the note."""
    from tests.daemon.desk import sweep

    drawer = Drawer("1")
    note_id = await remember(service, "for a day", ttl_ms="1d", source_ref="drawer:1")
    async with governing(daemon, {"drawer": drawer}):
        clock.advance(DAY)
        await sweep(service)
        await wait_until(known(service, note_id, drawer="deleted"))
    assert drawer.ids == set()


async def test_a_successor_keeps_the_item(daemon: str, service: Service) -> None:
    """An item that was changed in place belongs to the newest note: it goes when that one does, and not before."""
    drawer = Drawer("1")
    old, middle, new = [
        await remember(service, f"the port is 808{n}", key="port", source_ref="drawer:1") for n in range(3)
    ]
    async with Governor({"drawer": drawer}, daemon, workspace="desk") as governor:
        assert [await governor.govern(note_id) for note_id in (old, middle, new)] == [1, 1, 0]
        assert await results(service, old) == await results(service, middle) == [("drawer", "kept")]
        await call(service, "forget", ids=[old, middle])
        assert await governor.sweep() == 0
        assert drawer.asked == []
        await call(service, "forget", id=new)
        assert await governor.govern(new) == 1
    assert drawer.asked == ["delete 1"]
    assert await results(service, new) == [("drawer", "deleted")]


async def test_what_ended_before_the_governor_came(daemon: str, service: Service) -> None:
    """Its first run looks at everything from the beginning."""
    note_id = await remember(service, "note", source_ref="drawer:1")
    await call(service, "forget", id=note_id)
    drawer = Drawer("1")
    async with governing(daemon, {"drawer": drawer}):
        await wait_until(known(service, note_id, drawer="deleted"))


async def test_a_place_is_kept(daemon: str, service: Service, tmp_path: Path) -> None:
    """A governor that comes back goes on where it was, and one that lost its place does nothing twice (C35)."""
    place = tmp_path / "seq"
    drawer = Drawer("1", "2")
    first = await remember(service, "note 1", source_ref="drawer:1")
    async with governing(daemon, {"drawer": drawer}, place=place):
        await call(service, "forget", id=first)
        await wait_until(known(service, first, drawer="deleted"))
    second = await remember(service, "note 2", source_ref="drawer:2")
    await call(service, "forget", id=second)
    async with governing(daemon, {"drawer": drawer}, place=place) as governor:
        assert governor.seq != "0-0"
        await wait_until(known(service, second, drawer="deleted"))
    place.unlink()
    third = await remember(service, "note 3", source_ref="drawer:3")
    await call(service, "forget", id=third)
    async with governing(daemon, {"drawer": drawer}, place=place):
        await wait_until(known(service, third, drawer="absent"))
    assert drawer.asked == ["delete 1", "delete 2", "delete 3"]


async def test_killed_between_deletion_and_record(daemon: str, service: Service) -> None:
    """C36: what was deleted and not recorded is deleted again, found absent, and recorded once."""
    drawer = Drawer("1")
    note_id = await remember(service, "note", source_ref="drawer:1")
    await call(service, "forget", id=note_id)
    drawer.delete("1")
    async with governing(daemon, {"drawer": drawer}):
        await wait_until(known(service, note_id, drawer="absent"))
    async with Governor({"drawer": drawer}, daemon, workspace="desk") as governor:
        assert await governor.sweep() == 0
    assert drawer.asked == ["delete 1", "delete 1"]
    assert await results(service, note_id) == [("drawer", "absent")]


async def test_two_governors(daemon: str, service: Service) -> None:
    """V27: two that govern the same store leave one end of the item, and a history that says so."""
    drawer = Drawer(*map(str, range(10)))
    notes = [await remember(service, f"note {n}", source_ref=f"drawer:{n}") for n in range(10)]
    async with governing(daemon, {"drawer": drawer}), governing(daemon, {"drawer": drawer}):
        await call(service, "forget", all=True, confirm=True)

        async def done() -> bool:
            return all([(await view(service, note_id)).mirrored for note_id in notes])

        await wait_until(done)
    assert drawer.ids == set()
    for note_id in notes:
        assert set(await results(service, note_id)) <= {("drawer", "deleted"), ("drawer", "absent")}
    assert await problems(service) == ()


async def test_a_store_that_comes_back(daemon: str, service: Service) -> None:
    """A failure is tried again, a bounded number of times."""
    tries = 0

    class Flaky:
        def delete(self, id: str) -> None:  # noqa: A002, ARG002
            nonlocal tries
            tries += 1
            if tries < 3:
                raise ConnectionError

    note_id = await remember(service, "note", source_ref="flaky:1")
    async with governing(daemon, {"flaky": Flaky()}):
        await call(service, "forget", id=note_id)
        await wait_until(known(service, note_id, flaky="deleted"))
    assert tries == 3


async def test_a_store_that_stays_away(daemon: str, service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """What failed is recorded as failed, holds up no other note, and is done by a later sweep; no words reach the
    log."""

    class Broken(Drawer):
        def delete(self, id: str) -> None:  # noqa: A002
            if id == "1" and not self.asked:
                raise RuntimeError("the secret item 1")
            super().delete(id)

    broken = Broken("1", "2")
    first = await remember(service, "note 1", source_ref="broken:1")
    second = await remember(service, "note 2", source_ref="broken:2")
    with caplog.at_level(logging.DEBUG, "amnesiad"):
        async with governing(daemon, {"broken": broken}, attempts=3) as governor:
            await call(service, "forget", id=first)
            await wait_until(known(service, first, broken="failed"))
            await call(service, "forget", id=second)
            await wait_until(known(service, second, broken="deleted"))
            assert await governor.sweep() == 1
    assert await results(service, first) == [("broken", "failed"), ("broken", "deleted")]
    assert "secret" not in caplog.text
    assert "broken did not delete an item in 3 attempts" in caplog.text


async def test_a_reinstated_note_whose_item_is_gone(daemon: str, service: Service) -> None:
    """Where a store cannot hide, nothing brings the item back, and the history says that it is absent."""
    drawer = Drawer("1")
    note_id = await remember(service, "note", kind="finding", source_ref="drawer:1")
    async with governing(daemon, {"drawer": drawer}):
        await call(service, "revoke", id=note_id, reason="wrong")
        await wait_until(known(service, note_id, drawer="deleted"))
        await call(service, "reinstate", id=note_id)
        await wait_until(known(service, note_id, drawer="absent"))
    assert (await view(service, note_id)).state == "active"
    assert drawer.asked == ["delete 1"]


async def test_a_restored_note_shows_its_item(daemon: str, service: Service) -> None:
    """A note that comes back under a new id points at the same item: a store that can show is asked to."""

    class Attic(Curtain):
        async def show(self, id: str) -> Any:  # noqa: A002
            self.asked.append(f"show {id}")
            return id in self.ids

    attic = Attic("1")
    await call(service, "policy", set={"restorable": True}, caller=HUMAN)
    note_id = await remember(service, "note", source_ref="attic:1")
    async with governing(daemon, {"attic": attic}):
        await call(service, "forget", id=note_id)
        await wait_until(known(service, note_id, attic="deleted"))
        new = (await call(service, "restore", id=note_id)).id
        await wait_until(known(service, new, attic="absent"))
    assert attic.asked == ["delete 1", "show 1"]


async def test_a_daemon_that_restarts(service: Service, place: Path) -> None:
    """The governor waits for the daemon, and misses nothing that happened meanwhile."""
    drawer = Drawer("1", "2")
    notes = [await remember(service, f"note {n}", source_ref=f"drawer:{n}") for n in (1, 2)]
    socket = place / "b.sock"
    async with governing(str(socket), {"drawer": drawer}):
        for note_id in notes:
            await call(service, "forget", id=note_id)
            running = await serve(App(service), socket)
            await wait_until(known(service, note_id, drawer="deleted"))
            await running.stop()
    await service.stop()


async def test_what_it_may_not_see_it_does_not_govern(daemon: str, service: Service) -> None:
    """Notes of sessions are governed only by a caller that sees them."""
    drawer = Drawer("1", "2")
    mine = await remember(service, "mine", scope="session", source_ref="drawer:1", caller={"session": "s1"})
    ours = await remember(service, "ours", source_ref="drawer:2")
    for note_id in (mine, ours):
        await call(service, "forget", id=note_id, caller=HUMAN)
    async with governing(daemon, {"drawer": drawer}):
        await wait_until(known(service, ours, drawer="deleted"))
    assert drawer.ids == {"1"}
    async with governing(daemon, {"drawer": drawer}, role="human"):
        await wait_until(known(service, mine, drawer="deleted"))


async def test_a_langgraph_store(daemon: str, service: Service) -> None:
    """An item of LangGraph's own store goes with its note; one that is gone already is absent."""
    store = InMemoryStore()
    notes = []
    for key in ("prefs", "gone"):
        await store.aput(("users", "1"), key, {"theme": "dark"})
        reference = LangGraphItems.reference(("users", "1"), key)
        notes.append(await remember(service, f"the item {key}", source_ref=mirror_ref({"lg": reference})))
    await store.adelete(("users", "1"), "gone")
    async with governing(daemon, {"lg": LangGraphItems(store)}):
        await call(service, "forget", ids=notes)
        await wait_until(known(service, notes[0], lg="deleted"))
        await wait_until(known(service, notes[1], lg="absent"))
    assert await store.aget(("users", "1"), "prefs") is None


class Letters(Embeddings):
    """Vectors that count letters."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0 + text.count(letter) for letter in "abcdefgh"] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.fixture
def mem0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A real mem0 engine with its vectors in this process, and nobody to call."""
    monkeypatch.setenv("MEM0_DIR", str(tmp_path / "mem0"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    made = importlib.import_module("mem0")
    return made.Memory.from_config(
        {
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(tmp_path / "vectors"), "collection_name": "c", "embedding_model_dims": 8},
            },
            "embedder": {"provider": "langchain", "config": {"model": Letters()}},
            "history_db_path": ":memory:",
        }
    )


async def test_mem0(daemon: str, service: Service, mem0: Any) -> None:
    """A memory of a real mem0 engine goes with its note, others stay, and one that is gone already is absent."""
    ids = [
        mem0.add(text, user_id="u", infer=False)["results"][0]["id"]
        for text in ("the port is 8080", "the sky is blue", "gone")
    ]
    notes = [await remember(service, f"note {n}", source_ref=mirror_ref({"mem0": id_})) for n, id_ in enumerate(ids)]
    mem0.delete(ids[2])
    async with governing(daemon, {"mem0": Mem0Items(mem0)}):
        await call(service, "forget", ids=[notes[0], notes[2]])
        await wait_until(known(service, notes[0], mem0="deleted"))
        await wait_until(known(service, notes[2], mem0="absent"))
    assert mem0.get(ids[0]) is None
    assert mem0.get(ids[1])["memory"] == "the sky is blue"
    assert "mirrored" in await log_types(service)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a+b"])
async def test_a_target_that_no_pointer_can_name(name: str, place: Path) -> None:
    """It is refused where it is registered, not when a note ends."""
    with pytest.raises(Invalid):
        Governor({name: Drawer()}, place / "a.sock", workspace="desk")


@pytest.mark.parametrize("namespace", [(), ("a/b",), ("a.b",)])
def test_an_item_that_no_pointer_can_name(namespace: tuple[str, ...]) -> None:
    """A LangGraph address that could be taken for another one is refused."""
    with pytest.raises(Invalid):
        govern.LangGraphItems.reference(namespace, "k")


async def test_the_example_runs(daemon: str) -> None:
    """An item goes with the note that mirrors it, and the history says so."""
    told = (await run_example("govern_another_store.py", daemon)).splitlines()
    assert told == ["['created', 'forgotten', 'mirrored'] {'target': 'store', 'result': 'deleted'}", "None"]
