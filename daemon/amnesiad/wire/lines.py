"""The lines of an export, one JSON object each, told apart by ``line``. Shapes only; ``service.transfer.shapes`` reads
and checks them."""

from __future__ import annotations

from typing import Final

import msgspec

from amnesiad.core.callers import AgentKind
from amnesiad.core.events import AnyNoteEvent, PolicyChanged, Scrubbed
from amnesiad.core.notes import Words
from amnesiad.wire.answers import Scalar


class _Line(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="line"
):
    """What every line has: nothing but its kind."""


class Header(_Line, frozen=True, kw_only=True, tag="export"):
    """Opens an export. ``through`` is the log's last id, ``after`` where a resumed one goes on, ``key`` the install
    key's fingerprint (hashes mean something only under the same key), ``at`` epoch ms."""

    format: int
    workspace: str
    through: str
    key: str
    at: int
    after: str | None = None


class PolicyLine(_Line, frozen=True, kw_only=True, tag="policy"):
    """The workspace's own overrides, name to canonical value."""

    values: dict[str, Scalar]


class OwnerLine(_Line, frozen=True, kw_only=True, tag="owner"):
    """An owner of scoped notes: which life of it runs, or ran last."""

    owner: str
    incarnation: int
    open: bool
    agent_kind: AgentKind | None = None


class NoteLine(_Line, frozen=True, kw_only=True, tag="note"):
    """A note: ``seq`` is the place in the log up to which the export is complete with this line, so where it may
    resume.

    ``words`` are there unless it is forgotten, or would be if its end were recorded; then ``content_hash`` is, while
    the audit keeps it. ``more`` says that the next line goes on with the same note; such a line has no ``seq``.
    """

    id: str
    events: tuple[AnyNoteEvent, ...]
    seq: str = ""
    words: Words | None = None
    content_hash: str | None = None
    more: bool = False


class FactLine(_Line, frozen=True, kw_only=True, tag="fact"):
    """An event of the workspace itself: for the reader of the file. An import leaves it where it happened."""

    seq: str
    event: PolicyChanged | Scrubbed


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """Closes an export. ``notes`` counts since the header, ``through`` is where the next one may resume."""

    through: str
    notes: int


Line = Header | PolicyLine | OwnerLine | NoteLine | FactLine | EndLine

NOT_IN_LINES: Final = ("workspace", "caller", "after", "request_id", "supersedes")
"""Of remember's fields, those that a plain line has not: an import says them once, or does not do them."""
