"""A note's bare state, its words, the transition table and the fold.

``fold(events)`` is the only definition of a note's state; ``apply`` is one step of it and refuses every move the table
has no row for. Decisions (who may, when, why) live in ``decisions``; what time does lives in ``clocks``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, assert_never

import msgspec

from amnesiad.core.errors import IllegalTransition
from amnesiad.core.events import (
    AnyNoteEvent,
    Cause,
    Created,
    Edited,
    Expired,
    Forgotten,
    Mirrored,
    MirrorResult,
    Pinned,
    Promoted,
    Provenance,
    Reasoned,
    Reinstated,
    Renewed,
    Restored,
    Revoked,
    Scope,
    StaleFlagged,
    Superseded,
    Transition,
    Unpinned,
    event_type,
)
from amnesiad.core.kinds import REGIMES, Curve, Kind, Regime

State = Literal["active", "stale", "expired", "superseded", "revoked", "forgotten"]
STATES: Final[tuple[State, ...]] = ("active", "stale", "expired", "superseded", "revoked", "forgotten")
LIVE: Final = frozenset({"active", "stale"})
ENDED: Final = frozenset({"expired", "superseded", "revoked", "forgotten"})


class Note(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The folded bare facts of one note. Times are epoch milliseconds; no words."""

    id: str
    version: int
    kind: Kind
    provenance: Provenance
    created_at: int
    size: int
    scope: Scope = "workspace"
    owner: str | None = None
    incarnation: int | None = None
    author: str | None = None
    source_ref: str | None = None
    ttl_ms: int | None = None
    curve: Curve = "flat"
    pinned: bool = False
    base: float = 1.0
    ref_at: int = 0
    """The lease clock's reference: latest of created, renewed, reinstated, unpinned."""
    state: State = "active"
    causes: tuple[Cause, ...] = ()
    state_at: int = 0
    state_reason: str | None = None
    """The code of the event that led here; of a stale note, a cause that still holds."""
    superseded_by: str | None = None
    supersedes: tuple[str, ...] = ()
    restored_from: str | None = None
    restored_to: str | None = None
    mirrored: tuple[tuple[str, MirrorResult], ...] = ()
    """What is last known of the items it mirrors, by target, the latest news last."""
    before_mirrored: int = 0
    """The version it had before the news of its items that came last in its log; 0 where none came last."""

    @property
    def reason_version(self) -> int:
        """The version under which an ended note's words keep the reason of its end: news of its items gives none."""
        return self.before_mirrored or self.version

    @property
    def regime(self) -> Regime:
        """``record`` or ``perishable``, by the kind."""
        return REGIMES[self.kind]

    @property
    def live(self) -> bool:
        """Active or stale *as folded*; whether it still is at some instant is ``clocks.settle``'s to say."""
        return self.state in LIVE


class Anchor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A workspace-relative path and the SHA-256 (hex) its file had when the note was anchored, if it could be read."""

    path: str
    sha256: str | None = None


class Trigger(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """When ``fire`` shows the note: every field given must match."""

    event: str | None = None
    path: str | None = None
    command: str | None = None
    words: tuple[str, ...] = ()
    cooldown_ms: int | None = None


class Words(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything about a note that is text. Lives in the vault, is erased as one, never enters the log or a job."""

    content: str
    key: str | None = None
    tags: tuple[str, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    reasons: dict[str, str] = {}
    """Version of the event (as a string) -> the reason its author gave."""

    def size(self) -> int:
        """UTF-8 bytes of content, key, tags, anchor paths, trigger texts and reasons: what the capacity bounds
        count."""
        total = len(self.content.encode()) + sum(len(tag.encode()) for tag in self.tags)
        if self.key:
            total += len(self.key.encode())
        for anchor in self.anchors:
            total += len(anchor.path.encode())
        for trigger in self.triggers:
            for text in (trigger.path, trigger.command, *trigger.words):
                total += len(text.encode()) if text else 0
        return total + sum(len(reason.encode()) for reason in self.reasons.values())


_words_decoder: Final = msgspec.json.Decoder(Words)
_note_decoder: Final = msgspec.json.Decoder(Note)
_encoder: Final = msgspec.json.Encoder()


def encode_words(words: Words) -> bytes:
    """The vault's JSON form of a note's words."""
    return _encoder.encode(words)


def decode_words(data: bytes) -> Words:
    """Inverse of ``encode_words``; raises ``msgspec.ValidationError``."""
    return _words_decoder.decode(data)


def encode_note(note: Note) -> bytes:
    """The JSON form of a head."""
    return _encoder.encode(note)


def decode_note(data: bytes) -> Note:
    """Inverse of ``encode_note``; raises ``msgspec.ValidationError``, also for an unknown kind."""
    return _note_decoder.decode(data)


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of the transition table: the states an event may come from, and the state it leads to.

    ``to`` is ``None`` where the state stays as it is or depends on the causes left (``renewed``).
    """

    frm: frozenset[State]
    to: State | None
    note: str = ""


_LIVE_STATES: Final[frozenset[State]] = frozenset({"active", "stale"})
TRANSITIONS: Final[Mapping[str, Row]] = {
    "created": Row(frozenset(), "active", "from nothing"),
    "stale_flagged": Row(_LIVE_STATES, "stale", "adds the cause"),
    "renewed": Row(_LIVE_STATES, None, "removes the cause decayed; active if no cause is left"),
    "expired": Row(_LIVE_STATES, "expired"),
    "superseded": Row(_LIVE_STATES | {"expired"}, "superseded"),
    "revoked": Row(_LIVE_STATES | {"expired", "superseded"}, "revoked"),
    "reinstated": Row(frozenset({"stale", "expired", "superseded", "revoked"}), "active", "clears every cause"),
    "promoted": Row(_LIVE_STATES, None),
    "pinned": Row(_LIVE_STATES, None),
    "unpinned": Row(_LIVE_STATES, None),
    "edited": Row(_LIVE_STATES, None),
    "forgotten": Row(
        frozenset({"active", "stale", "expired", "superseded", "revoked"}), "forgotten", "erases the words"
    ),
    "restored": Row(frozenset({"forgotten"}), None, "on the old note, once; a new note carries the words on"),
    "mirrored": Row(frozenset(STATES), None, "what became of its item in another store"),
}
"""The table of the specification, section 5. It drives ``apply`` and the diagram in ARCHITECTURE.md."""


def apply(note: Note | None, event: AnyNoteEvent) -> Note:
    """One step of the fold.

    Raises ``IllegalTransition`` when the table has no row for the event from the note's state, when the version does
    not follow, or when the event belongs to another note. Changes nothing then.
    """
    name = event_type(event)
    if isinstance(event, Created):
        if note is not None:
            raise IllegalTransition(f"note {event.note} was created already", rule="created")
        if event.version != 1:
            raise IllegalTransition(
                f"note {event.note} begins at version {event.version}: a note begins at 1", rule="version"
            )
        return _born(event)
    if note is None:
        raise IllegalTransition(f"note {event.note} does not exist, so it cannot be {name}", rule=name)
    row = TRANSITIONS[name]
    if note.state not in row.frm:
        raise IllegalTransition(f"note {note.id} is {note.state}: no transition {name} from there", rule=name)
    if event.note != note.id or event.version != note.version + 1:
        raise IllegalTransition(
            f"event {name} {event.note}@{event.version} does not follow {note.id}@{note.version}", rule="version"
        )
    return _step(note, event)


def _born(event: Created) -> Note:
    return Note(
        id=event.note,
        version=event.version,
        kind=event.kind,
        provenance=event.provenance,
        created_at=event.at,
        size=event.size,
        scope=event.scope,
        owner=event.owner,
        incarnation=event.incarnation,
        author=event.author,
        source_ref=event.source_ref,
        ttl_ms=event.ttl_ms,
        curve=event.curve,
        pinned=event.pinned,
        base=event.base,
        ref_at=event.at,
        state_at=event.at,
        supersedes=event.supersedes,
        restored_from=event.restored_from,
    )


def _step(note: Note, event: Transition) -> Note:
    replace = msgspec.structs.replace
    version, at = event.version, event.at
    if isinstance(event, Reasoned) and event.size is not None:
        note = replace(note, size=event.size)
    if note.before_mirrored and not isinstance(event, Mirrored):
        note = replace(note, before_mirrored=0)
    match event:
        case StaleFlagged(cause=cause):
            causes = note.causes if cause in note.causes else (*note.causes, cause)
            return replace(note, version=version, state="stale", causes=causes, state_at=at, state_reason=cause)
        case Renewed(base=base):
            causes = tuple(cause for cause in note.causes if cause != "decayed")
            if not causes and note.state == "stale":
                note = replace(note, state="active", state_at=at, state_reason="renewed")
            elif causes and note.state_reason not in causes:
                note = replace(note, state_reason=causes[-1])
            return replace(note, version=version, base=base, ref_at=at, causes=causes)
        case Expired(reason=reason):
            return replace(note, version=version, state="expired", causes=(), state_at=at, state_reason=reason)
        case Superseded(by=by):
            return replace(
                note,
                version=version,
                state="superseded",
                causes=(),
                state_at=at,
                state_reason="superseded",
                superseded_by=by,
            )
        case Revoked(reason=reason):
            return replace(note, version=version, state="revoked", causes=(), state_at=at, state_reason=reason)
        case Reinstated():
            return replace(
                note,
                version=version,
                state="active",
                causes=(),
                state_at=at,
                state_reason="reinstated",
                ref_at=at,
                superseded_by=None,
            )
        case Promoted(provenance=provenance, scope=scope, ttl_ms=ttl_ms):
            if scope is not None:
                note = replace(note, scope=scope, owner=None, incarnation=None)
            return replace(
                note,
                version=version,
                provenance=provenance or note.provenance,
                ttl_ms=note.ttl_ms if ttl_ms is None else ttl_ms,
            )
        case Pinned():
            return replace(note, version=version, pinned=True)
        case Unpinned():
            return replace(note, version=version, pinned=False, ref_at=at)
        case Edited(fields=fields, ttl_ms=ttl_ms):
            return replace(note, version=version, ttl_ms=ttl_ms if "ttl_ms" in fields else note.ttl_ms)
        case Forgotten(reason=reason):
            return replace(note, version=version, state="forgotten", causes=(), state_at=at, state_reason=reason)
        case Restored(to=to):
            if note.restored_to is not None:
                raise IllegalTransition(f"note {note.id} was restored already, as {note.restored_to}", rule="restored")
            return replace(note, version=version, restored_to=to)
        case Mirrored(target=target, result=result):
            others = tuple(known for known in note.mirrored if known[0] != target)
            return replace(
                note,
                version=version,
                mirrored=(*others, (target, result)),
                before_mirrored=note.before_mirrored or note.version,
            )
        case _:  # pragma: no cover - mypy proves that no event is left
            assert_never(event)


def fold(events: Iterable[AnyNoteEvent]) -> Note:
    """The state that a note's events amount to, oldest first. Raises ``IllegalTransition``; at least one is needed."""
    note: Note | None = None
    for event in events:
        note = apply(note, event)
    if note is None:
        raise IllegalTransition("nothing to fold: a note begins with created", rule="created")
    return note
