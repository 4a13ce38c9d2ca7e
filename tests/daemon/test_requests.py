"""A request may come twice, and several may come in one: each is done once, and answered for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.daemon.desk import (
    call,
    kept,
    listed,
    log_types,
    recalled,
    refused,
    refused_unchanged,
    remember,
)

from amnesiad import wire
from amnesiad.service import Service

WRITES: dict[str, dict[str, Any]] = {
    "remember": {"content": "something new"},
    "supersede": {"content": "something else"},
    "revoke": {"reason": "it was wrong"},
    "flag": {"reason": "is that so?"},
    "reinstate": {},
    "pin": {},
    "unpin": {},
    "renew": {},
    "done": {},
    "promote": {"to": "workspace"},
    "edit": {"tags": ["x"]},
    "forget": {},
    "restore": {},
    "undo": {},
    "policy": {"set": {"default_ttl": "12h"}},
}


async def _subject(service: Service, verb: str) -> dict[str, Any]:
    """The address of a note that the verb can act on."""
    if verb in ("remember", "policy"):
        return {}
    caller = {"session": "s1"}
    fields = {"scope": "session", "caller": caller} if verb == "promote" else {}
    await call(service, "policy", set={"restorable": True})
    note_id = await remember(service, "the subject", kind="task" if verb == "done" else "fact", **fields)
    if verb == "reinstate":
        await call(service, "revoke", id=note_id, reason="no")
    if verb in ("unpin", "undo"):
        await call(service, "pin", id=note_id)
    if verb == "restore":
        await call(service, "forget", id=note_id)
    return {"id": note_id, **({"caller": caller} if verb == "promote" else {})}


@pytest.mark.parametrize("verb", WRITES)
async def test_a_repeated_request_is_answered_the_same_and_done_once(
    service: Service, second: Service, verb: str
) -> None:
    """V27: every write verb repeated with its ``request_id``, also at another daemon, gives its answer and no event."""
    subject = await _subject(service, verb)
    fields = subject | WRITES[verb] | {"request_id": "r-1"}
    first = await call(service, verb, **fields)
    events = await log_types(service)
    for again in (service, second):
        repeated = await call(again, verb, **fields)
        if verb != "policy":
            assert repeated == first
    assert await log_types(service) == events


@pytest.mark.parametrize("verb", WRITES)
async def test_a_request_id_with_another_body_is_a_conflict(service: Service, verb: str) -> None:
    """V27: the id of an answered request with another body is refused as a conflict and does nothing."""
    subject = await _subject(service, verb)
    await call(service, verb, **subject, **WRITES[verb], request_id="r-1")
    before = await kept(service)
    other = {"caller": {"session": "s1", "agent": "a2"}}
    error = await refused(call(service, verb, **(subject | WRITES[verb] | other), request_id="r-1"))
    assert (error.code, error.field) == ("conflict", "request_id")
    assert await kept(service) == before


@pytest.mark.parametrize("other", ["unpin", "restore", "forget"])
async def test_a_request_id_with_another_verb_is_a_conflict(service: Service, other: str) -> None:
    """V27: bodies of two verbs may be the same to the letter; the answer of one is none to the other, nor is it
    done."""
    note_id = await remember(service, "the port is 8080")
    await call(service, "pin", id=note_id, request_id="r-1")
    error = await refused_unchanged(service, other, id=note_id, request_id="r-1")
    assert (error.code, error.field) == ("conflict", "request_id")


async def test_an_answer_without_a_change_is_kept_for_its_request_too(service: Service) -> None:
    """V27: a repeat that once said "nothing to do" says so again, though by now there would be something to do."""
    note_id = await remember(service, "the port is 8080")
    fields = {"content": "the port is 8080", "request_id": "r-1"}
    first = await call(service, "remember", **fields)
    assert not first.created
    await call(service, "forget", id=note_id)
    assert await call(service, "remember", **fields) == first
    assert await listed(service) == []


async def test_forgetting_many_is_answered_the_same_when_repeated(service: Service) -> None:
    """V27: a forget of several notes, repeated with its id, names the notes that went the first time."""
    for n in range(3):
        await remember(service, f"scratch {n}", tags=["scratch"])
    first = await call(service, "forget", tags=["scratch"], request_id="r-1")
    assert first.forgotten == 3
    again = await call(service, "forget", tags=["scratch"], request_id="r-1")
    assert (again.forgotten, again.ids) == (3, first.ids)


async def test_a_batch_means_its_requests_one_after_another(service: Service, tmp_path: Path) -> None:
    """C13: values of one slot in one batch end in their order, though the first has files to read before it is
    written."""
    (tmp_path / "large").write_bytes(b"x" * 2_000_000)
    place = {"workspace": str(tmp_path)}
    for round_ in range(5):
        requests = [
            {"verb": "remember", "body": {"content": f"v{round_}.{n}", "key": "slot", "anchors": ["large"][n:]}}
            for n in range(5)
        ]
        answers = (await call(service, "batch", requests=requests, **place)).answers
        assert [answer.created for answer in answers] == [True] * 5
        assert await recalled(service, **place) == [f"v{round_}.4"]


async def test_one_refusal_in_a_batch_stops_no_other(service: Service) -> None:
    """C03: each request of a batch is answered on its own, in order, refusals included."""
    requests = [
        {"verb": "remember", "body": {"content": "good"}},
        {"verb": "remember", "body": {"content": ""}},
        {"verb": "revoke", "body": {"id": "zzzzzzzzzz", "reason": "no"}},
        {"verb": 5},
        {"verb": "remember", "body": []},
        ["remember"],
        {"verb": "list", "body": {}},
        {"verb": "remember", "body": {"content": "good too"}},
    ]
    answers = (await call(service, "batch", requests=requests)).answers
    assert answers[0].created
    assert [answers[n].error.code for n in range(1, 6)] == ["invalid", "not_found", *["invalid"] * 3]
    assert [answers[n].error.field for n in (3, 4)] == ["verb", "body"]
    assert len(answers[6].notes) == 1
    assert answers[7].created


async def test_a_text_that_is_none_is_its_own_item_s_fault(service: Service) -> None:
    """V25: a lone surrogate or bytes that are no UTF-8 in one item of a batch leave the others answered."""
    good = b'{"verb": "remember", "body": {"content": "good"}}'
    for bad in (
        b'{"verb": "remember", "body": {"content": "\\ud800"}}',
        b'{"verb": "remember", "body": {"content": "\xff"}}',
    ):
        raw = b'{"workspace": "desk", "requests": [%s, %s]}' % (bad, good)
        answers = (await service.batch(wire.decode("batch", raw))).answers
        assert (answers[0].error.code, answers[1].id) == ("invalid", (await listed(service))[0])
