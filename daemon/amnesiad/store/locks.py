"""Locks that are files: held by whoever has the descriptor, and gone with the last of them, however that one ends.

Each says in clear who holds it, for the sentence that refuses the next one; the lock itself never depends on that.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Final

from amnesiad.errors import ConfigError

LIMIT_BYTES: Final = 8_192
"""The most of a lock worth reading; ours is one short line."""


def open_lock(path: Path) -> int:
    """A descriptor of the lock's file, which is made if need be; nothing is taken yet. Raises ``ConfigError``."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror}", field="state_dir") from error


def try_lock(lock: int) -> bool:
    """Take the lock if it is free. It ends with the last process that holds the descriptor, however that one ends.

    Raises ``ConfigError`` where files cannot be locked.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConfigError(
            f"the store's directory cannot be locked: {error.strerror}",
            hint="choose a state_dir on a local disk",
            field="state_dir",
        ) from error
    return True


def write_lock(lock: int, fields: dict[str, object]) -> None:
    """Note in a lock we hold who holds it. Written in place: a renamed file would be another lock."""
    line = json.dumps(fields).encode() + b"\n"
    os.ftruncate(lock, 0)
    os.pwrite(lock, line, 0)


def read_lock(lock: int) -> dict[str, object]:
    """Who holds a lock, as far as it says; empty when its holder was just about to write it."""
    try:
        loaded = json.loads(os.pread(lock, LIMIT_BYTES, 0))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
