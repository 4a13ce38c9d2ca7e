"""The feed: how it is asked for, and what its items hold, type by type: ids, codes and numbers, never a word of a note.

Shapes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from amnesiad.core.events import AnyNoteEvent, Cause, MirrorResult, Provenance, Scope
from amnesiad.core.kinds import Kind
from amnesiad.wire.answers import Part, Scalar
from amnesiad.wire.requests import Request


class FeedRequest(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query string of the feed; ``after`` resumes it behind that stream id."""


class FeedItem(Part, frozen=True, kw_only=True):
    """One server-sent event: ``seq`` resumes the feed behind it, ``type`` is ``written``, ``forgotten`` …"""

    seq: str
    type: str
    data: dict[str, Any]


class FeedOpened(Part, frozen=True, kw_only=True):
    """The feed begins; its ``seq`` resumes it even if nothing follows."""

    at: int


class FeedMissed(Part, frozen=True, kw_only=True):
    """Items of these types before ``until`` are no longer on record, and some may have been among them."""

    types: tuple[str, ...]
    until: int


class FeedWritten(Part, frozen=True, kw_only=True):
    """A new note."""

    id: str
    at: int
    actor: str
    kind: Kind
    ttl: int | None


class FeedInjected(Part, frozen=True, kw_only=True):
    """Notes entered a context."""

    ids: tuple[str, ...]
    tokens: int
    at: int
    actor: str
    kind: Literal["inject", "fire"]
    deterrents: tuple[str, ...]


class FeedChanged(Part, frozen=True, kw_only=True):
    """A note moved, or one of its facts changed. ``reason`` is the code, ``fields`` are names of what was edited."""

    id: str
    at: int
    actor: str
    reason: str | None = None
    by: str | None = None
    cause: Cause | None = None
    provenance: Provenance | None = None
    scope: Scope | None = None
    ttl_ms: int | None = None
    fields: tuple[str, ...] = ()
    to: str | None = None
    target: str | None = None
    result: MirrorResult | None = None


class FeedPolicy(Part, frozen=True, kw_only=True):
    """A setting of the workspace changed; ``new`` is null where it was reset."""

    name: str
    old: Scalar
    new: Scalar
    at: int
    actor: str


class FeedScrubbed(Part, frozen=True, kw_only=True):
    """Words erased up to the stream id ``through`` are gone from the store's files, or their removal was asked for."""

    through: str
    result: Literal["done", "requested"]
    at: int


CHANGES: Final = tuple(
    dict.fromkeys(
        str(event.__struct_config__.tag) for event in get_args(AnyNoteEvent) if event.__struct_config__.tag != "created"
    )
)
"""The types of what happens to a note after its birth, which are those of its events."""

FEED: Final[Mapping[str, type[Any]]] = {
    "opened": FeedOpened,
    "missed": FeedMissed,
    "written": FeedWritten,
    "injected": FeedInjected,
    "policy_changed": FeedPolicy,
    "scrubbed": FeedScrubbed,
    **dict.fromkeys(CHANGES, FeedChanged),
}
"""Every type of an item, with the shape of its data."""

CHANGED_FACTS: Final = frozenset(field.name for field in msgspec.structs.fields(FeedChanged) if not field.required)
"""What an event of a note tells besides who, when and which, wherever it has it."""
