"""The service and who is asking: workspaces, owners, provenance, and owners that end while somebody writes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.daemon.desk import (
    HUMAN,
    WORKSPACE,
    ManualClock,
    Recorder,
    call,
    kept,
    listed,
    log_types,
    problems,
    projection,
    recalled,
    refused,
    refused_unchanged,
    remember,
    state_of,
)

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError
from amnesiad.service import Service
from amnesiad.service.base import SIGN_OF_LIFE_MS
from amnesiad.service.writing import remembering
from amnesiad.store.owners import close_owner, members_of, read_owner

LEAD: dict[str, Any] = {"session": "s1"}
CHILD: dict[str, Any] = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}
SIBLING: dict[str, Any] = {"session": "s1", "agent": "a2", "agent_kind": "workflow"}
STRANGER: dict[str, Any] = {"session": "s2"}
MATE: dict[str, Any] = {"session": "m1", "agent": "m1", "agent_kind": "teammate", "team": "s1"}
FRESH: dict[str, Any] = {"session": "s1", "agent": "f1", "agent_kind": "fresh"}

SECRET = "xyzzysecret"
EVERY_READ: dict[str, list[dict[str, Any]]] = {
    "recall": [{}, {"query": SECRET}, {"query": SECRET, "format": "text", "explain": True}, {"paths": [f"{SECRET}.py"]}, {"tags": [SECRET]}],
    "inject": [{}, {"query": SECRET}, {"paths": [f"{SECRET}.py"]}, {"event": "pre-run"}],
    "preview": [{}, {"query": SECRET}],
    "fire": [{"event": "pre-run", "prompt": SECRET, "command": SECRET, "paths": [f"{SECRET}.py"]}],
    "list": [{"with_content": True, "states": ["active", "stale", "expired", "revoked", "superseded", "forgotten"]}],
    "status": [{}],
    "audit": [{}],
    "policy": [{}],
    "owners": [{}],
    "workspaces": [{}],
    "verify": [{}],
    "dead": [{}],
    "settle": [{}],
    "scrub": [{}],
    "rebuild": [{}],
    "remember": [{"content": f"what about the {SECRET[:6]} thing then"}],
    "forget": [{"query": SECRET}, {"query": SECRET, "dry_run": True}, {"tags": [SECRET]}],
    "batch": [{"requests": [{"verb": "recall", "body": {"query": SECRET}}]}],
}  # fmt: skip


NEEDED: dict[str, dict[str, Any]] = {
    "revoke": {"reason": "r"},
    "flag": {"reason": "r"},
    "promote": {"to": "workspace"},
    "supersede": {"content": "c"},
    "edit": {"tags": ["t"]},
}


def _answered() -> set[str]:
    return {verb for verb, spec in wire.VERBS.items() if hasattr(Service, spec.method) and spec.stream == "none"}


async def _tell(service: Service, **fields: Any) -> list[str]:
    """Notes that hold the secret in every place and state; their ids."""
    words = {"tags": [SECRET], "anchors": [f"{SECRET}.py"], "triggers": [{"event": "pre-run", "words": [SECRET]}]}
    ids = [await remember(service, f"the {SECRET} is number {n}", **words, **fields) for n in range(3)]
    caller = fields.get("caller", {})
    place = {"workspace": fields.get("workspace", WORKSPACE), "caller": caller}
    await call(service, "revoke", id=ids[1], reason=f"{SECRET} moved", **place)
    await call(service, "forget", id=ids[2], **place)
    return ids


async def _everything_seen(service: Service, ids: list[str], **fields: Any) -> str:
    """Every answer and refusal of every verb, asked about the secret and those ids, as one text."""
    seen = []
    by_id = {
        verb: [{"id": note_id} for note_id in ids]
        for verb in _answered()
        if "id" in wire.VERBS[verb].request.__struct_fields__
    }
    for verb in sorted(_answered()):
        asked = [*EVERY_READ.get(verb, []), *by_id.get(verb, [])]
        for body in asked:
            place: dict[str, Any] = {} if verb in ("dead", "workspaces") else {"workspace": WORKSPACE}
            try:
                answer: Any = await call(service, verb, **(place | NEEDED.get(verb, {}) | body | fields))
            except AmnesiaError as error:
                answer = wire.error_answer(error)
            seen.append(f"{verb}: {msgspec.json.encode(answer).decode()}")
    assert len(seen) > 60
    return "\n".join(seen)


async def test_no_verb_tells_one_workspace_about_another(service: Service) -> None:
    """C25: a secret in workspace A leaves no trace in any answer or refusal of any verb asked for B, human or agent."""
    ids = await _tell(service, workspace="A")
    await remember(service, "something of its own")
    before = await kept(service, "A")
    for caller in ({}, HUMAN):
        seen = await _everything_seen(service, ids, caller=caller)
        assert SECRET not in seen
    assert await kept(service, "A") == before


async def test_no_verb_tells_a_child_about_another_child(service: Service) -> None:
    """C23: notes of one agent, live, revoked or forgotten, are in no answer to a sibling, a stranger, or a fresh
    one."""
    ids = await _tell(service, caller=CHILD)
    for caller in (SIBLING, STRANGER, MATE, FRESH, LEAD):
        seen = await _everything_seen(service, ids, caller=caller)
        assert SECRET not in seen, caller
    assert await listed(service, caller=CHILD) == [ids[0]]
    assert await state_of(service, ids[1]) == "revoked"


async def test_who_sees_what(service: Service) -> None:
    """C23: main sees workspace, session and team; a child its own and the directives; a teammate the team's and
    those."""
    notes = {
        "directive": await remember(service, "a standing rule", kind="directive"),
        "shared": await remember(service, "a workspace fact"),
        "session": await remember(service, "of the lead's session", scope="session", caller=LEAD),
        "child": await remember(service, "of the child", caller=CHILD),
        "team": await remember(service, "of the team", caller=MATE),
    }
    expected = {
        "human": (HUMAN, set(notes)),
        "lead": ({"session": "s1", "team": "s1"}, {"directive", "shared", "session", "team"}),
        "stranger": (STRANGER, {"directive", "shared"}),
        "child": (CHILD, {"directive", "child"}),
        "sibling": (SIBLING, {"directive"}),
        "mate": (MATE, {"directive", "team"}),
        "fresh": (FRESH, set()),
    }
    for who, (caller, names) in expected.items():
        wanted = {notes[name] for name in names}
        assert set(await listed(service, caller=caller)) == wanted, who
        assert {note.id for note in (await call(service, "recall", limit=100, caller=caller)).notes} == wanted, who
        assert set((await call(service, "inject", caller=caller)).ids) == wanted, who
        for name, note_id in notes.items():
            if name in names:
                await call(service, "inspect", id=note_id, caller=caller)
            else:
                assert (await refused(call(service, "inspect", id=note_id, caller=caller))).code == "not_found"
    await call(service, "policy", set={"child_sees": "own"})
    assert await listed(service, caller=SIBLING) == []


async def test_an_unidentified_child_and_a_fresh_agent_keep_nothing(service: Service) -> None:
    """C23: a child that does not say who it is, and a fresh agent, are refused and never widened to the workspace."""
    for caller in ({"agent_kind": "subagent", "session": "s1"}, {"agent_kind": "workflow", "agent": "a"}, FRESH):
        error = await refused_unchanged(service, "remember", content="x", caller=caller)
        assert error.code == "refused"
    assert (await call(service, "inject", caller=FRESH)).text == ""
    for fields in (
        {"scope": "workspace", "caller": CHILD},
        {"scope": "session"},
        {"scope": "session", "owner": "s9", "caller": LEAD},
    ):
        await refused(call(service, "remember", content="x", **fields))


async def test_an_ambiguous_address_lists_the_choices(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """C23: a prefix of several notes is an error that lists those the caller may see, though it be one; of notes that
    it may not see there are none; and ids are never reused."""
    given = ["twnn000001", "twnn000002", "twnn000003", "a0ne000001"]
    ids = iter(given)
    monkeypatch.setattr(remembering, "new_note_id", lambda: next(ids))
    await remember(service, "of a child", caller=CHILD)
    for number in range(3):
        await remember(service, f"of the workspace, {number}", kind="finding")
    for caller, seen in (({}, given[1:3]), (CHILD, given[:1]), (HUMAN, given[:3])):
        error = await refused(call(service, "inspect", id="twnn", caller=caller))
        assert (error.code, error.choices) == ("ambiguous", tuple(seen))
    assert (await refused(call(service, "revoke", id="twnn0000", reason="r"))).code == "ambiguous"
    assert (await refused(call(service, "inspect", id="twnn", caller=SIBLING))).code == "not_found"
    await call(service, "forget", ids=given[1:3])
    error = await refused(call(service, "inspect", id="twnn"))
    assert (error.code, error.choices) == ("ambiguous", tuple(given[1:3])), "ids are never reused"
    assert (await call(service, "inspect", id="A0NE")).note.id == given[3]


async def test_revoking_in_one_scope_leaves_its_like_in_another(service: Service) -> None:
    """C17: revoking "the port is 8080" in one scope changes that note alone, though others say much the same."""
    texts = ["the port is 8080", "the port is 8080 on staging", "the port is 8081"]
    others = [await remember(service, texts[0], kind="finding", scope="session", caller=LEAD)]
    others += [await remember(service, text, kind="finding") for text in texts[1:]]
    named = await remember(service, texts[0], kind="finding")
    before = {note_id: (await call(service, "inspect", id=note_id, caller=HUMAN)).note for note_id in others}
    await call(service, "revoke", id=named, reason="it is 9090")
    assert await state_of(service, named) == "revoked"
    for note_id, note in before.items():
        now = (await call(service, "inspect", id=note_id, caller=HUMAN)).note
        assert (now.state, now.state_at, now.content) == (note.state, note.state_at, note.content)
    assert (await log_types(service)).count("revoked") == 1


@pytest.mark.timeout(240)
async def test_filters_come_before_the_limit(service: Service) -> None:
    """C27: among 19 000 notes of one owner and 700 of another, a recall of 20 for the second gives 20 of the second."""
    big, small = {"session": "big"}, {"session": "small"}
    for caller, count in ((big, 19_000), (small, 700)):
        for start in range(0, count, 1000):
            items = [
                {"verb": "remember", "body": {"content": f"build note {n}", "kind": "finding", "scope": "session"}}
                for n in range(start, min(start + 1000, count))
            ]
            answers = (await call(service, "batch", requests=items, caller=caller)).answers
            assert all(answer.created for answer in answers)
    for fields in ({"query": "build note"}, {}, {"query": "note 699"}):
        notes = (await call(service, "recall", limit=20, caller=small, **fields)).notes
        assert [note.owner for note in notes] == ["small"] * 20
        notes = (await call(service, "recall", limit=20, caller=HUMAN, owner="small", **fields)).notes
        assert [note.owner for note in notes] == ["small"] * 20
    assert len((await call(service, "list", limit=1000, caller=small)).notes) == 700


# -- who may -------------------------------------------------------------------------------------------------------

ENDINGS: list[tuple[str, dict[str, Any]]] = [
    ("revoke", {"reason": "r"}),
    ("flag", {"reason": "r"}),
    ("forget", {}),
    ("edit", {"tags": ["x"]}),
    ("pin", {}),
    ("supersede", {"content": "never mind"}),
    ("reinstate", {}),
    ("undo", {}),
    ("promote", {"to": "human"}),
    ("promote", {"to": "user-stated"}),
]


@pytest.mark.parametrize(("verb", "fields"), ENDINGS, ids=[f"{verb}-{n}" for n, (verb, _) in enumerate(ENDINGS)])
async def test_an_agent_ends_no_human_s_note(service: Service, verb: str, fields: dict[str, Any]) -> None:
    """V07: an agent that revokes, forgets, edits … a human's directive is forbidden, also on the user's behalf, and
    no key has changed."""
    note_id = await remember(service, "ask before you deploy", kind="directive", caller=HUMAN)
    if verb in ("reinstate", "undo"):
        await call(service, "flag", id=note_id, reason="hm", caller=HUMAN)
    for caller in ({}, {"session": "s1", "on_behalf": "user"}):
        body = {"id": note_id, **fields, "caller": caller}
        error = await refused_unchanged(service, verb, **body)
        assert error.code == "forbidden"
        assert "deploy" not in error.message


async def test_an_agent_cannot_rekind_or_claim_to_be_human(service: Service) -> None:
    """V07: a kind cannot be edited, provenance human cannot be declared, and a human's slot cannot be taken over."""
    note_id = await remember(service, "ask before you deploy", kind="directive", key="deploy", caller=HUMAN)
    error = await refused(call(service, "edit", id=note_id, kind="fact"))
    assert (error.code, error.field) == ("invalid", "kind")
    attempts: list[dict[str, Any]] = [
        {"content": "x", "provenance": "human"},
        {"content": "x", "provenance": "user-stated"},
        {"content": "deploy at will", "kind": "directive", "key": "deploy"},
        {"content": "deploy at will", "kind": "directive", "supersedes": note_id},
    ]
    for fields in attempts:
        error = await refused_unchanged(service, "remember", **fields)
        assert error.code == "forbidden"
    assert await recalled(service, "deploy") == ["ask before you deploy"]


async def test_what_the_user_said_is_ended_on_the_user_s_behalf_with_a_reason(service: Service) -> None:
    """V07: an agent ends a user-stated note only by declaring the user's behalf and saying why; the log says so."""
    behalf = {"session": "s1", "on_behalf": "user"}
    note_id = await remember(service, "the user wants tabs", kind="decision", caller=behalf)
    assert (await call(service, "inspect", id=note_id)).note.provenance == "user-stated"
    for fields in ({"caller": behalf}, {"reason": "changed"}):
        assert (await refused_unchanged(service, "pin", id=note_id, **fields)).code == "forbidden"
    await call(service, "revoke", id=note_id, reason="the user changed it", caller=behalf)
    event = (await call(service, "history", id=note_id)).events[-1]
    assert (event.type, event.actor, event.on_behalf, event.reason_text) == (
        "revoked",
        "agent:s1",
        True,
        "the user changed it",
    )


async def test_a_child_promotes_what_should_outlive_it(service: Service) -> None:
    """C33: a promoted note is the workspace's, and no owner's end concerns it any more; a twin there refuses it."""
    note_id = await remember(service, "worth keeping", caller=CHILD)
    assert await members_of(service.redis, (await projection(service)).keys, "s1/a1") == [note_id]
    answer = await call(service, "promote", id=note_id, to="workspace", caller=CHILD)
    assert (answer.changed, answer.scope) == (True, "workspace")
    assert await members_of(service.redis, (await projection(service)).keys, "s1/a1") == []
    assert note_id in await listed(service, caller=STRANGER)
    twin = await remember(service, "worth keeping", caller=CHILD)
    error = await refused_unchanged(service, "promote", id=twin, to="workspace", caller=CHILD)
    assert error.code == "refused"
    up = await call(service, "promote", id=note_id, to="human", caller=HUMAN)
    assert up.provenance == "human"
    assert (await refused(call(service, "promote", id=note_id, to="agent", caller=HUMAN))).code == "refused"
    assert await problems(service) == ()


# -- owners --------------------------------------------------------------------------------------------------------


async def test_no_write_lands_in_an_owner_s_ended_life(service: Service, second: Service, clock: ManualClock) -> None:
    """V28: an owner is ended while its agent writes, 200 times: every note of the ended incarnation is among those its
    end sees, and a later call opens a new incarnation."""
    await remember(service, "warm up", caller=CHILD)
    await listed(second)
    keys = (await projection(service)).keys
    log = (await projection(second)).log
    for n in range(200):
        owner = f"s1/r{n}"
        caller = {**CHILD, "agent": f"r{n}"}
        await remember(service, "the first note", caller=caller)

        async def end(owner: str = owner, n: int = n) -> tuple[int, list[str]]:
            for _ in range(n % 4):
                await asyncio.sleep(0)
            through = await close_owner(log, owner, heard_at=clock.now_ms(), at=None, source=None)
            return through, await members_of(service.redis, keys, owner)

        (through, seen), note_id = await asyncio.gather(end(), remember(service, "the contested note", caller=caller))
        note = (await projection(service)).notes[note_id]
        assert through == 1
        assert (note_id in seen) if note.incarnation == 1 else note.incarnation == 2
        again = await remember(service, "a later note", caller=caller)
        assert (await projection(service)).notes[again].incarnation == 2
        assert (await read_owner(service.redis, keys, owner)).open
    assert await problems(service) == ()


async def test_a_late_sign_of_life_makes_no_lease(service: Service, clock: ManualClock) -> None:
    """C33: reads and writes of a session refresh the lease of its open owner, though not each of those that follow at
    once, and make none for a closed one."""
    await remember(service, "of the session", scope="session", caller=LEAD)
    keys = (await projection(service)).keys
    log = (await projection(service)).log

    async def lease() -> float | None:
        await service.quiesce()
        score = await service.redis.zscore(keys.leases, "s1")
        return None if score is None else float(score)

    born = await lease()
    for work in (lambda: recalled(service, caller=LEAD), lambda: remember(service, "shared", caller=LEAD)):
        now = clock.advance(2 * SIGN_OF_LIFE_MS)
        await work()
        assert await lease() == now > (born or 0)
        clock.advance(SIGN_OF_LIFE_MS - 1)
        await work()
        assert await lease() == now
    await close_owner(log, "s1", heard_at=clock.now_ms(), at=None, source=None)
    unfinished = await lease()
    clock.advance(120_000)
    await recalled(service, caller=LEAD)
    await remember(service, "shared later", caller=LEAD)
    await recalled(service, caller=STRANGER)
    assert await lease() == unfinished == 0
    assert await service.redis.zscore(keys.leases, "s2") is None


async def test_owners_are_listed_and_closed_by_whoever_may(service: Service) -> None:
    """C33: owners show what they hold; an agent ends only itself, a human any; the ending is the worker's."""
    await remember(service, "one", caller=CHILD)
    await remember(service, "two", caller=CHILD)
    rows = {row.owner: row for row in (await call(service, "owners")).rows}
    assert (rows["s1/a1"].state, rows["s1/a1"].notes, rows["s1/a1"].incarnation) == ("open", 2, 1)
    assert (await refused(call(service, "owners", close="s1/a1", caller=SIBLING))).code == "refused"
    await call(service, "owners", close="s1/a1", caller=CHILD)
    await call(service, "owners", close="s1/a1", caller=HUMAN)
    assert isinstance(service.jobs, Recorder)
    assert [owner for _, owner in service.jobs.ended] == ["s1/a1"] * 2
