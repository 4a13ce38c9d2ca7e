"""The OpenAPI document against a daemon that runs: what it promises holds, whatever is asked.

Requests are made of the document: its examples, the edges of its schemas, and random ones that keep to it or break it.
``AMNESIA_FUZZ_EXAMPLES=500`` makes a long random session of it; without it the requests are always the same ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pytest
import requests
import schemathesis
from jsonschema_rs import Draft202012Validator
from requests.adapters import HTTPAdapter
from schemathesis.checks import CHECKS
from tests.support import PATIENCE_S, wait_until
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from amnesiad.wire import STATUS, VERBS
from amnesiad.wire.openapi import document

EXAMPLES: Final = int(os.environ.get("AMNESIA_FUZZ_EXAMPLES", "0"))
CHECKED: Final = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
]
EDGES: Final = ["/v1/edit", "/v1/recall", "/v1/policy", "/v1/import", "/v1/hooks/{agent}", "/healthz", "/openapi.json"]
"""Paths whose edges are tried each time, one of each make; a long session tries all."""
WORKSPACE: Final = "openapi"
HUMAN: Final = {"role": "human"}


class _Connection(HTTPConnection):
    """An HTTP connection on a Unix socket."""

    path = ""

    def _new_conn(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(PATIENCE_S)
        made.connect(self.path)
        return made


class _Adapter(HTTPAdapter):
    """Sends every request of a session to one Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._pool = HTTPConnectionPool("amnesiad", maxsize=1)
        self._pool.ConnectionCls = type("_Connection", (_Connection,), {"path": path})

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        return self._pool


@pytest.fixture(scope="module")
def session(daemon: str) -> Iterator[requests.Session]:
    """Requests that go to the daemon's socket."""
    with requests.Session() as made:
        made.mount("http://", _Adapter(daemon))
        yield made


@schemathesis.serializer("application/x-ndjson")
def ndjson(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Lines as they come; a value that is no text as one line of JSON."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@schemathesis.deserializer("application/x-ndjson")
def lines(_context: schemathesis.DeserializationContext, response: schemathesis.Response) -> list[Any]:
    """Every line, each of which must be JSON."""
    return [json.loads(line) for line in response.content.splitlines()]


def _schema(*phases: str) -> Any:
    refusals = sorted({str(status) for status in (*STATUS.values(), 405) if status < 500})
    config = schemathesis.Config.from_dict(
        {
            "generation": {"deterministic": not EXAMPLES, "max-examples": EXAMPLES or 3, "database": "none"},
            "checks": {"negative_data_rejection": {"expected-statuses": refusals}},
            "phases": {name: {"enabled": name in phases} for name in ("examples", "coverage", "fuzzing")},
        }
    )
    # A feed does not end by itself; it has a test of its own below.
    return schemathesis.openapi.from_dict(document(), config=config).exclude(path="/v1/feed")


def _ask(case: schemathesis.Case[Any], session: requests.Session) -> None:
    if isinstance(case.body, dict) and isinstance(case.body.get("workspace"), str) and _keeps_to_it(case):
        case.body["workspace"] = WORKSPACE
    case.call_and_validate("http://amnesiad", session, checks=cast(Any, CHECKS.get_by_names(CHECKED)))


anything = _schema("examples", "fuzzing")
edges = _schema("coverage") if EXAMPLES else _schema("coverage").include(path=EDGES)


@anything.parametrize()  # type: ignore[untyped-decorator]
def test_whatever_is_asked(case: schemathesis.Case[Any], session: requests.Session) -> None:
    """The answer is one that the document names; what it forbids is refused; nothing breaks."""
    _ask(case, session)


@edges.parametrize()  # type: ignore[untyped-decorator]
def test_the_edges_of_every_limit(case: schemathesis.Case[Any], session: requests.Session) -> None:
    """At each limit and just beyond it, and by every other method, an answer is one that the document names."""
    _ask(case, session)


def _keeps_to_it(case: schemathesis.Case[Any]) -> bool:
    return case.meta is not None and case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE


class TestAnswers:
    """What is answered when all goes well."""

    @pytest.fixture
    def ask(self, session: requests.Session) -> Callable[..., dict[str, Any]]:
        """Ask for a verb in a workspace of the test's own; the answer must be as the document says, to the letter."""
        workspace, validators = f"openapi-{secrets.token_hex(4)}", _validators()

        def asked(verb: str, **fields: Any) -> dict[str, Any]:
            body = {"workspace": workspace, "caller": HUMAN, **fields}
            if verb == "events":
                del body["caller"]
            answer = session.post(f"http://amnesiad/v1/{verb}", json=body, timeout=PATIENCE_S)
            assert answer.status_code == 200, answer.text
            told: dict[str, Any] = answer.json()
            assert list(validators[verb].iter_errors(told)) == []
            return told

        return asked

    def test_of_every_verb(self, ask: Callable[..., dict[str, Any]]) -> None:
        """Every verb answers what its schema says and not a field more, through the whole life of a few notes."""
        asked: set[str] = set()

        def told(verb: str, **fields: Any) -> dict[str, Any]:
            asked.add(verb)
            return ask(verb, **fields)

        told("policy", set={"restorable": True}, request_id="openapi")
        wrong = told("remember", content="the cache is warm", kind="finding", tags=["cache"], triggers=[{"event": "x"}])
        port = told("remember", content="the port is 8080", ttl_ms="30d", anchors=["src/app.py"], key="port")
        task = told("remember", content="move the cache", kind="task", source_ref="ticket:7")
        told("flag", id=wrong["id"], reason="it may be cold")
        told("revoke", id=wrong["id"], reason="it is cold")
        assert told("recall", query="cache warm", explain=True, format="text")["deterrents"]
        assert told("remember", content="the cache is warm!", kind="finding")["warnings"]
        told("reinstate", id=wrong["id"])
        told("undo", id=wrong["id"])
        for verb in ("pin", "unpin", "renew"):
            told(verb, id=port["id"])
        told("edit", id=port["id"], tags=["net"], triggers=[{"event": "tool", "cooldown_ms": "1m"}])
        told("promote", id=port["id"], to="human")
        told("supersede", id=port["id"], content="the port is 9090", ttl_ms=None)
        told("done", id=task["id"])
        assert told("inject", budget_tokens=500, query="port")["ids"]
        told("preview", budget_tokens=20)
        told("fire", event="tool")
        told("why-not", id=task["id"], query="cache")
        told("exposure", id=port["id"])
        told("mirror", id=task["id"], target="ticket", result="deleted")
        gone = told("remember", content="a passing thought", kind="episode")
        told("forget", id=gone["id"])
        told("restore", id=gone["id"])
        told("forget", all=True, dry_run=True)
        told("list", states=["active", "revoked", "superseded", "expired", "forgotten"], with_content=True)
        for one in (wrong, port, task, gone):
            assert told("inspect", id=one["id"])["history_length"]
            assert told("history", id=one["id"])["events"]
        row = told("ledger")["rows"][0]
        told("ledger", entry=row["id"])
        assert told("audit")["entries"]
        told("status")
        told("batch", requests=[{"verb": "status"}, {"verb": "nothing"}, {"verb": "renew", "body": {"id": port["id"]}}])
        told("events", event="session-start", session="s1")
        told("remember", content="mine", scope="session", caller={"session": "s1"})
        assert told("owners")["rows"]
        asyncio.run(wait_until(lambda: ask("status")["worker"]["alive"], PATIENCE_S))
        for verb in ("dead", "workspaces", "settle", "check", "verify", "rebuild", "scrub"):
            told(verb)
        assert asked == {verb for verb, spec in VERBS.items() if spec.stream == "none"}

    def test_of_an_import_and_an_export(self, session: requests.Session) -> None:
        """Both ends of the stream are as the document says, and what went in comes out."""
        query = {"workspace": f"openapi-{secrets.token_hex(4)}", "role": "human"}
        lines = b'{"content": "one", "kind": "finding"}\n{"content": 2}\n'
        answer = session.post("http://amnesiad/v1/import", params=query, data=lines, timeout=PATIENCE_S)
        assert (answer.json()["imported"], len(answer.json()["problems"])) == (1, 1)
        assert list(_validators()["import"].iter_errors(answer.json())) == []
        body: dict[str, Any] = {"workspace": query["workspace"], "caller": HUMAN}
        answer = session.post("http://amnesiad/v1/export", json=body, timeout=PATIENCE_S)
        assert (
            answer.headers["content-type"] in document()["paths"]["/v1/export"]["post"]["responses"]["200"]["content"]
        )
        told = [json.loads(line) for line in answer.content.splitlines()]
        line = Draft202012Validator({"$ref": "#/components/schemas/ExportLine", "components": document()["components"]})
        assert [list(line.iter_errors(one)) for one in told] == [[]] * len(told)
        assert [one["line"] for one in told].count("note") == 1

    def test_of_the_feed(self, session: requests.Session) -> None:
        """The feed is a stream of events of the kind the document names, and what it refuses it refuses as
        everybody."""
        workspace = f"openapi-{secrets.token_hex(4)}"
        told = document()
        session.post("http://amnesiad/v1/remember", json={"workspace": workspace, "content": "one"}, timeout=PATIENCE_S)
        with session.get(
            "http://amnesiad/v1/feed", params={"workspace": workspace, "after": "0"}, timeout=PATIENCE_S, stream=True
        ) as answer:
            assert answer.headers["content-type"] in told["paths"]["/v1/feed"]["get"]["responses"]["200"]["content"]
            lines = (line.decode() for line in answer.iter_lines(chunk_size=1) if line and not line.startswith(b":"))
            fields = [dict([next(lines).split(": ", 1) for _ in range(3)]) for _ in range(2)]
        item = Draft202012Validator({"$ref": "#/components/schemas/FeedItem", "components": told["components"]})
        items = [{"seq": one["id"], "type": one["event"], "data": json.loads(one["data"])} for one in fields]
        assert [list(item.iter_errors(one)) for one in items] == [[], []]
        assert [one["type"] for one in items] == ["opened", "written"]
        assert not item.is_valid({**items[1], "type": "injected"})
        for query in ({}, {"workspace": "w", "role": "king"}, {"workspace": "w", "after": "x"}, {"workspace": "none"}):
            refused = session.get("http://amnesiad/v1/feed", params=query, timeout=PATIENCE_S)
            refusal = told["components"]["responses"][f"Refusal{refused.status_code}"]["content"]["application/json"]
            assert Draft202012Validator({**refusal["schema"], "components": told["components"]}).is_valid(
                refused.json()
            )


def _validators() -> dict[str, Draft202012Validator]:
    """A validator of each verb's good answer that takes no field which the document does not name."""
    told = document()
    for schema in told["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    found = {}
    for verb, spec in VERBS.items():
        if spec.stream != "out":
            content = told["paths"][f"/v1/{verb}"]["post"]["responses"]["200"]["content"]
            found[verb] = Draft202012Validator(
                {**content["application/json"]["schema"], "components": told["components"]}
            )
    return found
