"""Ending tasks for certain. A cancellation can get lost, and whoever waits for the task then waits for ever.

``asyncio.wait_for`` of Python 3.11, with which redis-py sends, swallows a cancellation that comes together with what it
waited for. Only for tasks that tidy up in no time: one that takes longer would be interrupted in it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

AGAIN_S: Final = 1.0
"""How long a cancellation is given before it counts as lost."""


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
