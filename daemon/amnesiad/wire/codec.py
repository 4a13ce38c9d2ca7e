"""Bytes to requests and answers to bytes. A decoded request is wholly normalized; why one cannot be decoded is
``wire.refusals``'s to say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from amnesiad.core.errors import AmnesiaError, CallerError, Invalid, NotFound
from amnesiad.core.lifecycle import check_event
from amnesiad.core.rules import suggestion
from amnesiad.wire.answers import ErrorAnswer, ErrorBody
from amnesiad.wire.fields import check_field
from amnesiad.wire.oversight import EventsRequest, HooksRequest, LifecycleEvent, OneEvent
from amnesiad.wire.refusals import bad_texts, malformed, refusal, text_refusal, too_deep
from amnesiad.wire.requests import BatchItem, BatchRequest, CallerSpec
from amnesiad.wire.verbs import VERBS, VerbSpec

_MAX_NAME_CHARS: Final = 64
"""How much of a verb that there is not an error repeats."""
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
    """The verb's request, checked and normalized.

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
    if "events" not in body or item.verb != "events":
        body.setdefault("workspace", msgspec.Raw(_encoder.encode(batch.workspace)))
    if item.verb != "events":  # an event says itself whose it is
        body.setdefault("caller", msgspec.Raw(_encoder.encode(batch.caller)))
    return decode(item.verb, _encoder.encode(body))


def decode_query(request: type[R], pairs: Mapping[str, str]) -> R:
    """A request made of a query string, for those whose body is a stream. The caller's fields stand beside the rest."""
    values: dict[str, Any] = {name: value for name, value in pairs.items() if name not in _CALLER_FIELDS}
    if caller := {name: value for name, value in pairs.items() if name in _CALLER_FIELDS}:
        values["caller"] = caller
    for name, bad in bad_texts(values, ""):
        raise text_refusal(name, bad)
    try:
        return msgspec.convert(values, request, strict=False, dec_hook=check_field)
    except msgspec.ValidationError as error:
        raise refusal(error, request) from None


def decode_hook(agent: str, pairs: Mapping[str, str], raw: bytes) -> HooksRequest:
    """An agent's own hook payload; the query string may name the workspace. Raises ``Invalid``."""
    for name in pairs.keys() - {"workspace"}:
        raise Invalid(f"{name!r} is not a field of this query", field=name, hint="known is workspace")
    request = decode_query(HooksRequest, {**pairs, "agent_name": agent})
    try:
        payload = _decode(_payload_decoder, raw, strict_text=False)
    except Invalid:
        if (payload := _mended(raw)) is None:
            raise
    return msgspec.structs.replace(request, payload=payload)


def _mended(raw: bytes) -> dict[str, Any] | None:
    """The object in a payload that is nearly JSON: with characters cut in half, where a program has shortened a text,
    or with numbers that are none. They stand in fields that nobody reads, and the rest is no worse for them."""
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
    return OneEvent(events=(single,))


def _check_event(event: LifecycleEvent, where: str) -> None:
    """Refuse here what whoever reads the stream could only put aside, when its sender is long gone."""
    try:
        check_event(event)
    except CallerError as refused:
        raise type(refused)(where + refused.message, hint=refused.hint, field=f"{where}{refused.field}") from None


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
            for name, bad in bad_texts(msgspec.json.decode(raw), ""):
                raise text_refusal(name, bad)
    except msgspec.ValidationError as error:
        raise refusal(error, decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise malformed(raw) from None
    except RecursionError:
        raise too_deep() from None
    return request
