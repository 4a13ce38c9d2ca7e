"""Each verb once: its arguments, and the answer it returns. ``Client`` and ``AsyncClient`` are made of these.

A function here only builds the request's body. ``None`` means *not given*; where null means something else
(``ttl_ms``: never expires), ``...`` is the default and leaves the field out. Times are epoch milliseconds or ISO 8601,
durations milliseconds or text like ``7d``. Meanings and limits are those of the API reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from amnesiad.client.verb import asks, verb

if TYPE_CHECKING:
    from amnesiad import wire
    from amnesiad.core.callers import AgentKind
    from amnesiad.core.events import MirrorResult, Provenance, Scope
    from amnesiad.core.kinds import Curve, Kind
    from amnesiad.core.notes import State

Texts = Sequence[str]
Time = int | str
Duration = int | str
TriggerFields = Mapping[str, Any]


@verb("remember")
def remember(
    content: str,
    *,
    kind: Kind | None = None,
    ttl_ms: Duration | EllipsisType | None = ...,
    expires_at: Time | None = None,
    pinned: bool = False,
    curve: Curve | None = None,
    key: str | None = None,
    scope: Scope | None = None,
    owner: str | None = None,
    tags: Texts | None = None,
    anchors: Texts | None = None,
    triggers: Sequence[TriggerFields] | None = None,
    provenance: Provenance | None = None,
    source_ref: str | None = None,
    supersedes: str | None = None,
    request_id: str | None = None,
) -> wire.RememberAnswer:
    """Write a note. An identical live text is renewed in place of a second one (``created`` is then false)."""
    return asks(locals())


@verb("recall")
def recall(
    query: str | None = None,
    *,
    kinds: Sequence[Kind] | None = None,
    tags: Texts | None = None,
    paths: Texts | None = None,
    owner: str | None = None,
    states: Sequence[State] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    limit: int | None = None,
    explain: bool = False,
    format: str | None = None,  # noqa: A002 - the field's name
    peek: bool = False,
    after: str | None = None,
) -> wire.RecallAnswer:
    """Live notes, the most relevant first; stale ones are marked, revoked ones come apart as deterrents. ``peek``
    renews nothing."""
    return asks(locals())


@verb("inject")
def inject(
    budget_tokens: int | None = None,
    *,
    query: str | None = None,
    paths: Texts | None = None,
    event: str | None = None,
    after: str | None = None,
) -> wire.InjectAnswer:
    """The block of notes for a context, within a budget of tokens; recorded in the ledger."""
    return asks(locals())


@verb("preview")
def preview(
    budget_tokens: int | None = None,
    *,
    query: str | None = None,
    paths: Texts | None = None,
    event: str | None = None,
    after: str | None = None,
) -> wire.InjectAnswer:
    """What ``inject`` would give, without ledger and renewal."""
    return asks(locals())


@verb("fire")
def fire(
    event: str,
    *,
    paths: Texts | None = None,
    command: str | None = None,
    prompt: str | None = None,
    turn: str | int | None = None,
    after: str | None = None,
) -> wire.FireAnswer:
    """The notes whose triggers match, each once per session and turn."""
    return asks(locals())


@verb("why-not")
def why_not(
    id: str,  # noqa: A002
    *,
    query: str | None = None,
    paths: Texts | None = None,
    event: str | None = None,
    command: str | None = None,
    kinds: Sequence[Kind] | None = None,
    tags: Texts | None = None,
    states: Sequence[State] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    limit: int | None = None,
    budget_tokens: int | None = None,
    after: str | None = None,
) -> wire.WhyNotAnswer:
    """Why a note is not among what ``recall``, ``inject`` and ``fire`` return for the same fields."""
    return asks(locals())


@verb("list")
def list_notes(
    *,
    kinds: Sequence[Kind] | None = None,
    tags: Texts | None = None,
    scope: Scope | None = None,
    owner: str | None = None,
    states: Sequence[State] | None = None,
    with_content: bool = False,
    limit: int | None = None,
    cursor: str | None = None,
    after: str | None = None,
) -> wire.ListAnswer:
    """Notes of any state, a page at a time."""
    return asks(locals())


@verb("inspect")
def inspect(id: str, *, at: Time | None = None, render: bool = False, after: str | None = None) -> wire.InspectAnswer:  # noqa: A002
    """One note, now or as it stood at an instant."""
    return asks(locals())


@verb("history")
def history(
    id: str,  # noqa: A002
    *,
    limit: int | None = None,
    cursor: str | None = None,
    after: str | None = None,
) -> wire.HistoryAnswer:
    """The events of one note, oldest first."""
    return asks(locals())


@verb("forget")
def forget(
    id: str | None = None,  # noqa: A002
    *,
    ids: Texts | None = None,
    query: str | None = None,
    tags: Texts | None = None,
    kinds: Sequence[Kind] | None = None,
    scope: Scope | None = None,
    owner: str | None = None,
    all: bool = False,  # noqa: A002
    confirm: bool = False,
    dry_run: bool = False,
    reason: str | None = None,
    request_id: str | None = None,
) -> wire.ForgetAnswer:
    """Erase what one address matches. Final."""
    return asks(locals())


@verb("reinstate")
def reinstate(id: str, *, reason: str | None = None, request_id: str | None = None) -> wire.ChangeAnswer:  # noqa: A002
    """Bring an ended or stale note back to life; a forgotten one is beyond this."""
    return asks(locals())


@verb("pin")
def pin(id: str, *, reason: str | None = None, request_id: str | None = None) -> wire.ChangeAnswer:  # noqa: A002
    """Stop a note's lease."""
    return asks(locals())


@verb("unpin")
def unpin(id: str, *, reason: str | None = None, request_id: str | None = None) -> wire.ChangeAnswer:  # noqa: A002
    """Let a note's lease run again, from now."""
    return asks(locals())


@verb("renew")
def renew(id: str, *, reason: str | None = None, request_id: str | None = None) -> wire.ChangeAnswer:  # noqa: A002
    """Use a note: its lease runs from now."""
    return asks(locals())


@verb("done")
def done(id: str, *, reason: str | None = None, request_id: str | None = None) -> wire.ChangeAnswer:  # noqa: A002
    """Complete a task."""
    return asks(locals())


@verb("revoke")
def revoke(id: str, reason: str, *, request_id: str | None = None) -> wire.ChangeAnswer:  # noqa: A002
    """Declare a note wrong: from now on it is shown only as a warning."""
    return asks(locals())


@verb("flag")
def flag(id: str, reason: str, *, request_id: str | None = None) -> wire.ChangeAnswer:  # noqa: A002
    """Put a note in doubt: stale, until it is reinstated or ended."""
    return asks(locals())


@verb("restore")
def restore(id: str, *, reason: str | None = None, request_id: str | None = None) -> wire.RestoreAnswer:  # noqa: A002
    """A new note with the words of a forgotten one, where a copy was kept."""
    return asks(locals())


@verb("undo")
def undo(id: str, *, reason: str | None = None, request_id: str | None = None) -> wire.UndoAnswer:  # noqa: A002
    """Take back a note's last transition, by one more event."""
    return asks(locals())


@verb("supersede")
def supersede(
    id: str,  # noqa: A002
    content: str | None = None,
    *,
    by: str | None = None,
    reason: str | None = None,
    kind: Kind | None = None,
    ttl_ms: Duration | EllipsisType | None = ...,
    expires_at: Time | None = None,
    pinned: bool = False,
    curve: Curve | None = None,
    key: str | None = None,
    scope: Scope | None = None,
    owner: str | None = None,
    tags: Texts | None = None,
    anchors: Texts | None = None,
    triggers: Sequence[TriggerFields] | None = None,
    provenance: Provenance | None = None,
    source_ref: str | None = None,
    request_id: str | None = None,
) -> wire.SupersedeAnswer:
    """Put a new text, or the existing note ``by``, in a note's place."""
    return asks(locals())


@verb("promote")
def promote(id: str, to: str, *, reason: str | None = None, request_id: str | None = None) -> wire.ChangeAnswer:  # noqa: A002
    """Lift a note to the workspace, or its provenance upward."""
    return asks(locals())


@verb("edit")
def edit(
    id: str,  # noqa: A002
    *,
    tags: Texts | None = None,
    anchors: Texts | None = None,
    triggers: Sequence[TriggerFields] | None = None,
    ttl_ms: Duration | EllipsisType | None = ...,
    reason: str | None = None,
    request_id: str | None = None,
) -> wire.ChangeAnswer:
    """Replace tags, anchors, triggers or the TTL; an empty list empties them."""
    return asks(locals())


@verb("mirror")
def mirror(id: str, target: str, result: MirrorResult, *, request_id: str | None = None) -> wire.MirrorAnswer:  # noqa: A002
    """Record what became of the item that a note mirrors in another store."""
    return asks(locals())


@verb("settle")
def settle(*, after: str | None = None) -> wire.FiguresAnswer:
    """Apply every transition that is due now."""
    return asks(locals())


@verb("scrub")
def scrub(*, after: str | None = None) -> wire.FiguresAnswer:
    """Remove the last traces of what was forgotten."""
    return asks(locals())


@verb("verify")
def verify(*, after: str | None = None) -> wire.FiguresAnswer:
    """Prove that the log, the words and what is derived from them agree."""
    return asks(locals())


@verb("rebuild")
def rebuild(*, after: str | None = None) -> wire.FiguresAnswer:
    """Derive the workspace anew from its log."""
    return asks(locals())


@verb("status")
def status(*, after: str | None = None) -> wire.StatusAnswer:
    """Counts, costs and health in a few numbers."""
    return asks(locals())


@verb("audit")
def audit(*, limit: int | None = None, since: Time | None = None, after: str | None = None) -> wire.AuditAnswer:
    """The latest endings: codes, hashes and times, no words."""
    return asks(locals())


@verb("ledger")
def ledger(
    *, limit: int | None = None, session: str | None = None, entry: str | None = None, after: str | None = None
) -> wire.LedgerAnswer:
    """What was shown to whom, newest first; with ``entry`` that one, its text rebuilt."""
    return asks(locals())


@verb("exposure")
def exposure(id: str, *, limit: int | None = None, after: str | None = None) -> wire.ExposureAnswer:  # noqa: A002
    """Which sessions were shown a note, and what they wrote afterwards."""
    return asks(locals())


@verb("policy")
def policy(
    set: Mapping[str, str | int | float | bool | None] | None = None,  # noqa: A002
    *,
    reset: Texts | None = None,
    request_id: str | None = None,
) -> wire.PolicyAnswer:
    """Effective settings and their origins; first changes or resets some."""
    return asks(locals())


@verb("events")
def events(
    event: str | None = None,
    *,
    events: Sequence[Mapping[str, Any]] | None = None,
    id: str | None = None,  # noqa: A002
    workspace: str | None = None,
    session: str | None = None,
    agent: str | None = None,
    agent_kind: AgentKind | None = None,
    team: str | None = None,
    parent: str | None = None,
    paths: Texts | None = None,
    at: Time | None = None,
    source: str | None = None,
) -> wire.EventsAnswer:
    """Report one lifecycle event of this client's agent, or several of any."""
    return asks(locals())


@verb("batch")
def batch(requests: Sequence[tuple[str, Mapping[str, Any]]]) -> wire.BatchAnswer:
    """Up to 1000 requests, each a verb and a body, answered in order, each on its own."""
    return asks({"requests": [{"verb": verb, "body": dict(body)} for verb, body in requests]})


@verb("check")
def check(*, paths: Texts | None = None, after: str | None = None) -> wire.FiguresAnswer:
    """Compare anchors with the files they name."""
    return asks(locals())


@verb("owners")
def owners(*, close: str | None = None, request_id: str | None = None) -> wire.OwnersAnswer:
    """The owners of notes; first closes one."""
    return asks(locals())


@verb("dead")
def dead(
    *,
    retry: Texts | None = None,
    drop: Texts | None = None,
    show: str | None = None,
    limit: int | None = None,
    request_id: str | None = None,
) -> wire.DeadAnswer:
    """Lifecycle events that could not be handled; first retries or drops some. ``show`` gives one as it came."""
    return asks(locals())


@verb("workspaces")
def workspaces(
    *,
    rename: str | None = None,
    to: str | None = None,
    drop: str | None = None,
    confirm: bool = False,
    request_id: str | None = None,
) -> wire.WorkspacesAnswer:
    """The workspaces of the store; first renames or drops one."""
    return asks(locals())
