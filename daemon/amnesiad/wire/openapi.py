"""The OpenAPI document of the API, made of the table of verbs and of the types behind it.

``document()`` is a pure function of the code that decodes and encodes: no shape is written down twice. What is written
here is only what no type can say: one sentence for each route, examples, and which refusals a route knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast, get_args

import msgspec

from amnesiad.wire import answers, feeding, oversight, requests
from amnesiad.wire.answers import STATUS
from amnesiad.wire.fields import SCHEMAS
from amnesiad.wire.lines import NOT_IN_LINES, Line
from amnesiad.wire.verbs import VERBS, VerbSpec

API_VERSION: Final = "1"
"""Of the API, as in its paths; the daemon's own version is in ``/healthz``."""

Schema = dict[str, Any]

SUMMARIES: Final[Mapping[str, str]] = {
    "remember": "Write a note; the same text written again is the same note.",
    "recall": "Read live notes: by relevance where there is a query, else by trust and age.",
    "inject": "Choose what enters a context, under a budget of tokens.",
    "preview": "What inject would choose now, without a trace.",
    "fire": "The notes whose triggers match an occasion, each once.",
    "why-not": "Why recall, inject and fire leave a note out.",
    "list": "List notes in any state, page by page.",
    "inspect": "One note as it stands, or as it stood.",
    "history": "The events of one note, oldest first.",
    "forget": "Erase notes, words and all.",
    "revoke": "Say that a note is wrong.",
    "flag": "Say that a note is in doubt.",
    "supersede": "Put another note in a note's place.",
    "reinstate": "Bring back a note that ended and was not erased.",
    "pin": "Stop a note's clock.",
    "unpin": "Let a note's clock run again.",
    "renew": "Restart a note's shelf life.",
    "done": "End a task as completed.",
    "promote": "Raise a note: to the workspace, or to a higher provenance.",
    "edit": "Replace a note's tags, anchors, triggers or TTL.",
    "mirror": "Record what became of the item that a note mirrors in another store.",
    "restore": "Make a new note of a forgotten one, while its copy is kept.",
    "undo": "Take back a note's last transition.",
    "status": "Counts, health, and what ended last.",
    "audit": "What was forgotten: by whom, when and why; never the words.",
    "ledger": "What was shown to whom, newest first.",
    "exposure": "Who was shown a note, and what they wrote afterwards.",
    "policy": "Read the policy of a workspace, or change it.",
    "events": "Report lifecycle events of agents: one, or several.",
    "batch": "Several requests in one, each answered on its own.",
    "settle": "Write down what time owes the notes.",
    "scrub": "Have erased words leave the store's files.",
    "verify": "Prove that the state follows from the log.",
    "rebuild": "Make the state again from the log.",
    "check": "Compare the anchors of notes with the files they name.",
    "owners": "List sessions, agents and teams that own notes, or end one.",
    "dead": "List lifecycle events that could not be handled; retry or drop some.",
    "workspaces": "List workspaces; rename or drop one.",
    "export": "A workspace as a stream of lines.",
    "import": "Take in a stream of lines: an export, or plain objects with content.",
}
"""What each verb does, in one sentence."""

_ID: Final = "7k3m9qv2xa"
EXAMPLES: Final[Mapping[str, Schema]] = {
    "remember": {
        "workspace": "/src/shop",
        "content": "The staging database is reset every Monday.",
        "kind": "fact",
        "ttl_ms": "30d",
        "tags": ["staging"],
    },
    "recall": {"workspace": "/src/shop", "query": "staging database", "limit": 5},
    "inject": {"workspace": "/src/shop", "budget_tokens": 800, "paths": ["src/checkout.py"]},
    "preview": {"workspace": "/src/shop", "budget_tokens": 800},
    "fire": {"workspace": "/src/shop", "event": "PreToolUse", "command": "make deploy"},
    "list": {"workspace": "/src/shop", "states": ["active", "stale"], "limit": 50},
    "inspect": {"workspace": "/src/shop", "id": _ID},
    "forget": {"workspace": "/src/shop", "query": "staging database", "dry_run": True},
    "revoke": {"workspace": "/src/shop", "id": _ID, "reason": "The reset was moved to Sunday."},
    "supersede": {"workspace": "/src/shop", "id": _ID, "content": "The staging database is reset every Sunday."},
    "edit": {"workspace": "/src/shop", "id": _ID, "ttl_ms": "7d"},
    "policy": {"workspace": "/src/shop", "caller": {"role": "human"}, "set": {"default_ttl": "14d"}},
    "events": {"workspace": "/src/shop", "event": "session-end", "session": "4f1c"},
    "batch": {"workspace": "/src/shop", "requests": [{"verb": "status"}, {"verb": "renew", "body": {"id": _ID}}]},
}
"""A request of each verb whose body is not plain from its schema alone."""

HOOK_EXAMPLE: Final[Schema] = {
    "hook_event_name": "UserPromptSubmit",
    "session_id": "4f1c",
    "cwd": "/src/shop",
    "prompt": "Reset the staging database.",
}

_JSON: Final = "application/json"
_NDJSON: Final = "application/x-ndjson"
_PLAIN: Final = "text/plain; charset=utf-8"
_STREAM: Final = "text/event-stream"
_LINES: Final = {"description": "One JSON object a line, of any number of lines."}
_LINE: Final = "x-line"
"""Names, for a stream of lines, what each of them may be: OpenAPI 3.1 knows no word for it."""
_REF: Final = "#/components/schemas/"

_ANYWHERE: Final = (400, 403, 413, 429, 500)
"""What any path may answer: the door itself refuses what is no HTTP, too long, of another user, or one too many."""
_READS: Final = (*_ANYWHERE, 404, 409, 422, 503, 504)
_WRITES: Final = (*_READS, 507)
_CODES: Final = {status: [code for code, its in STATUS.items() if its == status] for status in STATUS.values()}
_MEANINGS: Final[Mapping[int, str]] = {
    400: "A field is missing, unknown, malformed or out of range; `field` names it.",
    403: "This caller may not do this; over HTTP also without the right token.",
    404: "Nothing by that address is visible to this caller.",
    409: "An address means several notes (`choices`), or somebody else was faster.",
    413: "The request, or one of its fields, exceeds its limit.",
    422: "A rule of the domain said no; `rule` names it.",
    429: "More requests, feeds or connections than the daemon keeps. Nothing was done.",
    500: "A defect of the daemon; the hint names an id to look for in its log.",
    503: "The store does not answer.",
    504: "There was no answer in time; a write may have landed.",
    507: "The workspace is full, and nothing may be evicted for it.",
}


def document() -> Schema:
    """The OpenAPI 3.1 document: every route, with the shapes, limits and refusals that it has. A new one each time."""
    schemas = _schemas()
    query = {name: schemas.pop(name) for name in ("FeedRequest", "ImportRequest", "HooksRequest")}
    paths: Schema = {f"/v1/{verb}": {"post": _verb(verb, spec, query)} for verb, spec in VERBS.items()}
    paths["/v1/hooks/{agent}"] = {"post": _hooks(query)}
    paths["/v1/statusline"] = {"post": _status_line(query)}
    paths["/v1/feed"] = {"get": _feed(query)}
    paths["/healthz"] = _fixed("healthz", "Whether the process answers.", {200: _ref("HealthAnswer")})
    paths["/readyz"] = _fixed(
        "readyz", "Whether the start is over.", {200: _ref("ReadyAnswer"), 503: _ref("ReadyAnswer")}
    )
    paths["/openapi.json"] = _fixed("openapi", "This document.", {200: {"type": "object", "required": ["openapi"]}})
    told = {
        "openapi": "3.1.0",
        "info": {
            "title": "amnesiad",
            "version": API_VERSION,
            "summary": "The forgetting engine for fleets of AI agents.",
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "A Unix socket, or the loopback listener that `http` opens."}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {f"Refusal{status}": _refusal(status) for status in _CODES},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed on the loopback listener: the text of http.token in the state directory.",
                }
            },
        },
    }
    return cast(Schema, msgspec.json.decode(msgspec.json.encode(told)))  # lists for tuples: JSON and nothing else


_DESCRIPTION: Final = """\
Every verb is a POST of one JSON object, answered by one. The daemon listens on a Unix socket that only its user may
open; there no token is asked for.

Answers hold times as epoch milliseconds (`_at`) and durations as milliseconds (`_ms`); requests also take text.
Unknown fields of a request are refused; answers may get new ones. A field of an answer that holds its default is left
out, unless it is listed as required. Texts hold neither NUL nor lone surrogates; lengths are limited in bytes of UTF-8,
so a text of wide characters may be too long although it has no more characters than `maxLength`. A request is at most
1 MiB. A path that takes another method answers 405 with `allow`, and an unknown path 404, both with a refusal's body.
"""


def _schemas() -> dict[str, Schema]:
    types = [
        *(spec.request for spec in VERBS.values()),
        *(spec.answer for spec in VERBS.values() if spec.answer is not bytes),
        oversight.LifecycleEvent,
        requests.BatchItem,
        feeding.FeedRequest,
        oversight.HooksRequest,
        answers.ErrorAnswer,
        feeding.FeedItem,
        oversight.HealthAnswer,
        oversight.ReadyAnswer,
        *feeding.FEED.values(),
        *get_args(Line),
    ]
    _, found = msgspec.json.schema_components(
        list(dict.fromkeys(types)), schema_hook=lambda mark: _ref(mark.__name__), ref_template=_REF + "{name}"
    )
    schemas = cast(dict[str, Schema], found)
    for mark, schema in SCHEMAS.items():
        schemas[mark.__name__] = {"title": mark.__name__, **schema}
    _several(schemas)
    _items(schemas)
    _export(schemas)
    return dict(sorted(schemas.items()))


def _several(schemas: dict[str, Schema]) -> None:
    """What the types of a batch leave open, because what is wrong with one item is no fault of the others."""
    item = schemas["BatchItem"]["properties"]
    item["verb"] = {"enum": [verb for verb, spec in VERBS.items() if spec.stream == "none" and verb != "batch"]}
    item["body"] = {
        "type": "object",
        "default": {},
        "description": "The verb's request; workspace and caller are the batch's.",
    }
    told = dict.fromkeys(spec.answer.__name__ for spec in VERBS.values() if spec.stream == "none")
    del told["BatchAnswer"]
    schemas["BatchRequest"]["properties"]["requests"]["items"] = {
        "anyOf": [_ref("BatchItem"), {}],
        "description": "A BatchItem; what is none is refused in its place among the answers.",
    }
    schemas["BatchAnswer"]["properties"]["answers"]["items"] = {
        "anyOf": [_ref(name) for name in (*told, "ErrorAnswer")]
    }


def _export(schemas: dict[str, Schema]) -> None:
    """A line of an export, and the plain one that an import takes: a note as remember would write it, with its date."""
    schemas["ExportLine"] = {"anyOf": [_ref(shape.__name__) for shape in get_args(Line)]}
    asked = schemas["RememberRequest"]
    fields = {name: schema for name, schema in asked["properties"].items() if name not in NOT_IN_LINES}
    schemas["PlainLine"] = {
        **asked,
        "title": "PlainLine",
        "properties": {**fields, "created_at": _ref("TimeMs")},
        "required": [name for name in asked["required"] if name in fields],
    }


def _lines(*names: str) -> Schema:
    return {_NDJSON: {"schema": _LINES, _LINE: {"anyOf": [_ref(name) for name in names]}}}


def _items(schemas: dict[str, Schema]) -> None:
    """The items of the feed, each type with its own data, where the type of a client only says an object."""
    item = schemas["FeedItem"]
    types: dict[str, list[str]] = {}
    for name, shape in feeding.FEED.items():
        types.setdefault(shape.__name__, []).append(name)
    schemas["FeedItem"] = {
        "title": item["title"],
        "description": item["description"],
        "anyOf": [
            {
                "type": "object",
                "properties": {**item["properties"], "type": {"enum": sorted(names)}, "data": _ref(shape)},
                "required": item["required"],
            }
            for shape, names in types.items()
        ],
    }


def _ref(name: str) -> Schema:
    return {"$ref": _REF + name}


def _content(schema: Schema, kind: str = _JSON) -> Schema:
    return {kind: {"schema": schema}}


def _responses(good: Mapping[int, tuple[str, Schema]], refusals: Iterable[int]) -> Schema:
    told: Schema = {str(status): {"description": text, "content": content} for status, (text, content) in good.items()}
    told |= {
        str(status): {"$ref": f"#/components/responses/Refusal{status}"} for status in refusals if status not in good
    }
    return dict(sorted(told.items()))


def _refusal(status: int) -> Schema:
    code = {"properties": {"code": {"enum": _CODES[status]}}}
    return {
        "description": _MEANINGS[status],
        "content": _content({"allOf": [_ref("ErrorAnswer"), {"properties": {"error": code}}]}),
    }


def _verb(verb: str, spec: VerbSpec, query: Mapping[str, Schema]) -> Schema:
    operation: Schema = {"operationId": _operation_id(verb), "summary": SUMMARIES.get(verb, verb)}
    if spec.stream == "in":
        operation["parameters"] = _parameters(query[spec.request.__name__])
        body = _lines("ExportLine", "PlainLine")
    else:
        asked = _ref(spec.request.__name__)
        body = _content({"anyOf": [_ref("LifecycleEvent"), asked]} if verb == "events" else asked)
        if verb in EXAMPLES:
            body[_JSON]["example"] = EXAMPLES[verb]
    # A stream of no lines is one too.
    operation["requestBody"] = {"required": spec.stream != "in", "content": body}
    answer = _lines("ExportLine") if spec.stream == "out" else _content(_ref(spec.answer.__name__))
    operation["responses"] = _responses(
        {200: ("Done.", answer)}, _WRITES if spec.write or spec.stream == "in" else _READS
    )
    if verb == "remember":
        operation["responses"]["200"]["links"] = _links()
    return operation


def _links() -> Schema:
    """Where a new note may be named next: in every verb about one note."""
    named = {"workspace": "$request.body#/workspace", "id": "$response.body#/id"}
    return {
        name: {"operationId": name, "requestBody": named}
        for name, spec in ((_operation_id(verb), spec) for verb, spec in VERBS.items())
        if "id" in spec.request.__struct_fields__
    }


def _operation_id(verb: str) -> str:
    return verb.replace("-", "_")


def _hooks(query: Mapping[str, Schema]) -> Schema:
    asked = query["HooksRequest"]
    name = {
        "name": "agent",
        "in": "path",
        "required": True,
        "schema": asked["properties"]["agent_name"],
        "description": "The kind of program that calls.",
        "example": "claude-code",
    }
    given = {part: asked["properties"][part] for part in asked["properties"] if part not in ("agent_name", "payload")}
    body = _content({"type": "object"})
    body[_JSON]["example"] = HOOK_EXAMPLE
    return {
        "operationId": "hooks",
        "summary": "An agent's own hook payload, answered in that agent's own words.",
        "parameters": [name, *_parameters({"properties": given, "required": []})],
        "requestBody": {"required": True, "content": body},
        "responses": _responses(
            {200: ("What the agent expects of a hook; {} says nothing.", _content({"type": "object"}))}, _WRITES
        ),
    }


def _status_line(query: Mapping[str, Schema]) -> Schema:
    given = {"workspace": query["HooksRequest"]["properties"]["workspace"]}
    line = {_PLAIN: {"schema": {"type": "string"}}}
    return {
        "operationId": "statusline",
        "summary": "A workspace in one line of text, for what an agent hands its status line.",
        "parameters": _parameters({"properties": given, "required": []}),
        "requestBody": {"required": True, "content": _content({"type": "object"})},
        "responses": _responses({200: ("The line; empty for a workspace that holds nothing yet.", line)}, _READS),
    }


def _feed(query: Mapping[str, Schema]) -> Schema:
    again = {
        "name": "Last-Event-ID",
        "in": "header",
        "schema": _ref("Seq"),
        "description": "What a browser's EventSource sends by itself; goes before `after`.",
    }
    content = _content(
        {"type": "string", "description": "Server-sent events; each as FeedItem says: id, event, data."}, _STREAM
    )
    return {
        "operationId": "feed",
        "summary": "What happens in a workspace, as it happens, or since `after`.",
        "parameters": [*_parameters(query["FeedRequest"]), again],
        "responses": _responses({200: ("Events, until either side hangs up.", content)}, _READS),
    }


def _fixed(name: str, summary: str, good: Mapping[int, Schema]) -> Schema:
    text = {200: "Yes.", 503: "Not yet."}
    told = {status: (text[status], _content(schema)) for status, schema in good.items()}
    without_body = {str(status): {"description": text[status]} for status in good}
    return {
        "get": {"operationId": name, "summary": summary, "responses": _responses(told, _ANYWHERE)},
        "head": {"operationId": f"{name}_head", "summary": summary, "responses": without_body},
    }


def _parameters(request: Schema) -> list[Schema]:
    """The fields of a request in a query string, where the caller's stand beside the others and null cannot be said."""
    fields = dict(request["properties"])
    if fields.pop("caller", None) is not None:
        fields |= _schemas()["CallerSpec"]["properties"]
    found = []
    for name, schema in fields.items():
        said = {word: value for word, value in schema.items() if word != "default" or value is not None}
        options = [option for option in said.get("anyOf", ()) if option != {"type": "null"}]
        if len(options) == 1:
            said = {word: value for word, value in said.items() if word != "anyOf"} | options[0]
        found.append({"name": name, "in": "query", "required": name in request["required"], "schema": said})
    return found
