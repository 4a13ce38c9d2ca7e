"""The timer: sees to it that what is due is settled on time, whether or not anything else happens in a workspace.

It holds no truth. The due index in the store says what is due; hints from our own writes and a sweep over the first
entry of every workspace's index only say when to look. A lost job is asked for again, a lost hint costs one sweep. The
same sweep sees where the index is filed by another policy than the one in force, the operator's own included.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

import structlog
from redis.asyncio import Redis

from amnesiad.bridge.jobs import Jobs
from amnesiad.core.policy import Policy
from amnesiad.errors import AmnesiaError, StoreUnavailable
from amnesiad.store.clock import StoreClock
from amnesiad.store.due import earliest
from amnesiad.store.erase import unscrubbed_of_dropped
from amnesiad.store.policies import fingerprint
from amnesiad.store.queue import worker_alive
from amnesiad.store.workspaces import all_workspaces

SWEEP_S: Final = 0.5
"""How often every workspace's first due entry is looked at: a TTL of a millisecond is swept within the second."""
SWEEP_SHARE: Final = 50
"""A sweep that takes long is followed by this many times its length without one: 2 % of the time at most."""
RELOOK_MS: Final = 250
"""After a settle was asked for, the index is looked at again: what is still due is asked for again."""
TICKS: Final[dict[str, float]] = {"reconcile": 60.0, "trim": 3_600.0, "purge_audit": 86_400.0}
"""Jobs over all workspaces and how often they run, in seconds; the job's id makes one of several daemons' ticks."""
MIN_SLEEP_S: Final = 0.001
"""Whatever is overdue, the loop is never spun."""
SCRUB_PARTS: Final = 4
"""A rewrite runs at most this many times in ``erase_within``, so that words are gone in time and the disk has peace."""

logger = structlog.get_logger()


class Timer:
    """Keeps the earliest due time of every workspace and asks for settle then. ``run`` until cancelled."""

    def __init__(self, redis: Redis, clock: StoreClock, jobs: Jobs, base: Policy, *, erase_within: int) -> None:
        self._redis = redis
        self._clock = clock
        self._jobs = jobs
        self._base = fingerprint(base)
        self._base_compared = False
        self._unfiled: set[str] = set()
        self._scrub_every_s = min(15.0, erase_within / 1000 / SCRUB_PARTS)
        self._due: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._next_sweep = 0.0
        self._next_scrub = 0.0
        self._scrub_wanted = False
        self._next_tick = dict.fromkeys(TICKS, 0.0)
        jobs.on_due = self.hint
        jobs.on_scrub = self.want_scrub

    def hint(self, ws: str, at: int) -> None:
        """Something of the workspace is due at store time ``at`` (ms)."""
        if at < self._due.get(ws, at + 1):
            self._due[ws] = at
            self._wake.set()

    def want_scrub(self) -> None:
        """Something was erased."""
        self._scrub_wanted = True
        self._wake.set()

    async def run(self) -> None:
        """Never returns. While the store is away or no worker lives it asks for nothing, and looks again after a
        rest."""
        while True:
            self._wake.clear()
            try:
                done = await self._turn()
            except StoreUnavailable:
                done = False
            except AmnesiaError as error:
                logger.error("the timer stumbled", error=type(error).__name__, code=error.code)
                done = False
            if done:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._sleep_s()):
                        await self._wake.wait()
            else:
                # What is due stays due, and hints go on: neither may wake us for what cannot be done.
                await asyncio.sleep(SWEEP_S)

    def _sleep_s(self) -> float:
        now = time.monotonic()
        waits = [self._next_sweep - now]
        if self._due:
            waits.append((min(self._due.values()) - self._clock.now_ms()) / 1000)
        if self._scrub_wanted:
            waits.append(self._next_scrub - now)
        return max(min(waits), MIN_SLEEP_S)

    async def _turn(self) -> bool:
        """Ask for what is due; ``False`` if nobody would do it. Raises ``StoreUnavailable`` or ``Bug``."""
        now = time.monotonic()
        if now >= self._next_sweep:
            await self._sweep()
        store_now = self._clock.now_ms()
        ripe = [ws for ws, at in self._due.items() if at <= store_now]
        ticks = [name for name, at in self._next_tick.items() if now >= at]
        scrub = self._scrub_wanted and now >= self._next_scrub
        if not (ripe or ticks or scrub or self._unfiled):
            return True
        if not await worker_alive(self._redis):
            return False  # Jobs for nobody would only pile up.
        for ws in sorted(self._unfiled):
            await self._jobs.enqueue("refile", ws, key=ws)
            self._unfiled.discard(ws)
        for ws in ripe:
            self._due[ws] = store_now + RELOOK_MS
            await self._jobs.enqueue("settle", ws, key=ws)
        for name in ticks:
            await self._jobs.enqueue(name, key="all")
            self._next_tick[name] = now + TICKS[name]
        if scrub:
            self._scrub_wanted = False
            self._next_scrub = now + self._scrub_every_s
            await self._jobs.enqueue("scrub", key="all")
        return True

    async def _sweep(self) -> None:
        """Take the earliest due time of every workspace from the store, and see whether anything is unscrubbed or filed
        by another policy. The base is compared once: daemons that disagree about it must not file to and fro."""
        began = time.monotonic()
        names = list((await all_workspaces(self._redis)).values())
        found = await earliest(self._redis, names)
        dropped = await unscrubbed_of_dropped(self._redis)
        due: dict[str, int] = {}
        relook = self._clock.now_ms() + RELOOK_MS
        for ws, first in zip(names, found, strict=True):
            if first.at is not None:
                # One that was asked for a moment ago is given that moment.
                asked = self._due.get(ws, 0)
                due[ws] = asked if first.at < asked <= relook else first.at
            if not first.filed.current or not (self._base_compared or first.filed.base == self._base):
                self._unfiled.add(ws)
        self._due, self._base_compared = due, True
        self._scrub_wanted = self._scrub_wanted or dropped > 0 or any(first.unscrubbed > 0 for first in found)
        took = time.monotonic() - began
        self._next_sweep = time.monotonic() + max(SWEEP_S, SWEEP_SHARE * took)
