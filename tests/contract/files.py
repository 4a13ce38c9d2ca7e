"""What the files of an embedded server tell: whether anybody writes to them, and whether they hold a text."""

from __future__ import annotations

import fcntl
from pathlib import Path


def unowned(data_dir: Path) -> bool:
    """Whether no process at all writes to the directory; a zombie does not count, nor does a reused pid."""
    with (data_dir / "server.lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def holds(data_dir: Path, marker: str) -> bool:
    """Whether any file below the directory contains the marker."""
    return any(marker.encode() in path.read_bytes() for path in data_dir.rglob("*") if path.is_file())
