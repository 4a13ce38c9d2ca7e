"""The wire as the client in ``bundles/node`` needs it: its types as TypeScript, its verbs as lists.

Both files of the client hold this between two marker comments, and a test compares them, so that they cannot drift from
what the daemon decodes. ``python -m tests.node_wire`` writes them anew. Of types, only the shapes are said: limits and
formats stay in the OpenAPI document, which they are made of.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

import amnesiad
from amnesiad.wire.openapi import document
from amnesiad.wire.verbs import VERBS, VerbSpec

BEGIN: Final = "// wire: begin (generated: python -m tests.node_wire)"
END: Final = "// wire: end"
CLIENT_DIR: Final = Path(amnesiad.__file__).parent / "bundles" / "node"

Schema = dict[str, Any]

_SCALARS: Final = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_REF: Final = "#/components/schemas/"
_WIDTH: Final = 116


def types() -> str:
    """Every type of the document in alphabetical order, then the table of verbs."""
    api = document()
    told = [_declaration(name, schema) for name, schema in sorted(api["components"]["schemas"].items())]
    return "\n\n".join([*told, _verbs(api)])


def lists() -> str:
    """The verbs that a body alone asks for, and what a client has to know of them to complete a request."""
    plain = {verb: spec for verb, spec in VERBS.items() if spec.stream == "none"}
    anywhere = [verb for verb, spec in plain.items() if "workspace" not in _required(spec)]
    return "\n".join(
        [
            "/** The verbs that a body alone asks for. */",
            _list("export const VERBS", plain),
            "/** Those of them that take a `request_id`. */",
            _list("export const WRITES", [verb for verb, spec in plain.items() if spec.write]),
            "/** Those that may be asked without a workspace. */",
            _list("const ANYWHERE", anywhere),
        ]
    )


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {"amnesiad.d.mts": types, "amnesiad.mjs": lists}
"""What stands in each file of the client."""


def renewed(name: str) -> str:
    """The text of one file of the client as it should be: what stands between its markers made anew.

    Raises ``ValueError`` where the markers are missing.
    """
    before, begin, rest = (CLIENT_DIR / name).read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{name} has no block between {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{BLOCKS[name]()}\n{end}{after}"


def _required(spec: VerbSpec) -> list[str]:
    return [field.name for field in msgspec.structs.fields(spec.request) if field.required]


def _list(name: str, verbs: Iterable[str]) -> str:
    rows = textwrap.wrap(", ".join(map(json.dumps, verbs)) + ",", _WIDTH, break_on_hyphens=False)
    return "\n".join([f"{name} = Object.freeze([", *(f"  {row}" for row in rows), "]);"])


def _declaration(name: str, schema: Schema) -> str:
    told = _comment(schema.get("description"), "")
    if schema.get("type") == "object" and "properties" in schema:
        return f"{told}export interface {name} {_object(schema, '')}"
    return f"{told}export type {name} = {_type(schema, '')};"


def _comment(text: str | None, indent: str) -> str:
    """One line of documentation; what code the Python side quotes doubly is quoted once."""
    return f"{indent}/** {' '.join(text.split()).replace('``', '`')} */\n" if text else ""


def _object(schema: Schema, indent: str) -> str:
    inner = indent + "  "
    required = schema.get("required", ())
    rows = [
        f"{_comment(field.get('description'), inner)}{inner}{name}{'' if name in required else '?'}: {_type(field, inner)};"
        for name, field in schema["properties"].items()
    ]
    return "\n".join(["{", *rows, indent + "}"])


def _type(schema: Schema, indent: str) -> str:
    """A schema as a type. One that says nothing of what it holds is ``unknown``."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REF)
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            # An empty option lets everything through that the daemon itself will refuse.
            return " | ".join(dict.fromkeys(_type(option, indent) for option in schema[several] if option))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": one}, indent) for one in kind)
    if kind == "array":
        item = _type(schema.get("items", {}), indent)
        return f"({item})[]" if " " in item else f"{item}[]"
    if kind == "object":
        if schema.get("properties"):
            return _object(schema, indent)
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values, indent) if isinstance(values, dict) else 'unknown'}>"
    return _SCALARS.get(str(kind), "unknown")


def _verbs(api: Schema) -> str:
    """The table that the client's methods are typed by: for each verb of a plain body, what is asked and answered."""
    rows = []
    for path, methods in api["paths"].items():
        operation = methods.get("post", {})
        verb = path.removeprefix("/v1/")
        asked = _json(operation.get("requestBody", {}))
        answer = _json(operation.get("responses", {}).get("200", {}))
        if asked is None or answer is None or "{" in verb:
            continue
        rows.append(_comment(operation.get("summary"), "  ").rstrip("\n"))
        rows.append(f"  {json.dumps(verb)}: {{ request: {_type(asked, '')}; answer: {_type(answer, '')} }};")
    return "\n".join(["/** What each verb asks and answers. */", "export interface Verbs {", *rows, "}"])


def _json(body: Schema) -> Schema | None:
    found: Schema | None = body.get("content", {}).get("application/json", {}).get("schema")
    return found


if __name__ == "__main__":
    for file in BLOCKS:
        (CLIENT_DIR / file).write_text(renewed(file), encoding="utf-8")
