"""Verbs about one note: revoke, flag, reinstate, pin, unpin, renew, done, promote, undo.

Each is a decision of the core, written by the one loop in ``loop``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import msgspec

from amnesiad import anchors, wire
from amnesiad.core import decisions, intake
from amnesiad.core.callers import Caller
from amnesiad.core.errors import Refused
from amnesiad.core.events import AnyNoteEvent, Reinstated
from amnesiad.core.notes import Anchor, Note, Words
from amnesiad.core.undo import undo
from amnesiad.errors import Conflict
from amnesiad.service.reading.answers import changed
from amnesiad.service.writing.change import Change
from amnesiad.service.writing.remembering import REREADS, NoteMoved, Remembering
from amnesiad.store import vault
from amnesiad.workspace import Workspace

C = TypeVar("C", bound=wire.ChangeAnswer)
Decision = Callable[[Note, Caller, Change, str | None], list[AnyNoteEvent]]


class Transitions(Remembering):
    """The verbs that move one note from state to state."""

    async def revoke(self, request: wire.RevokeRequest) -> wire.RevokeAnswer:
        """It was refuted. From now on it is shown only as a warning."""

        def decide(note: Note, caller: Caller, change: Change, reason: str | None) -> list[AnyNoteEvent]:
            return decisions.revoke(note, caller, change.now, reason=reason or "")

        return await self._move(request, request.reason, wire.RevokeAnswer, decide)

    async def flag(self, request: wire.FlagRequest) -> wire.FlagAnswer:
        """It is in doubt: stale, with the cause distrusted."""

        def decide(note: Note, caller: Caller, change: Change, reason: str | None) -> list[AnyNoteEvent]:
            return decisions.flag(note, caller, change.now, cause="distrusted", reason=reason)

        return await self._move(request, request.reason, wire.FlagAnswer, decide)

    async def pin(self, request: wire.PinRequest) -> wire.PinAnswer:
        """Stop its lease clock."""

        def decide(note: Note, caller: Caller, change: Change, reason: str | None) -> list[AnyNoteEvent]:
            return decisions.pin(note, caller, change.now, reason=reason)

        return await self._move(request, request.reason, wire.PinAnswer, decide)

    async def unpin(self, request: wire.UnpinRequest) -> wire.UnpinAnswer:
        """Let its lease run again, from now."""

        def decide(note: Note, caller: Caller, change: Change, reason: str | None) -> list[AnyNoteEvent]:
            return decisions.unpin(note, caller, change.now, reason=reason)

        return await self._move(request, request.reason, wire.UnpinAnswer, decide)

    async def renew(self, request: wire.RenewRequest) -> wire.RenewAnswer:
        """Use it: restart its lease. A note that has expired cannot be revived this way."""

        def decide(note: Note, caller: Caller, change: Change, _: str | None) -> list[AnyNoteEvent]:
            return decisions.renew(note, caller, change.policy, change.now)

        return await self._move(request, request.reason, wire.RenewAnswer, decide)

    async def done(self, request: wire.DoneRequest) -> wire.DoneAnswer:
        """A task is completed."""

        def decide(note: Note, caller: Caller, change: Change, reason: str | None) -> list[AnyNoteEvent]:
            return decisions.done(note, caller, change.now, reason=reason)

        return await self._move(request, request.reason, wire.DoneAnswer, decide)

    async def promote(self, request: wire.PromoteRequest) -> wire.PromoteAnswer:
        """Lift it to the workspace, or its provenance upward."""

        def decide(note: Note, caller: Caller, change: Change, reason: str | None) -> list[AnyNoteEvent]:
            events = decisions.promote(note, caller, change.now, to=request.to, reason=reason)
            if events and request.to == "workspace":
                _check_free(change, note, place=("workspace", None), verb="promote")
            return events

        return await self._move(request, request.reason, wire.PromoteAnswer, decide)

    async def reinstate(self, request: wire.ReinstateRequest) -> wire.ReinstateAnswer:
        """It holds after all: active again, re-anchored, its lease from now."""
        caller = request.caller.to_core()
        note_id = await self._existing(request.workspace, caller, request.id, "id")
        reason = None if request.reason is None else intake.check_reason(request.reason)
        hashed = await self._rehash(request.workspace, note_id)

        def decide(workspace: Workspace, change: Change) -> wire.ReinstateAnswer:
            note = self.addressed(workspace, caller, note_id, change)
            words = None
            if hashed and note.state != "forgotten":
                words = _anchored_anew(change.words(note_id), hashed)
            events = decisions.reinstate(
                note, caller, change.now, reason=reason, size=None if words is None else words.size()
            )
            if events and not note.live:
                _check_free(change, note, place=(note.scope, note.owner), verb="reinstate")
            note = change.add(note_id, events, words=words, reason=reason)
            return changed(change, note, wire.ReinstateAnswer, bool(events))

        return await self._write_about(request, caller, note_id, wire.ReinstateAnswer, decide)

    async def undo(self, request: wire.UndoRequest) -> wire.UndoAnswer:
        """Take back its last transition by one more event, where the table has a way back."""
        caller = request.caller.to_core()
        why = None if request.reason is None else intake.check_reason(request.reason)
        note_id = await self._existing(request.workspace, caller, request.id, "id")
        hashed = await self._rehash(request.workspace, note_id)
        for _ in range(REREADS):
            history = await self._history(request.workspace, note_id)

            def decide(
                workspace: Workspace, change: Change, history: Sequence[AnyNoteEvent] = history
            ) -> wire.UndoAnswer:
                note = self.addressed(workspace, caller, note_id, change)
                if not history or workspace.notes[note_id].version != history[-1].version:
                    raise NoteMoved
                words = change.words(note_id)
                anchored = _anchored_anew(words, hashed)
                undone = undo(
                    (*history, *change.owed(note_id)),
                    caller,
                    change.now,
                    words=words,
                    note_of=change.settled,
                    reason=why,
                    size=anchored.size() if hashed else None,
                )
                back_to_life = any(isinstance(event, Reinstated) for event in undone.events)
                if back_to_life and not note.live:
                    _check_free(change, note, place=(note.scope, note.owner), verb="undo")
                note = change.add(
                    note_id, undone.events, words=anchored if back_to_life else None, reason=undone.reason
                )
                answer = changed(change, note, wire.UndoAnswer, bool(undone.events))
                return msgspec.structs.replace(answer, undone=undone.event)

            try:
                return await self._write_about(request, caller, note_id, wire.UndoAnswer, decide)
            except NoteMoved:
                continue
        raise Conflict(f"note {note_id} kept changing", field="id", hint="look at its history, then try again")

    async def _history(self, name: str, note_id: str) -> list[AnyNoteEvent]:
        """Every event of the note, oldest first, with the projection caught up to at least the last of them."""
        workspace = await self.open(name, create=False)
        if workspace is None:
            return []
        head = await vault.find(self.redis, workspace.keys, note_id)
        if not isinstance(head, vault.Head):
            return []
        entries = await workspace.log.history(head.seq)
        await self.caught_up(name)
        return [cast(AnyNoteEvent, entry.event) for entry in reversed(entries)]

    async def _rehash(self, name: str, note_id: str) -> tuple[Anchor, ...]:
        workspace = await self.open(name, create=False)
        words = None if workspace is None else workspace.words.get(note_id)
        if words is None or not words.anchors or await anchors.root_of(name) is None:
            return ()
        return await anchors.hash_files(name, [anchor.path for anchor in words.anchors])

    async def _move(
        self,
        request: wire.NoteWrite | wire.RevokeRequest | wire.FlagRequest,
        reason: str | None,
        answer_type: type[C],
        decision: Decision,
    ) -> C:
        caller = request.caller.to_core()
        why = None if reason is None else intake.check_reason(reason)
        note_id = await self._existing(request.workspace, caller, request.id, "id")

        def decide(workspace: Workspace, change: Change) -> C:
            note = self.addressed(workspace, caller, note_id, change)
            events = decision(note, caller, change, why)
            note = change.add(note_id, events, reason=why)
            return changed(change, note, answer_type, bool(events))

        return await self._write_about(request, caller, note_id, answer_type, decide)


def _anchored_anew(words: Words, hashed: Sequence[Anchor]) -> Words:
    """The words with their files' hashes of now. An anchor that an edit has set since the files were read is newer
    yet."""
    known = {anchor.path: anchor for anchor in hashed}
    return msgspec.structs.replace(words, anchors=tuple(known.get(one.path, one) for one in words.anchors))


def _check_free(change: Change, note: Note, *, place: tuple[str, str | None], verb: str) -> None:
    """A note that comes (back) to life needs its text and slot free. A holder that time has ended gives way."""
    scope, owner = place
    words = change.words(note.id)
    holder = change.holder_of_text((scope, owner, note.kind, words.content))
    if holder is not None and holder.id != note.id:
        raise Refused(f"note {holder.id} says the same and lives: {verb} would make two", rule="duplicate-text")
    holder = None if words.key is None else change.holder_of_slot((scope, owner, words.key))
    if holder is not None and holder.id != note.id:
        raise Refused(
            f"the slot of note {note.id} is held by note {holder.id}",
            rule="slot-taken",
            hint=f"supersede {holder.id} instead",
        )
