"""What may be asked about notes: one frozen struct per verb, unknown fields refused by name. The rest is
``oversight``'s.

Shapes and value types only; what a request *means* is the service's business. After ``wire.decode`` every time is
epoch milliseconds, every duration milliseconds, every id has been checked. ``UNSET`` tells an absent field from an
explicit null where the two differ (``ttl_ms``: null is *no TTL*, absent is *the policy's*).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from amnesiad.core.callers import AgentKind, Caller, Role
from amnesiad.core.events import MirrorResult, Provenance, Scope
from amnesiad.core.kinds import Curve, Kind
from amnesiad.core.notes import State, Trigger
from amnesiad.wire.fields import (
    MAX_FILTERS,
    MAX_LISTED,
    MOST_TRIGGERS,
    Anchors,
    Content,
    Cursor,
    DurationMs,
    Filter,
    Key,
    Limited,
    NoteId,
    OwnerId,
    Query,
    Reason,
    Seq,
    SourceRef,
    Tags,
    TimeMs,
    Token,
    TriggerText,
    TriggerWords,
    TurnId,
    WorkspaceName,
)

MAX_BATCH: Final = 1000
"""Requests in one batch; each is answered on its own, so more only delays the first answer."""
MAX_BUDGET_TOKENS: Final = 1_000_000
"""The largest context window in sight; a larger budget is a mistake in units."""

Kinds = Annotated[tuple[Kind, ...], Meta(max_length=MAX_FILTERS)]
States = Annotated[tuple[State, ...], Meta(max_length=MAX_FILTERS)]
LiveStates = Annotated[tuple[Literal["active", "stale"], ...], Meta(max_length=MAX_FILTERS)]
PageLimit = Annotated[int, Meta(ge=1, le=1000)]


class CallerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who asks, as declared by the request."""

    role: Role = "agent"
    agent_kind: AgentKind = "main"
    session: Token | None = None
    agent: Token | None = None
    team: Token | None = None
    on_behalf: Literal["user"] | None = None

    def to_core(self) -> Caller:
        """The core's caller."""
        return Caller(
            role=self.role,
            agent_kind=self.agent_kind,
            session=self.session,
            agent=self.agent,
            team=self.team,
            on_behalf=self.on_behalf is not None,
        )


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every request carries. ``after`` asks for an answer that has seen the log up to that stream id."""

    workspace: WorkspaceName
    caller: CallerSpec = CallerSpec()
    after: Seq | None = None


class Write(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that changes something. The same ``request_id`` with the same body gives the same answer for 24 h."""

    request_id: Token | None = None


class NoteWrite(Write, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A write about one note. ``reason`` is words for the vault; some refusals lift only with one."""

    id: NoteId
    reason: Reason | None = None


class TriggerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When ``fire`` shows the note: every part given must match."""

    event: Token | None = None
    path: TriggerText | None = None
    command: TriggerText | None = None
    words: TriggerWords = ()
    cooldown_ms: DurationMs | None = None

    def to_core(self) -> Trigger:
        """The core's trigger; the limits of its texts are ``intake.check_triggers``'s."""
        return Trigger(
            event=self.event, path=self.path, command=self.command, words=self.words, cooldown_ms=self.cooldown_ms
        )


Triggers = Annotated[tuple[TriggerSpec, ...], MOST_TRIGGERS]


class NewNote(Write, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The optional fields of a note to be written, shared by remember and supersede."""

    kind: Kind | None = None
    ttl_ms: DurationMs | UnsetType | None = UNSET
    expires_at: TimeMs | None = None
    pinned: bool = False
    curve: Curve | None = None
    key: Key | None = None
    scope: Scope | None = None
    owner: OwnerId | None = None
    tags: Tags = ()
    anchors: Anchors = ()
    triggers: Triggers = ()
    provenance: Provenance | None = None
    source_ref: SourceRef | None = None


class RememberRequest(NewNote, frozen=True, kw_only=True, forbid_unknown_fields=True):
    content: Content
    supersedes: NoteId | None = None


class SupersedeRequest(NewNote, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``by`` an existing note, or by a new one made of ``content`` and remember's fields."""

    id: NoteId
    by: NoteId | None = None
    content: Content | None = None
    reason: Reason | None = None


class RecallRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Query | None = None
    kinds: Kinds = ()
    tags: Filter = ()
    paths: Limited = ()
    owner: OwnerId | None = None
    states: LiveStates = ()
    since: TimeMs | None = None
    until: TimeMs | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    explain: bool = False
    format: Literal["json", "text"] = "json"
    peek: bool = False
    """Look without using: nothing is renewed by it."""


class InjectRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Also the request of preview. No ``budget_tokens`` means the policy's ``max_injected_tokens``."""

    budget_tokens: Annotated[int, Meta(ge=0, le=MAX_BUDGET_TOKENS)] | None = None
    query: Query | None = None
    paths: Limited = ()
    event: Token | None = None


class WhyNotRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why recall, inject and fire, asked with these fields, leave the note out. A human names in ``caller`` whose view
    is asked about; an agent asks about its own."""

    id: NoteId
    query: Query | None = None
    paths: Limited = ()
    event: Token | None = None
    command: Query | None = None
    kinds: Kinds = ()
    tags: Filter = ()
    states: LiveStates = ()
    since: TimeMs | None = None
    until: TimeMs | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    budget_tokens: Annotated[int, Meta(ge=0, le=MAX_BUDGET_TOKENS)] | None = None


class FireRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    event: Token
    paths: Limited = ()
    command: Query | None = None
    prompt: Query | None = None
    turn: TurnId | None = None


class ListRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kinds: Kinds = ()
    tags: Filter = ()
    scope: Scope | None = None
    owner: OwnerId | None = None
    states: States = ()
    with_content: bool = False
    limit: PageLimit = 100
    cursor: Cursor | None = None


class InspectRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``at`` shows the note as it stood at that instant. ``render`` asks for the answer's ``text``, which comes in any
    case: the note as one line, a live one as agents are given it, an ended one as the warning it has become."""

    id: NoteId
    at: TimeMs | None = None
    render: bool = False


class HistoryRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: NoteId
    limit: PageLimit = 100
    cursor: Cursor | None = None


class ForgetRequest(Write, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One address: id, ids, query, tags, kinds, scope, owner or all. An empty list counts as absent."""

    id: NoteId | None = None
    ids: Annotated[tuple[NoteId, ...], Meta(max_length=MAX_LISTED)] = ()
    query: Query | None = None
    tags: Filter = ()
    kinds: Kinds = ()
    scope: Scope | None = None
    owner: OwnerId | None = None
    all: bool = False
    confirm: bool = False
    dry_run: bool = False
    reason: Reason | None = None


class RevokeRequest(Write, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: NoteId
    reason: Reason


class FlagRequest(Write, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: NoteId
    reason: Reason


class ReinstateRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class PinRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class UnpinRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class RenewRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class DoneRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class RestoreRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class UndoRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take back the note's last transition, by one more event."""


class PromoteRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Literal["workspace", "agent", "user-stated", "human"]


class EditRequest(NoteWrite, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``UNSET`` leaves a field as it is; a list replaces the list there was."""

    tags: Tags | UnsetType = UNSET
    anchors: Anchors | UnsetType = UNSET
    triggers: Triggers | UnsetType = UNSET
    ttl_ms: DurationMs | UnsetType | None = UNSET


class MirrorRequest(Write, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of the item that the note mirrors in ``target``, one of those its ``source_ref`` points at."""

    id: NoteId
    target: Token
    result: MirrorResult


class BatchItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request of a batch, as ``wire.read_item`` makes it of its JSON. It inherits the batch's workspace and
    caller."""

    verb: str
    body: dict[str, msgspec.Raw] = {}


class BatchRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items stay JSON, so that what is wrong with one is no fault of the others."""

    requests: Annotated[tuple[msgspec.Raw, ...], Meta(max_length=MAX_BATCH)]
