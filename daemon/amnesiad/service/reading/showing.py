"""What stands between a selection and its answer: logged, checked, and only then shown.

Every answer is checked against the store before it leaves: one call logs what is shown and makes sure that it still
stands. If a note moved or the log has grown, the projection catches up and the selection is made again; so an ended
note is never returned, also when another daemon ended it. What was shown because it was asked for is renewed after the
answer. What is selected is not decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Final, Generic, NamedTuple, TypeVar

from amnesiad import wire
from amnesiad.core import decisions
from amnesiad.core.callers import Caller
from amnesiad.core.errors import NotFound
from amnesiad.core.events import AnyNoteEvent
from amnesiad.core.notes import Note
from amnesiad.errors import StoreUnavailable
from amnesiad.projection import Use
from amnesiad.service.reading.correcting import Corrections
from amnesiad.service.writing.change import Change
from amnesiad.service.writing.guarding import Guarding
from amnesiad.store.contexts import Telling
from amnesiad.store.log import at_or_past
from amnesiad.store.witness import Once, Witnessed
from amnesiad.workspace import Workspace

READ_ATTEMPTS: Final = 3
"""Selections that insist on the log's very end; those after them insist only that nothing they show has moved."""
MAX_ROUNDS: Final = 256
"""Selections in all. What others show meanwhile leaves fewer to select and counts as no attempt, so this many are made
only where a mark in the store is damaged."""
PATIENT_ATTEMPTS: Final = 12
"""Selections after those: under a storm of writes somebody may well touch one of ten notes a few times in a row."""

T = TypeVar("T")


class Selected(NamedTuple, Generic[T]):
    """A selection that may be shown: the answer, the notes in it that count as used, and those only shown."""

    answer: T
    used: tuple[Note, ...]
    shown: tuple[Note, ...]
    entry: bytes


class Showing(Guarding):
    """What every verb that shows notes goes through."""

    async def reader(self, request: wire.Request) -> Workspace | None:
        workspace = await self.open(request.workspace, create=False)
        if workspace is not None:
            await self.guard_reader(request)
        if workspace is not None and request.after is not None and not at_or_past(workspace.position, request.after):
            return await self.caught_up(request.workspace)
        return workspace

    async def show(
        self,
        workspace: Workspace,
        request: wire.Request,
        select: Callable[[Workspace, int], Selected[T]],
        *,
        strict: bool = False,
        once: Once | None = None,
        corrections: Corrections | None = None,
    ) -> tuple[T, tuple[Note, ...], bool] | None:
        """Select, log and check, until what is shown stands. Returns the answer, the notes used, and ``degraded``;
        ``None`` when the workspace turns out to have been dropped.

        ``strict`` raises ``StoreUnavailable`` instead of answering degraded. ``once`` is what ``select`` leaves out
        because it was shown before; what it shows is marked there. ``corrections`` are brought up to date before each
        selection, and those that it makes are marked.
        """
        caller = request.caller.to_core()
        telling = None if corrections is None else corrections.telling
        if telling is None and caller.context is not None:
            telling = Telling(caller.context, self.context_kept(caller))
        attempt = rounds = 0
        while attempt < READ_ATTEMPTS + PATIENT_ATTEMPTS and rounds < MAX_ROUNDS:
            rounds += 1
            if corrections is not None:
                await corrections.look(workspace)
            if telling is not None:
                telling.corrections = ()
            now = self.clock.now_ms()
            selected = select(workspace, now)
            seen = workspace.position if attempt < READ_ATTEMPTS else ""
            versions = {note.id: self._version(workspace, note) for note in (*selected.used, *selected.shown)}
            try:
                with nullcontext() if corrections is None else corrections.in_doubt(workspace):
                    found = await workspace.witness.check(
                        now,
                        versions.items(),
                        entry=selected.entry,
                        used=len(selected.used),
                        seen=seen,
                        policy=workspace.policy_version,
                        once=once,
                        telling=telling,
                    )
                if found.stands(seen):
                    # Counting a use moves the note among its equals: nobody has to wait for that.
                    used = [note.id for note in selected.used]
                    asyncio.get_running_loop().call_soon(workspace.count_use, used, now)
                    self.alive(workspace, caller, now)
                    if corrections is not None:
                        corrections.told(workspace)
                    return selected.answer, selected.used, False
                told = () if telling is None else telling.corrections
                await self._take_in(workspace, found, {**versions, **{one.note: one.version for one in told}})
                if corrections is not None:
                    corrections.told_elsewhere(workspace, found.told)
                # What others have shown meanwhile leaves fewer to select: that is no reason to give up.
                attempt += not (found.shown or found.told)
            except StoreUnavailable:
                if strict:
                    raise
                return selected.answer, selected.used, True
            except NotFound:
                self.close(request.workspace)
                reopened = await self.open(request.workspace, create=False)
                if reopened is None:
                    return None
                workspace = reopened
                attempt += 1
        raise StoreUnavailable("notes kept changing while they were read", hint="try again")

    async def _take_in(self, workspace: Workspace, found: Witnessed, versions: Mapping[str, int | None]) -> None:
        """Bring the projection up to what the witness found. ``versions`` are those that the answer would have
        shown."""
        await self.follow(workspace)
        if found.later_policy:
            await workspace.reload_policy()
        for note_id in found.moved:
            note = workspace.notes.get(note_id)
            if note is not None and note.version == versions[note_id]:
                # No event explains it, so its head is damaged. It must not stop everybody's answers.
                workspace.set_aside(note_id, "head: another version than the log's")

    def context_kept(self, caller: Caller) -> int:
        """How long (ms) what a context was shown is remembered after the last showing: as long as its owner's lease."""
        return self.settings.child_lease if caller.child else self.settings.session_lease

    def _version(self, workspace: Workspace, note: Note) -> int:
        """The recorded version behind a settled note: what the store compares."""
        recorded = workspace.notes.get(note.id)
        return note.version if recorded is None else recorded.version

    def renew_used(self, name: str, caller: Caller, notes: Sequence[Note]) -> None:
        """After the answer: renew the perishables that were used, and graduate those used often enough."""
        perishable = [note.id for note in notes if note.regime == "perishable"]
        if perishable:
            self.background(self._renew_now(name, caller, perishable))

    async def _renew_now(self, name: str, caller: Caller, ids: Sequence[str]) -> None:
        workspace = await self.open(name, create=False)
        if workspace is None:
            return
        now = self.clock.now_ms()
        for note_id in ids:
            change = Change(workspace, now)
            if note_id not in workspace.notes:
                continue
            note = change.settled(note_id)
            if not note.live:
                continue
            events: list[AnyNoteEvent] = list(decisions.renew(note, caller, workspace.policy, now))
            note = change.add(note_id, events)
            change.add(
                note_id, decisions.graduate(note, workspace.policy, now, workspace.use.get(note_id, Use()).times)
            )
            unit = change.finish()
            if unit is None:
                continue
            outcome = await workspace.log.commit(unit)
            if outcome.status in ("ok", "own"):
                workspace.absorb(outcome, change.results)
                if (due := workspace.due.get(note_id)) is not None:
                    self.jobs.due(workspace.ws, due)
