"""Erasing by hand: forget, by every address. What goes is gone; only hash and bare facts stay in the audit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from amnesiad import wire
from amnesiad.core import clocks, decisions, intake, render
from amnesiad.core.callers import Caller, governs, visible
from amnesiad.core.errors import CallerError, Invalid, NotFound, Refused
from amnesiad.core.notes import Note
from amnesiad.errors import Conflict
from amnesiad.search import newest
from amnesiad.service.writing.change import Change
from amnesiad.service.writing.guarding import Guarding
from amnesiad.service.writing.loop import Decide, damaged
from amnesiad.service.writing.remembering import REREADS, NoteMoved
from amnesiad.store import vault
from amnesiad.store.cells import cells_held
from amnesiad.workspace import Workspace

MAX_SHOWN: Final = 20
"""Notes whose text a dry run or a refusal shows; the rest are counted."""
AT_ONCE: Final = 500
"""Notes erased concurrently: as many as one call of the script takes."""
SLICE: Final = 1000
"""Notes looked at between two pauses: some milliseconds, as long as a large request takes."""
T = TypeVar("T")


class Forgetting(Guarding):
    """The verb that erases."""

    async def forget(self, request: wire.ForgetRequest) -> wire.ForgetAnswer:
        """Erase every note that the address means and the caller may see. ``dry_run`` only shows what would go.

        Where the caller may not forget one of them, all are refused. Of several, one that cannot be erased stays and is
        named in ``notices``; where none can, what was wrong is raised.
        ``ids`` has no bound but the workspace's: whoever keeps copies elsewhere needs all of them.
        """
        caller = request.caller.to_core()
        address = _address(request)
        intake.check_query(request.query, "query")
        reason = None if request.reason is None else intake.check_reason(request.reason)
        workspace = await self.caught_up(request.workspace)
        if workspace is None:
            if address in ("id", "ids"):
                raise NotFound(f"there is no note {request.id or request.ids[0]}", field=address)
            return _nothing("0-0")
        if (replayed := await self._replayed(workspace, request, wire.ForgetAnswer)) is not None:
            return replayed
        notices = await self.guard_request(workspace, request)
        targets = await self._targets(workspace, caller, request, address)
        now = self.clock.now_ms()
        wordless = await self._wordless(workspace, targets)
        doomed = [
            note
            async for id_ in _in_slices(targets)
            if (note := workspace.settled(id_, now) or wordless.get(id_)) is not None
        ]
        if request.dry_run:
            return msgspec.structs.replace(_would(workspace, doomed), notices=notices)
        if not request.confirm and (address == "all" or (address == "query" and len(doomed) > 1)):
            with self.counting_refusals(request.workspace):
                raise Refused(
                    f"{address} matches {len(doomed)} notes",
                    rule="unconfirmed",
                    field="confirm",
                    hint="look with dry_run, then send confirm: true",
                    choices=tuple(note.id for note in doomed[:MAX_SHOWN]),
                )
        async for note in _in_slices(doomed):
            decisions.forget(note, caller, now, reason=reason)
        if not doomed:
            return await self.recorded(workspace, request, _nothing("", notices), wire.ForgetAnswer)
        if len(doomed) == 1:
            return await self._forget_one(request, caller, doomed[0].id, reason, wordless)
        many = await self._forget_many(request, caller, doomed, wordless, reason)
        answer = msgspec.structs.replace(many, notices=(*notices, *many.notices))
        return await self.recorded(workspace, request, answer, wire.ForgetAnswer)

    async def _forget_one(
        self,
        request: wire.ForgetRequest,
        caller: Caller,
        note_id: str,
        reason: str | None,
        wordless: Collection[str],
    ) -> wire.ForgetAnswer:
        if note_id in wordless:
            return await self._forget_wordless(request, caller, note_id, reason)

        def decide(workspace: Workspace, change: Change) -> wire.ForgetAnswer:
            if note_id not in workspace.notes:
                return _nothing("")  # somebody else was faster
            note = self.addressed(workspace, caller, note_id, change)
            # What its shelf life has ended already is erased now too, under that code, rather than by the next pass.
            change.owe(note_id)
            change.add(note_id, decisions.forget(note, caller, change.now, reason=reason))
            return wire.ForgetAnswer(
                forgotten=1, ids=(note_id,), summary=render.forget_summary([note]), scrub="pending", seq=""
            )

        return await self.write(request, wire.ForgetAnswer, decide)

    async def _wordless(self, workspace: Workspace, targets: Sequence[str]) -> dict[str, Note]:
        """Those of the targets whose words are lost or cannot be read, which nothing will mend, as they stand
        otherwise.

        Raises ``Conflict`` for one that a rebuild mends: to say that nothing matched would leave its words where they
        are.
        """
        await workspace.reread([id_ for id_ in targets if id_ in workspace.unreadable])
        found = {}
        for id_ in targets:
            if id_ not in workspace.unreadable:
                continue
            (head,) = await vault.heads(self.redis, workspace.keys, [id_])
            if not isinstance(head, vault.Head) or not workspace.unreadable[id_].startswith("words"):
                raise damaged(workspace, id_)
            found[id_] = head.note
        return found

    async def _forget_wordless(
        self, request: wire.ForgetRequest, caller: Caller, note_id: str, reason: str | None
    ) -> wire.ForgetAnswer:
        """Erase whatever stands in the place of a note's words, and free the cells it holds: only the store tells
        which."""
        for _ in range(REREADS):
            workspace = await self.caught_up(request.workspace)
            if workspace is None:
                return _nothing("")
            (head,) = await vault.heads(self.redis, workspace.keys, [note_id])
            if not isinstance(head, vault.Head):
                return _nothing("")
            held = await cells_held(self.redis, workspace.keys, note_id)
            try:
                answer = await self.write(request, wire.ForgetAnswer, _erasing(caller, head.note, held, reason))
            except NoteMoved:
                continue
            await self.follow(workspace)
            self.scrub_soon()
            return answer
        raise Conflict(f"note {note_id} kept changing", field="id", hint="try again")

    async def _forget_many(
        self,
        request: wire.ForgetRequest,
        caller: Caller,
        doomed: list[Note],
        wordless: Collection[str],
        reason: str | None,
    ) -> wire.ForgetAnswer:
        """Each note is a unit of its own, so that one that cannot be forgotten does not hold up the others."""
        single = msgspec.structs.replace(request, request_id=None, after=None)
        gone: list[Note] = []
        left: dict[str, CallerError] = {}
        seq = "0-0"
        for start in range(0, len(doomed), AT_ONCE):
            page = doomed[start : start + AT_ONCE]
            answers = await asyncio.gather(
                *(self._forget_one(single, caller, note.id, reason, wordless) for note in page),
                return_exceptions=True,
            )
            for note, answer in zip(page, answers, strict=True):
                if isinstance(answer, CallerError):
                    left[note.id] = answer
                elif isinstance(answer, BaseException):
                    raise answer
                elif answer.forgotten:
                    gone.append(note)
                    seq = answer.seq
        if left and not gone:
            raise next(iter(left.values()))
        return wire.ForgetAnswer(
            forgotten=len(gone),
            ids=tuple(note.id for note in gone),
            summary=render.forget_summary(gone),
            scrub="pending",
            notices=_kept(left),
            seq=seq,
        )

    async def _targets(
        self, workspace: Workspace, caller: Caller, request: wire.ForgetRequest, address: str
    ) -> list[str]:
        if address == "id":
            return [await self.address(workspace, caller, request.id or "")]
        if address == "ids":
            return [await self.address(workspace, caller, id_, f"ids[{n}]") for n, id_ in enumerate(request.ids)]
        if address == "query":
            matched = workspace.live.contains_all_words(request.query or "")
            ids = sorted(matched | workspace.ended.contains_all_words(request.query or ""))
        elif address == "tags":
            ids = [
                id_
                for index in (workspace.live, workspace.ended)
                for id_ in newest(index, only=index.narrowed(request.tags))
            ]
        else:
            ids = list(workspace.notes)
        if address == "all" and governs(caller):
            found = [id_ async for id_, note in self._there(workspace, ids) if visible(note, caller, workspace.policy)]
            return [*found, *workspace.unreadable]
        return [id_ async for id_, note in self._there(workspace, ids) if self._meant(workspace, caller, request, note)]

    async def _there(self, workspace: Workspace, ids: Sequence[str]) -> AsyncIterator[tuple[str, Note]]:
        async for id_ in _in_slices(ids):
            if (note := workspace.notes.get(id_)) is not None:
                yield id_, note

    def _meant(self, workspace: Workspace, caller: Caller, request: wire.ForgetRequest, note: Note) -> bool:
        if not visible(note, caller, workspace.policy):
            return False
        if request.kinds and note.kind not in request.kinds:
            return False
        if request.scope is not None and note.scope != request.scope:
            return False
        if request.owner is not None and note.owner != request.owner:
            return False
        return not request.tags or set(request.tags) <= set(workspace.words[note.id].tags)


def _address(request: wire.ForgetRequest) -> str:
    fields = ("id", "ids", "query", "tags", "kinds", "scope", "owner", "all")
    given = [field for field in fields if getattr(request, field)]
    if not given:
        raise Invalid("forget what? no address is given", field="id", hint="one of " + ", ".join(fields))
    if len(given) > 1:
        raise Invalid(f"forget takes one address, not {' and '.join(given)}", field=given[1], hint="send one of them")
    return given[0]


def _erasing(caller: Caller, note: Note, held: Sequence[str], reason: str | None) -> Decide[wire.ForgetAnswer]:
    """The decision about a note without words, made once: where its unit conflicts, it raises ``NoteMoved``."""
    decided = False

    def decide(workspace: Workspace, change: Change) -> wire.ForgetAnswer:
        nonlocal decided
        if decided:
            raise NoteMoved
        decided = True
        if not visible(note, caller, workspace.policy):
            raise NotFound(f"there is no note {note.id}", field="id")
        owed = clocks.due_events(note, change.policy, change.now)
        settled = clocks.settle(note, change.policy, change.now)
        change.builder.release(held, note.id)
        change.builder.change(note, [*owed, *decisions.forget(settled, caller, change.now, reason=reason)], None)
        summary = render.forget_summary([settled])
        return wire.ForgetAnswer(forgotten=1, ids=(note.id,), summary=summary, scrub="pending", seq="")

    return decide


async def _in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """These, with others answered in between."""
    for place, item in enumerate(items, start=1):
        if place % SLICE == 0:
            await asyncio.sleep(0)
        yield item


def _kept(left: Mapping[str, CallerError]) -> tuple[str, ...]:
    """Notices of the notes that could not be forgotten, the first of them by id."""
    named = [f"note {id_} is not forgotten: {error.message}" for id_, error in islice(left.items(), MAX_SHOWN)]
    more = len(left) - len(named)
    return (*named, f"{more} more are not forgotten") if more else tuple(named)


def _nothing(seq: str, notices: tuple[str, ...] = ()) -> wire.ForgetAnswer:
    return wire.ForgetAnswer(forgotten=0, ids=(), summary="nothing matched", scrub="done", notices=notices, seq=seq)


def _would(workspace: Workspace, doomed: list[Note]) -> wire.ForgetAnswer:
    shown = tuple(
        wire.Doomed(
            id=note.id,
            kind=note.kind,
            state=note.state,
            content=words.content if (words := workspace.words.get(note.id)) else "(its words cannot be read)",
        )
        for note in doomed[:MAX_SHOWN]
    )
    count = len(doomed)
    summary = f"{count} note{'' if count == 1 else 's'} would be forgotten"
    return wire.ForgetAnswer(
        forgotten=0,
        ids=tuple(note.id for note in doomed),
        summary=summary,
        scrub="done",
        would=shown,
        seq=workspace.position,
    )
