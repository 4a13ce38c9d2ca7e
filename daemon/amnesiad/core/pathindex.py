"""Which notes may have to do with a path, found without asking each: by anchor, by trigger, and by what texts must
hold. Pure.

Of anchors it is exactly those that have one; else it may be too many and is never too few, and ``recall.path_grade``
decides. Anchors are filed under their path and under every folder above it, since a question about a folder concerns
all that is anchored below.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from amnesiad.core.invisible import seen
from amnesiad.core.notes import Trigger, Words
from amnesiad.core.triggerindex import TriggerIndex
from amnesiad.core.triggers import Occasion


class PathIndex:
    """Ids of notes by the paths of their anchors and triggers."""

    def __init__(self) -> None:
        self._anchored: dict[str, set[str]] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._globs = TriggerIndex()

    def __len__(self) -> int:
        return len(self._paths.keys() | self._globs.ids)

    def put(self, id_: str, words: Words) -> None:
        """File a note by these words, in place of those it was filed by before."""
        self.drop(id_)
        self._globs.put(id_, [Trigger(path=one.path) for one in words.triggers if one.path is not None])
        if words.anchors:
            self._paths[id_] = tuple(anchor.path for anchor in words.anchors)
            for folder in _with_folders(self._paths[id_]):
                self._anchored.setdefault(folder, set()).add(id_)

    def drop(self, id_: str) -> None:
        """Take the note out, if it is here."""
        self._globs.drop(id_)
        for folder in _with_folders(self._paths.pop(id_, ())):
            ids = self._anchored[folder]
            ids.discard(id_)
            if not ids:
                del self._anchored[folder]

    def candidates(self, paths: Sequence[str]) -> set[str]:
        """The notes that may have an anchor at or below one of the paths, or a trigger for one of them."""
        return self.anchored(paths).union(self._globs.candidates(Occasion(paths=paths)))

    def anchored(self, paths: Sequence[str] | None = None) -> set[str]:
        """The notes that have an anchor at or below one of the paths, or anywhere: these, and no others."""
        if paths is None:
            return set(self._paths)
        return {id_ for path in paths for id_ in self._anchored.get(path, ())}


def _with_folders(paths: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for path in paths:
        parts = path.split("/")
        seen.update("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return iter(seen)


def words_of_mention(path: str) -> str | None:
    """The words that every text which mentions the path holds, for an index of words; ``None`` for a path without any.

    A mention stands apart from other letters, digits and marks in the text as it is seen, so what is between the signs
    of a path are words of it.
    """
    return "".join(char if _of_a_word(char) else " " for char in seen(path)).strip() or None


def _of_a_word(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char).startswith("M")
