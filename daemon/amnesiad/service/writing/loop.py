"""The one loop that writes: decide, commit, and if somebody was faster re-read and decide again.

So a decision is never written on top of a state it was not made for. Before the loop lets a refusal or a no-op out, it
makes sure that the projection was not merely behind. A request that carries an id is answered once, whatever is lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

import msgspec
import structlog

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError, NotFound, StoreFull
from amnesiad.errors import Conflict
from amnesiad.service.base import Base
from amnesiad.service.writing.change import Change
from amnesiad.store import workspaces
from amnesiad.store.log import START, Outcome, Unit, at_or_past
from amnesiad.store.owners import decode_owner, read_owner
from amnesiad.store.workspaces import POLICY_CELL
from amnesiad.workspace import Workspace

MAX_ATTEMPTS: Final = 24
"""Tries before a write gives up with ``conflict``: each round of contention on a cell lets one writer through."""
QUIET_ATTEMPTS: Final = 3
"""Tries without a pause in between; later ones wait a random moment so that writers stop colliding."""
FULL_ATTEMPTS: Final = 3
"""Times a unit may find the workspace full, its projection brought up to date after each, before it is refused."""

logger = structlog.get_logger()
A = TypeVar("A", bound=msgspec.Struct)
Decide = Callable[[Workspace, Change], A]


class Writing(Base):
    """How every verb that changes something does it."""

    async def write(
        self, request: wire.Write, answer_type: type[A], decide: Decide[A], *, owners: Sequence[str] = ()
    ) -> A:
        """Decide, commit, and if somebody was faster re-read and decide again.

        ``decide`` returns the answer with an empty ``seq``; what it collected in the change is written as one unit.
        """
        workspace = cast(Workspace, await self.open(request.workspace, create=True))
        if request.after is not None and not at_or_past(workspace.position, request.after):
            workspace, _ = await self._renewed_view(workspace)
        full, looked = 0, False
        for attempt in range(MAX_ATTEMPTS):
            if attempt > QUIET_ATTEMPTS:
                await asyncio.sleep(random.uniform(0, 0.002 * attempt))  # noqa: S311
            await self._know(workspace, owners)
            change = Change(workspace, self.clock.now_ms())
            seen = workspace.position
            try:
                answer = decide(workspace, change)
                evicted = change.make_room()
                unit = change.finish()
            except AmnesiaError:
                if attempt == 0:
                    workspace, behind = await self._renewed_view(workspace, seen)
                    if behind:
                        continue
                if (replayed := await self._replayed(workspace, request, answer_type)) is not None:
                    return replayed
                await self._leave_nothing(workspace)
                with self.counting_refusals(workspace.name):
                    raise
            if unit is None:
                if not looked:
                    looked = True
                    workspace, behind = await self._renewed_view(workspace, seen)
                    if await self._owners_moved(workspace, owners) or behind:
                        continue
                self.alive(workspace, request.caller.to_core(), change.now)
                return await self.recorded(workspace, request, answer, answer_type)
            if request.request_id is not None:
                unit.request = self._record(workspace, request, answer)
            outcome = await workspace.log.commit(unit)
            if outcome.status in ("ok", "own"):
                workspace.absorb(outcome, change.results)
                workspace.owners.update(change.opened)
                self._after_write(workspace, change, evicted)
                self.alive(workspace, request.caller.to_core(), change.now)
                return msgspec.structs.replace(answer, seq=outcome.seq or workspace.position)
            if outcome.status == "replay":
                return _decode_answer(outcome.current, answer_type)
            if outcome.status == "reused":
                raise _reused(request)
            workspace = await self._after_conflict(workspace, outcome.detail, outcome.current)
            full += outcome.status == "full"
            # Once may mean that somebody else filled it meanwhile: with their notes in view, some can be evicted.
            if full > FULL_ATTEMPTS:
                with self.counting_refusals(workspace.name):
                    raise _full(outcome)
        raise Conflict("too many writers at once on the same note, slot or text", hint="try again")

    async def _know(self, workspace: Workspace, owners: Sequence[str]) -> None:
        """See to it that all of these owners are known at the end: while one is read, another may give way."""
        while unknown := [owner for owner in owners if owner not in workspace.owners]:
            for owner in unknown:
                workspace.owners[owner] = await read_owner(self.redis, workspace.keys, owner)
        for owner in owners:
            workspace.owners.move_to_end(owner)

    async def _owners_moved(self, workspace: Workspace, owners: Sequence[str]) -> bool:
        """Read these owners anew, for a decision that no unit compares with them; whether one is not as it was
        known."""
        moved = False
        for owner in owners:
            known = workspace.owners.get(owner)
            workspace.owners[owner] = now = await read_owner(self.redis, workspace.keys, owner)
            moved = moved or now != known
        return moved

    async def _leave_nothing(self, workspace: Workspace) -> None:
        """A refusal changes nothing: a workspace that came to be for this write alone goes again."""
        if workspace.position == START and await workspaces.discard_unused(self.redis, workspace.name, workspace.ws):
            self.close(workspace.name)

    async def _renewed_view(self, workspace: Workspace, seen: str = "") -> tuple[Workspace, bool]:
        """The workspace at its log's end, and whether that is another view than the one of position ``seen``.

        The position is compared, not whether following found anything: somebody else may have followed just before.
        """
        try:
            await self.follow(workspace)
        except NotFound:
            return await self._anew(workspace), True
        return workspace, workspace.position != seen

    async def _anew(self, workspace: Workspace) -> Workspace:
        """What the name of a workspace that was dropped means from now on."""
        if self._workspaces.get(workspace.name) is workspace:
            self.close(workspace.name)
        return cast(Workspace, await self.open(workspace.name, create=True))

    async def _after_conflict(self, workspace: Workspace, detail: str, current: bytes) -> Workspace:
        if detail.startswith("owner:"):
            workspace.owners[detail.removeprefix("owner:")] = decode_owner(current)
        if detail == POLICY_CELL and not current:
            return await self._anew(workspace)
        workspace, _ = await self._renewed_view(workspace)
        if detail.startswith("note:"):
            _check_head(workspace, detail.removeprefix("note:"), current)
        if detail == POLICY_CELL:
            try:
                await workspace.reload_policy()
            except NotFound:
                return await self._anew(workspace)
        return workspace

    def _record(self, workspace: Workspace, request: wire.Write, answer: msgspec.Struct) -> tuple[str, str, bytes]:
        stored = answer
        if getattr(answer, "warnings", ()):
            # A warning quotes an ended note; the record of an answer must not outlive that note's erasure.
            stored = msgspec.structs.replace(answer, warnings=())
        key = workspace.keys.request(cast(str, request.request_id))
        return key, self._body_hash(request), msgspec.json.encode(stored)

    def _body_hash(self, request: wire.Write) -> str:
        """What a repeated request must agree in: its body, and its verb, for that of pin and unpin may be the same."""
        return self.keyring.body_hash(type(request).__name__.encode() + msgspec.json.encode(request))

    async def recorded(self, workspace: Workspace, request: wire.Write, answer: A, answer_type: type[A]) -> A:
        """An answer that no single unit carries, kept under the request's id if it has one; ``seq`` filled in.

        If the id was answered before, that answer is returned instead. Raises ``Conflict`` for another body.
        """
        if request.request_id is None:
            return msgspec.structs.replace(answer, seq=getattr(answer, "seq", "") or workspace.position)
        unit = Unit(request=self._record(workspace, request, answer))
        outcome = await workspace.log.commit(unit)
        if outcome.status == "replay":
            return _decode_answer(outcome.current, answer_type)
        if outcome.status == "reused":
            raise _reused(request)
        return msgspec.structs.replace(answer, seq=outcome.seq or workspace.position)

    async def _replayed(self, workspace: Workspace, request: wire.Write, answer_type: type[A]) -> A | None:
        """The answer this very request got before, if it carries an id and was answered in the last 24 hours."""
        if request.request_id is None:
            return None
        stored = await workspace.log.stored_answer(request.request_id)
        if stored is None:
            return None
        body_hash, rest = stored
        if body_hash != self._body_hash(request):
            raise _reused(request)
        return _decode_answer(rest, answer_type)

    def _after_write(self, workspace: Workspace, change: Change, evicted: Sequence[str]) -> None:
        erased = False
        for note, _ in change.results:
            if note.state == "forgotten":
                erased = True
            elif (due := workspace.due.get(note.id)) is not None:
                self.jobs.due(workspace.ws, due)
        if erased:
            self.scrub_soon()
        if evicted:
            logger.debug("evicted", ws=workspace.ws, count=len(evicted))


def _check_head(workspace: Workspace, note_id: str, held: bytes) -> None:
    """Raises ``Conflict`` for a note that stands in the store as no event has left it: no repetition would help.

    ``held`` is what a unit met there, and the projection has seen the whole log since.
    """
    note = workspace.notes.get(note_id)
    stamp = held.partition(b"|")[0]
    if note is None or (stamp.isdigit() and int(stamp) <= note.version):
        return
    workspace.set_aside(note_id, "head: not as the log has it")
    raise damaged(workspace, note_id)


def damaged(workspace: Workspace, note_id: str) -> Conflict:
    """The refusal of what cannot be done to a note as long as it cannot be read."""
    return Conflict(
        f"note {note_id} cannot be read: {workspace.unreadable[note_id]}",
        field="id",
        hint="amnesia rebuild mends it from the log; then try again",
    )


def _reused(request: wire.Write) -> Conflict:
    return Conflict(
        f"request_id {request.request_id} was used with another verb or body", field="request_id", hint="use a new one"
    )


def _full(outcome: Outcome) -> StoreFull:
    return StoreFull(
        f"the workspace is full: {outcome.detail} stands at {outcome.current.decode()}",
        rule=f"max_{'store' if outcome.detail.startswith('perishable') else 'record'}_bytes",
        hint="forget something, or raise the limit",
    )


def _decode_answer(raw: bytes, answer_type: type[A]) -> A:
    seq, _, body = raw.partition(b"|")
    answer = msgspec.json.decode(body, type=answer_type)
    return msgspec.structs.replace(answer, seq=seq.decode())
