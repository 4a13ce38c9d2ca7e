"""Once a second what the embedded server has written is put on the disk: ``durability = everysec``.

The server has such a setting of its own, but not the promise: while one of its syncs is slow it holds what it goes on
acknowledging in its own memory, for up to two seconds, and SIGKILL takes it along. So it is told to leave syncing to
others (``appendfsync no``), hands every write to the kernel before it acknowledges it, and is killed without loss; and
this thread of the owner's has the kernel write it out. When the owner dies, its guard stops the server, which syncs
at its end.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

import structlog

SYNC_EVERY_S: Final = 1.0
"""What a machine that loses power may lose, beside the time of the sync itself."""
APPEND_ONLY: Final = "appendonlydir/*.aof"
"""The server's append-only files below its directory: base and increments, but not their manifest, which it syncs."""

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has the one only
logger = structlog.get_logger()


class Syncer:
    """A thread that syncs the append-only files below a server's directory, from ``start`` to ``stop``."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._synced: dict[Path, tuple[int, int]] = {}
        self._fault = ""
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin. The thread ends with the process, or soon after ``stop``."""
        threading.Thread(target=self._run, name="amnesia-sync", daemon=True).start()

    def stop(self) -> None:
        """Begin nothing new. Does not wait for a sync under way, which can take as long as the disk likes."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(SYNC_EVERY_S):
            try:
                self._sync_all()
            except OSError as error:
                # Tried again in a second; said once, not every second.
                fault = error.strerror or type(error).__name__
                if fault != self._fault:
                    logger.error("what was written could not be synced to disk", error=fault)
                self._fault = fault
            else:
                self._fault = ""

    def _sync_all(self) -> None:
        """Sync every file that has changed since it was synced last. Raises ``OSError``."""
        paths = list(self._data_dir.glob(APPEND_ONLY))
        # Each rewrite brings new names; those it replaced are forgotten.
        self._synced = {path: seen for path, seen in self._synced.items() if path in paths}
        for path in paths:
            try:
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # A rewrite has just replaced it.
                continue
            try:
                # Taken before the sync: what is written during it makes the file look changed again.
                status = os.fstat(handle)
                seen = status.st_mtime_ns, status.st_size
                if self._synced.get(path) != seen:
                    _sync(handle)
                    self._synced[path] = seen
            finally:
                os.close(handle)
