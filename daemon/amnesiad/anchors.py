"""Anchors on disk: the SHA-256 a file has now. The only code that opens a user's files.

A workspace named by an absolute path has its root there; whether that root is visible to this process is a question
of its own, since an absent root makes every file *unknown*, never changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from amnesiad.core.notes import Anchor

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""A larger file is not hashed (its anchor holds no hash): reading it would stall the worker, and it is no source."""


async def root_of(workspace: str) -> Path | None:
    """The directory a workspace's anchors are relative to, or ``None`` where this process cannot see it."""
    root = Path(workspace)
    return root if root.is_absolute() and await asyncio.to_thread(os.path.isdir, root) else None


def sha256_of(root: Path, path: str) -> str | None:
    """SHA-256 (hex) of the anchored file, or ``None`` where it is no readable regular file inside the root."""
    try:
        target = (root / path).resolve()
        if not target.is_relative_to(root.resolve()) or not target.is_file() or target.stat().st_size > MAX_FILE_BYTES:
            return None
        with target.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, RuntimeError):
        # A RuntimeError is how Python up to 3.12 reports links that lead in a circle.
        return None


async def hash_files(workspace: str, paths: Sequence[str]) -> tuple[Anchor, ...]:
    """Anchors for canonical relative paths, each with the hash its file has now, or none."""
    root = await root_of(workspace) if paths else None
    if root is None:
        return tuple(Anchor(path) for path in paths)

    def work() -> tuple[Anchor, ...]:
        return tuple(Anchor(path, sha256_of(root, path)) for path in paths)

    return await asyncio.to_thread(work)
