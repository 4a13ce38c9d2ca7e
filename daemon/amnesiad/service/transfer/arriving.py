"""One note that comes in: what a line changes here, and the unit of work that does it.

A note comes with its own id, dates and history, so that the fold is the same wherever it is taken in, and what has run
out meanwhile ends in the same unit. What is known already changes nothing; what contradicts what is here is refused;
nothing that lives is evicted, replaced or brought back for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from amnesiad import wire
from amnesiad.core import clocks, decisions, intake
from amnesiad.core.callers import Caller, address
from amnesiad.core.errors import AmnesiaError, Forbidden, Invalid
from amnesiad.core.events import (
    HUMAN,
    SYSTEM,
    AnyNoteEvent,
    Expired,
    Mirrored,
    Promoted,
    Restored,
    StaleFlagged,
    event_type,
)
from amnesiad.core.notes import Note, Words, apply
from amnesiad.errors import Conflict
from amnesiad.service.transfer import shapes
from amnesiad.service.transfer.exporting import is_over
from amnesiad.service.writing.change import new_note_id
from amnesiad.service.writing.remembering import Remembering
from amnesiad.store import vault
from amnesiad.store.keyring import Keyring
from amnesiad.store.log import START, Unit
from amnesiad.store.owners import (
    NO_OWNER,
    Owner,
    decode_owner,
    expect_open,
    read_owner,
    reopened,
    set_owner,
)
from amnesiad.store.units import Builder
from amnesiad.wire.lines import NOT_IN_LINES, Header, NoteLine, OwnerLine
from amnesiad.workspace import Workspace

MAX_ATTEMPTS: Final = 24
"""Tries before a note that others keep moving is reported as a conflict."""
MAX_PROBLEMS: Final = 1000
"""Problems and notices an import lists; those beyond it are lines that are neither imported nor skipped."""
MAX_OWNERS: Final = 100_000
"""Owners that the lines of one import may tell of: all sessions and agents of a busy machine's year."""


class Taken(NamedTuple):
    """What one line amounts to: a unit to write, its note, and every note after it with its words if it keeps them."""

    unit: Unit
    note: Note
    results: list[tuple[Note, Words | None]]
    erased: bool = False


@dataclass(slots=True)
class Item:
    """One note to take in, from the line ``number``: a whole note of an export, or the plain form."""

    number: int
    source: NoteLine | dict[str, msgspec.Raw]


@dataclass(slots=True)
class Run:
    """One import under way."""

    request: wire.ImportRequest
    caller: Caller
    workspace: Workspace
    number: int = 0
    imported: int = 0
    skipped: int = 0
    problems: list[wire.ImportProblem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    waiting: list[Item] = field(default_factory=list)
    waiting_bytes: int = 0
    parts: list[NoteLine] = field(default_factory=list)
    owners: dict[str, OwnerLine] = field(default_factory=dict)
    header: Header | None = None
    notes: int = 0
    bad: int = 0
    """Lines since the header that could not be read; any of them may have been a note."""
    position: str = START
    held: set[str] = field(default_factory=set)
    """Ids that a dry run has counted; a real one finds them in the store."""

    def problem(self, number: int, error: AmnesiaError) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(wire.ImportProblem(line=number, code=error.code, message=error.message))


class Arriving(Remembering):
    """What becomes of one line of an import."""

    async def decide(self, run: Run, item: Item, stand: vault.Found) -> Taken | None:
        """What the line changes, or ``None`` where all of it is known. Raises what is wrong with it.

        By one policy from limit to unit: where another took its place in between, the line is decided anew.
        """
        while True:
            policy = run.workspace.policy_version
            if isinstance(item.source, NoteLine):
                taken = await self._decide_note(run, item, item.source, stand)
            else:
                taken = await self._decide_plain(run, item, item.source)
            if taken is None or run.workspace.policy_version == policy:
                return taken

    async def _decide_note(self, run: Run, item: Item, line: NoteLine, stand: vault.Found) -> Taken | None:
        now, workspace = self.clock.now_ms(), run.workspace
        note = shapes.check_note(line, workspace.policy.max_item_bytes, now)
        words = None if shapes.ends_forgotten(line) else line.words
        if line.id in run.held:
            return None
        if stand.place is not None:
            return await self._decide_known(run, item, line, note, stand)
        self._check_writer(run.caller, note, line.events)
        if words is None and not is_over(note, workspace, now):
            raise Invalid(f"the words of note {line.id} are missing", field="words")
        await self._guard(run, item, words, line.events)
        return await self._unit(run, line.events, words, line.content_hash)

    def _check_writer(self, caller: Caller, note: Note, events: Sequence[AnyNoteEvent]) -> None:
        """An agent takes in what it could have written: its own owners' notes, and nothing in anybody else's name."""
        if caller.role == "human":
            return
        for event in events:
            _check_actor(caller, event)
        address(caller, note.scope, note.owner)
        if note.provenance == "human" or (note.provenance == "user-stated" and not caller.on_behalf):
            raise Forbidden(
                f"note {note.id} is {note.provenance}: an agent may not bring it in",
                rule="provenance",
                hint="run the import as a human, in a terminal",
            )

    async def _decide_known(self, run: Run, item: Item, line: NoteLine, note: Note, stand: vault.Found) -> Taken | None:
        """A note whose id is here already: known, further on in the file than here, or another note altogether."""
        words = None if shapes.ends_forgotten(line) else line.words
        place = stand.place
        if isinstance(place, vault.Unreadable) or place is None:
            raise Conflict(f"note {line.id} is here and cannot be read", hint="amnesia verify tells more")
        here = place.note if isinstance(place, vault.Head) else place.tomb.note
        if here == note:
            return None
        entries = await run.workspace.log.history(place.seq, shapes.MAX_EVENTS)
        ours = tuple(entry.event for entry in reversed(entries))
        if ours[: len(line.events)] == line.events:
            return None
        if line.events[: len(ours)] != ours:
            raise Conflict(f"note {line.id} has another history here", field="id", hint="it stays as it is")
        if run.caller.role != "human":
            raise Forbidden(
                f"note {line.id} goes on in the file: only a human may let it go on here", rule="provenance"
            )
        fresh = line.events[len(ours) :]
        await self._guard(run, item, words, fresh)
        if isinstance(place, vault.Grave):
            return self._further_grave(run, place, [event for event in fresh if isinstance(event, Restored | Mirrored)])
        return await self._unit(run, fresh, words, None, before=place.note, old_words=stand.words)

    def _further_grave(self, run: Run, grave: vault.Grave, events: Sequence[Restored | Mirrored]) -> Taken:
        builder = self._builder(run.workspace)
        note = grave.tomb.note
        builder.retomb(grave.tomb, events, now=self.clock.now_ms())
        for event in events:
            note = apply(note, event)
        return Taken(builder.build(), note, [])

    async def _decide_plain(self, run: Run, item: Item, source: dict[str, msgspec.Raw]) -> Taken | None:
        now, workspace = self.clock.now_ms(), run.workspace
        fields = dict(source)
        stated = fields.pop("created_at", None)
        at = now if stated is None else shapes.stated_date(stated, "created_at", now)
        request = _as_remember(run.request, fields)
        scope, owner = address(run.caller, request.scope, request.owner)
        words = await self._words(request, request.content)
        intake.check_content(words.content, workspace.policy.max_item_bytes)
        kind = request.kind or workspace.policy.default_kind
        identity = (scope, owner or "", kind, str(at), words.content)
        note_id = _known_id(self.keyring, *identity) if stated is not None else new_note_id()
        if note_id in run.held or (stated is not None and await self._was_used(run, note_id)):
            return None
        holder = workspace.holder_of_text((scope, owner, kind, words.content))
        if holder is not None and _lives(workspace, holder, now):
            return None
        draft = decisions.Draft(
            id=note_id,
            kind=kind,
            words=words,
            scope=scope,
            owner=owner,
            incarnation=None if owner is None else await self._life(run, owner, 1),
            provenance=request.provenance,
            ttl_ms=request.ttl_ms,
            expires_at=request.expires_at,
            curve=request.curve,
            pinned=request.pinned,
            source_ref=request.source_ref,
        )
        created = decisions.create(draft, run.caller, workspace.policy, at)
        await self._guard(run, item, words, [created])
        return await self._unit(run, [created], words, None)

    async def _was_used(self, run: Run, note_id: str) -> bool:
        (stand,) = await vault.find_many(self.redis, run.workspace.keys, [note_id])
        return stand.place is not None

    async def _unit(
        self,
        run: Run,
        events: Sequence[AnyNoteEvent],
        words: Words | None,
        content_hash: str | None,
        *,
        before: Note | None = None,
        old_words: Words | None = None,
    ) -> Taken:
        """The unit that brings these events in, and with them whatever time owes the note by now."""
        workspace, now = run.workspace, self.clock.now_ms()
        note = before
        for event in events:
            note = apply(note, event)
        if note is None:
            raise Invalid("the note has no events", field="events")
        owed = clocks.due_events(note, workspace.policy, now)
        after = clocks.settle(note, workspace.policy, now)
        gone = after.state == "forgotten"
        owner = None if gone else after.owner
        if owner is not None:
            await self._life(run, owner, after.incarnation or 1)
        builder = self._builder(workspace)  # by the policy of this moment, not of one before the wait
        if owner is not None:
            expect_open(builder.unit, owner, workspace.owners[owner])
        builder.change(before, [*events, *owed], old_words, words, content_hash=content_hash)
        results = [(after, None if gone else words or old_words)]
        if after.live and (said := words or old_words) is not None:
            results += _make_free(builder, workspace, after, said, now)
        return Taken(builder.build(), after, results, erased=gone and before is not None)

    def _builder(self, workspace: Workspace) -> Builder:
        return Builder(workspace.keys, self.keyring, workspace.policy, workspace.policy_version)

    async def _guard(self, run: Run, item: Item, words: Words | None, events: Sequence[AnyNoteEvent]) -> None:
        """What the secret guard has to say about a line's words and ids: a notice, or a refusal.

        A line that is decided anew, because the policy moved too, is judged anew; what is told of it, is told once.
        """
        ids = {f"events[{at}].{name}": value for at, event in enumerate(events) for name, value in _ids_of(event)}
        for notice in await self.guard(run.workspace, words, ids=ids):
            told = f"line {item.number}: {notice}"
            if len(run.notices) < MAX_PROBLEMS and told not in run.notices:
                run.notices.append(told)

    # -- owners --------------------------------------------------------------------------------------------------

    async def _life(self, run: Run, owner: str, incarnation: int) -> int:
        """Make sure the owner's cell stands and reaches this incarnation; returns the one it is in.

        An owner nobody here has heard of comes as the file has it. One that is closed here opens again, in a life of
        its own, unless the file says that its notes outlived it.
        """
        workspace, now = run.workspace, self.clock.now_ms()
        for _ in range(MAX_ATTEMPTS):
            known = workspace.owners.get(owner)
            if known is None:
                known = workspace.owners[owner] = await read_owner(self.redis, workspace.keys, owner)
            new = _next_life(known, run.owners.get(owner), incarnation, now)
            if new is None:
                return known.incarnation
            if run.request.dry_run:
                workspace.owners[owner] = new
                return new.incarnation
            unit = Unit()
            set_owner(unit, workspace.keys, owner, known, new, now)
            if not new.open:
                # Its notes outlive it on purpose: among the leases it would be ended once more.
                unit.sets.clear()
            outcome = await workspace.log.commit(unit)
            if outcome.status in ("ok", "own"):
                workspace.owners[owner] = new
            else:
                workspace.owners[owner] = decode_owner(outcome.current)
        raise Conflict(f"the owner {owner} kept moving", hint="try again")


def _check_actor(caller: Caller, event: AnyNoteEvent) -> None:
    """May an agent bring this event in? Raises ``Forbidden`` for one in a human's name, in its user's without the
    declaration, or in the system's where no pass writes it. A forgetting in the system's name is refused too: nothing
    of the note is left by which it could be told from a forged one."""
    if event.actor == HUMAN:
        said_by = "a human"
    elif event.on_behalf and not caller.on_behalf:
        said_by = "an agent for its user"
    elif event.actor == SYSTEM and not _from_a_pass(event):
        said_by = "amnesiad itself"
    else:
        return
    raise Forbidden(
        f"note {event.note} was {event_type(event).replace('_', ' ')} by {said_by}: an agent may not bring that in",
        rule="provenance",
        hint="run the import as a human, in a terminal",
    )


def _from_a_pass(event: AnyNoteEvent) -> bool:
    match event:
        case Expired(reason=reason):
            return reason != "completed"
        case StaleFlagged(cause=cause):
            return cause != "distrusted"
        case Promoted(provenance=provenance, scope=scope):
            return provenance is None and scope is None
    return False


def _ids_of(event: AnyNoteEvent) -> Iterator[tuple[str, str]]:
    """What of an event is somebody's id, or a pointer: it enters the log as it stands."""
    for name in ("actor", "owner", "author", "source_ref"):
        value = getattr(event, name, None)
        if value is not None:
            yield name, value.removeprefix("agent:")


def _next_life(known: Owner, line: OwnerLine | None, incarnation: int, now: int) -> Owner | None:
    """The owner's cell as an imported note needs it, or ``None`` where it will do as it is."""
    ended = line is not None and not line.open
    kind = None if line is None else line.agent_kind
    if known == NO_OWNER:
        life = max(incarnation, 0 if line is None else line.incarnation)
        if ended:
            return Owner(incarnation=life, open=False, closed_at=now, agent_kind=kind)
        return Owner(incarnation=life, open=True, opened_at=now, agent_kind=kind)
    if known.open or ended:
        if known.incarnation >= incarnation:
            return None
        return msgspec.structs.replace(known, incarnation=incarnation)
    again = reopened(known, now, agent_kind=kind)
    return msgspec.structs.replace(again, incarnation=max(again.incarnation, incarnation))


def _known_id(keyring: Keyring, *parts: str) -> str:
    """The id of a plain line that has a date of its own: always the same, so that it comes in once, ever.

    Keyed, so that nobody can test a guess of the text against the id.
    """
    number = int(keyring.digest("import", *parts), 16)
    return "".join(intake.NOTE_ID_ALPHABET[(number >> 5 * place) & 31] for place in range(intake.NOTE_ID_LENGTH))


def _lives(workspace: Workspace, note_id: str, now: int) -> bool:
    note = workspace.settled(note_id, now)
    return note is not None and note.live


def _make_free(
    builder: Builder, workspace: Workspace, note: Note, words: Words, now: int
) -> list[tuple[Note, Words | None]]:
    """A note that comes in live needs its text and slot free. A holder that time has ended gives way, in the same unit.

    Raises ``Conflict`` naming one that lives.
    """
    holders = {workspace.holder_of_text((note.scope, note.owner, note.kind, words.content)): "says the same as"}
    if words.key is not None:
        holders.setdefault(workspace.holder_of_slot((note.scope, note.owner, words.key)), "holds the slot of")
    changed: list[tuple[Note, Words | None]] = []
    for holder, how in holders.items():
        if holder is None or holder == note.id:
            continue
        if _lives(workspace, holder, now):
            raise Conflict(f"note {holder} {how} {note.id}, and lives", hint="it stays as it is")
        before, kept = workspace.notes[holder], workspace.words[holder]
        after = builder.change(before, clocks.due_events(before, workspace.policy, now), kept)
        if after is not None:
            changed.append((after, None if after.state == "forgotten" else kept))
    return changed


def _as_remember(request: wire.ImportRequest, fields: dict[str, msgspec.Raw]) -> wire.RememberRequest:
    """A plain line as the request it stands for. Raises ``Invalid`` for what an import does not do."""
    for name in NOT_IN_LINES:
        if name in fields:
            raise Invalid(f"{name} has no place in an import's line", field=name)
    body = {**fields, "workspace": request.workspace, "caller": request.caller}
    remember: wire.RememberRequest = wire.decode("remember", msgspec.json.encode(body))
    return remember
