"""An agent's paths as ours: relative to the workspace, whichever of its roots they start at. By their letters alone."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence

from amnesiad.core.errors import CallerError
from amnesiad.core.intake import check_path


def relative_paths(paths: Iterable[str], cwd: str | None, roots: Sequence[str]) -> tuple[str, ...]:
    """Those paths that lie below one of the roots (the first that fits counts), relative to it, each once.

    A relative path starts at ``cwd``. What lies elsewhere, or cannot be a path of a note, is left out: there are no
    notes about it.
    """
    found = (_relative(path, cwd, roots) for path in paths)
    return tuple(dict.fromkeys(path for path in found if path is not None))


def _relative(path: str, cwd: str | None, roots: Sequence[str]) -> str | None:
    if not path.startswith("/"):
        if cwd is None:
            return None
        path = posixpath.join(cwd, path)
    path = posixpath.normpath(path)
    for root in roots:
        below = root.rstrip("/") + "/"
        if path.startswith(below):
            try:
                return check_path(path.removeprefix(below), "path")
            except CallerError:
                return None
    return None
