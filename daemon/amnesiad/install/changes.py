"""Changes to files: shown before they are made, made together or not at all, and a file's mode and links kept."""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
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
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Invalid(f"{path} is no file", field="file", hint="move it away")
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no usable path"
        hint = "mend its permissions" if isinstance(error, PermissionError) else "move it away"
        raise Invalid(f"{path} cannot be read: {why}", field="file", hint=hint) from None
    if len(data) > MAX_FILE_BYTES:
        raise Invalid(f"{path} exceeds {MAX_FILE_BYTES} bytes", field="file", hint="it is no settings file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8 text", field="file", hint="convert it first") from None


def _open_at_once(path: str, flags: int) -> int:
    """Without O_NONBLOCK a path that is a pipe would never open."""
    return os.open(path, flags | os.O_NONBLOCK)


def diff(change: Change) -> Iterator[str]:
    """The lines of a unified diff."""
    before = (change.before or "").splitlines()
    after = (change.after or "").splitlines()
    old = str(change.path) if change.before is not None else os.devnull
    new = str(change.path) if change.after is not None else os.devnull
    return difflib.unified_diff(before, after, old, new, lineterm="")


class _Step(NamedTuple):
    """One file's change, ready to be made: what it leads to, and beside that its new text and its old one."""

    change: Change
    target: Path
    new: Path | None
    old: Path | None

    def take(self) -> None:
        self._put(self.new)

    def take_back(self) -> None:
        self._put(self.old)

    def _put(self, draft: Path | None) -> None:
        if draft is None:
            self.target.unlink(missing_ok=True)
        else:
            draft.replace(self.target)


def apply(changes: Sequence[Change]) -> None:
    """Make the changes. A link stays one, and what it leads to is changed. Raises ``Invalid``; nothing has changed
    then, unless it names a file that could not be put back.

    Each file is written anew beside the old one, and so is the old one's copy; only when all of that is written do the
    new ones take their places, and where one cannot, the old ones return to theirs. No reader ever sees half a file,
    and a full disk or a directory that is closed leaves nothing half done. Only a process that is killed in between
    does.
    """
    with contextlib.ExitStack() as drafts:
        steps = []
        for change in changes:
            with _blamed(change):
                steps.append(_prepared(change, drafts))
        taken: list[_Step] = []
        try:
            for step in steps:
                with _blamed(step.change):
                    step.take()
                taken.append(step)
        except BaseException:
            _take_back(reversed(taken))
            raise


def _prepared(change: Change, drafts: contextlib.ExitStack) -> _Step:
    target = Path(os.path.realpath(change.path))
    if read(target) != change.before:
        raise Invalid(
            f"{change.path} was changed by somebody else meanwhile", field="file", hint="run the command again"
        )
    written = []
    for text in (change.after, change.before):
        draft = None if text is None else _draft(target, text, change.mode)
        if draft is not None:
            drafts.callback(draft.unlink, missing_ok=True)
        written.append(draft)
    return _Step(change, target, *written)


def _take_back(steps: Iterable[_Step]) -> None:
    lost = []
    for step in steps:
        try:
            step.take_back()
        except OSError as error:
            lost.append(f"{step.change.path} ({error.strerror})")
    if lost:
        raise Invalid(
            f"not all could be written, and what was could not be put back: {', '.join(lost)}",
            field="file",
            hint="mend its permissions, and run the command again",
        )


@contextlib.contextmanager
def _blamed(change: Change) -> Iterator[None]:
    """Say of which file it is that something went wrong."""
    try:
        yield
    except OSError as error:
        raise Invalid(
            f"{change.path} cannot be written: {error.strerror}", field="file", hint="mend its permissions"
        ) from error
    except UnicodeEncodeError:
        raise Invalid(
            f"{str(change.path)!a} would have to name a path that is not UTF-8",
            field="file",
            hint="put the socket, and amnesia itself, where the path is UTF-8",
        ) from None


def _draft(target: Path, text: str, mode: int) -> Path:
    """The text in a file beside the target, with the target's mode and owner if there is one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    facts = target.stat() if target.exists() else None
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            if facts is not None:
                mode = stat.S_IMODE(facts.st_mode)
                with contextlib.suppress(PermissionError):  # only root can give a file to somebody else
                    os.fchown(stream.fileno(), facts.st_uid, facts.st_gid)
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft
