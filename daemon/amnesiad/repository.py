"""Which workspace a directory belongs to: its repository, shared by all worktrees, else the directory itself.

Asked by the command line for where it stands and by the daemon for where an agent works, in the same words, so that
both always mean the same workspace. The one process started here is ``git rev-parse``; nothing is read of the files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from amnesiad.errors import Invalid

GIT_TIMEOUT_S: Final = 5.0
"""``git rev-parse`` takes milliseconds; on a file system that hangs, waiting longer would not help."""

# A git hook runs with these set, and git would then believe them rather than the directory it stands in.
_GIT_LOCATION: Final = frozenset({"GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"})


class Place(NamedTuple):
    """Where an agent works: the workspace, and the directories that its files' paths may start at, the nearest
    first."""

    workspace: str
    roots: tuple[str, ...]


def default_workspace(directory: Path, environ: Mapping[str, str], *, store_is_local: bool = True) -> str:
    """The workspace of a directory: its repository, shared by all worktrees, else the directory itself.

    Raises ``Invalid`` when the store is shared between machines (the same path in two containers is not the same
    workspace), when the path is not UTF-8, or when git does not answer.
    """
    if not store_is_local:
        raise Invalid(
            "the store is on another machine, so the current directory does not name a workspace",
            field="workspace",
            hint="name one with --workspace or AMNESIA_WORKSPACE, the same on every machine that shares it",
        )
    name = str(_repository(directory, environ) or directory.resolve())
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Invalid(
            "the path of this directory is not UTF-8, so it cannot name a workspace",
            field="workspace",
            hint="name one with --workspace",
        ) from None
    return name


def find_place(
    directory: Path, environ: Mapping[str, str], *, named: str | None = None, store_is_local: bool = True
) -> Place:
    """The workspace of a directory (``named``: the one that somebody named for it), and its roots.

    Raises ``Invalid`` as ``default_workspace`` does, and for a path that can be no directory's.
    """
    if "\0" in str(directory):
        raise Invalid("the directory holds a NUL byte", field="workspace", hint="name the workspace")
    workspace = named or default_workspace(directory, environ, store_is_local=store_is_local)
    here = _nearest(directory)
    try:
        up = _git("--show-cdup", here, environ)
    except Invalid:  # somebody has named the workspace, and what lies below the directory is still known
        up = None
    here = directory if up is None else here
    top = Path(os.path.normpath(here / (up or "")))
    real = (here.resolve() / (up or "")).resolve()
    # An agent may name its files by way of a link to where they are, and those of another worktree by the main one. A
    # link into the middle of a tree leads up to somewhere else.
    roots = [*([str(top)] if top.resolve() == real else []), str(real)]
    return Place(workspace, tuple(dict.fromkeys([*roots, *([workspace] if workspace.startswith("/") else [])])))


def _repository(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """The root of the repository that a directory belongs to, or ``None`` outside of one or without git."""
    here = _nearest(directory)
    found = _git("--git-common-dir", here, environ)
    if not found:
        return None
    common = (here / found).resolve()
    # A bare repository and a submodule keep their common directory under another name; it is their identity as it is.
    return common.parent if common.name == ".git" else common


def _nearest(directory: Path) -> Path:
    """The directory, or what is left above one that is gone: an agent may remove the tree it works in before it
    ends."""
    return next((place for place in (directory, *directory.parents) if os.path.isdir(place)), directory)  # noqa: PTH112


def _git(question: str, directory: Path, environ: Mapping[str, str]) -> str | None:
    """What ``git rev-parse`` answers about a directory, ``None`` outside of a repository or without git."""
    import subprocess

    # Asking where the repository is runs none of its hooks, so one that belongs to somebody else (a bind mount, most
    # often) is no danger here, and refusing it would give each of its directories a memory of its own.
    command = ["git", "-c", "safe.directory=*", "rev-parse", question]
    clean = {name: value for name, value in environ.items() if name not in _GIT_LOCATION}
    try:
        answer = subprocess.run(command, cwd=directory, env=clean, capture_output=True, timeout=GIT_TIMEOUT_S)
    except OSError:  # no git, or no directory that can be entered
        return None
    except subprocess.TimeoutExpired:
        raise Invalid(
            f"git did not say within {GIT_TIMEOUT_S:g} s which repository this directory belongs to",
            field="workspace",
            hint="name the workspace with --workspace",
        ) from None
    return None if answer.returncode != 0 else answer.stdout.removesuffix(b"\n").decode("utf-8", "surrogateescape")
