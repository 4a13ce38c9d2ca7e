"""A workspace as a stream of lines, in: import. (Out is ``exporting``, one note of many ``arriving``.)

Lines are read as they come, decided in pages and written one call a page; what loses against another writer, or
against a line before it, is decided anew by itself. Every line that is wrong is reported by its number, and stops none
of those after it. The shapes of the lines and what of them is believed is ``shapes``'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from amnesiad import wire
from amnesiad.core import intake
from amnesiad.core.callers import address
from amnesiad.core.errors import CallerError, Invalid, Refused, StoreFull, TooLarge
from amnesiad.core.policy import apply_overrides, parse_setting
from amnesiad.errors import Conflict
from amnesiad.service.governing import Governing
from amnesiad.service.transfer import shapes
from amnesiad.service.transfer.arriving import MAX_ATTEMPTS, MAX_OWNERS, Arriving, Item, Run, Taken
from amnesiad.store import vault
from amnesiad.store.log import START, Outcome, at_or_past
from amnesiad.wire.answers import Scalar
from amnesiad.wire.lines import EndLine, FactLine, Header, NoteLine, OwnerLine, PolicyLine
from amnesiad.workspace import Workspace

PAGE_NOTES: Final = 200
"""Notes taken in at once: they reach the store in one call, and deciding them holds the loop for some 20 ms."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Lines held at once, so that a stream of long notes costs no more memory than one of short ones."""
PAUSE_EVERY: Final = 50
"""Notes decided or written out without a pause; others wait no longer than a few milliseconds."""


class Importing(Arriving, Governing):
    """The verb that takes notes in."""

    async def import_notes(self, request: wire.ImportRequest, lines: AsyncIterator[bytes]) -> wire.ImportAnswer:
        """Take in lines of an export, or plain ones (``content`` and what remember takes, and ``created_at``).

        Idempotent, so that one that was broken off is simply run again. ``dry_run`` decides everything the same way
        and writes nothing. Raises ``Refused`` for an export of a newer format and for a caller that keeps no notes,
        ``StoreUnavailable``; what is wrong with one line is a problem in the answer.
        """
        caller = request.caller.to_core()
        address(caller, None, None)
        run = Run(request, caller, await self._desk(request))
        async for raw in lines:
            run.number += 1
            try:
                await self._take(run, raw)
            except CallerError as error:
                if error.rule == "newer-format":
                    raise
                run.bad += 1
                run.problem(run.number, error)
            if len(run.waiting) >= PAGE_NOTES or run.waiting_bytes > PAGE_BYTES:
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
        if not request.dry_run:
            workspace = cast(Workspace, await self.open(request.workspace, create=True))
            return (await self._renewed_view(workspace))[0]
        draft = await self._loaded(request.workspace, create=False)
        return draft or Workspace(request.workspace, "-", self.redis, self.keyring, self.settings.policy)

    async def _take(self, run: Run, raw: bytes) -> None:
        line = shapes.read_line(raw)
        if run.parts and not (isinstance(line, NoteLine) and line.id == run.parts[0].id):
            run.parts.clear()
            # Before another header it is no loss: what that one resumes behind lies before this note.
            if not isinstance(line, Header):
                run.problem(run.number - 1, _cut_off())
        match line:
            case dict():
                run.waiting.append(Item(run.number, line))
                run.waiting_bytes += len(raw)
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
                if len(run.owners) >= MAX_OWNERS and line.owner not in run.owners:
                    raise TooLarge(f"an import of more than {MAX_OWNERS} owners is not taken in", field="owner")
                run.owners[line.owner] = line
            case NoteLine():
                run.parts.append(line)
                run.waiting_bytes += len(raw)
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
                    run.waiting.append(Item(run.number, whole))
            case EndLine():
                if run.header is not None and run.notes + run.bad < line.notes:
                    run.problem(run.number, _cut_off(f"{run.notes} notes of {line.notes} are here"))
                run.header = None
            case FactLine():
                run.position = line.seq

    async def _take_policy(self, run: Run, values: Mapping[str, Scalar]) -> None:
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
        await self._check_policy(run.request.workspace, run.workspace, run.caller, fresh)
        if run.request.dry_run:
            run.workspace.overrides |= fresh
            run.workspace.govern(
                apply_overrides(run.workspace.base, run.workspace.overrides), run.workspace.policy_version
            )
            return
        asked = wire.PolicyRequest(workspace=run.request.workspace, caller=run.request.caller, set=fresh)
        await self._change_policy(asked)

    async def _flush(self, run: Run) -> None:
        """Decide and write what is waiting. One call takes the whole page; what conflicts is then tried one by one."""
        items, run.waiting, run.waiting_bytes = run.waiting, [], 0
        if not items:
            return
        stands = await self._stands(run, items)
        taken: list[tuple[Item, Taken]] = []
        for index, (item, stand) in enumerate(zip(items, stands, strict=True)):
            if index % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            try:
                decided = await self.decide(run, item, stand)
            except CallerError as error:
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
        for index, ((item, decided), outcome) in enumerate(zip(taken, outcomes, strict=True)):
            if index % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            if outcome.status in ("ok", "own"):
                self._count(run, decided, outcome)
            else:
                again.append((item, outcome))
        for item, outcome in again:
            await self._retry(run, item, outcome)

    async def _stands(self, run: Run, items: Iterable[Item]) -> list[vault.Found]:
        ids = [item.source.id if isinstance(item.source, NoteLine) else "" for item in items]
        return await vault.find_many(self.redis, run.workspace.keys, ids)

    async def _retry(self, run: Run, item: Item, outcome: Outcome) -> None:
        """A line whose unit lost against another writer, or against a line before it, is decided anew."""
        for attempt in range(MAX_ATTEMPTS):
            if outcome.status == "full" and attempt > 0:
                run.problem(item.number, StoreFull(f"the workspace is full: {outcome.detail}"))
                return
            try:
                run.workspace = await self._after_conflict(run.workspace, outcome.detail, outcome.current)
                (stand,) = await self._stands(run, [item])
                decided = await self.decide(run, item, stand)
            except CallerError as error:
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

    def _count(self, run: Run, taken: Taken, outcome: Outcome) -> None:
        run.imported += 1
        run.workspace.absorb(outcome, taken.results)
        if run.request.dry_run:
            run.held.add(taken.note.id)
            return
        if taken.erased or any(note.state == "forgotten" for note, _ in taken.results[1:]):
            self.scrub_soon()
        if (due := run.workspace.due.get(taken.note.id)) is not None:
            self.jobs.due(run.workspace.ws, due)


def _cut_off(detail: str = "its closing line is missing") -> Refused:
    return Refused(f"the export was cut off: {detail}", rule="cut-off", hint="export again, or resume the export")
