"""A workspace as a stream of lines, out and in again: export, import.

Out: whoever asks gets what they may see; a human gets everything. In: notes come with their own ids, dates and whole
history, so that the fold is the same wherever they are taken in; what has run out meanwhile ends in the same unit of
work and is audited. A note that is known already is left alone, a history that contradicts ours is reported, and so is
every line that is wrong, by its number; nothing stops the lines after it. Nothing is evicted to make room.

The shapes of the lines and what of them is believed is ``lines``'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from amnesiad import wire
from amnesiad.core import clocks, decisions, intake
from amnesiad.core.callers import Caller, address, visible
from amnesiad.core.errors import AmnesiaError, Forbidden, Invalid, Refused, StoreFull
from amnesiad.core.events import AnyNoteEvent, PolicyChanged, Restored, Scrubbed
from amnesiad.core.notes import Note, Words, apply
from amnesiad.core.policy import apply_overrides, parse_setting
from amnesiad.core.times import parse_time
from amnesiad.errors import Conflict
from amnesiad.service import lines as shapes
from amnesiad.service.change import new_note_id
from amnesiad.service.governing import Governing
from amnesiad.service.lines import EndLine, FactLine, Header, NoteLine, OwnerLine, PolicyLine
from amnesiad.store import vault
from amnesiad.store.keyring import Keyring
from amnesiad.store.log import START, Entry, Outcome, Unit, at_or_past
from amnesiad.store.owners import (
    NO_OWNER,
    Owner,
    all_owners,
    decode_owner,
    expect_open,
    read_owner,
    reopened,
    set_owner,
)
from amnesiad.store.units import Builder
from amnesiad.workspace import Workspace

PAGE_NOTES: Final = 200
"""Notes taken in at once: they reach the store in one call, and deciding them holds the loop for some 20 ms."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Lines held at once, so that a stream of long notes costs no more memory than one of short ones."""
PAUSE_EVERY: Final = 50
"""Notes decided or written out without a pause; others wait no longer than a few milliseconds."""
MAX_ATTEMPTS: Final = 24
"""Tries before a note that others keep moving is reported as a conflict."""
MAX_PROBLEMS: Final = 1000
"""Problems and notices an import lists; those beyond it are lines that are neither imported nor skipped."""


class _Taken(NamedTuple):
    """What one line amounts to: a unit to write, its note, and every note after it with its words if it keeps them."""

    unit: Unit
    note: Note
    results: list[tuple[Note, Words | None]]
    erased: bool = False


@dataclass(slots=True)
class _Item:
    """One note to take in, from the line ``number``: a whole note of an export, or the plain form."""

    number: int
    source: NoteLine | dict[str, msgspec.Raw]
    size: int


@dataclass(slots=True)
class _Run:
    """One import under way."""

    request: wire.ImportRequest
    caller: Caller
    workspace: Workspace
    number: int = 0
    imported: int = 0
    skipped: int = 0
    problems: list[wire.ImportProblem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    waiting: list[_Item] = field(default_factory=list)
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


class Transfer(Governing):
    """The verbs that move whole workspaces."""

    # -- out -----------------------------------------------------------------------------------------------------

    async def export(self, request: wire.ExportRequest) -> AsyncIterator[bytes]:
        """Lines with everything that the caller may see, in the order of the log, up to its end as it stands now.

        ``after`` goes on behind a ``seq`` of an earlier export: every note that changed since comes, whole. Raises
        ``NotFound`` for an unknown workspace.
        """
        workspace = await self._known(request)
        caller, keys = request.caller.to_core(), workspace.keys
        mine = caller.owners
        through = await workspace.log.last_id()
        start = request.after or START
        yield shapes.encode_line(
            Header(
                format=shapes.FORMAT,
                workspace=workspace.name,
                through=through,
                key=self.keyring.fingerprint,
                at=self.clock.now_ms(),
                after=request.after,
            )
        )
        yield shapes.encode_line(PolicyLine(values=dict(workspace.overrides)))  # type: ignore[arg-type]
        for held in await all_owners(self.redis, keys):
            if caller.role == "human" or held.name in mine:
                yield shapes.encode_line(_owner_line(held.name, held.owner))
        moved: set[str] = set()
        count, position = 0, start
        while not at_or_past(position, through):
            page = [entry for entry in await workspace.log.read(position) if at_or_past(through, entry.seq)]
            if not page:
                break
            async for line in self._page(workspace, caller, page, through, moved):
                if isinstance(line, NoteLine):
                    count += 1
                    for part in shapes.note_lines(line):
                        yield part
                else:
                    yield shapes.encode_line(line)
            position = page[-1].seq
        yield shapes.encode_line(EndLine(through=through, notes=count))

    async def _page(
        self, workspace: Workspace, caller: Caller, page: Sequence[Entry], through: str, moved: set[str]
    ) -> AsyncIterator[NoteLine | FactLine]:
        """The lines of one page of the log: each note at its last event, or, if it moved on meanwhile, at its first."""
        seen: dict[str, list[Entry]] = {}
        for entry in page:
            if not isinstance(entry.event, PolicyChanged | Scrubbed):
                seen.setdefault(entry.event.note, []).append(entry)
        stands = await vault.find_many(self.redis, workspace.keys, list(seen))
        standing = dict(zip(seen, stands, strict=True))
        for index, entry in enumerate(page):
            if index % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            event = entry.event
            if isinstance(event, PolicyChanged | Scrubbed):
                yield FactLine(seq=entry.seq, event=event)
                continue
            place = standing[event.note].place
            if place is None or isinstance(place, vault.Unreadable):
                continue
            if not at_or_past(through, place.seq) and event.note not in moved:
                moved.add(event.note)
            elif place.seq != entry.seq:
                continue
            note = place.note if isinstance(place, vault.Head) else place.tomb.note
            if visible(note, caller, workspace.policy):
                entries = seen[event.note]
                if len(entries) < note.version or entries[-1].seq != place.seq:
                    entries = list(reversed(await workspace.log.history(place.seq, shapes.MAX_EVENTS)))
                yield self._note_line(workspace, entry.seq, entries, standing[event.note])

    def _note_line(self, workspace: Workspace, seq: str, entries: Sequence[Entry], found: vault.Found) -> NoteLine:
        events: tuple[AnyNoteEvent, ...] = tuple(entry.event for entry in entries)  # type: ignore[misc]
        place, words = found.place, found.words
        content_hash: str | None = None
        if isinstance(place, vault.Grave):
            words, content_hash = None, place.tomb.content_hash
        elif isinstance(place, vault.Head) and words and _is_over(place.note, workspace, self.clock.now_ms()):
            content_hash, words = self.keyring.content_hash(words.content), None
        return NoteLine(id=events[0].note, seq=seq, events=events, words=words, content_hash=content_hash)

    # -- in ------------------------------------------------------------------------------------------------------

    async def import_notes(self, request: wire.ImportRequest, lines: AsyncIterator[bytes]) -> wire.ImportAnswer:
        """Take in lines of an export, or plain ones (``content`` and what remember takes, and ``created_at``).

        Idempotent. ``dry_run`` decides everything the same way and writes nothing. Raises ``Invalid`` for an export of
        a newer format, ``Refused`` for a caller that keeps no notes; what is wrong with one line is a problem in the
        answer.
        """
        caller = request.caller.to_core()
        address(caller, None, None)
        run = _Run(request, caller, await self._desk(request))
        async for raw in lines:
            run.number += 1
            try:
                await self._take(run, raw)
            except AmnesiaError as error:
                if error.rule == "newer-format":
                    raise
                run.bad += 1
                run.problem(run.number, error)
            if len(run.waiting) >= PAGE_NOTES or sum(item.size for item in run.waiting) > PAGE_BYTES:
                await self._flush(run)
        await self._flush(run)
        if run.header is not None or run.parts:
            run.problem(run.number, _cut_off())
        return wire.ImportAnswer(
            lines=run.number,
            imported=run.imported,
            skipped=run.skipped,
            problems=tuple(sorted(run.problems, key=lambda problem: problem.line)),
            notices=tuple(run.notices),
        )

    async def _desk(self, request: wire.ImportRequest) -> Workspace:
        """The projection to decide against. A dry run gets one of its own, which it may change as it likes."""
        workspace = await self.open(request.workspace, create=not request.dry_run)
        if workspace is not None:
            await self.follow(workspace)
            if not request.dry_run:
                return workspace
        draft = Workspace(
            request.workspace,
            "-" if workspace is None else workspace.ws,
            self.redis,
            self.keyring,
            self.settings.policy,
        )
        if workspace is not None:
            await draft.load()
        return draft

    async def _take(self, run: _Run, raw: bytes) -> None:
        line = shapes.read_line(raw)
        if run.parts and not (isinstance(line, NoteLine) and line.id == run.parts[0].id):
            run.parts.clear()
            # Before another header it is no loss: what that one resumes behind lies before this note.
            if not isinstance(line, Header):
                run.problem(run.number - 1, _cut_off())
        match line:
            case dict():
                run.waiting.append(_Item(run.number, line, len(raw)))
            case Header():
                if line.format > shapes.FORMAT:
                    raise Refused(
                        f"the export has format {line.format}, this version reads up to {shapes.FORMAT}",
                        rule="newer-format",
                        hint="import it with the version that made it, or a newer one",
                    )
                if run.header is not None and not at_or_past(run.position, line.after or START):
                    run.problem(run.number, _cut_off())
                run.header, run.notes, run.bad, run.position = line, 0, 0, line.after or START
            case PolicyLine():
                await self._flush(run)
                await self._take_policy(run, line.values)
            case OwnerLine():
                intake.check_owner(line.owner)
                shapes.check_incarnation(line.incarnation, "incarnation")
                run.owners[line.owner] = line
            case NoteLine():
                run.parts.append(line)
                if sum(len(part.events) for part in run.parts) > shapes.MAX_EVENTS:
                    run.parts.clear()
                    raise Invalid(f"a note of more than {shapes.MAX_EVENTS} events is not taken in", field="events")
                if not line.more:
                    whole = shapes.joined(run.parts)
                    run.parts.clear()
                    run.notes += 1
                    run.position = line.seq or run.position
                    if run.header is None or run.header.key != self.keyring.fingerprint:
                        # A hash under another key would match nothing here, and tell nobody anything.
                        whole = msgspec.structs.replace(whole, content_hash=None)
                    run.waiting.append(_Item(run.number, whole, len(raw)))
            case EndLine():
                if run.header is not None and run.notes + run.bad < line.notes:
                    run.problem(run.number, _cut_off(f"{run.notes} notes of {line.notes} are here"))
                run.header = None
            case FactLine():
                run.position = line.seq

    async def _take_policy(self, run: _Run, values: Mapping[str, shapes.Scalar]) -> None:
        """Overrides that this workspace has no say of its own about; where it has, a different one is a conflict."""
        fresh: dict[str, Any] = {}
        for name, value in values.items():
            canonical = parse_setting(name, value)
            if name not in run.workspace.overrides:
                fresh[name] = canonical
            elif run.workspace.overrides[name] != canonical:
                run.problem(run.number, Conflict(f"{name} is set to something else here, and stays so", field=name))
        if not fresh:
            return
        if run.request.dry_run:
            run.workspace.overrides |= fresh
            run.workspace.policy = apply_overrides(run.workspace.base, run.workspace.overrides)
            return
        asked = wire.PolicyRequest(workspace=run.request.workspace, caller=run.request.caller, set=fresh)
        await self._change_policy(asked)

    async def _flush(self, run: _Run) -> None:
        """Decide and write what is waiting. One call takes the whole page; what conflicts is then tried one by one."""
        items, run.waiting = run.waiting, []
        if not items:
            return
        stands = await self._stands(run, items)
        taken: list[tuple[_Item, _Taken]] = []
        for index, (item, stand) in enumerate(zip(items, stands, strict=True)):
            if index % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            try:
                decided = await self._decide(run, item, stand)
            except AmnesiaError as error:
                run.problem(item.number, error)
                continue
            if decided is None:
                run.skipped += 1
            elif run.request.dry_run:
                self._count(run, decided, Outcome("own", "", "", "", b""))
            else:
                taken.append((item, decided))
        outcomes = await asyncio.gather(*(run.workspace.log.commit(decided.unit) for _, decided in taken))
        again = []
        for (item, decided), outcome in zip(taken, outcomes, strict=True):
            if outcome.status in ("ok", "own"):
                self._count(run, decided, outcome)
            else:
                again.append((item, outcome))
        for item, outcome in again:
            await self._retry(run, item, outcome)

    async def _stands(self, run: _Run, items: Iterable[_Item]) -> list[vault.Found]:
        ids = [item.source.id if isinstance(item.source, NoteLine) else "" for item in items]
        return await vault.find_many(self.redis, run.workspace.keys, ids)

    async def _retry(self, run: _Run, item: _Item, outcome: Outcome) -> None:
        """A line whose unit lost against another writer, or against a line before it, is decided anew."""
        for attempt in range(MAX_ATTEMPTS):
            if outcome.status == "full" and attempt > 0:
                run.problem(item.number, StoreFull(f"the workspace is full: {outcome.detail}"))
                return
            run.workspace = await self._after_conflict(run.workspace, outcome.detail, outcome.current)
            (stand,) = await self._stands(run, [item])
            try:
                decided = await self._decide(run, item, stand)
            except AmnesiaError as error:
                run.problem(item.number, error)
                return
            if decided is None:
                run.skipped += 1
                return
            outcome = await run.workspace.log.commit(decided.unit)
            if outcome.status in ("ok", "own"):
                self._count(run, decided, outcome)
                return
        run.problem(item.number, Conflict("others kept writing the same note, slot or text"))

    def _count(self, run: _Run, taken: _Taken, outcome: Outcome) -> None:
        run.imported += 1
        run.workspace.absorb(outcome, taken.results)
        if run.request.dry_run:
            run.held.add(taken.note.id)
            return
        if taken.erased or any(note.state == "forgotten" for note, _ in taken.results[1:]):
            self.background(self.jobs.scrub())
        if (due := run.workspace.due.get(taken.note.id)) is not None:
            self.jobs.due(run.workspace.ws, due)

    # -- one note ------------------------------------------------------------------------------------------------

    async def _decide(self, run: _Run, item: _Item, stand: vault.Found) -> _Taken | None:
        """What the line changes, or ``None`` where all of it is known. Raises what is wrong with it."""
        if isinstance(item.source, NoteLine):
            return await self._decide_note(run, item, item.source, stand)
        return await self._decide_plain(run, item, item.source)

    async def _decide_note(self, run: _Run, item: _Item, line: NoteLine, stand: vault.Found) -> _Taken | None:
        now, workspace = self.clock.now_ms(), run.workspace
        note = shapes.check_note(line, workspace.policy.max_item_bytes, now)
        words = None if shapes.ends_forgotten(line) else line.words
        if line.id in run.held:
            return None
        if stand.place is not None:
            return await self._decide_known(run, line, note, words, stand)
        self._check_writer(run.caller, note)
        if words is None and not _is_over(note, workspace, now):
            raise Invalid(f"the words of note {line.id} are missing", field="words")
        await self._guard(run, item, words)
        return await self._unit(run, line.events, words, line.content_hash)

    def _check_writer(self, caller: Caller, note: Note) -> None:
        """An agent takes in what it could have written: its own owners' notes, and nothing in a human's name."""
        if caller.role == "human":
            return
        address(caller, note.scope, note.owner)
        if note.provenance == "human" or (note.provenance == "user-stated" and not caller.on_behalf):
            raise Forbidden(
                f"note {note.id} is {note.provenance}: an agent may not bring it in",
                rule="provenance",
                hint="run the import as a human, in a terminal",
            )

    async def _decide_known(
        self, run: _Run, line: NoteLine, note: Note, words: Words | None, stand: vault.Found
    ) -> _Taken | None:
        """A note whose id is here already: known, further on in the file than here, or another note altogether."""
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
        if isinstance(place, vault.Grave):
            return self._further_grave(run, place, [event for event in fresh if isinstance(event, Restored)])
        return await self._unit(run, fresh, words, None, before=place.note, old_words=stand.words)

    def _further_grave(self, run: _Run, grave: vault.Grave, events: Sequence[Restored]) -> _Taken:
        builder = self._builder(run.workspace)
        note = grave.tomb.note
        builder.retomb(note, grave.tomb, events)
        for event in events:
            note = apply(note, event)
        return _Taken(builder.build(), note, [])

    async def _decide_plain(self, run: _Run, item: _Item, source: dict[str, msgspec.Raw]) -> _Taken | None:
        now, workspace = self.clock.now_ms(), run.workspace
        fields = dict(source)
        stated = fields.pop("created_at", None)
        at = now
        if stated is not None:
            at = shapes.check_date(parse_time(msgspec.json.decode(stated), field="created_at"), "created_at", now)
        request = _as_remember(run.request, fields)
        scope, owner = address(run.caller, request.scope, request.owner)
        words = await self._words(request, request.content)
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
            ttl_ms=_lease(request, at),
            curve=request.curve,
            pinned=request.pinned,
            source_ref=request.source_ref,
        )
        created = decisions.create(draft, run.caller, workspace.policy, at)
        await self._guard(run, item, words)
        return await self._unit(run, [created], words, None)

    async def _was_used(self, run: _Run, note_id: str) -> bool:
        (stand,) = await vault.find_many(self.redis, run.workspace.keys, [note_id])
        return stand.place is not None

    async def _unit(
        self,
        run: _Run,
        events: Sequence[AnyNoteEvent],
        words: Words | None,
        content_hash: str | None,
        *,
        before: Note | None = None,
        old_words: Words | None = None,
    ) -> _Taken:
        """The unit that brings these events in, and with them whatever time owes the note by now."""
        workspace, now = run.workspace, self.clock.now_ms()
        note = before
        for event in events:
            note = apply(note, event)
        if note is None:
            raise Invalid("the note has no events", field="events")
        owed = clocks.due_events(note, workspace.policy, now)
        after = clocks.settle(note, workspace.policy, now)
        if after.owner is not None and after.state != "forgotten":
            await self._life(run, after.owner, after.incarnation or 1)
        builder = self._builder(workspace)
        if after.owner is not None and after.state != "forgotten":
            expect_open(builder.unit, after.owner, workspace.owners[after.owner])
        builder.change(before, [*events, *owed], old_words, words, content_hash=content_hash)
        gone = after.state == "forgotten"
        results = [(after, None if gone else words or old_words)]
        if after.live and (said := words or old_words) is not None:
            results += _make_free(builder, workspace, after, said, now)
        return _Taken(builder.build(), after, results, erased=gone and before is not None)

    def _builder(self, workspace: Workspace) -> Builder:
        return Builder(workspace.keys, self.keyring, workspace.policy, workspace.policy_version)

    async def _guard(self, run: _Run, item: _Item, words: Words | None) -> None:
        """What the secret guard has to say about a line's words: a notice, or a refusal."""
        if words is None:
            return
        for notice in await self.guard(run.workspace.policy, words):
            if len(run.notices) < MAX_PROBLEMS:
                run.notices.append(f"line {item.number}: {notice}")

    # -- owners --------------------------------------------------------------------------------------------------

    async def _life(self, run: _Run, owner: str, incarnation: int) -> int:
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


def _owner_line(name: str, owner: Owner) -> OwnerLine:
    kind: Any = owner.agent_kind
    return OwnerLine(owner=name, incarnation=owner.incarnation, open=owner.open, agent_kind=kind)


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
    number = int(keyring.content_hash("\x00".join(("import", *parts))), 16)
    return "".join(intake.NOTE_ID_ALPHABET[(number >> 5 * place) & 31] for place in range(intake.NOTE_ID_LENGTH))


def _is_over(note: Note, workspace: Workspace, now: int) -> bool:
    """Whether time has erased it, be it that no pass has run yet: its words go nowhere any more."""
    return clocks.settle(note, workspace.policy, now).state == "forgotten"


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
    for name in ("workspace", "caller", "after", "request_id", "supersedes"):
        if name in fields:
            raise Invalid(f"{name} has no place in an import's line", field=name)
    body = {**fields, "workspace": request.workspace, "caller": request.caller}
    remember: wire.RememberRequest = wire.decode("remember", msgspec.json.encode(body))
    return remember


def _lease(request: wire.RememberRequest, created_at: int) -> int | msgspec.UnsetType | None:
    """The TTL counted from the note's own date: what ran out long ago is taken in as having run out."""
    if request.expires_at is None:
        return request.ttl_ms
    if request.ttl_ms is not msgspec.UNSET and request.ttl_ms is not None:
        raise Invalid("give either ttl_ms or expires_at", field="expires_at")
    if request.expires_at <= created_at:
        raise Invalid("expires_at lies before the note begins", field="expires_at")
    return request.expires_at - created_at


def _cut_off(detail: str = "its closing line is missing") -> Refused:
    return Refused(f"the export was cut off: {detail}", rule="cut-off", hint="export again, or resume the export")
