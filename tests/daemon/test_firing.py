"""What an occasion brings: each note once to a context, whoever asks and however often."""

from __future__ import annotations

import asyncio

from tests.daemon.desk import (
    HUMAN,
    ManualClock,
    call,
    listed,
    projection,
    refused,
    remember,
)

from amnesiad.errors import StoreUnavailable
from amnesiad.service import Service

SENTENCES = (
    "the deploy job of module {n} needs a clean checkout before it may run",
    "修改 module {n} 之前先运行测试",
    "module {n}: retries are capped at {n} because the queue drops the rest 🦊",
    "never trust the cache of module {n}\nit is warmed by hand",
)


async def test_a_trigger_fires_once_per_session_and_turn(service: Service, clock: ManualClock) -> None:
    """V32: a note whose trigger matches is shown once per session, again only after its cooldown, to each session."""
    once = await remember(service, "run tests in the venv", triggers=[{"event": "pre-run", "command": "pytest*"}])
    cool = await remember(service, "keep the log open", triggers=[{"event": "pre-run", "cooldown_ms": "10m"}])

    async def fired(session: str, turn: int, command: str = "pytest -q") -> set[str]:
        caller = {"session": session}
        answer = await call(service, "fire", event="pre-run", command=command, turn=turn, caller=caller)
        assert answer.tokens <= 2000
        return {note.id for note in answer.notes}

    assert await fired("s1", 1, "ls") == {cool}
    assert await fired("s1", 1) == {once}
    assert await fired("s1", 2) == set()
    assert await fired("s2", 1) == {once, cool}
    clock.advance(600_000)
    assert await fired("s1", 2) == {cool}
    clock.advance(600_000)
    assert await fired("s1", 2) == set(), "never twice in one turn"
    assert await fired("s1", 3) == {cool}


async def test_a_damaged_mark_of_what_was_shown_ends_the_attempt(service: Service) -> None:
    """A mark that no text can equal is compared in vain: the firing says so instead of trying until its deadline."""
    note_id = await remember(service, "run tests in the venv", triggers=[{"event": "pre-run"}])
    keys = (await projection(service)).keys
    await service.redis.hset(keys.ledger("s1"), note_id, b"\xff")
    error = await refused(call(service, "fire", event="pre-run", caller={"session": "s1"}))
    assert isinstance(error, StoreUnavailable)


async def test_many_firings_at_once_show_each_note_once(service: Service, second: Service) -> None:
    """V32: 24 firings of one session at the same instant, over two daemons, show each of ten notes exactly once."""
    ids = [await remember(service, f"mind step {n}", triggers=[{"event": "pre-run"}]) for n in range(10)]
    await listed(second)
    caller = {"session": "s1"}
    answers = await asyncio.gather(
        *(call(one, "fire", event="pre-run", turn=1, caller=caller) for _ in range(12) for one in (service, second))
    )
    assert sorted(note.id for answer in answers for note in answer.notes) == sorted(ids)
    rows = (await call(service, "ledger", caller=HUMAN)).rows
    assert sorted(note_id for row in rows for note_id in row.ids) == sorted(ids), "the ledger has what was shown"


async def test_a_turn_without_a_session_shows_a_note_once(service: Service) -> None:
    """V32: once per turn holds for an agent that has no session too; its next turn shows the note again."""
    note_id = await remember(service, "keep the log open", triggers=[{"event": "pre-run"}])

    async def fired(turn: int | None, agent: str = "a1") -> list[str]:
        return [
            note.id for note in (await call(service, "fire", event="pre-run", turn=turn, caller={"agent": agent})).notes
        ]

    assert [await fired(1), await fired(1), await fired(2), await fired(1, "a2")] == [
        [note_id],
        [],
        [note_id],
        [note_id],
    ]
    assert [await fired(None), await fired(None)] == [[note_id], [note_id]], "without a turn nothing tells two apart"
