"""Ending tasks for certain, and pausing before what has ended is begun again.

A cancellation can get lost, and whoever waits for the task then waits for ever.

``asyncio.wait_for`` of Python 3.11, with which redis-py sends, swallows a cancellation that comes together with what it
waited for. Only for tasks that tidy up in no time: one that takes longer would be interrupted in it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

AGAIN_S: Final = 1.0
"""How long a cancellation is given before it counts as lost."""


class Backoff:
    """How long to pause before what has ended is begun again: ``first_s``, then each time twice as long up to
    ``longest_s``, and anew from the first after a run of more than ``steady_s``."""

    def __init__(self, first_s: float, longest_s: float, steady_s: float) -> None:
        self._first_s, self._longest_s, self._steady_s = first_s, longest_s, steady_s
        self._next_s = first_s

    def pause_s(self, ran_s: float) -> float:
        """The pause after a run of that length."""
        pause_s = self._first_s if ran_s > self._steady_s else self._next_s
        self._next_s = min(self._longest_s, 2 * pause_s)
        return pause_s


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks and wait until all have ended, however. What they raised is theirs and is dropped."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
    for task in tasks:
        if not task.cancelled():
            task.exception()
