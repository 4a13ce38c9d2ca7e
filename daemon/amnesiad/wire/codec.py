"""Bytes to requests and answers to bytes; the one place where msgspec's words become ours and name the field.

A decoded request is wholly normalised. Refusals quote types, limits and allowed values, never what was sent as words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from amnesiad.core.errors import AmnesiaError, CallerError, Invalid, NotFound, TooLarge
from amnesiad.core.lifecycle import check_event
from amnesiad.core.rules import suggestion
from amnesiad.wire.answers import ErrorAnswer, ErrorBody
from amnesiad.wire.fields import HERE, FieldRefused, check_field
from amnesiad.wire.requests import (
    BatchItem,
    BatchRequest,
    CallerSpec,
    EventsRequest,
    HooksRequest,
    LifecycleEvent,
)
from amnesiad.wire.verbs import VERBS, VerbSpec

_PATH: Final = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[a-z_]+)`")
_WORD: Final = re.compile(r"Invalid enum value '(?P<word>[A-Za-z_-]{1,24})'")
_MAX_NAME_CHARS: Final = 64
"""How much of an unknown field's name an error repeats."""
_NOT_FINITE: Final = "a number that is not finite"
_CALLER_FIELDS: Final = frozenset(CallerSpec.__struct_fields__)

_decoders: Final = {
    verb: msgspec.json.Decoder(spec.request, dec_hook=check_field)
    for verb, spec in VERBS.items()
    if spec.stream != "in"
}
_lifecycle_decoder: Final = msgspec.json.Decoder(LifecycleEvent, dec_hook=check_field)
_item_decoder: Final = msgspec.json.Decoder(BatchItem)
_payload_decoder: Final = msgspec.json.Decoder(dict[str, Any])
_encoder: Final = msgspec.json.Encoder()

R = TypeVar("R")


def spec_of(verb: str) -> VerbSpec:
    """The verb's row. Raises ``NotFound`` with the nearest name for one that does not exist."""
    spec = VERBS.get(verb)
    if spec is None:
        shown = verb[:_MAX_NAME_CHARS]
        hint = suggestion(shown, VERBS) or f"the verbs are {', '.join(VERBS)}"
        raise NotFound(f"there is no verb {shown!r}", field="verb", hint=hint)
    return spec


def decode(verb: str, raw: bytes) -> Any:
    """The verb's request, checked and normalised.

    Raises ``Invalid`` (or ``TooLarge`` for a list or text past its limit) naming the field: for malformed JSON, wrong
    types, values out of range, unknown or missing fields, NUL and lone surrogates.
    """
    if verb == "events":
        return _decode_events(raw)
    if verb == "batch":
        return _decode_batch(raw)
    return _decode(_decoders[verb] if verb in _decoders else _no_json(verb), raw)


def _no_json(verb: str) -> msgspec.json.Decoder[Any]:
    spec_of(verb)
    raise Invalid(f"{verb} takes its fields from the query string, not from a JSON body", field="body")


def read_item(raw: msgspec.Raw) -> BatchItem:
    """One item of a batch: which verb, with which fields. Raises ``Invalid`` naming the field."""
    item: BatchItem = _decode(_item_decoder, bytes(raw), strict_text=False)
    return item


def decode_item(batch: BatchRequest, item: BatchItem) -> Any:
    """One request of a batch, with the batch's workspace and caller where its body names none. Raises ``Invalid``."""
    spec = spec_of(item.verb)
    if spec.stream != "none" or item.verb == "batch":
        raise Invalid(f"{item.verb} cannot be part of a batch", field="verb", hint="send it by itself")
    body = dict(item.body)
    if item.verb != "events":
        body.setdefault("workspace", msgspec.Raw(_encoder.encode(batch.workspace)))
        body.setdefault("caller", msgspec.Raw(_encoder.encode(batch.caller)))
    return decode(item.verb, _encoder.encode(body))


def decode_query(request: type[R], pairs: Mapping[str, str]) -> R:
    """A request made of a query string, for those whose body is a stream. The caller's fields stand beside the rest."""
    values: dict[str, Any] = {name: value for name, value in pairs.items() if name not in _CALLER_FIELDS}
    if caller := {name: value for name, value in pairs.items() if name in _CALLER_FIELDS}:
        values["caller"] = caller
    for name, bad in _bad_texts(values, ""):
        raise _text_refusal(name, bad)
    try:
        return msgspec.convert(values, request, strict=False, dec_hook=check_field)
    except msgspec.ValidationError as error:
        raise _refusal(error, request) from None


def decode_hook(agent: str, pairs: Mapping[str, str], raw: bytes) -> HooksRequest:
    """An agent's own hook payload; the query string may name the workspace. Raises ``Invalid``."""
    request = decode_query(HooksRequest, {**pairs, "agent_name": agent})
    try:
        payload = _decode(_payload_decoder, raw, strict_text=False)
    except Invalid:
        if (payload := _mended(raw)) is None:
            raise
    return msgspec.structs.replace(request, payload=payload)


def _mended(raw: bytes) -> dict[str, Any] | None:
    """The object in a payload that is nearly JSON: with characters cut in half, where a program has shortened a text, or
    with numbers that are none. They stand in fields that nobody reads, and the rest is no worse for them."""
    try:
        value = json.loads(raw.decode("utf-8-sig", "replace"), parse_constant=lambda _: None)
        mended = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return mended if isinstance(mended, dict) else None


def decode_lifecycle(raw: bytes) -> LifecycleEvent:
    """One lifecycle event, as it stands in the stream's field ``e``. Raises ``Invalid`` naming the field."""
    event: LifecycleEvent = _decode(_lifecycle_decoder, raw)
    return event


def encode(answer: Any) -> bytes:
    """An answer or an event as JSON."""
    return _encoder.encode(answer)


def error_answer(error: AmnesiaError) -> ErrorAnswer:
    """The envelope of a refusal, also of one answer within a batch."""
    return ErrorAnswer(
        error=ErrorBody(
            code=error.code,
            message=error.message,
            hint=error.hint,
            field=error.field,
            rule=error.rule,
            choices=error.choices,
        )
    )


def _decode_events(raw: bytes) -> EventsRequest:
    try:
        several = "events" in msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        several = True  # the strict decoder says what is wrong
    if several:
        request: EventsRequest = _decode(_decoders["events"], raw)
        for number, event in enumerate(request.events):
            _check_event(event, f"events[{number}].")
        return request
    single: LifecycleEvent = _decode(_lifecycle_decoder, raw)
    _check_event(single, "")
    return EventsRequest(events=(single,))


def _check_event(event: LifecycleEvent, where: str) -> None:
    """Refuse here what whoever reads the stream could only put aside, when its sender is long gone."""
    try:
        check_event(event)
    except CallerError as refusal:
        raise type(refusal)(where + refusal.message, hint=refusal.hint, field=f"{where}{refusal.field}") from None


def _decode_batch(raw: bytes) -> BatchRequest:
    """A batch; what is no text within an item is left for ``read_item`` to refuse."""
    try:
        request: BatchRequest = _decode(_decoders["batch"], raw, strict_text=False)
    except Invalid:
        # The strict reader takes exception to the whole body; a more lenient one can still tell the items apart.
        if (apart := _taken_apart(raw)) is None:
            raise
        frame, items = apart
        request = _decode(_decoders["batch"], frame, strict_text=False)
        return msgspec.structs.replace(request, requests=items)
    return request


def _taken_apart(raw: bytes) -> tuple[bytes, tuple[msgspec.Raw, ...]] | None:
    """The body with nulls for its items, and the items; ``None`` for what is no batch to any reader."""
    try:
        body = json.loads(raw.decode(errors="surrogateescape"))
        if not isinstance(body, dict) or not isinstance(items := body.get("requests"), list):
            return None
        frame = json.dumps({**body, "requests": [None] * len(items)}).encode()
        return frame, tuple(msgspec.Raw(json.dumps(item).encode()) for item in items)
    except (ValueError, RecursionError):
        return None


def _decode(decoder: msgspec.json.Decoder[Any], raw: bytes, strict_text: bool = True) -> Any:
    try:
        request = decoder.decode(raw)
        # Only an escaped NUL can get this far; looking for the escape first spares the walk on nearly every request.
        if strict_text and b"\\u0000" in raw:
            for name, bad in _bad_texts(msgspec.json.decode(raw), ""):
                raise _text_refusal(name, bad)
    except msgspec.ValidationError as error:
        raise _refusal(error, decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _malformed(raw) from None
    except RecursionError:
        raise _too_deep() from None
    return request


def _refusal(error: msgspec.ValidationError, request: Any) -> CallerError:
    parts = _PATH.fullmatch(str(error))
    what, path = (parts["what"], parts["path"] or "") if parts else (str(error), "")
    if isinstance(error.__cause__, FieldRefused):
        refusal = error.__cause__.refusal
        field = path if refusal.field == HERE else (refusal.field or path)
        return type(refusal)(refusal.message.replace(HERE, path), hint=refusal.hint, field=field)
    if unknown := _UNKNOWN.fullmatch(what):
        return _unknown(unknown["name"][:_MAX_NAME_CHARS], path, request)
    if missing := _MISSING.fullmatch(what):
        field = _join(path, missing["name"])
        return Invalid(f"{field} is missing", field=field)
    field = path or "body"
    if what.startswith("Invalid enum value"):
        return _none_of_its_words(field, _WORD.fullmatch(what), _allowed(request, path))
    sentence = what.replace("`", "").replace("Expected", "expected")
    if "of length <=" in what:
        return TooLarge(f"{field} is too long: {sentence}", field=field, hint="send less at a time")
    return Invalid(f"{field} is not acceptable: {sentence}", field=field)


def _none_of_its_words(field: str, given: re.Match[str] | None, allowed: list[str]) -> Invalid:
    """The refusal of a value that is none of those there are. It repeats a single word, and never a text: that may be a
    note's."""
    said = f"{field} must be one of {', '.join(allowed)}" if allowed else f"{field} is none of its words"
    if given is None:
        return Invalid(said, field=field)
    word = given["word"]
    meant = [one for one in allowed if one.startswith(word)]
    hint = f"did you mean {' or '.join(meant)}?" if meant else suggestion(word, allowed)
    return Invalid(f"{said}, not {word}", field=field, hint=hint)


def _unknown(name: str, path: str, request: Any) -> Invalid:
    field = _join(path, name)
    known = _fields_at(request, path)
    hint = suggestion(name, known) or (f"known are {', '.join(known)}" if known else "")
    return Invalid(f"{field!r} is not a field of this request", field=field, hint=hint)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type_at(request: Any, path: str) -> list[msgspec.inspect.Type]:
    """Every type that may stand at ``caller.role``, ``kinds[3]`` …, unions taken apart."""
    found = _flat(msgspec.inspect.type_info(request))
    for step in re.findall(r"[^.\[\]]+|\[[^\]]*\]", path):
        deeper: list[msgspec.inspect.Type] = []
        for kind in found:
            if step.startswith("[") and isinstance(kind, msgspec.inspect.VarTupleType):
                deeper += _flat(kind.item_type)
            elif isinstance(kind, msgspec.inspect.StructType):
                deeper += [part for field in kind.fields if field.encode_name == step for part in _flat(field.type)]
        found = deeper
    return found


def _flat(kind: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _flat(kind.type)
    return (
        [part for one in kind.types for part in _flat(one)] if isinstance(kind, msgspec.inspect.UnionType) else [kind]
    )


def _allowed(request: Any, path: str) -> list[str]:
    return [
        str(value)
        for kind in _type_at(request, path)
        if isinstance(kind, msgspec.inspect.LiteralType)
        for value in kind.values
    ]


def _fields_at(request: Any, path: str) -> list[str]:
    return [
        field.encode_name
        for kind in _type_at(request, path)
        if isinstance(kind, msgspec.inspect.StructType)
        for field in kind.fields
    ]


def _malformed(raw: bytes) -> Invalid:
    """Why msgspec could not read it, by way of a more lenient reader that can still name the field."""
    try:
        value = json.loads(raw)
    except RecursionError:
        return _too_deep()
    except UnicodeDecodeError as error:
        return Invalid(f"the body is not UTF-8 (byte {error.start})", field="body")
    except json.JSONDecodeError as error:
        return Invalid(f"the body is not JSON: {error.msg} (character {error.pos})", field="body")
    except ValueError:  # an integer of more digits than Python reads
        return Invalid("the body holds a number of thousands of digits", field="body")
    try:
        for name, bad in _bad_texts(value, ""):
            return _text_refusal(name, bad)
    except RecursionError:
        return _too_deep()
    return Invalid("the body is not strict JSON in UTF-8", field="body")


def _text_refusal(field: str, bad: str) -> Invalid:
    hint = "send a number that is one" if bad == _NOT_FINITE else "send plain text as UTF-8"
    return Invalid(f"{field or 'body'} holds {bad}", field=field or "body", hint=hint)


def _too_deep() -> Invalid:
    return Invalid("the body is nested too deeply", field="body", hint="no request needs more than four levels")


def _bad_texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Each field with something no field may hold, and what: NUL, a lone surrogate, a number that is none."""
    if isinstance(value, str):
        if "\x00" in value:
            yield path, "a NUL byte"
        elif not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            yield path, "a lone surrogate, which is not text"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield path, _NOT_FINITE
    elif isinstance(value, dict):
        for name, part in value.items():
            for _, bad in _bad_texts(name, ""):
                yield path, f"a field name with {bad}"
            yield from _bad_texts(part, _join(path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _bad_texts(part, f"{path}[{index}]")
