"""Which notes an occasion may concern, found without asking each: triggers filed by something they need literally.
Pure.

Whatever a trigger demands is a necessary condition: its event, a path's name, folder or extension, a piece of a command
or of a word. Each trigger is filed under *one* such piece, the one that fewest others are filed under at that moment,
and an occasion looks up the pieces it has. What comes out may be too much, never too little: ``triggers.matching``
decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

from amnesiad.core.notes import Trigger
from amnesiad.core.triggers import Occasion, folded, text_of

GRAM: Final = 6
"""Characters of a command or word that are looked up at most: rare enough to tell most apart, and an occasion's text
has no more pieces of that length than characters."""

Key = tuple[str, str]
ANYTHING: Final[Key] = ("anything", "")
"""For a trigger that needs nothing literally."""

_WILD: Final = re.compile(r"[*?\[\]]")
_NOT_LITERAL: Final = re.compile(r"[*?]|\[!?\]?[^\]]*\]")
"""What ``fnmatch`` takes for more than itself. A bracket that is never closed is literal."""


class TriggerIndex:
    """Ids of notes by their triggers."""

    def __init__(self) -> None:
        self._filed: dict[str, frozenset[Key]] = {}
        self._buckets: dict[Key, set[str]] = {}
        self._sorts: dict[str, int] = {}
        """How many buckets there are of each sort of piece, its length included: an occasion is not cut into others."""

    def __len__(self) -> int:
        return len(self._filed)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._filed

    @property
    def ids(self) -> Set[str]:
        """The notes that are filed."""
        return self._filed.keys()

    def put(self, id_: str, triggers: Sequence[Trigger]) -> None:
        """File a note by these triggers, in place of those it was filed by before."""
        self.drop(id_)
        keys = frozenset(min(_needs(trigger), key=self._crowd) for trigger in triggers)
        if not keys:
            return
        self._filed[id_] = keys
        for key in keys:
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = set()
                self._sorts[key[0]] = self._sorts.get(key[0], 0) + 1
            bucket.add(id_)

    def drop(self, id_: str) -> None:
        """Take the note out, if it is here."""
        for key in self._filed.pop(id_, ()):
            bucket = self._buckets[key]
            bucket.discard(id_)
            if not bucket:
                del self._buckets[key]
                self._sorts[key[0]] -= 1

    def candidates(self, occasion: Occasion) -> list[str]:
        """The ids of all notes that may have a trigger which matches, each once, sorted."""
        found: set[str] = set()
        for key in self._offers(occasion):
            found.update(self._buckets.get(key, ()))
        return sorted(found)

    def _crowd(self, key: Key) -> tuple[bool, int]:
        return key == ANYTHING, len(self._buckets.get(key, ()))

    def _offers(self, occasion: Occasion) -> Iterator[Key]:
        """Every piece that the occasion has, of the sorts that any trigger is filed by."""
        yield ANYTHING
        if occasion.event is not None:
            yield "event", occasion.event
        for path in occasion.paths:
            yield from self._path_offers(path)
        for sort, text in (("command", occasion.command or ""), ("word", folded(text_of(occasion)))):
            for length in range(1, GRAM + 1):
                name = f"{sort}:{length}"
                if self._sorts.get(name):
                    for gram in {text[start : start + length] for start in range(len(text) - length + 1)}:
                        yield name, gram

    def _path_offers(self, path: str) -> Iterator[Key]:
        parts = path.split("/")
        yield "path", path
        yield "name", parts[-1]
        if "." in parts[-1]:
            yield "extension", parts[-1].rpartition(".")[2]
        for depth in range(1, len(parts) + 1):
            name = f"under:{depth}"
            if self._sorts.get(name):
                yield name, "/".join(parts[:depth])
        if self._sorts.get("part"):
            for part in parts:
                yield "part", part


def _needs(trigger: Trigger) -> Iterator[Key]:
    """Every piece without which the trigger cannot match; ``ANYTHING`` at last."""
    if trigger.path is not None:
        yield from _path_needs(trigger.path)
    if trigger.command is not None:
        for run in _NOT_LITERAL.split(trigger.command):
            yield from _grams("command", run)
    for word in trigger.words:
        yield from _grams("word", folded(word))
    if trigger.event is not None:
        yield "event", trigger.event
    yield ANYTHING


def _grams(sort: str, text: str) -> Iterable[Key]:
    length = min(len(text), GRAM)
    name = f"{sort}:{length}"
    return [(name, text[start : start + length]) for start in range(len(text) - length + 1)] if length else []


def _path_needs(pattern: str) -> Iterator[Key]:
    """What ``globs.path_matches`` needs of a path: its name, its extension, its first folders, any component."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    literal = [not _WILD.search(part) for part in parts]
    if not parts:
        return
    if not pattern.endswith("/"):
        if "/" in pattern and all(literal):
            yield "path", "/".join(parts)
        last = parts[-1]
        if literal[-1]:
            yield "name", last
        elif "." in last and not _WILD.search(extension := last.rpartition(".")[2]):
            yield "extension", extension
    if "/" in pattern:
        ahead = literal.index(False) if False in literal else len(parts)
        if ahead:
            yield f"under:{ahead}", "/".join(parts[:ahead])
    for part, plain in zip(parts, literal, strict=True):
        if plain:
            yield "part", part
