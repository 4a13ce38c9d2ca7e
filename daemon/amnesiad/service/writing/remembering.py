"""Writing words: remember, supersede, edit, restore. Everything that brings text into the vault is here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

import msgspec

from amnesiad import anchors, wire
from amnesiad.core import clocks, decisions, intake
from amnesiad.core.callers import Caller, address, visible
from amnesiad.core.errors import IllegalTransition, Invalid, NotFound, Refused
from amnesiad.core.events import AnyNoteEvent, Scope
from amnesiad.core.kinds import Kind
from amnesiad.core.notes import Anchor, Note, Words
from amnesiad.errors import Conflict
from amnesiad.service.reading.answers import changed
from amnesiad.service.writing import similarity
from amnesiad.service.writing.change import Change, new_note_id
from amnesiad.service.writing.guarding import MAX_ITEM_BYTES, Guarding
from amnesiad.service.writing.loop import A, Decide
from amnesiad.store import vault
from amnesiad.store.units import left_of
from amnesiad.workspace import Workspace

REREADS: Final = 24
"""Times that what a decision was made from is read again because the note moved meanwhile."""


_OF_A_NEW_NOTE: Final = tuple(
    field for field in msgspec.structs.fields(wire.NewNote) if field.name not in wire.Write.__struct_fields__
)


class NoteMoved(Exception):
    """What a decision was made from is not the note's any more."""


class Remembering(Guarding):
    """The verbs that write words."""

    async def remember(self, request: wire.RememberRequest) -> wire.RememberAnswer:
        """Write a note, or return the live one that says the same. ``supersedes`` and a taken ``key`` replace notes."""
        caller = request.caller.to_core()
        scope, owner = self._address(request, caller)
        words = await self._words(request, request.content)
        replaced = None
        if request.supersedes is not None:
            replaced = await self._existing(request.workspace, caller, request.supersedes, "supersedes")

        def decide(workspace: Workspace, change: Change) -> wire.RememberAnswer:
            kind = request.kind or change.policy.default_kind
            echoed = similarity.echo_of(workspace, caller, change.now, words.content)
            if echoed is not None:
                _check_echo(change, echoed, words.key)
                ended = self._end_for(workspace, change, caller, echoed, [replaced])
                return _remembered(change, change.settled(echoed.id), created=False, superseded=ended)
            existing = change.holder_of_text((scope, owner, kind, words.content))
            if existing is not None and _stands_for(change, existing, caller, words.key):
                change.add(existing.id, _restated(change, existing, caller, request))
                ended = self._end_for(workspace, change, caller, existing, [replaced])
                return _remembered(change, change.settled(existing.id), created=False, superseded=ended)
            # A text that lives without the key gives way to one that carries it: else the slot would stand empty. So
            # does one of an ended life of its owner, whose end may still be on its way to it.
            ends = (replaced, None if existing is None else existing.id)
            note, superseded = self._write(workspace, change, caller, request, words, kind, scope, owner, ends)
            warnings = similarity.warnings(workspace, caller, change.now, words.content, exclude=superseded)
            return _remembered(change, note, created=True, superseded=superseded, warnings=warnings)

        owners = (owner,) if owner else ()
        return await self.write(request, wire.RememberAnswer, decide, owners=owners, words=words)

    async def supersede(self, request: wire.SupersedeRequest) -> wire.SupersedeAnswer:
        """Replace a note by an existing one (``by``) or by new ``content``, in one unit."""
        caller = request.caller.to_core()
        if (request.by is None) == (request.content is None):
            raise Invalid("give either by or content", field="by" if request.by else "content")
        lost = [field.name for field in _OF_A_NEW_NOTE if getattr(request, field.name) != field.default]
        if request.by is not None and lost:
            what = f"{lost[0]} is of a new note, and by names one that is there"
            raise Invalid(what, field=lost[0], hint="edit that one, or give content in place of by")
        old_id = await self._existing(request.workspace, caller, request.id, "id")
        reason = None if request.reason is None else intake.check_reason(request.reason)
        if request.content is None:
            by_id = await self._existing(request.workspace, caller, cast(str, request.by), "by")
            by = self._supersede_by(caller, old_id, by_id, reason)
            return await self._write_about(request, caller, old_id, wire.SupersedeAnswer, by)
        content = request.content
        words = await self._words(request, content)

        def decide(workspace: Workspace, change: Change) -> wire.SupersedeAnswer:
            old = self.addressed(workspace, caller, old_id, change)
            wanted: Scope = request.scope or old.scope
            scope, owner = address(caller, wanted, request.owner or (old.owner if wanted == old.scope else None))
            kind = request.kind or old.kind
            inherited = words
            if old.live and words.key is None and change.words(old_id).key is not None:
                inherited = msgspec.structs.replace(words, key=change.words(old_id).key)
            echoed = similarity.echo_of(workspace, caller, change.now, content)
            if echoed is not None:
                _check_echo(change, echoed, words.key)
            existing = echoed or change.holder_of_text((scope, owner, kind, content))
            if existing is not None and existing.id == old_id:
                raise Refused(f"note {old_id} says exactly that already", rule="supersede-itself", field="content")
            # A slot that is merely inherited costs the text that lives no slot of its own.
            slot = words.key or (None if existing and change.words(existing.id).key else inherited.key)
            if existing is not None and (echoed or _stands_for(change, existing, caller, slot)):
                if echoed is None:
                    change.add(existing.id, _restated(change, existing, caller, request))
                return self._supersede_by(caller, old_id, existing.id, reason)(workspace, change)
            ends = (old_id, None if existing is None else existing.id)
            note, ended = self._write(workspace, change, caller, request, inherited, kind, scope, owner, ends, reason)
            warnings = similarity.warnings(workspace, caller, change.now, content, exclude=ended)
            return wire.SupersedeAnswer(changed=True, id=old_id, by=note.id, warnings=warnings, seq="")

        owners = [owner for owner in (*caller.owners, request.owner) if owner]
        workspace = await self.open(request.workspace, create=False)
        if workspace is not None and (old := workspace.notes.get(old_id)) is not None and old.owner:
            owners.append(old.owner)
        names = tuple(dict.fromkeys(owners))
        return await self._write_about(request, caller, old_id, wire.SupersedeAnswer, decide, owners=names, words=words)

    def _supersede_by(
        self, caller: Caller, old_id: str, by_id: str, reason: str | None
    ) -> Decide[wire.SupersedeAnswer]:
        def decide(workspace: Workspace, change: Change) -> wire.SupersedeAnswer:
            old = self.addressed(workspace, caller, old_id, change)
            by = self.addressed(workspace, caller, by_id, change)
            events = decisions.supersede(
                old, by, caller, change.now, reason=reason, successor=lambda id_: _successor(workspace, id_)
            )
            change.add(old_id, events, reason=reason)
            return wire.SupersedeAnswer(changed=bool(events), id=old_id, by=by_id, seq="")

        return decide

    async def edit(self, request: wire.EditRequest) -> wire.EditAnswer:
        """Change tags, anchors, triggers or TTL in place. Content is changed by ``supersede``."""
        caller = request.caller.to_core()
        note_id = await self._existing(request.workspace, caller, request.id, "id")
        reason = None if request.reason is None else intake.check_reason(request.reason)
        hashed: tuple[Anchor, ...] | None = None
        if request.anchors is not msgspec.UNSET:
            paths = intake.check_anchors(request.anchors)
            hashed = await anchors.hash_files(request.workspace, paths)

        def decide(workspace: Workspace, change: Change) -> wire.EditAnswer:
            note = self.addressed(workspace, caller, note_id, change)
            before = change.words(note_id) if note.state != "forgotten" else Words(content="")
            after = before
            if request.tags is not msgspec.UNSET:
                after = msgspec.structs.replace(after, tags=intake.check_tags(request.tags))
            if hashed is not None:
                after = msgspec.structs.replace(after, anchors=hashed)
            if request.triggers is not msgspec.UNSET:
                triggers = intake.check_triggers([trigger.to_core() for trigger in request.triggers])
                after = msgspec.structs.replace(after, triggers=triggers)
            events = decisions.edit(
                note, caller, change.now, before=before, after=after, ttl_ms=request.ttl_ms, reason=reason
            )
            note = change.add(note_id, events, words=after, reason=reason)
            return changed(change, note, wire.EditAnswer, bool(events))

        words = _edited(request, hashed)
        return await self._write_about(request, caller, note_id, wire.EditAnswer, decide, words=words)

    async def restore(self, request: wire.RestoreRequest) -> wire.RestoreAnswer:
        """Plug a forgotten note's kept copy in again: a new note, a new id, a new TTL, ``restored_from`` the old."""
        caller = request.caller.to_core()
        workspace = await self.caught_up(request.workspace)
        if workspace is None:
            raise NotFound(f"there is no note {request.id}", field="id", hint="amnesia list shows what there is")
        note_id = await self.address(workspace, caller, request.id)
        reason = None if request.reason is None else intake.check_reason(request.reason)
        for _ in range(REREADS):
            (grave,) = await vault.tombs(self.redis, workspace.keys, [note_id])
            owner = None if grave is None else grave.tomb.note.owner
            decide = self._restored(caller, note_id, grave, reason)
            try:
                return await self.write(request, wire.RestoreAnswer, decide, owners=(owner,) if owner else ())
            except NoteMoved:
                continue
        raise Conflict(f"note {note_id} kept changing", field="id", hint="try again")

    def _restored(
        self, caller: Caller, note_id: str, grave: vault.Grave | None, reason: str | None
    ) -> Decide[wire.RestoreAnswer]:
        """The decision made from a tomb as it was read, once: where its unit conflicts, it raises ``NoteMoved``."""
        decided = False

        def decide(workspace: Workspace, change: Change) -> wire.RestoreAnswer:
            nonlocal decided
            if decided:
                raise NoteMoved
            decided = True
            if grave is None:
                decisions.restore(
                    self.addressed(workspace, caller, note_id, change), caller, change.now, to="", kept=False
                )
                raise NotFound(f"there is no note {note_id}", field="id")
            old = grave.tomb.note
            if not visible(old, caller, change.policy):
                raise NotFound(f"there is no note {note_id}", field="id")
            new_id = new_note_id()
            # A copy that merely waits to be purged counts as gone.
            copy = left_of(grave.tomb, change.policy, change.now).kept
            events = decisions.restore(old, caller, change.now, to=new_id, kept=copy is not None, reason=reason)
            words = msgspec.structs.replace(cast(Words, copy), reasons={})
            if change.holder_of_text((old.scope, old.owner, old.kind, words.content)) is not None:
                raise Refused(f"what note {note_id} said lives already", rule="restore-duplicate", hint="nothing to do")
            holder = None if words.key is None else change.holder_of_slot((old.scope, old.owner, words.key))
            if holder is not None:
                raise Refused(
                    f"the slot of note {note_id} is held by note {holder.id}", rule="restore-slot", choices=(holder.id,)
                )
            incarnation = None if old.owner is None else change.own(old.owner, None)
            draft = decisions.Draft(
                id=new_id,
                kind=old.kind,
                words=words,
                scope=old.scope,
                owner=old.owner,
                incarnation=incarnation,
                provenance=old.provenance,
                curve=old.curve,
                source_ref=old.source_ref,
                restored_from=old.id,
            )
            born = decisions.create(draft, caller, change.policy, change.now)
            change.born(born, words)
            change.builder.retomb(grave.tomb, events, now=change.now)
            return wire.RestoreAnswer(id=new_id, restored_from=old.id, seq="")

        return decide

    # -- parts ---------------------------------------------------------------------------------------------------

    def _address(self, request: wire.NewNote, caller: Caller) -> tuple[Scope, str | None]:
        with self.counting_refusals(request.workspace):
            return address(caller, request.scope, request.owner)

    async def _existing(self, name: str, caller: Caller, text: str, field: str) -> str:
        """The full id that an id or prefix in a request means; the projection is caught up if it does not know it."""
        workspace = await self.open(name, create=False)
        if workspace is not None and text not in workspace.notes:
            workspace = await self.caught_up(name)
        if workspace is None:
            raise NotFound(f"there is no note {text}", field=field, hint="amnesia list shows what there is")
        return await self.address(workspace, caller, text, field)

    async def _write_about(
        self,
        request: wire.Write,
        caller: Caller,
        note_id: str,
        answer_type: type[A],
        decide: Decide[A],
        *,
        owners: Sequence[str] = (),
        words: Words | None = None,
    ) -> A:
        """``write`` about a note that exists. One that was forgotten is refused with the way out, not as unknown."""
        try:
            return await self.write(request, answer_type, decide, owners=owners, words=words)
        except NotFound:
            workspace = await self.open(request.workspace, create=False)
            graves = [] if workspace is None else await vault.tombs(self.redis, workspace.keys, [note_id])
            for grave in graves:
                if workspace is None or grave is None or not visible(grave.tomb.note, caller, workspace.policy):
                    continue
                with self.counting_refusals(request.workspace):
                    raise IllegalTransition(
                        f"note {note_id} is forgotten: its words are erased",
                        rule="forgotten",
                        hint="restore works where a copy was kept",
                    ) from None
            raise

    async def _words(self, request: wire.NewNote, content: str) -> Words:
        """The words of a request as they will stand; how long a note may be is judged when its unit is decided."""
        paths = intake.check_anchors(request.anchors)
        return Words(
            content=intake.check_content(content, MAX_ITEM_BYTES),
            key=None if request.key is None else intake.check_key(request.key),
            tags=intake.check_tags(request.tags),
            anchors=await anchors.hash_files(request.workspace, paths),
            triggers=intake.check_triggers([trigger.to_core() for trigger in request.triggers]),
        )

    def _write(
        self,
        workspace: Workspace,
        change: Change,
        caller: Caller,
        request: wire.NewNote,
        words: Words,
        kind: Kind,
        scope: Scope,
        owner: str | None,
        replaced: tuple[str | None, ...],
        reason: str | None = None,
    ) -> tuple[Note, tuple[str, ...]]:
        """The new note and, in the same unit, the end of whatever it replaces."""
        holder = None if words.key is None else change.holder_of_slot((scope, owner, words.key))
        ends = (*replaced, None if holder is None else holder.id)
        replaces = tuple(dict.fromkeys(id_ for id_ in ends if id_ is not None))
        new_id = new_note_id()
        draft = decisions.Draft(
            id=new_id,
            kind=kind,
            words=words,
            scope=scope,
            owner=owner,
            incarnation=None if owner is None else change.own(owner, caller.agent_kind),
            provenance=request.provenance,
            ttl_ms=request.ttl_ms,
            expires_at=request.expires_at,
            curve=request.curve,
            pinned=request.pinned,
            source_ref=request.source_ref,
            supersedes=replaces,
        )
        note = change.born(decisions.create(draft, caller, change.policy, change.now), words)
        return note, self._end_for(workspace, change, caller, note, replaces, reason)

    def _end_for(
        self,
        workspace: Workspace,
        change: Change,
        caller: Caller,
        note: Note,
        replaced: Iterable[str | None],
        reason: str | None = None,
    ) -> tuple[str, ...]:
        """Supersede these notes by ``note``; the ids of those that were not so already."""
        ended = []
        for old_id in dict.fromkeys(replaced):
            if old_id is None or old_id == note.id:
                continue
            events = decisions.supersede(
                self.addressed(workspace, caller, old_id, change),
                note,
                caller,
                change.now,
                reason=reason,
                successor=lambda id_: _successor(workspace, id_),
            )
            change.add(old_id, events, reason=reason)
            if events:
                ended.append(old_id)
        return tuple(ended)


def _answers_to(change: Change, note: Note, key: str | None) -> bool:
    """Whether the note stands in the slot that is asked for, or none is."""
    return key is None or change.words(note.id).key == key


def _stands_for(change: Change, note: Note, caller: Caller, key: str | None) -> bool:
    """Whether the live note that says the same can stand for a new one: it has the key asked for and is of the life of
    its owner that is open now. One of an earlier life stands only where the caller may not replace it."""
    if not _answers_to(change, note, key):
        return False
    if note.owner is None:
        return True
    known = change.workspace.owners.get(note.owner)
    if known is not None and known.open and (note.incarnation or 0) >= known.incarnation:
        # Compared with the store by the unit, if there is one: the end of this life may have come meanwhile.
        change.own(note.owner, caller.agent_kind)
        return True
    return caller.role != "human" and note.provenance in ("human", "user-stated")


def _check_echo(change: Change, echoed: Note, key: str | None) -> None:
    """A line of ours is no new text, so no new note can carry a key that its note has not."""
    if not _answers_to(change, echoed, key):
        raise Refused(
            f"the text is a line of amnesia's own, showing note {echoed.id}, which does not have that key",
            rule="echo-key",
            field="key",
            hint="remember what the note says, without the line's frame, under the key",
        )


def _restated(change: Change, note: Note, caller: Caller, request: wire.NewNote) -> list[AnyNoteEvent]:
    return decisions.restate(note, caller, change.policy, change.now, provenance=request.provenance)


def _edited(request: wire.EditRequest, hashed: tuple[Anchor, ...] | None) -> Words:
    """The words that an edit brings in, and no others."""
    tags = () if request.tags is msgspec.UNSET else intake.check_tags(request.tags)
    triggers = () if request.triggers is msgspec.UNSET else tuple(trigger.to_core() for trigger in request.triggers)
    return Words(content="", tags=tags, anchors=hashed or (), triggers=triggers)


def _successor(workspace: Workspace, note_id: str) -> str | None:
    note = workspace.notes.get(note_id)
    return None if note is None else note.superseded_by


def _remembered(
    change: Change,
    note: Note,
    *,
    created: bool,
    superseded: Sequence[str] = (),
    warnings: tuple[wire.Warned, ...] = (),
) -> wire.RememberAnswer:
    return wire.RememberAnswer(
        id=note.id,
        created=created,
        ttl_ms=clocks.lease_ttl(note, change.policy),
        expires_at=clocks.expires_at(note, change.policy),
        stale_at=clocks.stale_at(note, change.policy),
        superseded=tuple(superseded),
        warnings=warnings,
        seq="",
    )
