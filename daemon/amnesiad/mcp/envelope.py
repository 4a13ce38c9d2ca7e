"""What is wrong with a JSON-RPC message, in our words: the SDK's would quote what was sent, or name no field at all.

Only the envelope is looked at, and of a request's parameters what every request of its method has. Arguments of tools
are ``wire``'s to judge, and methods the SDK's to know. Nothing of the message is repeated but its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, NamedTuple

import msgspec

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602

_Kinds = tuple[type, ...]
_NAMES: Final[Mapping[_Kinds, str]] = {
    (str,): "text",
    (str, int): "text or a whole number",
    (str, int, NoneType): "text or a whole number",
    (dict,): "an object",
    (dict, NoneType): "an object",
}
_ID: Final[_Kinds] = (str, int)
_META: Final[Mapping[str, _Kinds]] = {"progressToken": (str, int, NoneType)}
_PARAMS: Final[Mapping[str, Mapping[str, _Kinds]]] = {"tools/call": {"name": (str,), "arguments": (dict, NoneType)}}
"""Parameters by method, with what they may be; where that is ``NoneType`` too, they may be left out. Not those of the
handshake: the revision that has none wants to be told so."""


class Fault(NamedTuple):
    """JSON-RPC's code, the id of the message as far as it has one, what is wrong, and what to do."""

    code: int
    request_id: Any
    message: str
    hint: str


def find_fault(body: bytes) -> Fault | None:
    """The first thing that is wrong with a message; ``None`` for one that the SDK can take."""
    try:
        message = msgspec.json.decode(body)
    except (ValueError, RecursionError):  # also of msgspec, and of what is no UTF-8
        return Fault(PARSE_ERROR, None, "this is not JSON", "send one JSON-RPC message as UTF-8, not too deep")
    if not isinstance(message, dict):
        return Fault(INVALID_REQUEST, None, "this is no JSON-RPC message", "send single requests: MCP has no batches")
    known = message.get("id") if _is(message.get("id"), _ID) else None
    if message.get("jsonrpc") != "2.0":
        return Fault(INVALID_REQUEST, known, 'jsonrpc has to be "2.0"', "mend the message")
    if "method" not in message and ("result" in message or "error" in message):
        return None  # an answer, and nothing was asked
    asked = {"method": (str,), **({"id": _ID} if "id" in message else {})}
    if wrong := _misfit(message, asked, ""):
        return Fault(INVALID_REQUEST, known, wrong, "mend the message")
    wrong = _misfit(message, {"params": (dict, NoneType)}, "") or _misfit_of_params(message)
    return Fault(INVALID_PARAMS, known, wrong, "see inputSchema in tools/list") if wrong and "id" in message else None


def error_answer(fault: Fault, code: str) -> bytes:
    """The answer that tells of a fault, with our ``code`` beside JSON-RPC's. The hint stands in the message too: that
    is what agents are shown."""
    data = {"code": code, "hint": fault.hint}
    error = {"code": fault.code, "message": f"{fault.message} ({fault.hint})", "data": data}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": fault.request_id, "error": error})


def _misfit_of_params(message: Mapping[str, Any]) -> str:
    params = message.get("params") or {}
    meta = _misfit(params, {"_meta": (dict, NoneType)}, "params.")
    meta = meta or _misfit(params.get("_meta") or {}, _META, "params._meta.")
    return meta or _misfit(params, _PARAMS.get(message["method"], {}), "params.")


def _misfit(values: Mapping[str, Any], expected: Mapping[str, _Kinds], where: str) -> str:
    """The first field that is not what it may be, and what it has to be; empty if all are."""
    for name, kinds in expected.items():
        if not _is(values.get(name), kinds):
            return f"{where}{name} has to be {_NAMES[kinds]}"
    return ""


def _is(value: object, kinds: _Kinds) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)
