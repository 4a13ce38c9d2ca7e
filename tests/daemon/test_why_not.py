"""Why a note is not returned: each reason is named, and none is named where the note is there."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, refused, remember

from amnesiad.service import Service

S1: dict[str, Any] = {"session": "s1"}


async def reasons(service: Service, note_id: str, **fields: Any) -> list[str]:
    """``verb: rule`` of each reason."""
    answer = await call(service, "why-not", id=note_id, **fields)
    assert all(one.text for one in answer.reasons)
    return [f"{one.verb}: {one.rule}" for one in answer.reasons]


async def test_a_note_that_is_there_has_no_reasons(service: Service) -> None:
    """Recall returns it and inject shows it: there is nothing to tell but its place."""
    note_id = await remember(service, "the lighthouse is green", kind="finding")
    answer = await call(service, "why-not", id=note_id[:6], query="lighthouse")
    assert (answer.id, answer.recalled, answer.injected, answer.place, answer.reasons) == (note_id, True, True, 1, ())


async def test_what_ended_is_named_with_its_state(service: Service, clock: ManualClock) -> None:
    """Revoked, expired before any pass has run, or forgotten: each by its state."""
    revoked = await remember(service, "the lighthouse is red", kind="finding")
    await call(service, "revoke", id=revoked, reason="repainted", caller=HUMAN)
    expiring = await remember(service, "the lighthouse is closed today", ttl_ms=DAY)
    gone = await remember(service, "a slip of the pen", kind="finding")
    await call(service, "forget", id=gone, caller=HUMAN)
    clock.advance(DAY)
    for note_id, state in ((revoked, "revoked"), (expiring, "forgotten"), (gone, "forgotten")):
        answer = await call(service, "why-not", id=note_id, query="lighthouse")
        assert [one.rule for one in answer.reasons] == ["ended"]
        assert answer.reasons[0].text.startswith(f"it is {state} since ")
        assert (answer.recalled, answer.injected) == (False, False)


async def test_a_human_may_ask_in_the_name_of_a_session(service: Service) -> None:
    """Another session's note is out of scope there; an agent of that session is not even told that it exists."""
    note_id = await remember(service, "the lighthouse is green", scope="session", caller={"session": "s2"})
    assert await reasons(service, note_id, caller=HUMAN | S1) == ["any: out-of-scope"]
    assert await reasons(service, note_id, caller=HUMAN) == []
    assert (await refused(call(service, "why-not", id=note_id, caller=S1))).code == "not_found"


async def test_filters_and_words_are_named(service: Service) -> None:
    """Every filter that leaves the note out, and a query that shares no word with it."""
    note_id = await remember(service, "the lighthouse is green", kind="finding", tags=["coast"])
    assert await reasons(service, note_id, query="harbor") == ["recall: no-shared-word"]
    told = await call(
        service, "why-not", id=note_id, kinds=["task"], tags=["inland"], paths=["src/a.py"], until="2001-01-01"
    )
    filters = [one.text.split()[2] for one in told.reasons if one.rule == "filtered"]
    assert filters == ["kinds", "tags", "paths", "until"]


async def test_a_note_behind_others_is_told_its_place(service: Service) -> None:
    """Outranked: where it stands, among how many, and how many are returned."""
    for number in range(5):
        await remember(
            service, f"lighthouse lighthouse {number}", kind="finding", provenance="user-stated", caller=HUMAN
        )
    last = await remember(service, "the keeper of the old lighthouse likes long evenings", kind="finding")
    answer = await call(service, "why-not", id=last, query="lighthouse", limit=3)
    assert (answer.place, answer.recalled) == (6, False)
    assert [one.rule for one in answer.reasons] == ["outranked"]
    assert "place 6 of 6" in answer.reasons[0].text


async def test_what_is_over_the_budget_is_told_by_how_much(service: Service) -> None:
    """The tokens that were left when its turn came, and how many are missing; of a budget below the block's own frame
    too."""
    short = await remember(service, "brief", kind="finding", pinned=True)
    long = await remember(service, "a very long story " * 40, kind="finding")
    told = await call(service, "why-not", id=long, budget_tokens=150)
    assert [f"{one.verb}: {one.rule}" for one in told.reasons] == ["inject: over-budget"]
    assert " of 150 that were left" in told.reasons[0].text
    frame = (await call(service, "why-not", id=short, budget_tokens=3)).reasons[0]
    assert frame.rule == "over-budget"
    assert "the block's frame" in frame.text
    assert "-" not in frame.text, "no budget is negative"
    assert await reasons(service, short, budget_tokens=150) == []
    assert await reasons(service, short, budget_tokens=150, caller=HUMAN) == []
    await call(service, "policy", set={"injection_enabled": False}, caller=HUMAN)
    assert await reasons(service, short) == ["inject: injection-disabled"]


async def test_a_stale_note_is_recalled_but_not_injected(service: Service) -> None:
    """In doubt: recall marks it, inject leaves it out and this says why."""
    note_id = await remember(service, "the lighthouse is green", kind="finding")
    await call(service, "flag", id=note_id, reason="doubt", caller=HUMAN)
    answer = await call(service, "why-not", id=note_id, query="lighthouse")
    assert (answer.recalled, answer.injected) == (True, False)
    assert [f"{one.verb}: {one.rule}" for one in answer.reasons] == ["inject: stale"]


async def test_fire_is_asked_where_an_event_is_named(service: Service) -> None:
    """No trigger, none that matches, and shown to this session already."""
    plain = await remember(service, "the lighthouse is green", kind="gotcha")
    armed = await remember(
        service, "mind the lock", kind="gotcha", triggers=[{"event": "pre-edit", "path": "src/*.py"}]
    )
    ask: dict[str, Any] = {"event": "pre-edit", "caller": S1}
    assert await reasons(service, plain, **ask) == ["fire: no-trigger"]
    assert await reasons(service, armed, **ask, paths=["lib/a.py"]) == ["recall: filtered", "fire: no-trigger"]
    ask["paths"] = ["src/a.py"]
    assert await reasons(service, armed, **ask) == []
    assert [note.id for note in (await call(service, "fire", **ask)).notes] == [armed]
    assert await reasons(service, armed, **ask) == ["fire: shown-already"]
    assert await reasons(service, armed, **(ask | {"caller": {"session": "s2"}})) == []


async def test_asking_changes_nothing(service: Service) -> None:
    """No use, no ledger entry, no renewal; and a note that never was is not found."""
    note_id = await remember(service, "the lighthouse is green")
    await call(service, "why-not", id=note_id, query="lighthouse", event="pre-edit")
    assert (await call(service, "inspect", id=note_id)).note.access_count == 0
    assert (await call(service, "ledger", caller=HUMAN)).rows == ()
    assert (await refused(call(service, "why-not", id="0" * 10))).code == "not_found"
    assert (await refused(call(service, "why-not", id="0" * 10, workspace="elsewhere"))).code == "not_found"


async def test_explain_tells_what_put_each_note_behind_the_one_before(service: Service, clock: ManualClock) -> None:
    """The first thing in which two neighbors differ: band, stale, trust, rank, time of writing, id."""
    trusted = await remember(service, "lighthouse one", kind="decision", provenance="user-stated", caller=HUMAN)
    await remember(service, "lighthouse two", kind="decision")
    clock.advance(1)
    doubted = await remember(service, "lighthouse three", kind="decision")
    await call(service, "flag", id=doubted, reason="doubt", caller=HUMAN)
    await remember(service, "lighthouse " + "beside many other words of no weight " * 3, kind="decision")
    found = (await call(service, "recall", query="lighthouse", explain=True)).notes
    assert found[0].id == trusted
    assert [note.explanation["decided_by"] for note in found] == ["first", "trust", "stale", "band"]
    listed = (await call(service, "recall", explain=True)).notes
    assert [note.explanation["decided_by"] for note in listed][:2] == ["first", "trust"]


async def test_an_explanation_gives_the_figures_that_decided(service: Service, clock: ManualClock) -> None:
    """A task counts in full, whoever wrote it and when: so do trust and rank of its explanation, not those of its
    view."""
    task = await remember(service, "paint the lighthouse", kind="task")
    clock.advance(30 * DAY)
    stated = await remember(service, "paint the lighthouse", kind="decision", provenance="user-stated", caller=HUMAN)
    found = (await call(service, "recall", query="lighthouse", explain=True)).notes
    assert [note.id for note in found] == [task, stated]
    assert [(note.explanation["trust"], note.explanation["rank"]) for note in found] == [(1.0, 1.0), (0.9, 1.0)]
    assert [note.explanation["decided_by"] for note in found] == ["first", "trust"]
    assert found[0].trust == 0.7
    assert found[0].rank < 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"limit": 0}, "invalid"), ({"query": "x" * 9000}, "too_large"), ({"paths": ["/etc/passwd\0"]}, "invalid")],
)
async def test_fields_are_checked_as_those_of_recall(service: Service, fields: dict[str, Any], code: str) -> None:
    """A limit of nothing, a document for a query, a path that is none."""
    note_id = await remember(service, "the lighthouse is green")
    assert (await refused(call(service, "why-not", id=note_id, **fields))).code == code


@pytest.mark.parametrize("seed", range(3))
async def test_an_explanation_never_contradicts_what_it_explains(
    service: Service, clock: ManualClock, seed: int
) -> None:
    """Of every note, whatever is asked by whom: a reason of recall, inject or fire is given just where the verb leaves
    the note out, corrections and budgets included."""
    dice = random.Random(seed)
    words = ["lighthouse", "keeper", "the", "harbor"]
    callers: list[dict[str, Any]] = [{}, S1, S1 | {"agent": "a1", "agent_kind": "subagent"}]
    ids = []
    for number in range(30):
        text = " ".join(dice.choices(words, k=dice.choice([2, 40])))
        facts: dict[str, Any] = {"kind": dice.choice(["finding", "directive", "fact"]), "caller": dice.choice(callers)}
        facts["triggers"] = dice.choice([[], [{"event": "pre-edit"}], [{"event": "pre-edit", "path": "src/*.py"}]])
        facts["tags"] = dice.choice([[], ["coast"]])
        ids.append(await remember(service, f"{text} {number}", **facts))
    await call(service, "inject", caller=S1)
    for note_id in dice.sample(ids, 8):
        await call(service, dice.choice(["flag", "revoke"]), id=note_id, reason="it was so " * 9, caller=HUMAN)
    clock.advance(dice.choice([1, 13]) * DAY)
    await call(service, "policy", set={"injection_renews": "never"}, caller=HUMAN)
    for turn in range(12):
        who = dice.choice(callers)
        query = dice.choice([None, "the lighthouse", "the"])
        paths = dice.choice([[], ["src/a.py"]])
        budget, limit = dice.choice([120, 300, 700]), dice.choice([1, 5, 100])
        await call(service, "policy", set={"max_injected_tokens": budget}, caller=HUMAN)
        step = {"caller": who, "query": query, "paths": paths}
        narrow = {"limit": limit, "tags": dice.choice([[], ["coast"]])}
        seen = [note.id for note in (await call(service, "list", caller=who)).notes]
        told = {id_: await call(service, "why-not", id=id_, event="pre-edit", **step, **narrow) for id_ in seen}
        injected = (await call(service, "preview", event="pre-edit", **step)).ids
        firing = {"event": "pre-edit", "paths": paths, "prompt": query, "turn": turn}
        fired = [note.id for note in (await call(service, "fire", caller=who, **firing)).notes]
        recalled = [note.id for note in (await call(service, "recall", peek=True, **step, **narrow)).notes]
        for id_, answer in told.items():
            left_out = {one.verb for one in answer.reasons}
            assert answer.recalled == (id_ in recalled) == ("recall" not in left_out), answer
            assert answer.injected == (id_ in injected) == ("inject" not in left_out), answer
            assert (id_ in fired) == ("fire" not in left_out), answer
