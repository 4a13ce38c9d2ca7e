"""How many notes a workspace has in each state, what they cost and when the next expires; how many were forgotten, and
when: counted in slices, for all.

Counting looks at every note, so it lets others be answered in between, and it is kept by group, which is all that
decides who may see a note: one count serves every caller. Who can do with a count that is some seconds old says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from amnesiad.core import clocks
from amnesiad.core.notes import STATES, State
from amnesiad.projection import Group, group_of
from amnesiad.store import vault
from amnesiad.store.units import FORGOTTEN
from amnesiad.workspace import Workspace

SLICE: Final = 1000
"""Notes between two pauses: some milliseconds, as long as a large request takes."""


class Sum(NamedTuple):
    """Notes by state, tokens of the live ones, and the earliest instant at which one of these expires (epoch ms)."""

    by_state: dict[State, int]
    tokens: int
    next_expiry: int | None


class Tally(NamedTuple):
    """The sums of all groups, as settled at ``at`` (epoch ms)."""

    at: int
    sums: dict[Group, Sum]

    def seen(self, sees: Callable[[Group], bool]) -> Sum:
        """The sum of those groups that ``sees`` lets through."""
        by_state, tokens = dict.fromkeys(STATES, 0), 0
        expiries = []
        for group, part in self.sums.items():
            if not sees(group):
                continue
            for state, count in part.by_state.items():
                by_state[state] += count
            tokens += part.tokens
            if part.next_expiry is not None:
                expiries.append(part.next_expiry)
        return Sum(by_state, tokens, min(expiries, default=None))


class Losses(NamedTuple):
    """The forgotten notes of all groups: how many in all and in each, and when the latest of each was forgotten (epoch
    ms)."""

    total: int
    counts: Counter[Group]
    latest: dict[Group, int]

    def seen(self, sees: Callable[[Group], bool]) -> tuple[int, int | None]:
        """How many there are in the groups that ``sees`` lets through, and when the latest of these was forgotten."""
        groups = [group for group in self.counts if sees(group)]
        return sum(self.counts[group] for group in groups), max((self.latest[group] for group in groups), default=None)


_latest: Final[WeakKeyDictionary[Workspace, Tally]] = WeakKeyDictionary()
_counting: Final[WeakKeyDictionary[Workspace, asyncio.Lock]] = WeakKeyDictionary()
_losses: Final[WeakKeyDictionary[Workspace, Losses]] = WeakKeyDictionary()
_digging: Final[WeakKeyDictionary[Workspace, asyncio.Lock]] = WeakKeyDictionary()


async def tally(workspace: Workspace, now: int, *, max_age_ms: int = 0) -> Tally:
    """The workspace's tally at ``now``, or one that is at most ``max_age_ms`` old.

    Those who can do with an older one wait for each other's.
    """
    if not max_age_ms:
        return await _count(workspace, now)
    async with _counting.setdefault(workspace, asyncio.Lock()):
        known = _latest.get(workspace)
        if known is None or not 0 <= now - known.at <= max_age_ms:
            known = _latest[workspace] = await _count(workspace, now)
        return known


async def _count(workspace: Workspace, now: int) -> Tally:
    """A note that comes or changes meanwhile is counted as it is when its turn comes, or is missing."""
    states: defaultdict[Group, defaultdict[State, int]] = defaultdict(lambda: defaultdict(int))
    live: defaultdict[Group, list[str]] = defaultdict(list)
    expiries: dict[Group, int] = {}
    for place, note_id in enumerate(list(workspace.notes), start=1):
        if place % SLICE == 0:
            await asyncio.sleep(0)
        note = workspace.settled(note_id, now)
        if note is None:
            continue
        group = group_of(note)
        states[group][note.state] += 1
        if note.live:
            live[group].append(note_id)
            # What never ends by time needs no asking.
            if note_id in workspace.due and (end := clocks.expires_at(note, workspace.policy)) is not None:
                expiries[group] = min(end, expiries.get(group, end))
    sums = {}
    for group, by_state in states.items():
        await asyncio.sleep(0)
        still_there = [note_id for note_id in live[group] if note_id in workspace.notes]
        sums[group] = Sum(dict(by_state), workspace.cost_of_all(still_there), expiries.get(group))
    return Tally(now, sums)


async def losses(workspace: Workspace) -> Losses:
    """The workspace's losses. All tombs are read only where the store counts others than were there the last time.

    Raises ``StoreUnavailable``.
    """
    async with _digging.setdefault(workspace, asyncio.Lock()):
        total = (await vault.totals(workspace.redis, workspace.keys)).get(FORGOTTEN, 0)
        known = _losses.get(workspace)
        if known is None or known.total != total:
            known = Losses(total, Counter(), {})
            async for grave in vault.graves(workspace.redis, workspace.keys):
                group = group_of(grave.tomb.note)
                known.counts[group] += 1
                known.latest.setdefault(group, grave.tomb.note.state_at)
            _losses[workspace] = known
        return known
