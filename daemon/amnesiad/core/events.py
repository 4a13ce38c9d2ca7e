"""The closed union of events, and their codec.

An event is a fact that already happened to one note (or to the workspace), in codes and numbers only: no content, key,
tag, path or reason text, because a deleted stream entry leaves its bytes behind in memory and on disk. Words live in
the vault. Every event of a note carries the note's ``version`` after it, counted from 1 without gaps.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from amnesiad.core.kinds import Curve, Kind

Scope = Literal["workspace", "session", "team"]
Provenance = Literal["human", "user-stated", "agent", "auto"]
Cause = Literal["decayed", "anchor", "distrusted"]
ExpiryCode = Literal["ttl", "decayed", "completed", "retention"]
ForgetCode = Literal["expired", "evicted", "manual", "agent-disposed", "retention"]
MirrorResult = Literal["shown", "hidden", "deleted", "absent", "kept", "failed"]

SYSTEM: Final = "system"
HUMAN: Final = "human"


class NoteEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type"):
    """What every event of a note carries.

    ``at`` is epoch milliseconds of the fact (for an expiry the deadline that passed; the stream id tells when it was
    recorded). ``actor`` is ``human``, ``agent:ID`` or ``system``. ``on_behalf`` marks an agent that declared to act
    for its user.
    """

    note: str
    version: int
    at: int
    actor: str
    on_behalf: bool = False


class Reasoned(NoteEvent, frozen=True, gc=False, kw_only=True):
    """What an event carries that somebody may give a reason for."""

    size: int | None = None
    """The new size of the words where the event changed them, be it by its reason alone."""


class Created(NoteEvent, frozen=True, gc=False, kw_only=True, tag="created"):
    kind: Kind
    provenance: Provenance
    size: int
    """Bytes of the note's words, for the capacity bounds."""
    scope: Scope = "workspace"
    owner: str | None = None
    incarnation: int | None = None
    """Which life of the owner it was written in; an owner's end reaches this one and those before it."""
    author: str | None = None
    source_ref: str | None = None
    ttl_ms: int | None = None
    curve: Curve = "flat"
    pinned: bool = False
    base: float = 1.0
    supersedes: tuple[str, ...] = ()
    restored_from: str | None = None


class Superseded(Reasoned, frozen=True, gc=False, kw_only=True, tag="superseded"):
    by: str


class Revoked(Reasoned, frozen=True, gc=False, kw_only=True, tag="revoked"):
    reason: Literal["refuted"] = "refuted"


class StaleFlagged(Reasoned, frozen=True, gc=False, kw_only=True, tag="stale_flagged"):
    cause: Cause


class Reinstated(Reasoned, frozen=True, gc=False, kw_only=True, tag="reinstated"):
    pass


class Promoted(Reasoned, frozen=True, gc=False, kw_only=True, tag="promoted"):
    provenance: Provenance | None = None
    scope: Literal["workspace"] | None = None
    """The owner is dropped with it."""
    ttl_ms: int | None = None


class Expired(Reasoned, frozen=True, gc=False, kw_only=True, tag="expired"):
    reason: ExpiryCode


class Renewed(Reasoned, frozen=True, gc=False, kw_only=True, tag="renewed"):
    base: float
    """Strength the lease restarts from, by the renewal formula of ``clocks.renewed_base``."""


class Pinned(Reasoned, frozen=True, gc=False, kw_only=True, tag="pinned"):
    pass


class Unpinned(Reasoned, frozen=True, gc=False, kw_only=True, tag="unpinned"):
    pass


class Edited(Reasoned, frozen=True, gc=False, kw_only=True, tag="edited"):
    fields: tuple[Literal["tags", "anchors", "triggers", "ttl_ms"], ...]
    ttl_ms: int | None = None


class Forgotten(NoteEvent, frozen=True, gc=False, kw_only=True, tag="forgotten"):
    reason: ForgetCode


class Restored(NoteEvent, frozen=True, gc=False, kw_only=True, tag="restored"):
    """On the forgotten note, naming the new one that carries its words on."""

    to: str


class Mirrored(NoteEvent, frozen=True, gc=False, kw_only=True, tag="mirrored"):
    """What became of the item that the note mirrors in another store: the result of a governor, not a transition.

    ``absent`` was found gone already, ``kept`` belongs to a note that lives, ``failed`` was tried as often as is
    sensible.
    """

    target: str
    result: MirrorResult


class PolicyChanged(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type", tag="policy_changed"
):
    """One live setting of the workspace changed; ``None`` as ``new`` means reset to the operator's value."""

    at: int
    actor: str
    name: str
    old: str | int | float | bool | None = None
    new: str | int | float | bool | None = None
    reset: bool = False
    policy_version: int = 0


class Scrubbed(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type", tag="scrubbed"
):
    """Erased words up to stream id ``through`` are absent from the live data files (``done``) or a rewrite was asked
    of a server that is not ours (``requested``)."""

    at: int
    actor: str
    through: str
    result: Literal["done", "requested"]


Transition = (
    Superseded
    | Revoked
    | StaleFlagged
    | Reinstated
    | Promoted
    | Expired
    | Renewed
    | Pinned
    | Unpinned
    | Edited
    | Forgotten
    | Restored
    | Mirrored
)
"""Every event of a note but its birth."""
AnyNoteEvent = Created | Transition
Event = AnyNoteEvent | PolicyChanged | Scrubbed

_decoder: Final = msgspec.json.Decoder(Event)
_encoder: Final = msgspec.json.Encoder()


def encode(event: Event) -> bytes:
    """The event as one JSON object; ``decode(encode(e)) == e``."""
    return _encoder.encode(event)


def decode(data: bytes) -> Event:
    """Raises ``msgspec.ValidationError`` for anything outside the union."""
    return _decoder.decode(data)


def event_type(event: Event) -> str:
    """The event's name as it stands in the log: ``created``, ``expired`` …"""
    return str(event.__struct_config__.tag)
