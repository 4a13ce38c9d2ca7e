"""No verb tells a caller anything of a note that it may not see: every verb of the table, every kind of caller."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import pytest
from tests.daemon.desk import HUMAN, WORKSPACE, call, kept, projection, refused, remember

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError
from amnesiad.service import Service

SECRET: Final = "xyzzysecret"
NEVER: Final = "0" * 10
"""An id that was never issued: the random ones have more letters."""
OWNER: Final[dict[str, Any]] = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}
OTHERS: Final[dict[str, dict[str, Any]]] = {
    "lead": {"session": "s1"},
    "sibling": {"session": "s1", "agent": "a2", "agent_kind": "subagent"},
    "workflow": {"session": "s1", "agent": "a2", "agent_kind": "workflow"},
    "stranger": {"session": "s2"},
    "namesake": {"session": "s2", "agent": "a1", "agent_kind": "subagent"},
    "teammate": {"session": "m1", "agent": "m1", "agent_kind": "teammate", "team": "s1"},
    "fresh": {"session": "s1", "agent": "a1", "agent_kind": "fresh"},
    "unidentified": {"session": "s1", "agent_kind": "subagent"},
    "anonymous": {},
}
EVERY_STATE: Final = ["active", "stale", "expired", "revoked", "superseded", "forgotten"]
ABOUT: Final[dict[str, list[dict[str, Any]]]] = {
    "remember": [{"content": f"what of {SECRET[:6]}"}, {"content": "c", "supersedes": "ID"}],
    "recall": [{"query": SECRET, "format": "text"}, {"paths": [f"{SECRET}.py"]}, {"tags": [SECRET]}, {"owner": "s1/a1"}],
    "inject": [{"query": SECRET, "paths": [f"{SECRET}.py"], "event": "pre-run"}, {"budget_tokens": 2000}],
    "preview": [{"query": SECRET, "paths": [f"{SECRET}.py"], "event": "pre-run"}],
    "fire": [{"event": "pre-run", "prompt": SECRET, "command": SECRET, "paths": [f"{SECRET}.py"]}],
    "list": [{"with_content": True, "states": EVERY_STATE}, {"owner": "s1/a1", "states": EVERY_STATE}],
    "why-not": [{"id": "ID", "query": SECRET, "event": "pre-run"}],
    "forget": [{"id": "ID"}, {"ids": ["ID"]}, {"query": SECRET}, {"owner": "s1/a1"}, {"tags": [SECRET], "dry_run": True}],
    "revoke": [{"id": "ID", "reason": "r"}],
    "flag": [{"id": "ID", "reason": "r"}],
    "supersede": [{"id": "ID", "content": "c"}, {"id": "ID", "by": "ID"}],
    "promote": [{"id": "ID", "to": "workspace"}],
    "edit": [{"id": "ID", "tags": ["t"]}],
    "mirror": [{"id": "ID", "target": "elsewhere", "result": "done"}],
    "status": [{}],
    "audit": [{}],
    "ledger": [{"limit": 100}, {"session": "s1"}],
    "policy": [{}],
    "events": [{"events": [{"event": "heartbeat", "workspace": WORKSPACE, "session": "s9"}]}],
    "batch": [{"requests": [{"verb": "recall", "body": {"query": SECRET}}, {"verb": "inspect", "body": {"id": "ID"}}]}],
    "settle": [{}],
    "scrub": [{}],
    "verify": [{}],
    "rebuild": [{}],
    "check": [{}],
    "owners": [{}],
    "dead": [{}],
    "workspaces": [{}],
    "export": [{}],
    "import": [{}],
}  # fmt: skip
"""What is asked of a verb, ``ID`` standing for a note's; one that is not here is asked about an id alone."""
NO_WORKSPACE: Final = frozenset({"dead", "workspaces"})
TOUCHY: Final = frozenset({"lead", "stranger", "anonymous"})
"""Main agents, who may see that there are owners, though not what these hold."""

_MOVING: Final = re.compile(r'"(seq|id|at|created_at|tokens|by)":("[^"]*"|\d+)')
"""What differs from one answer to the next by itself: places in the log, times, ids of new notes."""


def _asked(verb: str) -> list[dict[str, Any]]:
    """The requests that a verb is asked with."""
    return ABOUT.get(verb) or [{"id": "ID"}]


async def _ask(service: Service, verb: str, body: dict[str, Any], caller: dict[str, Any]) -> str:
    """The whole answer, or the refusal, as text."""
    spec = wire.VERBS[verb]
    fields: dict[str, Any] = {"caller": caller, **body}
    if verb not in NO_WORKSPACE:
        fields["workspace"] = WORKSPACE
    if verb == "batch":
        fields["requests"] = [{**one, "body": {**one["body"], "caller": caller}} for one in body["requests"]]
    try:
        if spec.stream == "out":
            request = wire.decode(verb, msgspec.json.encode(fields))
            return b"".join([line async for line in getattr(service, spec.method)(request)]).decode()
        if spec.stream == "in":
            request = spec.request(workspace=WORKSPACE, caller=wire.CallerSpec(**caller))
            return msgspec.json.encode(await service.import_notes(request, _nothing())).decode()
        answer = await call(service, verb, **fields)
    except AmnesiaError as error:
        answer = wire.error_answer(error)
    return msgspec.json.encode(answer).decode()


async def _nothing() -> AsyncIterator[bytes]:
    no_lines: tuple[bytes, ...] = ()
    for line in no_lines:
        yield line


async def _notes(service: Service) -> list[str]:
    """Notes of one child in every state, shown to it, with the secret everywhere a word can be."""
    words: dict[str, Any] = {
        "tags": [SECRET],
        "anchors": [f"{SECRET}.py"],
        "triggers": [{"event": "pre-run", "words": [SECRET]}],
        "kind": "task",
        "caller": OWNER,
    }
    ids = [await remember(service, f"the {SECRET} is number {n}", key=f"{SECRET}{n}", **words) for n in range(5)]
    assert set((await call(service, "inject", query=SECRET, caller=OWNER)).ids) == set(ids)
    await call(service, "revoke", id=ids[1], reason=f"{SECRET} moved", caller=OWNER)
    ids.append((await call(service, "supersede", id=ids[2], content=f"{SECRET} anew", caller=OWNER)).by)
    await call(service, "done", id=ids[3], caller=OWNER)
    await call(service, "forget", id=ids[4], caller=OWNER)
    return ids


def test_every_verb_is_asked() -> None:
    """A verb that is added must say here how it is asked: by an id alone, or as the table has it."""
    for verb, spec in wire.VERBS.items():
        asked = verb in ABOUT or "id" in spec.request.__struct_fields__
        assert asked, f"{verb} is asked nothing"
        if "id" in spec.request.__struct_fields__:
            assert any("ID" in json.dumps(body) for body in _asked(verb)), f"{verb} is asked about no note"


@pytest.mark.parametrize("who", ["lead", "anonymous", "sibling", "teammate", "fresh"])
async def test_a_note_that_cannot_be_read_is_named_to_main_agents_alone(service: Service, who: str) -> None:
    """V09, C23: nobody can tell whose it is, so those who do not see the workspace as a whole hear nothing of it."""
    note_id = await remember(service, "whose is it", kind="finding")
    workspace = await projection(service)
    await service.redis.hset(workspace.keys.heads, note_id, b"damaged")
    await workspace.load()
    told = [await refused(call(service, "inspect", id=id_, caller=OTHERS[who])) for id_ in (note_id, NEVER)]
    named = who in TOUCHY
    assert ("cannot be read" in told[0].message) == named
    assert [error.code for error in told] == ["not_found", "not_found"]
    assert named or told[0].message.replace(note_id, NEVER) == told[1].message


@pytest.mark.parametrize("who", OTHERS)
async def test_nobody_is_told_of_another_owner_s_note(service: Service, who: str) -> None:
    """C23, C25: asked by any other caller, every verb answers about a note, live, ended or forgotten, as it does about
    one that never was; and in no answer is its id, a word of it, or its owner's agent; nor is anything of it
    changed."""
    caller = OTHERS[who]
    ids = await _notes(service)
    await service.quiesce()
    before = {key: value for key, value in (await kept(service)).items() if key.endswith((":heads", ":vault", ":tomb"))}
    for verb in wire.VERBS:
        for body in _asked(verb):
            told = {}
            for note_id in (NEVER, *ids):
                mine = json.loads(json.dumps(body).replace('"ID"', f'"{note_id}"'))
                said = await _ask(service, verb, mine, caller)
                if note_id is NEVER:
                    assert not [one for one in ids if one in said], (verb, body)
                told[note_id] = _MOVING.sub("", said.replace(note_id, "ID"))
                assert SECRET not in said, (verb, body)
                assert who in TOUCHY or "s1/a1" not in said.replace("'s1/a1'", ""), (verb, body)
                if "ID" not in json.dumps(body):
                    break
            assert len(set(told.values())) == 1, (verb, body, told)
    await service.quiesce()
    after = await kept(service)
    for key, value in before.items():
        assert {id_.encode(): value.get(id_.encode()) for id_ in ids} == {
            id_.encode(): after[key].get(id_.encode()) for id_ in ids
        }, f"{who} changed something in {key.rpartition(':')[2]}"
    assert SECRET in await _ask(service, "list", {"with_content": True}, OWNER), "the owner sees it"


@pytest.mark.parametrize("who", OTHERS)
async def test_the_feed_tells_nobody_either(service: Service, who: str) -> None:
    """Nothing of another owner's note comes by the feed, from the log's very beginning on; the human is told all."""
    ids = await _notes(service)
    last = await remember(service, "the last word", kind="directive", caller=HUMAN)
    request: Any = wire.FeedRequest(workspace=WORKSPACE, caller=wire.CallerSpec(**OTHERS[who]), after="0-0")
    if who == "unidentified":
        assert (await refused(anext(service.feed(request)))).rule == "unidentified-child"
        return
    seen = ""
    async with asyncio.timeout(10):
        feed = service.feed(request)
        async for item in feed:
            seen += msgspec.json.encode(item).decode()
            if last in seen or (who == "fresh" and "opened" in seen):
                break
        await feed.aclose()  # type: ignore[attr-defined]
    assert not [one for one in ids if one in seen]
    assert SECRET not in seen
