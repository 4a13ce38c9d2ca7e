"""What is asked and answered about a workspace as a whole and the fleet around it: each verb's request beside its
answer.

What is asked about notes stands in ``wire.requests``, and what is answered of them in ``wire.answers``; the bases and
what holds for both are theirs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from amnesiad.core import lifecycle
from amnesiad.core.callers import AgentKind
from amnesiad.core.kinds import Kind
from amnesiad.wire.answers import Answer, Part, Scalar
from amnesiad.wire.fields import (
    MAX_LISTED,
    SETTING_NAMES,
    ChangedPaths,
    Limited,
    NoteId,
    OwnerId,
    Seq,
    SettingName,
    TimeMs,
    Token,
    WorkspaceName,
)
from amnesiad.wire.requests import MAX_BATCH, CallerSpec, PageLimit, Request, Write

# -- a workspace ---------------------------------------------------------------------------------------------------


class StatusRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Counts(Part, frozen=True, kw_only=True):
    """Notes by state; every state is always there."""

    active: int
    stale: int
    expired: int
    revoked: int
    superseded: int
    forgotten: int


class RecentEnd(Part, frozen=True, kw_only=True):
    id: str
    reason: str
    at: int


class InjectionStatus(Part, frozen=True, kw_only=True):
    count: int
    tokens: int
    at: int


class WorkerStatus(Part, frozen=True, kw_only=True):
    alive: bool
    lag_ms: int | None


class LifecycleStatus(Part, frozen=True, kw_only=True):
    """Of the events of all workspaces: how many wait to be handled, how long the oldest has, how many are parked."""

    waiting: int
    lag_ms: int | None
    parked: int


class StatusAnswer(Answer, frozen=True, kw_only=True):
    """A small scalar view. ``tokens`` is what all live notes would cost. ``refusals`` counts by rule what this daemon
    has refused in the workspace since its start."""

    counts: Counts
    tokens: int
    recent: tuple[RecentEnd, ...]
    refusals: dict[str, int]
    worker: WorkerStatus
    store: dict[str, Scalar]
    next_expiry_at: int | None = None
    injection: InjectionStatus | None = None
    lifecycle: LifecycleStatus | None = None
    """Only for those who see a workspace as a whole, and while the store answers."""


class AuditRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: PageLimit = 20
    since: TimeMs | None = None


class AuditEntry(Part, frozen=True, kw_only=True):
    id: str
    kind: Kind
    reason: str
    actor: str
    at: int
    restorable: bool
    content_hash: str | None = None


class AuditAnswer(Answer, frozen=True, kw_only=True):
    entries: tuple[AuditEntry, ...]


class LedgerRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was shown, newest first; with ``entry`` (a row's id) that one, its text rebuilt from log and ledger."""

    limit: PageLimit = 20
    session: Token | None = None
    entry: Seq | None = None


class LedgerRow(Part, frozen=True, kw_only=True):
    """One recall, injection or firing: who was shown which notes, at which versions, in which order, at what cost.

    ``text`` only where one entry was asked for: the block as it was shown, in which a note erased since stands as its
    id and hash.
    """

    id: str
    at: int
    kind: Literal["recall", "inject", "fire"]
    actor: str
    ids: tuple[str, ...]
    versions: tuple[int, ...]
    tokens: int
    deterrents: tuple[str, ...]
    corrections: tuple[str, ...] = ()
    session: str | None = None
    budget_tokens: int | None = None
    text: str | None = None


class LedgerAnswer(Answer, frozen=True, kw_only=True):
    rows: tuple[LedgerRow, ...]


class ExposureRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who was shown the note; for a human and main agents."""

    id: NoteId
    limit: PageLimit = 100


class ExposureRow(Part, frozen=True, kw_only=True):
    """Somebody who was shown the note: when first and last, how often by which kind of read, at which versions; and the
    notes written by them since they were first shown it."""

    session: str | None = None
    owner: str | None = None
    actor: str
    first_at: int
    last_at: int
    times: int
    kinds: dict[str, int]
    """``recall``, ``inject`` and ``fire``; ``deterrent`` and ``correction`` where it was shown as one."""
    versions: tuple[int, ...]
    wrote: tuple[str, ...]
    """The earliest of ``wrote_count``."""
    wrote_count: int


class ExposureAnswer(Answer, frozen=True, kw_only=True):
    """``total`` counts the rows there are. ``cut``: the ledger goes back further than ``since``, where looking
    ended."""

    id: str
    rows: tuple[ExposureRow, ...]
    total: int
    cut: bool
    since: int | None = None


class PolicyRequest(Write, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without ``set`` and ``reset`` it only reads. Values are checked by ``core.policy.parse_setting``."""

    set: Annotated[dict[str, str | int | float | bool | None], SETTING_NAMES] = msgspec.field(default_factory=dict)
    reset: Annotated[tuple[SettingName, ...], Meta(max_length=MAX_LISTED)] = ()


class PolicyValue(Part, frozen=True, kw_only=True):
    """``live`` is false for a setting that is read at the daemon's start only."""

    value: Scalar
    origin: str
    live: bool = True


class PolicyAnswer(Answer, frozen=True, kw_only=True):
    values: dict[str, PolicyValue]


# -- passes over it ------------------------------------------------------------------------------------------------


class SettleRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ScrubRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class VerifyRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class RebuildRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class CheckRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compare anchors with the files they name; ``paths`` narrows it to notes anchored there."""

    paths: Limited = ()


class FiguresAnswer(Answer, frozen=True, kw_only=True):
    """Counts by name, and each problem in one sentence without a note's words."""

    figures: dict[str, int]
    problems: tuple[str, ...] = ()


SettleAnswer = FiguresAnswer
ScrubAnswer = FiguresAnswer
VerifyAnswer = FiguresAnswer
RebuildAnswer = FiguresAnswer
CheckAnswer = FiguresAnswer


# -- the fleet -----------------------------------------------------------------------------------------------------


class LifecycleEvent(
    lifecycle.LifecycleEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The core's event with every field checked, also the JSON of field ``e`` on the lifecycle stream."""

    workspace: WorkspaceName
    id: Token | None = None
    session: Token | None = None
    agent: Token | None = None
    team: Token | None = None
    parent: Token | None = None
    paths: ChangedPaths = ()
    at: TimeMs | None = None
    source: Token | None = None


class EventsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lifecycle events, always as a list after decoding, also where the body was a single event."""

    events: Annotated[tuple[LifecycleEvent, ...], Meta(min_length=1, max_length=MAX_BATCH)]


class OneEvent(EventsRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that was a single event: refusals name its fields as they were sent, outside any list."""


class EventsAnswer(Part, frozen=True, kw_only=True):
    """``ids`` are stream ids on the lifecycle stream, in the order of the events."""

    accepted: int
    ids: tuple[str, ...]


class HooksRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent's own hook payload, as it came. Without ``workspace`` it is derived from the payload's ``cwd``.

    ``agent_name`` is the kind of program (``claude-code``, ``codex`` …), not the id of one agent.
    """

    agent_name: Token
    payload: dict[str, Any] = {}
    workspace: WorkspaceName | None = None


class OwnersRequest(Write, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lists the owners; with ``close`` ends that one first."""

    close: OwnerId | None = None


class OwnerRow(Part, frozen=True, kw_only=True):
    owner: str
    state: Literal["open", "closed"]
    incarnation: int
    notes: int
    agent_kind: AgentKind | None = None
    last_seen_at: int | None = None


class OwnersAnswer(Answer, frozen=True, kw_only=True):
    rows: tuple[OwnerRow, ...]
    changed: int = 0


class DeadRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lists parked lifecycle events of every workspace; with ``retry`` or ``drop`` (stream ids) treats some first. With
    ``show`` the answer is that one, as it came."""

    workspace: WorkspaceName | None = None
    caller: CallerSpec = CallerSpec()
    request_id: Token | None = None
    retry: Annotated[tuple[Seq, ...], Meta(max_length=MAX_LISTED)] = ()
    drop: Annotated[tuple[Seq, ...], Meta(max_length=MAX_LISTED)] = ()
    show: Seq | None = None
    limit: PageLimit = 100


class DeadRow(Part, frozen=True, kw_only=True):
    """``event`` and ``workspace`` as far as they can be read; ``raw``, the event as it came, only where it was asked
    for."""

    id: str
    at: int
    error: str
    event: str | None = None
    workspace: str | None = None
    raw: str | None = None


class DeadAnswer(Part, frozen=True, kw_only=True):
    rows: tuple[DeadRow, ...]
    changed: int = 0


class WorkspacesRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lists the workspaces; first renames ``rename`` to ``to``, or drops ``drop`` (needs ``confirm``)."""

    workspace: WorkspaceName | None = None
    caller: CallerSpec = CallerSpec()
    request_id: Token | None = None
    rename: WorkspaceName | None = None
    to: WorkspaceName | None = None
    drop: WorkspaceName | None = None
    confirm: bool = False


class WorkspaceRow(Part, frozen=True, kw_only=True):
    """``ws`` is the internal id that keys carry. ``notes`` are those not forgotten, where known."""

    name: str
    ws: str
    notes: int | None = None


class WorkspacesAnswer(Part, frozen=True, kw_only=True):
    rows: tuple[WorkspaceRow, ...]
    changed: int = 0


# -- streams -------------------------------------------------------------------------------------------------------


class ExportRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answered by a stream of NDJSON."""


class ImportRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query string of an import; its body is a stream of NDJSON."""

    dry_run: bool = False


class ImportProblem(Part, frozen=True, kw_only=True):
    """``line`` counts from 1."""

    line: int
    code: str
    message: str


class ImportAnswer(Part, frozen=True, kw_only=True):
    """``lines`` counts all that are not blank; ``imported`` and ``skipped`` (known already) count notes."""

    lines: int
    imported: int
    skipped: int
    problems: tuple[ImportProblem, ...] = ()
    notices: tuple[str, ...] = ()


# -- the process ---------------------------------------------------------------------------------------------------


class HealthAnswer(Part, frozen=True, kw_only=True):
    """The process answers. ``answered`` counts answers by status since its start."""

    pid: int
    version: str
    in_flight: int
    answered: dict[str, int]


class ReadyAnswer(Part, frozen=True, kw_only=True):
    """How far the start has come: ``stage`` in words, ``done`` of ``total`` workspaces loaded."""

    ready: bool
    stage: str
    done: int
    total: int
