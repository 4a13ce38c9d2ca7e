"""The memory tool's six commands over notes: each is a generator of requests that is sent their answers, and returns a
text.

A file is one note, or several numbered parts where it is longer than a note may be, cut between paragraphs. A part's
key is ``path#number``, so that a changed part supersedes the old one in one step and two writers cannot leave two; the
key is also the first line of its content, for a part is read outside its file too, and a text lives only once in a
workspace. Tags name the file and every directory above it.

Files end as notes do. Viewing a file renews all of it; one that nobody views fades and goes, and what has gone from the
middle of a file is said where the file is shown. ``delete`` forgets a file with all that it ever held under its name,
and ``rename`` writes it anew and forgets it under the old one. A command is several requests: it writes before it
forgets, so that one which is cut off leaves too much rather than too little. There is no file system behind it; paths
are names.

No I/O and no library here; what is refused is ``Invalid``, in words that a model can act on.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

from amnesiad.core.intake import MAX_KEY_BYTES, MAX_TAGS
from amnesiad.core.policy import parse_setting
from amnesiad.errors import Invalid
from amnesiad.integrations.files import (
    File,
    Part,
    assembled,
    directories_of,
    key_of,
    listing,
    note_of,
    numbered,
    pieces_of,
)
from amnesiad.integrations.link import Ask

ROOT: Final = "/memories"
"""Where the tool's paths begin."""
MAX_PARTS: Final = 200
"""Parts of one file: 400 kilobytes by default, more than a model wants to read at once."""
MAX_PATH_BYTES: Final = MAX_KEY_BYTES - len("#999")
"""Of a path, so that its parts have keys."""
MAX_DEPTH: Final = MAX_TAGS - 2
"""Directories above a file: each is a tag of its notes."""
PAGE: Final = 1000
"""Notes of one list: the most that one request takes."""
CONTEXT_LINES: Final = 2
"""Shown above and below a change."""
COMMANDS: Final = ("view", "create", "str_replace", "insert", "delete", "rename")
MAX_NAME_CHARS: Final = 64
"""Of an unknown command's name, what its refusal repeats."""
MAX_UNQUOTED: Final = 4
"""How many times over a path may be percent-encoded before we stop looking what it says."""

Answers = list[dict[str, Any]]
Steps = Generator[list[Ask], Answers, str]
"""A command: it yields requests, is sent their answers, and returns the text for the model."""


class Commands:
    """The six commands as requests and answers, whoever carries them."""

    def __init__(self, *, kind: str | None, ttl: str | int | None, scope: str | None) -> None:
        given = {"kind": kind, "ttl_ms": ttl, "scope": scope}
        self._note = {name: value for name, value in given.items() if value is not None}
        self._where = {} if scope is None else {"scope": scope}

    def asked(self, command: Any) -> Steps:
        """What a model asks for. Raises ``Invalid`` for a command nobody knows, and for a field that is not what it has
        to be."""
        return (yield from self._steps(command))

    def _steps(self, command: Any) -> Steps:
        match name := getattr(command, "command", None):
            case "view":
                return self.view(_text(command, "path"), getattr(command, "view_range", None))
            case "create":
                return self.create(_text(command, "path"), _text(command, "file_text"))
            case "str_replace":
                old, new = _text(command, "old_str"), _text(command, "new_str")
                return self.str_replace(_text(command, "path"), old, new)
            case "insert":
                return self.insert(_text(command, "path"), _number(command), _text(command, "insert_text"))
            case "delete":
                return self.delete(_text(command, "path"))
            case "rename":
                return self.rename(_text(command, "old_path"), _text(command, "new_path"))
        raise Invalid(f"There is no command {str(name)[:MAX_NAME_CHARS]!r}: {', '.join(COMMANDS)} are known.")

    def view(self, path: str, view_range: Any) -> Steps:
        """A directory's files, or a file's lines with their numbers."""
        path = checked(path)
        files = yield from self._files(path)
        if path in files:
            file = files[path]
            yield [("renew", {"id": part.id}) for part in file.parts]
            lines = file.text.split("\n")
            first, last = _range(view_range, len(lines))
            shown = numbered(lines[first - 1 : last], first)
            return f"Here's the content of {path} with line numbers:{file.remark}\n{shown}"
        if not files and path != ROOT:
            raise Invalid(f"The path {path} does not exist. Please provide a valid path.")
        return listing(path, files)

    def create(self, path: str, text: str) -> Steps:
        """A new file. Its text may be empty."""
        path = _named(path)
        yield from self._free(path, f"File {path} already exists")
        remarks = yield from self._write(path, text, {})
        return f"File created successfully at: {path}{remarks}"

    def str_replace(self, path: str, old: str, new: str) -> Steps:
        """Another text for one that stands in the file exactly once."""
        file = yield from self._file(path)
        text = file.text
        places = [match.start() for match in re.finditer(f"(?={re.escape(old)})", text)] if old else []
        if not places:
            raise Invalid(f"No replacement was performed, old_str did not appear verbatim in {file.path}.")
        if len(places) > 1:
            lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places)
            raise Invalid(
                f"No replacement was performed. Multiple occurrences of old_str in lines: {lines}. "
                "Please ensure it is unique"
            )
        changed = text[: places[0]] + new + text[places[0] + len(old) :]
        remarks = yield from self._rewrite(file, changed)
        at = text.count("\n", 0, places[0])
        first = max(0, at - CONTEXT_LINES)
        around = changed.split("\n")[first : at + new.count("\n") + CONTEXT_LINES + 1]
        return (
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            f"{numbered(around, first + 1)}{remarks}"
        )

    def insert(self, path: str, line: int, text: str) -> Steps:
        """New lines behind line number ``line``; 0 is the beginning."""
        file = yield from self._file(path)
        lines = file.text.split("\n")
        if lines[-1] == "":
            lines.pop()
        if not 0 <= line <= len(lines):
            raise Invalid(f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}].")
        lines.insert(line, text.rstrip("\n"))
        remarks = yield from self._rewrite(file, "\n".join(lines) + "\n")
        return f"The file {file.path} has been edited.{remarks}"

    def delete(self, path: str) -> Steps:
        """Forget a file or a directory, with all that was under that name before."""
        path = checked(path)
        if path == ROOT:
            raise Invalid(f"Cannot delete the {ROOT} directory itself")
        files = yield from self._files(path)
        if not files:
            raise Invalid(f"The path {path} does not exist")
        yield self._gone(path, files)
        return f"Successfully deleted {path}"

    def rename(self, old: str, new: str) -> Steps:
        """A file or a directory under another path; its lease begins anew."""
        old, new = checked(old), _named(new)
        if old == ROOT:
            raise Invalid(f"Cannot rename the {ROOT} directory itself")
        files = yield from self._files(old)
        if not files:
            raise Invalid(f"The path {old} does not exist")
        if new.startswith(f"{old}/"):
            raise Invalid(f"Cannot move {old} into itself")
        yield from self._free(new, f"The destination {new} already exists")
        remarks = ""
        for path, file in files.items():
            remarks += yield from self._write(_named(new + path.removeprefix(old)), file.text, {})
        yield self._gone(old, files)
        return f"Successfully renamed {old} to {new}{remarks}"

    def clear(self) -> Steps:
        """Forget every file."""
        yield [("forget", {"tags": [f"{ROOT}/"]})]
        return "All memory cleared"

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _file(self, path: str) -> Generator[list[Ask], Answers, File]:
        path = checked(path)
        files = yield from self._files(path)
        if path in files:
            return files[path]
        if files or path == ROOT:
            raise Invalid(f"The path {path} is not a file.")
        raise Invalid(f"The path {path} does not exist. Please provide a valid path.")

    def _files(self, path: str) -> Generator[list[Ask], Answers, dict[str, File]]:
        """The file at this path, or those below it."""
        notes: list[dict[str, Any]] = []
        for tag in (path, f"{path}/"):
            cursor: str | None = None
            while True:
                body = {
                    "tags": [tag],
                    "states": ["active", "stale"],
                    "with_content": True,
                    "limit": PAGE,
                    **self._where,
                }
                (page,) = yield [("list", body if cursor is None else {**body, "cursor": cursor})]
                notes += page["notes"]
                if (cursor := page.get("cursor")) is None:
                    break
        return assembled(notes)

    def _free(self, path: str, refusal: str) -> Generator[list[Ask], Answers, None]:
        """Raises ``Invalid`` where something is at this path, or where a directory above it is a file."""
        if (yield from self._files(path)):
            raise Invalid(refusal)
        for directory in directories_of(path)[1:]:
            if directory in (yield from self._files(directory)):
                raise Invalid(f"{directory} is a file, not a directory")

    def _rewrite(self, file: File, text: str) -> Generator[list[Ask], Answers, str]:
        return (yield from self._write(file.path, text, {part.number: part for part in file.parts}))

    def _write(self, path: str, text: str, before: Mapping[int, Part]) -> Generator[list[Ask], Answers, str]:
        """Make the file hold this text. What is the same already is renewed, so that the file lives as one."""
        (policy,) = yield [("policy", {})]
        limit = parse_setting("max_item_bytes", policy["values"]["max_item_bytes"]["value"])
        room = cast(int, limit) - len(f"{key_of(path, MAX_PARTS)}\n".encode())
        size, most = len(text.encode()), max(0, room) * MAX_PARTS
        pieces = pieces_of(text, room) if size <= most else []
        if not 0 < len(pieces) <= MAX_PARTS:
            raise Invalid(
                f"{path} would have {size} bytes, a file holds at most {most}: keep less, or in several files"
            )
        asks: list[Ask] = []
        for number, piece in enumerate(pieces, 1):
            same = before.get(number)
            if same is not None and same.text == piece:
                asks.append(("renew", {"id": same.id}))
            else:
                asks.append(("remember", {**self._note, **note_of(path, number, piece)}))
        answers = yield asks
        if over := [part.id for number, part in before.items() if number > len(pieces)]:
            yield [("forget", {"ids": over})]
        return _remarks(answers)

    def _gone(self, path: str, files: Iterable[str]) -> list[Ask]:
        # A tag reaches ended notes too: what the file held before an edit goes with it.
        return [("forget", {"tags": [path if path in files else f"{path}/"]})]


def checked(path: str) -> str:
    """The path in its one form. Raises ``Invalid`` for one that leaves ``/memories`` in any spelling."""
    said = path
    for _ in range(MAX_UNQUOTED):
        if ".." in re.split(r"[/\\]", said):
            raise Invalid(f"Path {path} would escape {ROOT} directory")
        if (further := unquote(said)) == said:
            break
        said = further
    else:
        raise Invalid(f"Path {path} is encoded too often")
    if "\\" in said or not said.isprintable():
        raise Invalid(f"Path {path!r} holds a backslash or a character that cannot be seen")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if not path.startswith("/") or not steps or f"/{steps[0]}" != ROOT:
        raise Invalid(f"Path must start with {ROOT}, got: {path}")
    return "/" + "/".join(steps)


def _named(path: str) -> str:
    """``checked``, for a file that is to be."""
    if path.endswith("/"):
        raise Invalid(f"Path {path} names a directory; directories come and go with their files")
    path = checked(path)
    if path == ROOT:
        raise Invalid(f"{ROOT} is a directory, not a file")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise Invalid(f"Path {path} has {len(path.encode())} bytes, the limit is {MAX_PATH_BYTES}")
    if len(directories_of(path)) > MAX_DEPTH:
        raise Invalid(f"Path {path} lies deeper than {MAX_DEPTH} directories")
    return path


def _range(asked: Any, count: int) -> tuple[int, int]:
    if not asked:
        return 1, count
    if not isinstance(asked, list) or len(asked) != 2 or not all(isinstance(line, int) for line in asked):
        raise Invalid("Invalid `view_range` parameter: it takes two line numbers.")
    if not 1 <= asked[0] <= count or (asked[1] != -1 and asked[1] < asked[0]):
        raise Invalid(f"Invalid `view_range` parameter: {asked}. The file has {count} lines; -1 stands for the last.")
    return asked[0], count if asked[1] == -1 else asked[1]


def _remarks(answers: Answers) -> str:
    """What the daemon remarked on what was written: that it looks like a secret, or like what was found wrong."""
    said = dict.fromkeys(notice for answer in answers for notice in answer.get("notices", ()))
    said |= dict.fromkeys(
        warned["text"] for answer in answers for warned in answer.get("warnings", ()) if warned["kind"] == "revoked"
    )
    return "".join(f"\nNote: {text}" for text in said)


def _text(command: Any, name: str) -> str:
    """A field that the model was to fill. Nothing else has looked at it."""
    value = getattr(command, name, None)
    if not isinstance(value, str):
        raise Invalid(f"The parameter {name} is missing or not text.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"The parameter {name} holds half of a character, which is not text.") from None
    return value


def _number(command: Any) -> int:
    value = getattr(command, "insert_line", None)
    if not isinstance(value, int):
        raise Invalid("The parameter insert_line is missing or not a number.")
    return value
