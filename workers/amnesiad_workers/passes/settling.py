"""Settling: what time owes the notes of a workspace is written down, erasures included. Its cost follows the number
due.

A pass asks the due index, reads those notes, lets ``core.clocks`` decide, writes, and asks again until nothing is due.
It holds no lock: a note that another pass, a user or an agent was faster with conflicts, changes nothing, and is read
again later, when it is no longer due. So any number of passes may run at once, be killed at any point and be run again.

For speed several notes share a unit, and while the store writes one page the next is read and decided. A unit that
conflicts is taken apart: its notes are tried again each in a unit of its own, so one damaged note holds up no other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from amnesiad.core import clocks
from amnesiad.core.events import AnyNoteEvent
from amnesiad.core.times import HOUR_MS
from amnesiad.errors import AmnesiaError, Bug, NotFound
from amnesiad.store.due import DueItem, DueNote, DueTomb, Filing, Gone, due_ids, read_items, refile, set_aside
from amnesiad.store.keys import Keys
from amnesiad.store.log import Log, Outcome
from amnesiad.store.policies import Effective, read_policy
from amnesiad.store.units import Builder, left_of
from amnesiad.store.vault import Unreadable
from amnesiad.store.workspaces import POLICY_CELL
from amnesiad_workers.passes.context import Context, Figures

ROUND: Final = 5_000
"""Ids asked of the due index at once: a few hundred kilobytes, and work for half a second."""
PAGE: Final = 500
"""Notes per read and per write: the commit script then holds the store for some 30 ms."""
GROUP: Final = 25
"""Notes that share a unit while all goes well: totals and policy are then compared and set once for all of them."""
ASIDE_MS: Final = HOUR_MS
"""How long a note that cannot be read is set aside. It is looked at again in case a newer version has mended it."""
MAX_CONFLICTS: Final = 8
"""Conflicts of one note in one run before it is set aside: nobody is that busy, its cells must be damaged."""
MAX_RUN_MS: Final = 30_000
"""One run asks for no more after this; the timer goes on with the next one, so that no workspace waits behind."""


class Owed(NamedTuple):
    """What one due id owes: the events of a note, or (without events) that its tomb keeps less, if anything."""

    item: DueNote | DueTomb
    events: list[AnyNoteEvent]
    purged: bool = False

    @property
    def id(self) -> str:
        """The note's id."""
        return self.item.tomb.note.id if isinstance(self.item, DueTomb) else self.item.note.id


@dataclass(slots=True)
class Page:
    """Some due notes, decided: groups that are each one unit, places in the index to mend, and what is unreadable."""

    policy: Effective
    now: int
    groups: list[tuple[list[Owed], Builder]] = field(default_factory=list)
    filings: list[Filing] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)


class Settling:
    """One run over one workspace."""

    def __init__(self, context: Context, ws: str) -> None:
        self.context = context
        self.keys = Keys(ws)
        self.log = Log(context.redis, self.keys)
        self.figures = Figures()
        self._conflicts: Counter[str] = Counter()
        self._policy_moved = False

    async def run(self) -> Figures:
        """Settle until nothing is due, or for ``MAX_RUN_MS``."""
        began = self.context.now()
        try:
            while ids := await due_ids(self.context.redis, self.keys, self.context.now(), ROUND):
                if self.context.now() - began > MAX_RUN_MS:
                    self.figures.unfinished = True
                    break
                await self._round(ids)
        except NotFound:
            pass  # Dropped meanwhile: there is nothing left to settle.
        return self.figures

    async def _round(self, ids: Sequence[str]) -> None:
        """Settle some ids in pages; each is written while the next is read and decided."""
        redis, keys = self.context.redis, self.keys
        policy, now = await read_policy(redis, keys, self.context.base), self.context.now()
        self._policy_moved = False
        pages = [ids[at : at + PAGE] for at in range(0, len(ids), PAGE)]
        writing: asyncio.Task[None] | None = None
        items = await read_items(redis, keys, pages[0])
        try:
            for following in [*pages[1:], []]:
                page = await self.decide(items, policy, now)
                if writing is not None:
                    await writing
                if self._policy_moved:
                    return
                # The read is sent first, so that it does not wait behind the write.
                reading = asyncio.create_task(read_items(redis, keys, following))
                writing = asyncio.create_task(self._write(page))
                items = await reading
        finally:
            if writing is not None:
                await writing

    async def decide(self, items: Sequence[DueItem], policy: Effective, now: int) -> Page:
        """What becomes of some due notes. Lets the loop run in between, so that the page before gets written."""
        page, group = Page(policy, now), list[Owed]()
        for item in items:
            step = self._step(item, policy, now)
            if isinstance(step, Filing):
                page.filings.append(step)
            elif isinstance(step, Unreadable):
                page.unreadable.append(step)
            elif self._conflicts[step.id]:
                self._add(page, [step])
            else:
                group.append(step)
                if len(group) == GROUP:
                    self._add(page, group)
                    group = []
                    await asyncio.sleep(0)
        if group:
            self._add(page, group)
        return page

    def _step(self, item: DueItem, policy: Effective, now: int) -> Owed | Filing | Unreadable:
        if isinstance(item, Unreadable):
            return item
        if isinstance(item, Gone):
            return Filing(item.id, None, None)
        if isinstance(item, DueTomb):
            tomb = item.tomb
            left = left_of(tomb, policy.policy, now)
            if left == tomb:
                return Filing(tomb.note.id, tomb.note.version, tomb.purge_at)
            return Owed(item, [], purged=left.purge_at is None)
        try:
            events = clocks.due_events(item.note, policy.policy, now)
        except AmnesiaError as error:
            return Unreadable(item.note.id, f"cannot be settled: {error.message}")
        if events:
            return Owed(item, events)
        step = clocks.next_transition(item.note, policy.policy)
        return Filing(item.note.id, item.note.version, None if step is None else step.at)

    def _add(self, page: Page, group: list[Owed]) -> None:
        """Build the group's unit; where that fails, each note's own, so that only the faulty one is left out."""
        builder = Builder(self.keys, self.context.keyring, page.policy.policy, page.policy.version)
        try:
            for owed in group:
                if isinstance(owed.item, DueTomb):
                    builder.retomb(owed.item.tomb, now=page.now)
                else:
                    builder.change(owed.item.note, owed.events, owed.item.words)
        except AmnesiaError as error:
            if len(group) == 1:
                page.unreadable.append(Unreadable(group[0].id, f"cannot be settled: {error.message}"))
            for owed in group if len(group) > 1 else ():
                self._add(page, [owed])
            return
        page.groups.append((group, builder))

    async def _write(self, page: Page) -> None:
        redis, keys, figures = self.context.redis, self.keys, self.figures
        outcomes = await self.log.commit_now([builder.build() for _, builder in page.groups]) if page.groups else []
        for (group, _), outcome in zip(page.groups, outcomes, strict=True):
            self._learn(page, group, outcome)
        filed = await refile(redis, keys, page.policy.version, page.filings)
        self._policy_moved = self._policy_moved or filed is None
        figures.due += filed or 0
        figures.refiled += filed or 0
        await set_aside(redis, keys, [item.id for item in page.unreadable], page.now + ASIDE_MS)
        figures.due += len(page.unreadable)
        for item in page.unreadable:
            figures.report(item)

    def _learn(self, page: Page, group: Sequence[Owed], outcome: Outcome) -> None:
        figures = self.figures
        if outcome.status in ("ok", "own"):
            figures.due += len(group)
            for owed in group:
                figures.count(owed.events)
                figures.purged += owed.purged
        elif outcome.status != "conflict":
            raise Bug(f"a settling unit was answered {outcome.status}")
        elif outcome.detail == POLICY_CELL:
            self._policy_moved = True
        else:
            figures.conflicts += 1
            for owed in group:
                self._conflicts[owed.id] += 1
                if self._conflicts[owed.id] > MAX_CONFLICTS:
                    # What conflicted is named without the hash of a text: note, text, slot or owner.
                    place = outcome.detail.partition(":")[0]
                    page.unreadable.append(Unreadable(owed.id, f"conflicts again and again on its {place}"))


async def settle(context: Context, ws: str) -> Figures:
    """Write down every transition and purge that is due in the workspace, and erase what that forgets.

    A note that cannot be read is reported and set aside for ``ASIDE_MS``; the pass goes on for all the others. Raises
    ``StoreUnavailable``; what was written until then stays written, and running it again goes on from there.
    """
    return await Settling(context, ws).run()
