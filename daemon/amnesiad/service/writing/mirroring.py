"""The verb ``mirror``: what became of the item that a note mirrors in another store, written into the note's history.

It reaches no other store; whoever governs one does what is to be done there and reports here. It is the one verb that
also writes about a forgotten note, because that is when an item elsewhere is deleted: by its tomb, which keeps the
pointer.
"""

from __future__ import annotations

from amnesiad import wire
from amnesiad.core import mirrors
from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import NotFound
from amnesiad.errors import Conflict
from amnesiad.service.reading.answers import changed
from amnesiad.service.writing.change import Change
from amnesiad.service.writing.remembering import REREADS, NoteMoved, Remembering
from amnesiad.store import vault
from amnesiad.workspace import Workspace


class Mirroring(Remembering):
    """The verb that records results from elsewhere."""

    async def mirror(self, request: wire.MirrorRequest) -> wire.MirrorAnswer:
        """Record a result, in whatever state the note is; ``changed`` is false where it was the last one known.

        Raises ``Refused`` for a target that the note does not point at.
        """
        caller = request.caller.to_core()
        note_id = await self._existing(request.workspace, caller, request.id, "id")
        for _ in range(REREADS):
            workspace = await self.caught_up(request.workspace)
            if workspace is None:
                raise NotFound(f"there is no note {note_id}", field="id")
            if note_id in workspace.notes:
                grave = None
            elif (grave := (await vault.tombs(self.redis, workspace.keys, [note_id]))[0]) is None:
                raise NotFound(f"there is no note {note_id} that can be read", field="id")
            try:
                return await self._mirror(request, caller, note_id, grave)
            except NoteMoved:
                continue
        raise Conflict(f"note {note_id} kept changing", field="id", hint="try again")

    async def _mirror(
        self, request: wire.MirrorRequest, caller: Caller, note_id: str, grave: vault.Grave | None
    ) -> wire.MirrorAnswer:
        decided = False

        def decide(workspace: Workspace, change: Change) -> wire.MirrorAnswer:
            nonlocal decided
            if grave is None:
                if note_id not in workspace.notes:
                    raise NoteMoved
                note = self.addressed(workspace, caller, note_id, change)
                events = mirrors.mirror(note, caller, change.now, target=request.target, result=request.result)
                return changed(change, change.add(note_id, events), wire.MirrorAnswer, bool(events))
            if decided:  # the unit conflicted, so the tomb is not as it was read
                raise NoteMoved
            decided = True
            note = grave.tomb.note
            if not visible(note, caller, workspace.policy):
                raise NotFound(f"there is no note {note_id}", field="id")
            events = mirrors.mirror(note, caller, change.now, target=request.target, result=request.result)
            if events:
                change.builder.retomb(grave.tomb, events, now=change.now)
            return changed(change, note, wire.MirrorAnswer, bool(events))

        return await self.write(request, wire.MirrorAnswer, decide)
