"""What is chosen in arrays, the first notes of a recall and the pages of a list, held against a walk through every
note."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Final

import pytest
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, listed, projection, remember, sweep

from amnesiad.core import recall as ranking
from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import AmnesiaError
from amnesiad.search import choice, content_words, index, recency
from amnesiad.service import Service
from amnesiad.store import vault

CALLERS: Final[tuple[dict[str, Any], ...]] = (
    HUMAN,
    {"session": "s1"},
    {"session": "s1", "agent": "a1", "agent_kind": "subagent"},
    {"agent": "a2", "team": "s1", "agent_kind": "teammate"},
)
QUERIES: Final = (None, "port", "port lamp", "the lamp of the ferry", "rope", "nothing like it")
VOCABULARY: Final = ["the", "of", "port", "lamp", "ferry", "rope", "gull"]
SEEDS: Final = 3
TAGS: Final = (["odd"], ["*"], ["odd", "a_b/c.py"])
KINDS: Final = ("fact", "finding", "directive", "episode", "task", "gotcha", "preference")


def walked(service: Service, workspace: Any, caller: Caller, query: str | None, fields: dict[str, Any]) -> list[str]:
    """What the pure functions make of every note there is."""
    now, policy, limit = service.clock.now_ms(), workspace.policy, fields["limit"]
    wanted = ranking.Filter(
        kinds=frozenset(fields.get("kinds", ())),
        tags=tuple(fields.get("tags", ())),
        states=frozenset(fields.get("states", ())),
        owner=fields.get("owner"),
        since=fields.get("since"),
    )
    scores = dict(workspace.live.score(content_words(query))) if query else {}
    pool = [
        ranking.Candidate(note, workspace.words[note.id], scores.get(note.id, 0.0))
        for note in workspace.visible_live(caller, now)
        if wanted.matches(note, workspace.words[note.id], note.state) and (not query or note.id in scores)
    ]
    if not query:
        return [one.note.id for one in ranking.order_without_query(pool, policy, now)][:limit]
    pool.sort(key=lambda one: (-one.score, one.note.id))
    size = ranking.whole_bands([one.score for one in pool], limit, policy.tie_width)
    return [one.note.id for one in ranking.order_by_relevance(pool[:size], policy, now)][:limit]


def listed_by_a_walk(service: Service, workspace: Any, caller: Caller, fields: dict[str, Any]) -> list[str]:
    """Every note that a list is asked for, the newest first."""
    states = fields.get("states", ["active", "stale"])
    found = []
    for note_id in workspace.notes:
        note = workspace.settled(note_id, service.clock.now_ms())
        if (
            visible(note, caller, workspace.policy)
            and note.state in states
            and note.kind in fields.get("kinds", KINDS)
            and fields.get("owner") in (None, note.owner)
            and fields.get("scope") in (None, note.scope)
            and set(fields.get("tags", ())) <= set(workspace.words[note_id].tags)
        ):
            found.append((note.created_at, note_id))
    return [note_id for _, note_id in sorted(found, reverse=True)]


async def lists_held_against_a_walk(service: Service, dice: random.Random) -> int:
    """Turn the pages of a list as every caller; returns how many notes were compared."""
    compared = 0
    for who in CALLERS:
        narrowed: list[dict[str, Any]] = [
            {},
            {"kinds": dice.sample(KINDS, 2)},
            {"states": dice.sample(["active", "stale", "expired", "revoked", "superseded"], 2)},
            {"owner": "s1"},
            {"scope": "session"},
            {"tags": dice.choice(TAGS)},
        ]
        fields = dice.choice(narrowed) | dice.choice(narrowed)
        wanted = listed_by_a_walk(service, await projection(service), Caller(**who), fields)
        found: list[str] = []
        cursor, limit = None, dice.choice([1, 7, 100])
        while True:
            page = await call(service, "list", caller=who, cursor=cursor, limit=limit, **fields)
            found += [note.id for note in page.notes]
            cursor = page.cursor
            assert len(page.notes) == limit if cursor else len(page.notes) <= limit
            if cursor is None:
                break
        assert found == wanted, (who, fields)
        compared += len(found)
    return compared


async def erasure_held_against_a_walk(service: Service, dice: random.Random) -> None:
    """What would go by these tags is what has them and may be seen, in whatever state."""
    workspace = await projection(service)
    for who in CALLERS:
        tags = dice.choice(TAGS)
        answer = await call(service, "forget", caller=who, tags=tags, dry_run=True)
        assert sorted(answer.ids) == sorted(
            id_
            for id_, note in workspace.notes.items()
            if visible(note, Caller(**who), workspace.policy) and set(tags) <= set(workspace.words[id_].tags)
        )


async def held_against_a_walk(service: Service, dice: random.Random, since: int) -> int:
    """Ask as every caller and with every query; returns how many notes were compared."""
    compared = 0
    for who in CALLERS:
        for query in QUERIES:
            narrowed: list[dict[str, Any]] = [
                {},
                {"kinds": dice.sample(KINDS, 2)},
                {"states": [dice.choice(["active", "stale"])]},
                {"since": since},
                {"owner": "s1"},
                {"tags": dice.choice(TAGS)},
            ]
            fields = dice.choice(narrowed) | {"limit": dice.choice([1, 3, 10, 100])}
            workspace = await projection(service)
            answer = await call(service, "recall", query=query, peek=True, caller=who, **fields)
            found = [note.id for note in answer.notes]
            assert found == walked(service, workspace, Caller(**who), query, fields), (who, query, fields)
            compared += len(found)
    return compared


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_what_is_chosen_is_what_a_walk_would_put_first(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Through writes at one instant and at many, pins, flags, endings, policies and leases that ran out with no pass
    to record it: for every caller, query, filter and limit, whether or not the pool is capped."""
    # Small, so that few notes are many: what is summed at first, and what is looked at in one go.
    monkeypatch.setattr(index, "COMMON", 2)
    monkeypatch.setattr(index, "FIRST_CHUNK", 2)
    monkeypatch.setattr(choice, "LOOKED_AT", 1)
    monkeypatch.setattr(recency, "FIRST", 2)
    dice = random.Random(seed)
    ids: list[str] = []
    since = clock.now_ms()

    async def act() -> None:
        one = dice.choice(ids) if ids else "0" * 10
        match dice.choice(["remember"] * 12 + ["renew", "pin", "unpin", "flag", "revoke", "promote", "policy"]):
            case "remember":
                facts: dict[str, Any] = {"kind": dice.choice(KINDS), "caller": dice.choice(CALLERS)}
                if facts["kind"] in ("fact", "episode", "preference"):
                    facts |= {"ttl_ms": dice.choice([2, 5, 9]) * DAY, "curve": dice.choice(["flat", "ebbinghaus"])}
                if facts["caller"] is HUMAN:
                    facts["provenance"] = dice.choice(["human", "user-stated", "agent", "auto"])
                elif facts["caller"].get("agent_kind") is None:
                    facts["scope"] = dice.choice(["workspace", "session"])
                if dice.random() < 0.3:
                    facts["tags"] = dice.choice(TAGS)
                text = " ".join(dice.choices(VOCABULARY, k=dice.choice([1, 2, 6])))
                ids.append(await remember(service, f"{text} {len(ids)}", **facts))
            case "policy":
                await call(service, "policy", set={"tie_width": dice.choice([0.02, 0.1, 1.0])}, caller=HUMAN)
            case verb:
                reason = {"reason": "so it is"} if verb in ("flag", "revoke", "promote") else {}
                with contextlib.suppress(AmnesiaError):
                    await call(service, verb, id=one, caller=HUMAN, **reason)

    compared = listed = 0
    for number in range(400):
        await act()
        if dice.random() < 0.2:
            clock.advance(dice.choice([1, DAY // 2]))
        if number == 250:
            await sweep(service)
        if number % 20 == 19:
            monkeypatch.setattr(ranking, "POOL_CAP", dice.choice([2, 7, 2000]))
            compared += await held_against_a_walk(service, dice, since)
            listed += await lists_held_against_a_walk(service, dice)
            await erasure_held_against_a_walk(service, dice)
    assert compared > 1000
    assert listed > 300


async def test_a_tag_that_all_have_makes_nobody_look_at_all(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten notes are wanted of three hundred that have the tag, and two in three of its word: some dozens are looked
    at."""
    for number in range(300):
        clock.advance(1)
        await remember(service, f"coast {number}", kind="finding", tags=["coast"] if number % 3 else ["the coast"])
    workspace = await projection(service)
    looked: list[str] = []
    live_note = workspace.live_note

    def spy(note_id: str, caller: Caller, now: int) -> Any:
        looked.append(note_id)
        return live_note(note_id, caller, now)

    monkeypatch.setattr(workspace, "live_note", spy)
    answer = await call(service, "recall", tags=["coast"], peek=True)
    assert [note.content for note in answer.notes] == [f"coast {n}" for n in range(299, 0, -1) if n % 3][:10]
    assert len(set(looked)) < 60


async def test_what_is_forgotten_while_a_list_is_read_doubles_nothing(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tombs are read in pages, and one more on top moves the others into the next page: each is listed once."""
    ids = []
    for number in range(9):
        ids.append(await remember(service, f"scrap {number}"))
        await call(service, "forget", id=ids[-1])
        clock.advance(1)
    more = [await remember(service, f"more {number}") for number in range(9)]
    tombs = vault.tombs

    async def meanwhile(*args: Any) -> Any:
        clock.advance(1)
        await call(service, "forget", id=more.pop())
        return await tombs(*args)

    monkeypatch.setattr(vault, "GRAVES_PER_READ", 2)
    monkeypatch.setattr(vault, "tombs", meanwhile)
    assert await listed(service, states=["forgotten"]) == ids[::-1]
