"""The wire: what a body becomes, and how a wrong one is refused by the name of its field."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amnesiad import wire
from amnesiad.core.callers import Caller
from amnesiad.core.notes import Trigger
from amnesiad.errors import CallerError, Forbidden, Invalid, NotFound, TooLarge

SECRET = "the launch code is 0000"


def decode(verb: str, **fields: Any) -> Any:
    return wire.decode(verb, json.dumps({"workspace": "/src/app", **fields}).encode())


def remember(**fields: Any) -> wire.RememberRequest:
    request = decode("remember", **{"content": "c", **fields})
    assert isinstance(request, wire.RememberRequest)
    return request


@pytest.mark.parametrize(
    "value",
    [
        1893456000000,
        1893456000000.0,
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-01-01T08:00:00+08:00",
        "2030-01-01T00:00:00Z",
        "1893456000000",
    ],
)
def test_times_have_one_meaning(value: object) -> None:
    """C07: every accepted spelling of an instant is the same number of milliseconds once a request is decoded."""
    assert remember(expires_at=value).expires_at == 1893456000000


@pytest.mark.parametrize("value", [1893456000, "soon", True, "2030-13-01", [1], {}, 1e300, -1])
def test_times_that_could_mean_anything_are_refused_at_the_door(value: object) -> None:
    """C07: epoch seconds, words and impossible dates are refused, naming the field."""
    with pytest.raises(Invalid) as refusal:
        decode("recall", since=value)
    assert refusal.value.field == "since"


@pytest.mark.parametrize(("value", "ttl_ms"), [("15s", 15_000), ("7d", 604_800_000), (1000, 1000), (1000.0, 1000)])
def test_durations_arrive_as_milliseconds(value: object, ttl_ms: int) -> None:
    """A duration may be text or a number and is an int afterwards."""
    found = remember(ttl_ms=value).ttl_ms
    assert found == ttl_ms
    assert type(found) is int


def test_an_absent_ttl_is_not_a_null_one() -> None:
    """No ttl_ms asks for the policy's; an explicit null asks for none."""
    assert remember().ttl_ms is msgspec.UNSET
    assert remember(ttl_ms=None).ttl_ms is None


@pytest.mark.parametrize(
    ("verb", "fields", "field"),
    [
        ("recall", {"limit": "abc"}, "limit"),
        ("recall", {"limit": -1}, "limit"),
        ("recall", {"limit": 0}, "limit"),
        ("recall", {"limit": 101}, "limit"),
        ("recall", {"limit": 10**40}, "limit"),
        ("recall", {"limit": True}, "limit"),
        ("recall", {"tags": "abc"}, "tags"),
        ("recall", {"tags": [1]}, "tags[0]"),
        ("recall", {"tags": {"a": 1}}, "tags"),
        ("recall", {"states": ["active", "revoked"]}, "states[1]"),
        ("recall", {"kinds": ["fact", "opinion"]}, "kinds[1]"),
        ("recall", {"query": ["x"]}, "query"),
        ("remember", {}, "content"),
        ("remember", {"content": ["x"]}, "content"),
        ("remember", {"content": None}, "content"),
        ("remember", {"content": "x", "colour": "red"}, "colour"),
        ("remember", {"content": "x", "ttl_ms": "nan"}, "ttl_ms"),
        ("remember", {"content": "x", "ttl_ms": -1}, "ttl_ms"),
        ("remember", {"content": "x", "ttl_ms": 0}, "ttl_ms"),
        ("remember", {"content": "x", "ttl_ms": 10**18}, "ttl_ms"),
        ("remember", {"content": "x", "ttl_ms": float("nan")}, "ttl_ms"),
        ("remember", {"content": "x", "ttl_ms": float("inf")}, "ttl_ms"),
        ("remember", {"content": "x", "pinned": "yes"}, "pinned"),
        ("remember", {"content": "x", "source_ref": "two words"}, "source_ref"),
        ("remember", {"content": "x", "request_id": "two words"}, "request_id"),
        ("remember", {"content": "x", "request_id": "x" * 200}, "request_id"),
        ("remember", {"content": "x", "owner": "a/b c"}, "owner"),
        ("remember", {"content": "x", "supersedes": "no"}, "supersedes"),
        ("remember", {"content": "x", "caller": {"role": "root"}}, "caller.role"),
        ("remember", {"content": "x", "caller": {"agent": "a b"}}, "caller.agent"),
        ("remember", {"content": "x", "caller": {"on_behalf": True}}, "caller.on_behalf"),
        ("remember", {"content": "x", "caller": {"name": "x"}}, "caller.name"),
        ("remember", {"content": "x", "caller": "me"}, "caller"),
        ("remember", {"content": "x", "triggers": [{"words": ["a", 1]}]}, "triggers[0].words[1]"),
        ("remember", {"content": "x", "triggers": [{"cooldown_ms": "x"}]}, "triggers[0].cooldown_ms"),
        ("remember", {"content": "x", "triggers": [{"when": "x"}]}, "triggers[0].when"),
        ("remember", {"content": "x", "after": "yesterday"}, "after"),
        ("inspect", {"id": "zz"}, "id"),
        ("inspect", {"id": "uuuuuuuuuu"}, "id"),
        ("revoke", {"id": "abcdefghjk"}, "reason"),
        ("promote", {"id": "abcdefghjk", "to": "boss"}, "to"),
        ("fire", {"event": "two words"}, "event"),
        ("fire", {"event": "x", "turn": 1.5}, "turn"),
        ("inject", {"budget_tokens": -5}, "budget_tokens"),
        ("batch", {"requests": {}}, "requests"),
        ("status", {"workspace": ""}, "workspace"),
        ("status", {"workspace": 5}, "workspace"),
        ("status", {"workspace": "w\n"}, "workspace"),
        ("workspaces", {"rename": "w", "to": "w\x1b[2J"}, "to"),
        ("status", {"extra": 1}, "extra"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(verb: str, fields: dict[str, Any], field: str) -> None:
    """V26, V11: wrong types, ranges, unknown and missing fields are invalid, and the error says which field."""
    with pytest.raises(Invalid) as refusal:
        decode(verb, **fields)
    assert refusal.value.field == field
    assert field in refusal.value.message


@pytest.mark.parametrize(
    ("verb", "fields", "field"),
    [
        ("recall", {"tags": ["t"] * 33}, "tags"),
        ("recall", {"paths": ["p"] * 1001}, "paths"),
        ("forget", {"ids": ["abcdefghjk"] * 1001}, "ids"),
        ("batch", {"requests": [{"verb": "status"}] * 1001}, "requests"),
    ],
)
def test_a_list_past_its_limit_is_too_large(verb: str, fields: dict[str, Any], field: str) -> None:
    """V25: a list longer than its limit is refused with the limit, not processed."""
    with pytest.raises(TooLarge, match=r"\d") as refusal:
        decode(verb, **fields)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"content": "a\x00b"}, "content"),
        ({"content": "a\ud800b"}, "content"),
        ({"content": "x", "tags": ["ok", "\udfff"]}, "tags[1]"),
        ({"content": "x", "key": "\x00"}, "key"),
        ({"content": "x", "triggers": [{"command": "\x00"}]}, "triggers[0].command"),
    ],
)
def test_what_is_no_text_is_refused(fields: dict[str, Any], field: str) -> None:
    """V25: NUL and lone surrogates are invalid in every field, and the field is named."""
    with pytest.raises(Invalid) as refusal:
        decode("remember", **fields)
    assert refusal.value.field == field


def test_an_escaped_backslash_before_u0000_is_plain_text() -> None:
    r"""The six characters \u0000, written about in a note, are not a NUL."""
    assert remember(content=r"escape it as \u0000").content == r"escape it as \u0000"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"workspace": "/x"} trailing',
        b'"text"',
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"workspace": "/x", "query": "\xff"}',
        b'{"workspace": "/x", "query": "line\nbreak"}',
        b"[" * 100_000,
        b'{"workspace": "/x", "query": ' + b'{"a":' * 100_000,
        b'{"workspace": "/x", "query": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"workspace": "/x", "limit": ' + b"9" * 10_000 + b"}",
    ],
    ids=range(14),
)  # fmt: skip
def test_a_body_that_is_no_request_is_invalid(raw: bytes) -> None:
    """V26: malformed, deep, mistyped and endless JSON is refused, not a crash."""
    for verb in ("recall", "events", "batch"):
        with pytest.raises(Invalid):
            wire.decode(verb, raw)


@given(raw=st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["workspace", "content", "caller", "tags", "ttl_ms", "triggers", "x"]), inner),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode()), verb=st.sampled_from(sorted(wire.VERBS)))  # fmt: skip
def test_whatever_is_sent_becomes_a_request_or_a_refusal(raw: bytes, verb: str) -> None:
    """V26: no bytes make decoding raise anything but a caller's error."""
    with suppress(CallerError):
        assert isinstance(wire.decode(verb, raw), wire.VERBS[verb].request)


@pytest.mark.parametrize("field", ["content", "tags", "triggers", "kind", "ttl_ms", "caller"])
def test_a_refusal_does_not_repeat_a_notes_words(field: str) -> None:
    """Errors are logged and shown: the words of a note are not in them."""
    with pytest.raises(CallerError) as refusal:
        decode("remember", **{"content": SECRET, field: [[SECRET]]})
    assert SECRET not in f"{refusal.value.message} {refusal.value.hint}"


@pytest.mark.parametrize(
    ("kind", "said", "hint"),
    [
        ("fcat", "not fcat", "did you mean fact?"),
        ("fi", "not fi", "did you mean finding?"),
        ("d", "not d", "did you mean decision or directive?"),
        ("xyzzy", "not xyzzy", ""),
        ("two words of a note", "task-context", ""),
    ],
)
def test_an_unknown_word_is_named(kind: str, said: str, hint: str) -> None:
    """V26: a value that is none of a field's words is named with those it may stand for; a whole text is not
    repeated."""
    with pytest.raises(Invalid) as refusal:
        decode("recall", kinds=[kind])
    assert refusal.value.message.startswith("kinds[0] must be one of decision, ")
    assert refusal.value.message.endswith(said)
    assert refusal.value.hint == hint


@pytest.mark.parametrize(
    ("verb", "fields", "said"),
    [
        ("recall", {"limit": 0}, "limit must be at least 1"),
        ("recall", {"limit": 101}, "limit must be at most 100"),
        ("recall", {"limit": "1"}, "limit must be a whole number, not text"),
        ("recall", {"query": 5}, "query must be text or null, not a whole number"),
        ("recall", {"kinds": "fact"}, "kinds must be a list, not text"),
        ("recall", {"explain": 1}, "explain must be true or false, not a whole number"),
        ("recall", {"tags": ["t"] * 33}, "tags must have at most 32 items"),
        ("list", {"cursor": "x" * 257}, "cursor must have at most 256 characters"),
        ("remember", {"content": "x", "caller": None}, "caller must be an object, not null"),
    ],
)
def test_a_refusal_speaks_of_json(verb: str, fields: dict[str, Any], said: str) -> None:
    """What is wrong with a value is said in words for JSON's types, not in another language's."""
    with pytest.raises(CallerError) as refusal:
        decode(verb, **fields)
    assert refusal.value.message == said


def test_an_empty_body_is_called_empty() -> None:
    """Whoever forgot the body is told so."""
    with pytest.raises(Invalid, match="the body is empty"):
        wire.decode("status", b" ")


def test_a_misspelt_field_is_corrected() -> None:
    """An unknown field is answered with the one that was probably meant."""
    with pytest.raises(Invalid) as refusal:
        remember(tag=["a"])
    assert refusal.value.hint == "did you mean tags?"


def test_a_word_outside_its_list_is_answered_with_the_list() -> None:
    """An unknown kind is refused with the kinds there are."""
    with pytest.raises(Invalid, match="directive, episode, fact"):
        remember(kind="opinion")


def test_the_caller_and_triggers_reach_the_core_whole() -> None:
    """What a request declares is what the core decides by."""
    request = remember(
        caller={"session": "s1", "agent": "a1", "agent_kind": "subagent", "on_behalf": "user"},
        triggers=[{"event": "edit", "path": "*.py", "words": ["x"], "cooldown_ms": "1m"}],
    )
    assert request.caller.to_core() == Caller(agent_kind="subagent", session="s1", agent="a1", on_behalf=True)
    assert request.triggers[0].to_core() == Trigger(event="edit", path="*.py", words=("x",), cooldown_ms=60_000)


def test_a_turn_may_be_counted() -> None:
    """Agents that number their turns send a number; one id is made of both spellings."""
    assert decode("fire", event="edit", turn=7).turn == decode("fire", event="edit", turn="7").turn == "7"


def test_an_event_may_come_alone_or_in_a_list() -> None:
    """Both forms of the events request decode to the same."""
    event = {"event": "session-end", "workspace": "/src/app", "session": "s1", "at": "2030-01-01"}
    alone = wire.decode("events", json.dumps(event).encode())
    listed = wire.decode("events", json.dumps({"events": [event]}).encode())
    assert alone.events == listed.events
    assert alone.events[0].at == 1893456000000
    assert wire.decode_lifecycle(json.dumps(event).encode()) == alone.events[0]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"event": "session-over", "workspace": "/x"}, "event"),
        ({"event": "session-end"}, "workspace"),
        ({"events": []}, "events"),
        ({"events": [{"event": "session-end", "workspace": "/x", "mood": "good"}]}, "events[0].mood"),
        ({"event": "session-end", "workspace": "/x", "session": "\x00"}, "session"),
    ],
)
def test_a_wrong_event_is_refused_by_field(body: dict[str, Any], field: str) -> None:
    """V26: lifecycle events are checked as strictly as requests."""
    with pytest.raises(Invalid) as refusal:
        wire.decode("events", json.dumps(body).encode())
    assert refusal.value.field == field


def test_a_batch_hands_its_workspace_and_caller_down() -> None:
    """An item without a workspace or caller gets the batch's; one with its own keeps it."""
    batch = decode(
        "batch",
        caller={"session": "s1"},
        requests=[
            {"verb": "status"},
            {"verb": "remember", "body": {"workspace": "/other", "content": "x", "caller": {"session": "s2"}}},
        ],
    )
    first, second = (wire.decode_item(batch, wire.read_item(item)) for item in batch.requests)
    assert (first.workspace, first.caller.session) == ("/src/app", "s1")
    assert (second.workspace, second.caller.session) == ("/other", "s2")


def test_a_batch_hands_its_workspace_to_an_event() -> None:
    """A single lifecycle event is of the batch's workspace unless it says another; of several each says its own."""
    single = {"event": "heartbeat", "session": "s1"}
    batch = decode("batch", requests=[{"verb": "events", "body": body} for body in (single, {"events": [single]})])
    first, second = batch.requests
    assert wire.decode_item(batch, wire.read_item(first)).events[0].workspace == "/src/app"
    with pytest.raises(Invalid) as refusal:
        wire.decode_item(batch, wire.read_item(second))
    assert refusal.value.field == "events[0].workspace"


@pytest.mark.parametrize("field", ["agent_name", "payload", "session"])
def test_a_hook_s_query_names_the_workspace_and_nothing_else(field: str) -> None:
    """What the daemon would not look at is refused by name."""
    assert wire.decode_hook("codex", {"workspace": "w"}, b"{}").workspace == "w"
    with pytest.raises(Invalid) as refusal:
        wire.decode_hook("codex", {field: "x"}, b"{}")
    assert refusal.value.field == field


def test_a_wrong_item_of_a_batch_is_refused_alone() -> None:
    """V25: a bad item does not make the batch invalid, only itself, whatever is wrong with it."""
    items: list[Any] = [
        {"verb": "remember", "body": {"content": "a\x00"}},
        {"verb": "rember"},
        {"verb": "batch"},
        {"verb": "import"},
        {"verb": "export"},
        {"verb": "recall", "body": {"limit": "x"}},
        {"verb": "remember", "body": {"content": "\ud800"}},
        {"verb": "\ud800", "body": {}},
        {"verb": "remember", "body": {"\udfff": 1}},
        {"verb": "remember", "body": []},
        {"verb": 5},
        {"body": {}},
        {"verb": "list", "bdy": {}},
        {"verb": "list", "body": {"limit": float("inf")}},
        {"verb": "list", "body": None},
        "list",
        None,
        [],
    ]
    batch = decode("batch", requests=items)
    assert len(batch.requests) == len(items)
    for item in batch.requests:
        with pytest.raises((Invalid, NotFound)) as refusal:
            wire.decode_item(batch, wire.read_item(item))
        assert refusal.value.field


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"workspace": "/x", "requests": [{"verb": "list"}, ]}', "body"),
        (b'{"workspace": "/x", "requests": {"verb": "\\ud800"}}', "requests"),
        (b'{"workspace": "/x", "requests": "\\ud800"}', "requests"),
        (b'{"workspace": "\\ud800", "requests": []}', "workspace"),
        (b'{"workspace": "/x", "request": ["\\ud800"]}', "request"),
        (b'["\\ud800"]', "body"),
        (b'{"workspace": "/x", "requests": ["\\ud800"], "colour": 1}', "colour"),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(raw: bytes, field: str) -> None:
    """V25: only what lies within an item is that item's own fault."""
    with pytest.raises(Invalid) as refusal:
        wire.decode("batch", raw)
    assert refusal.value.field == field


def test_a_query_string_makes_a_request_with_its_caller() -> None:
    """Streams take their fields from the query string, the caller's beside the rest."""
    request = wire.decode_query(wire.ImportRequest, {"workspace": "/x", "session": "s1", "dry_run": "true"})
    assert (request.workspace, request.caller.session, request.dry_run) == ("/x", "s1", True)
    with pytest.raises(Invalid) as refusal:
        wire.decode_query(wire.ImportRequest, {"workspace": "/x", "mood": "good"})
    assert refusal.value.field == "mood"
    with pytest.raises(Invalid):
        wire.decode_query(wire.ImportRequest, {"workspace": "/x\x00"})


def test_every_verb_is_answered_by_a_named_method() -> None:
    """The table of verbs is complete: requests refuse unknown fields and method names are callable names."""
    for verb, spec in wire.VERBS.items():
        assert spec.request.__struct_config__.forbid_unknown_fields, verb
        assert spec.request.__struct_config__.frozen, verb
        assert spec.method.isidentifier(), verb


def test_null_times_are_answered_and_empty_extras_are_not() -> None:
    """A field that means something when null is always there; one that would say nothing is left out."""
    answer = wire.RememberAnswer(
        seq="1-0", id="abcdefghjk", created=True, ttl_ms=None, expires_at=None, stale_at=None, superseded=(), warnings=()
    )  # fmt: skip
    sent = json.loads(wire.encode(answer))
    assert sent["ttl_ms"] is None
    assert sent["warnings"] == []
    assert "degraded" not in sent
    event = wire.HistoryEvent(seq="1-0", type="created", at=1, actor="human", frm=None, to="active")
    assert json.loads(wire.encode(event))["to"] == "active"


def test_an_error_envelope_carries_what_the_error_knows() -> None:
    """Field, rule and choices appear only where they say something."""
    error = Forbidden("no", hint="ask", rule="provenance", choices=("a", "b"))
    assert json.loads(wire.encode(wire.error_answer(error))) == {
        "error": {"code": "forbidden", "message": "no", "hint": "ask", "rule": "provenance", "choices": ["a", "b"]}
    }


def test_an_error_envelope_always_has_its_three_fields() -> None:
    """Section 13: code, message and hint are there, also where there is nothing to advise: nobody has to look first."""
    assert json.loads(wire.encode(wire.error_answer(Invalid("no")))) == {
        "error": {"code": "invalid", "message": "no", "hint": ""}
    }


@pytest.mark.parametrize("value", ["18446744073709551616", "1-18446744073709551616", "99999999999999999999-0"])
def test_a_stream_id_is_one_that_the_store_can_hold(value: str) -> None:
    """An id beyond 64 bits is refused at the door; the store would take exception to it."""
    with pytest.raises(Invalid) as refusal:
        decode("dead", retry=[value])
    assert refusal.value.field == "retry[0]"
    assert decode("dead", retry=["18446744073709551615-18446744073709551615"]).retry


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "x" * 1025, "."])
def test_a_changed_file_is_one_that_the_bridge_takes(path: str) -> None:
    """An event that would only be put aside when it is read is refused while its sender still listens."""
    event = {"event": "file-changed", "workspace": "/src/app", "paths": ["a.py", path]}
    for body, field in (({"events": [event]}, "events[0].paths[1]"), (event, "paths[1]")):
        with pytest.raises(CallerError) as refusal:
            wire.decode("events", json.dumps(body).encode())
        assert refusal.value.field == field
        assert refusal.value.message.startswith(field)


def test_no_event_names_more_files_than_the_bridge_takes() -> None:
    """A larger change is sent as several."""
    event = {"event": "file-changed", "workspace": "/src/app", "paths": ["a.py"] * 257}
    with pytest.raises(TooLarge):
        wire.decode("events", json.dumps(event).encode())
