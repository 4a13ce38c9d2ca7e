"""A change to one file: shown before it is made, made at once or not at all, and the file's mode and links kept."""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from amnesiad.errors import Invalid

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Settings are kilobytes, and the largest file an agent keeps its state in a few megabytes."""
BOM: Final = "\ufeff"


class Change(NamedTuple):
    """A file before and after; ``None`` where there is none. ``mode`` is for a file that is new."""

    path: Path
    before: str | None
    after: str | None
    mode: int = 0o644

    @property
    def needed(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after


def read(path: Path) -> str | None:
    """The file's text, line ends as they are; ``None`` where there is none. Raises ``Invalid``."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Invalid(f"{path} is no file", field="file", hint="move it away")
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no usable path"
        raise Invalid(f"{path} cannot be read: {why}", field="file", hint="mend its permissions") from None
    if len(data) > MAX_FILE_BYTES:
        raise Invalid(f"{path} exceeds {MAX_FILE_BYTES} bytes", field="file", hint="it is no settings file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8 text", field="file", hint="convert it first") from None


def diff(change: Change) -> Iterator[str]:
    """The lines of a unified diff."""
    before = (change.before or "").splitlines()
    after = (change.after or "").splitlines()
    old = str(change.path) if change.before is not None else os.devnull
    new = str(change.path) if change.after is not None else os.devnull
    return difflib.unified_diff(before, after, old, new, lineterm="")


def apply(change: Change) -> None:
    """Make the change. A link stays one, and what it leads to is changed. Raises ``Invalid``; nothing has changed then.

    The file is written anew beside the old one and takes its place, so that no reader ever sees half of it.
    """
    target = Path(os.path.realpath(change.path))
    try:
        if read(target) != change.before:
            raise Invalid(
                f"{change.path} was changed by somebody else meanwhile", field="file", hint="run the command again"
            )
        if change.after is None:
            target.unlink(missing_ok=True)
        else:
            _replace(target, change.after, change.mode)
    except OSError as error:
        raise Invalid(
            f"{change.path} cannot be written: {error.strerror}", field="file", hint="mend its permissions"
        ) from error


def _replace(target: Path, text: str, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(target.stat().st_mode)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
