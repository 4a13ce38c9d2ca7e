"""Which projections this process holds in memory: those used last are loaded at the start, those nobody uses go.

A projection is derived, so dropping one costs its next user the load and nothing else. A request that is under way
keeps the one it has; both stay true, since every answer is held against the store before it leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from amnesiad.errors import AmnesiaError, StoreUnavailable
from amnesiad.service.base import Base
from amnesiad.store import workspaces

IDLE_MS: Final = 3_600_000
"""A workspace that nobody has used for an hour is dropped; loading it again takes about 30 µs a note."""
MAX_NOTES: Final = 500_000
"""Notes held in all workspaces together, some 700 MB of them; beyond it those used longest ago are dropped."""
PRELOADED: Final = 16
"""Workspaces loaded at the start, if their notes do not exceed ``PRELOADED_NOTES``: what an agent returns to."""
PRELOADED_NOTES: Final = 200_000

logger = structlog.get_logger()
Report = Callable[[int, int], None]


async def preload(service: Base, report: Report) -> None:
    """Load the workspaces used last, the latest first. ``report(done, total)`` is told before and after each.

    One that cannot be loaded is logged and left to ``verify`` and ``rebuild``, which need a daemon that runs. Raises
    ``StoreUnavailable``; what was loaded by then stays.
    """
    names = await workspaces.used_last(service.redis, PRELOADED)
    sizes = await workspaces.sizes(service.redis, list(names.values()))
    chosen: list[str] = []
    room = PRELOADED_NOTES
    for name, size in zip(names, sizes, strict=True):
        if size <= room:
            room -= size
            chosen.append(name)
    report(0, len(chosen))
    for done, name in enumerate(chosen, 1):
        try:
            await service.open(name, create=False)
        except StoreUnavailable:
            raise
        except AmnesiaError as error:
            logger.error("a workspace cannot be loaded", ws=names[name], error=type(error).__name__, code=error.code)
        report(done, len(chosen))


def drop_idle(service: Base) -> int:
    """Drop what nobody has used for ``IDLE_MS``, and beyond ``MAX_NOTES`` what was used longest ago; returns how many.

    The one used last is kept whatever its size.
    """
    now = service.clock.now_ms()
    held = sorted(service.loaded, key=lambda workspace: workspace.used_at, reverse=True)
    notes = dropped = 0
    for place, workspace in enumerate(held):
        notes += len(workspace.notes)
        if now - workspace.used_at >= IDLE_MS or (place and notes > MAX_NOTES):
            service.close(workspace.name)
            dropped += 1
    return dropped
