"""Path patterns, matched by whole components: what a trigger's ``path`` means wherever it is asked.

``*`` and ``?`` never cross a slash, ``**`` stands for any number of components, ``[...]`` for one character. A pattern
without a slash names a file wherever it lies (``*.py``, ``Makefile``); one that ends in a slash covers everything
below.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

ANY_DEPTH: Final = "**"


def path_matches(pattern: str, path: str) -> bool:
    """Whether a canonical workspace-relative path matches the pattern. Case counts."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts:
        return False
    if pattern.endswith("/"):
        parts.append(ANY_DEPTH)
    elif "/" not in pattern:
        parts.insert(0, ANY_DEPTH)
    return _components_match(parts, path.split("/"))


def _components_match(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Match from the left, returning to the last ``**`` when stuck: never more than patterns x names steps."""
    at = name = 0
    resume_at, resume_name = -1, 0
    while name < len(names):
        if at < len(patterns) and patterns[at] == ANY_DEPTH:
            resume_at, resume_name = at, name
            at += 1
        elif at < len(patterns) and fnmatchcase(names[name], patterns[at]):
            at += 1
            name += 1
        elif resume_at >= 0:
            resume_name += 1
            at, name = resume_at + 1, resume_name
        else:
            return False
    return all(part == ANY_DEPTH for part in patterns[at:])
