"""Where agents work, for a daemon: which workspace a directory belongs to, asked in a thread and remembered a while.

Finding out starts a process and looks at the disk, so it must not be done while everybody else waits, nor again for
each of the many calls from one directory. What a directory belongs to is decided in ``amnesiad.repository``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from amnesiad.repository import Place, find_place

KEEP_S: Final = 60.0
"""How long a directory is taken to belong where it belonged: a repository that is made in it is soon noticed."""
MAX_KEPT: Final = 1024
"""Directories that are remembered, the latest: every worktree and folder that the agents of a machine stand in."""


class Whereabouts:
    """The places of directories. One event loop; ``monotonic`` tells seconds."""

    def __init__(
        self, environ: Mapping[str, str], *, store_is_local: bool, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._environ = dict(environ)
        self._monotonic = monotonic
        self._store_is_local = store_is_local
        self._found: OrderedDict[tuple[str, str | None], tuple[float, asyncio.Task[Place]]] = OrderedDict()

    async def of(self, directory: str, named: str | None = None) -> Place:
        """The place of an absolute directory; ``named`` is the workspace that somebody named for it.

        Those who ask at the same time wait for one answer. Raises ``Invalid`` as ``find_place`` does; a refusal is not
        remembered.
        """
        key, now = (directory, named), self._monotonic()
        known = self._found.get(key)
        if known is None or now - known[0] > KEEP_S:
            before = None if known is None else _found(known[1])
            task = asyncio.create_task(asyncio.to_thread(self._find, directory, named, before))
            known = self._found[key] = (now, task)
            self._found.move_to_end(key)
            if len(self._found) > MAX_KEPT:
                self._found.popitem(last=False)
        try:
            # Whoever asked first may be cut off by its own deadline, and the others still wait.
            return await asyncio.shield(known[1])
        except Exception:
            if self._found.get(key) is known:
                del self._found[key]
            raise

    def _find(self, directory: str, named: str | None, before: Place | None) -> Place:
        if before is not None and not os.path.isdir(directory):  # noqa: PTH112 - what may not be entered is none
            return before  # a tree that was removed while its agent is still there, and is about to end
        return find_place(Path(directory), self._environ, named=named, store_is_local=self._store_is_local)


def _found(task: asyncio.Task[Place]) -> Place | None:
    """What the task has found, if it has."""
    return task.result() if task.done() and not task.cancelled() and task.exception() is None else None
