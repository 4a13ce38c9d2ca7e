"""Files kept in notes: how a text is cut into parts and put together again, and how files and directories are shown.

Pure: notes and texts in, notes and texts out. Who asks for a file, and what is refused, is the tool's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

LISTED_LEVELS: Final = 2
"""How deep a directory is shown."""
NUMBER_WIDTH: Final = 6
"""Of the line numbers in front of a file's lines, as the tool's users know them."""


class Part(NamedTuple):
    """One note of a file."""

    id: str
    number: int
    text: str
    stale: bool


class File(NamedTuple):
    """The living parts of a file, in order."""

    path: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The whole."""
        return "".join(part.text for part in self.parts)

    @property
    def remark(self) -> str:
        """What a reader must know of it besides; mostly nothing."""
        numbers = [part.number for part in self.parts]
        gone = [str(number) for number in range(1, numbers[-1]) if number not in numbers]
        said = []
        if gone:
            said.append(f" Part {', '.join(gone)} of it has ended.")
        if any(part.stale for part in self.parts):
            said.append(" It is stale: verify it before you rely on it.")
        return "".join(said)


def directories_of(path: str) -> list[str]:
    """The directories above, from the root down."""
    steps = path.split("/")
    return ["/".join(steps[:depth]) for depth in range(2, len(steps))]


def key_of(path: str, number: int) -> str:
    """The key of a part."""
    return f"{path}#{number}"


def note_of(path: str, number: int, piece: str) -> dict[str, Any]:
    """A part as remember takes it. The key is also its first line."""
    key = key_of(path, number)
    return {
        "content": f"{key}\n{piece}",
        "key": key,
        "tags": [path, *(f"{directory}/" for directory in directories_of(path))],
    }


def assembled(notes: Iterable[Mapping[str, Any]]) -> dict[str, File]:
    """The files that notes are parts of. A note that only has the tags of one is none."""
    found: dict[str, dict[int, Part]] = {}
    for note in sorted(notes, key=lambda note: int(note["created_at"])):
        key = note.get("key") or ""
        path, _, number = key.rpartition("#")
        head, _, text = note["content"].partition("\n")
        if head == key and path in note["tags"] and number.isdecimal():
            part = Part(note["id"], int(number), text, note["state"] == "stale")
            found.setdefault(path, {})[part.number] = part
    return {path: File(path, tuple(parts[number] for number in sorted(parts))) for path, parts in sorted(found.items())}


def pieces_of(text: str, room: int) -> list[str]:
    """The text in pieces of at most ``room`` bytes: paragraphs together as long as they fit, else lines, else
    characters."""
    pieces: list[str] = []
    held, size = [""], 0
    for unit in _units(text, room):
        length = len(unit.encode())
        if size + length > room:
            pieces.append("".join(held))
            held, size = [], 0
        held.append(unit)
        size += length
    return [*pieces, "".join(held)]


def _units(text: str, room: int) -> Iterator[str]:
    """What is not cut: whole paragraphs where they fit, of one that does not its lines, of a line its characters."""
    for paragraph in re.split(r"(?<=\n\n)(?!\n)", text):
        if len(paragraph.encode()) <= room:
            yield paragraph
            continue
        for line in re.split(r"(?<=\n)", paragraph):
            if len(line.encode()) <= room:
                yield line
            else:
                yield from line


def numbered(lines: list[str], first: int) -> str:
    """Lines with their numbers."""
    return "\n".join(f"{number:>{NUMBER_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def listing(path: str, files: Mapping[str, File]) -> str:
    """Sizes and paths, two levels deep; what begins with a dot is not shown, as everywhere."""
    sizes = {path: 0}
    for name, file in files.items():
        steps = name.removeprefix(f"{path}/").split("/")
        if any(step.startswith(".") for step in steps):
            continue
        size = len(file.text.encode())
        sizes[path] += size
        for level in range(1, min(len(steps), LISTED_LEVELS) + 1):
            shown = f"{path}/{'/'.join(steps[:level])}{'/' if level < len(steps) else ''}"
            sizes[shown] = sizes.get(shown, 0) + size
    rows = [f"{_size(size)}\t{name}" for name, size in sorted(sizes.items())]
    head = f"Here're the files and directories up to {LISTED_LEVELS} levels deep in {path}, excluding hidden items:"
    return "\n".join([head, *rows])


def _size(size: float) -> str:
    for unit in "BKM":
        if size < 1024 or unit == "M":
            break
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + unit
