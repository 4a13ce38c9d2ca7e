"""What is answered about notes: one struct per verb. Times are epoch milliseconds, durations milliseconds.

A field with a default is left out of the JSON while it holds it; a field without one is always there, null included.
Answers tolerate unknown fields, so that a client may be older than its daemon.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from amnesiad.core.events import Cause, MirrorResult, Provenance, Scope
from amnesiad.core.kinds import Curve, Kind, Regime
from amnesiad.core.notes import Anchor, State, Trigger

Scalar = str | int | float | bool | None


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything inside an answer."""


class Answer(Part, frozen=True, kw_only=True):
    """``seq`` is the stream id of a write's last event, or the one up to which a read has seen the log."""

    seq: str
    degraded: bool = False
    """The store is away; this comes from the projection alone."""


class NextTransition(Part, frozen=True, kw_only=True):
    at: int
    to: State


class NoteView(Part, frozen=True, kw_only=True):
    """A note as reads show it, settled at the time of the answer. A forgotten note has no content."""

    id: str
    workspace: str
    kind: Kind
    regime: Regime
    state: State
    state_at: int
    scope: Scope
    tags: tuple[str, ...]
    anchors: tuple[Anchor, ...]
    triggers: tuple[Trigger, ...]
    provenance: Provenance
    pinned: bool
    curve: Curve
    ttl_ms: int | None
    expires_at: int | None
    stale_at: int | None
    strength: float
    rank: float
    trust: float
    access_count: int
    created_at: int
    content: str | None = None
    causes: tuple[Cause, ...] = ()
    state_reason: str | None = None
    owner: str | None = None
    key: str | None = None
    author: str | None = None
    next_transition: NextTransition | None = None
    last_access_at: int | None = None
    supersedes: tuple[str, ...] = ()
    superseded_by: str | None = None
    restored_from: str | None = None
    source_ref: str | None = None
    mirrored: dict[str, MirrorResult] = {}
    """What is last known of the items it mirrors, by target."""


class RecalledNote(NoteView, frozen=True, kw_only=True):
    """``relevance`` and ``band`` only where there was a query; ``explanation`` only where one was asked for."""

    relevance: float | None = None
    band: int | None = None
    stale: bool = False
    explanation: dict[str, Scalar] | None = None


class Deterrent(Part, frozen=True, kw_only=True):
    id: str
    text: str


class Warned(Part, frozen=True, kw_only=True):
    """A new note resembles one that was revoked, superseded or has expired."""

    kind: Literal["revoked", "superseded", "expired"]
    id: str
    text: str


class RememberAnswer(Answer, frozen=True, kw_only=True):
    """``created`` is false when the same text lives already, under ``id``. ``notices`` are the secret guard's."""

    id: str
    created: bool
    ttl_ms: int | None
    expires_at: int | None
    stale_at: int | None
    superseded: tuple[str, ...]
    warnings: tuple[Warned, ...]
    notices: tuple[str, ...] = ()


class RecallAnswer(Answer, frozen=True, kw_only=True):
    notes: tuple[RecalledNote, ...]
    deterrents: tuple[Deterrent, ...]
    text: str | None = None


class Omitted(Part, frozen=True, kw_only=True):
    count: int
    ids: tuple[str, ...]


class InjectAnswer(Answer, frozen=True, kw_only=True):
    text: str
    ids: tuple[str, ...]
    tokens: int
    budget_tokens: int
    omitted: Omitted
    deterrents: tuple[str, ...]
    corrections: tuple[str, ...] = ()
    """Notes that this context was shown before and that were taken back since: told now, once."""


class Obstacle(Part, frozen=True, kw_only=True):
    """One reason why a note was left out: of which verb, by which rule, and in words."""

    verb: Literal["any", "recall", "inject", "fire"]
    rule: str
    text: str


class WhyNotAnswer(Answer, frozen=True, kw_only=True):
    """``recalled`` and ``injected`` tell whether the note would be in the answer now. ``place`` is its place in
    recall's order, counted from 1; ``None`` where it has none."""

    id: str
    recalled: bool
    injected: bool
    place: int | None
    reasons: tuple[Obstacle, ...]


class FireAnswer(Answer, frozen=True, kw_only=True):
    notes: tuple[NoteView, ...]
    text: str
    tokens: int
    corrections: tuple[str, ...] = ()


class ListAnswer(Answer, frozen=True, kw_only=True):
    notes: tuple[NoteView, ...]
    cursor: str | None = None


class InspectAnswer(Answer, frozen=True, kw_only=True):
    note: NoteView
    history_length: int
    text: str


class HistoryEvent(Part, frozen=True, kw_only=True):
    """``reason`` is the code; ``reason_text`` the words given, while they are kept. ``facts`` are the event's own."""

    seq: str
    type: str
    at: int
    actor: str
    frm: State | None = msgspec.field(name="from")
    to: State
    reason: str | None = None
    reason_text: str | None = None
    on_behalf: bool = False
    facts: dict[str, Any] = {}


class HistoryAnswer(Answer, frozen=True, kw_only=True):
    events: tuple[HistoryEvent, ...]
    cursor: str | None = None


class Doomed(Part, frozen=True, kw_only=True):
    """One note that a dry run or an unconfirmed forget would erase."""

    id: str
    kind: Kind
    state: State
    content: str


class ForgetAnswer(Answer, frozen=True, kw_only=True):
    """``would`` only for a dry run. ``notices`` are the secret guard's, and name notes that could not be forgotten."""

    forgotten: int
    ids: tuple[str, ...]
    summary: str
    scrub: Literal["pending", "done", "requested"]
    would: tuple[Doomed, ...] = ()
    notices: tuple[str, ...] = ()


class ChangeAnswer(Answer, frozen=True, kw_only=True):
    """``changed`` is false where it held already. The rest tells how the note stands now.
    ``notices`` are the secret guard's."""

    id: str
    changed: bool
    state: State
    expires_at: int | None = None
    stale_at: int | None = None
    provenance: Provenance | None = None
    scope: Scope | None = None
    notices: tuple[str, ...] = ()


RevokeAnswer = ChangeAnswer
FlagAnswer = ChangeAnswer
ReinstateAnswer = ChangeAnswer
PinAnswer = ChangeAnswer
UnpinAnswer = ChangeAnswer
RenewAnswer = ChangeAnswer
DoneAnswer = ChangeAnswer
PromoteAnswer = ChangeAnswer
EditAnswer = ChangeAnswer
MirrorAnswer = ChangeAnswer


class UndoAnswer(ChangeAnswer, frozen=True, kw_only=True):
    """``undone`` is the type of the event that was taken back."""

    undone: str | None = None


class SupersedeAnswer(Answer, frozen=True, kw_only=True):
    changed: bool
    id: str
    by: str
    warnings: tuple[Warned, ...] = ()
    notices: tuple[str, ...] = ()


class RestoreAnswer(Answer, frozen=True, kw_only=True):
    """``notices`` are the secret guard's, about the reason: the words are the note's own."""

    id: str
    restored_from: str
    notices: tuple[str, ...] = ()


STATUS: Final[Mapping[str, int]] = {
    "invalid": 400,
    "forbidden": 403,
    "not_found": 404,
    "ambiguous": 409,
    "conflict": 409,
    "too_large": 413,
    "refused": 422,
    "busy": 429,
    "internal": 500,
    "store_unavailable": 503,
    "deadline": 504,
    "store_full": 507,
}
"""The closed set of codes of a refusal, each with its status."""


class ErrorBody(Part, frozen=True, kw_only=True):
    """What happened, to which field, by which rule, and what to do: ``hint`` is empty where there is nothing to say. A
    client takes a code that it does not know."""

    code: Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(STATUS)})]
    message: str
    hint: str
    field: str | None = None
    rule: str | None = None
    choices: tuple[str, ...] = ()


class ErrorAnswer(Part, frozen=True, kw_only=True):
    """The envelope of every refusal."""

    error: ErrorBody


class BatchAnswer(Part, frozen=True, kw_only=True):
    """Answers or errors in the order of the requests: structs in the daemon, plain objects in a client."""

    answers: tuple[Any, ...]
