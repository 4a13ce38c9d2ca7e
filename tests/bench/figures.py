"""What a measurement hands back, and how measurements are taken on a machine that does other things too."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

ROUNDS = 7
"""Rounds of each measurement. The best one counts: other load only ever adds to it."""


class Figure(NamedTuple):
    """One measured thing beside what it is compared with, in the same unit."""

    what: str
    value: float
    than: str
    baseline: float
    unit: str

    @property
    def ratio(self) -> float:
        """Ours by theirs."""
        return self.value / self.baseline


async def seconds(run: Callable[[], Awaitable[object]]) -> float:
    """How long one run takes."""
    started = time.perf_counter()
    await run()
    return time.perf_counter() - started


async def side_by_side(
    ours: Callable[[int], Awaitable[object]], theirs: Callable[[int], Awaitable[object]]
) -> tuple[float, float]:
    """The best time of each, in seconds, measured in turns so that both meet the same weather. Takes the round."""
    best = [float("inf"), float("inf")]
    for number in range(ROUNDS):
        for i, run in enumerate((ours, theirs)):
            best[i] = min(best[i], await seconds(lambda run=run, number=number: run(number)))  # type: ignore[misc]
    return best[0], best[1]
