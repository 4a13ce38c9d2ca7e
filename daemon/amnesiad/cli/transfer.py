"""Many at once: batch, export and import, as NDJSON, one JSON object a line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from amnesiad.cli.call import Answer, Call, print_json, say_notices, standard_input, verb
from amnesiad.cli.screen import console, safe, say, sentence, table
from amnesiad.errors import Invalid
from amnesiad.limits import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from amnesiad.cli.markdown import Statement

app = typer.Typer()

CHUNK_ITEMS: Final = 1000
"""The most requests or events the daemon takes at once (``wire.MAX_BATCH``, which is slow to import)."""
CHUNK_BYTES: Final = MAX_REQUEST_BYTES * 3 // 4
"""The rest of a request is for the frame around the items, and for the ids that the client adds to each."""

MAX_MARKDOWN_BYTES: Final = 4 * 1024 * 1024
"""A file of rules is some kilobytes; a larger one is something else."""
MARKDOWN_KIND: Final = "reference"
"""Kept until somebody ends it: a perishable would be gone in a month, and not every sentence of a file is a
directive."""


def read_lines(stream: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """The size in bytes and the object of every line that is not blank; the last one needs no line break.

    Raises ``Invalid`` naming the first line that is no JSON object.
    """
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise Invalid(f"line {number} is not JSON", field="stdin", hint="one JSON object a line") from None
        if not isinstance(value, dict):
            raise Invalid(f"line {number} is not a JSON object", field="stdin", hint="one JSON object a line")
        yield len(line), value


def chunks(lines: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """The objects in groups that fit one request each."""
    group: list[dict[str, Any]] = []
    size = 0
    for length, value in lines:
        if group and (len(group) == CHUNK_ITEMS or size + length > CHUNK_BYTES):
            yield group
            group, size = [], 0
        group.append(value)
        size += length
    if group:
        yield group


@verb(app)
def batch(call: Call) -> None:
    """Run requests from standard input. One {"verb": ..., "body": {...}} a line; exit 1 if any was refused."""
    failed = 0
    number = 0
    for group in chunks(read_lines(standard_input())):
        answer = call.ask("batch", requests=group)
        call.show(answer, partial(_show_batch, answer, group, number + 1))
        number += len(group)
        failed += sum("error" in item for item in answer["answers"])
    if not call.as_json:
        say(f"{number - failed} done, {failed} refused")
    if failed:
        raise typer.Exit(1)


def _show_batch(answer: Answer, group: list[dict[str, Any]], first: int) -> None:
    for number, (request, item) in enumerate(zip(group, answer["answers"], strict=True), first):
        error = item.get("error")
        result = f"{error['code']}: {sentence(error['message'])}" if error else safe(item.get("id", "done"))
        say(f"{number} {safe(request.get('verb'))} {result}")


@verb(app)
def export(
    call: Call,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file, readable by you alone.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="SEQ", help="Only what changed behind this line's seq.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a FILE that was cut off.")] = False,
) -> None:
    """Print the workspace as NDJSON. Every note you may see with its history and words: what import takes."""
    if output is None:
        if resume:
            raise Invalid("--resume needs a file to go on with", field="resume", hint="add --output FILE")
        for row in call.client.export(after=after):
            print_json(row)
        return
    try:
        # The file holds the words of every note, so nobody else may read it, and no other file is written over.
        how = os.O_RDWR if resume else os.O_WRONLY | os.O_CREAT | os.O_EXCL
        handle = os.open(output, how, 0o600)
    except OSError as error:
        hint = "name the file that was cut off" if resume else "name a new file, or add --resume"
        what = "opened" if resume else "made"
        raise Invalid(f"{output} cannot be {what}: {error.strerror}", field="output", hint=hint) from None
    with open(handle, "r+b" if resume else "wb") as file, progress("exported", None) as advance:  # noqa: PTH123
        if resume:
            after = continue_after(file) or after
        lines = 0
        for row in call.client.export(after=after):
            lines += 1
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            advance(1)
    call.show({"lines": lines, "output": str(output)}, lambda: say(f"exported {lines} lines to {safe(output)}"))


def continue_after(file: BinaryIO) -> str | None:
    """Cut a broken export back to its last whole note, stand at its end, and say behind which ``seq`` to go on."""
    end = position = 0
    seq: str | None = None
    for line in file:
        position += len(line)
        try:
            row = json.loads(line)
            kind = row["line"]
        except (ValueError, TypeError, KeyError, RecursionError):
            if line.endswith(b"\n"):
                raise Invalid("the file is no export", field="output", hint="name another one") from None
            break
        if not line.endswith(b"\n"):
            break
        if not row.get("more"):
            end = position
            seq = row.get("seq") or (row.get("through") if kind == "end" else None) or seq
    file.seek(end)
    file.truncate()
    return seq


@contextmanager
def progress(what: str, total: int | None, *, wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """A line on standard error that moves with the work, where that is a terminal; nothing elsewhere.

    Not ``wanted`` where somebody types: it would be drawn over what they do.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = (BarColumn(),) if total is not None else ()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *bar, MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(error=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda count: shown.advance(task, count)


@verb(app, "import")
def import_notes(
    call: Call,
    source: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: standard input.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--from-markdown", metavar="FILE", help="The statements of a CLAUDE.md or MEMORY.md; shown first."
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="With --from-markdown: the kind of what is no task.")
    ] = MARKDOWN_KIND,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --from-markdown: import without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be imported.")] = False,
) -> None:
    """Take in an export. What has run out meanwhile ends at once; exit 1 if any line was refused."""
    if markdown is not None:
        if source is not None:
            raise Invalid("give either FILE or --from-markdown FILE", field="from-markdown", hint="one at a time")
        _import_markdown(call, markdown, kind, yes=yes, dry_run=dry_run)
        return
    blank: list[int] = []
    with ExitStack() as stack:
        try:
            stream = standard_input() if source is None else stack.enter_context(source.open("rb"))
            total = None if source is None else source.stat().st_size
        except OSError as error:
            raise Invalid(f"{source} cannot be read: {error.strerror}", field="file") from None
        typed = source is None and sys.stdin.isatty()
        advance = stack.enter_context(progress("bytes", total, wanted=not typed))
        answer = _sent(call, counted(stream, blank, advance), dry_run=dry_run)
    for problem in answer.get("problems") or ():
        problem["line"] = line_in_file(problem["line"], blank)
    call.show(answer, partial(_show_imported, answer, dry_run=dry_run))
    if answer.get("problems"):
        raise typer.Exit(1)


def counted(stream: Iterable[bytes], blank: list[int], advance: Callable[[int], None]) -> Iterator[bytes]:
    """The lines that are not blank; the numbers of those that are go into ``blank``."""
    for number, line in enumerate(stream, 1):
        advance(len(line))
        if line.strip():
            yield line
        else:
            blank.append(number)


def line_in_file(number: int, blank: Sequence[int]) -> int:
    """The line of the file that is the ``number``-th one that is not blank."""
    for skipped in blank:
        if skipped > number:
            break
        number += 1
    return number


def _sent(call: Call, lines: Iterable[bytes], *, dry_run: bool) -> Answer:
    import msgspec

    answer: Answer = msgspec.to_builtins(call.client.import_notes(lines, dry_run=dry_run))
    return answer


def _show_imported(answer: Answer, *, dry_run: bool) -> None:
    done = "would import" if dry_run else "imported"
    count, skipped = answer["imported"], answer["skipped"]
    say(f"{done} {count} note{'' if count == 1 else 's'} of {answer['lines']} lines, {skipped} known already")
    for problem in answer.get("problems") or ():
        say(f"line {problem['line']}: {problem['code']}: {sentence(problem['message'])}")


# -- from Markdown -----------------------------------------------------------------------------------------------


def _import_markdown(call: Call, path: Path, kind: str, *, yes: bool, dry_run: bool) -> None:
    """Show what a file says and what would become of it; import it only after a yes."""
    from amnesiad.cli.markdown import statements

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", field="from-markdown") from None
    if len(raw) > MAX_MARKDOWN_BYTES:
        raise Invalid(f"{path} exceeds {MAX_MARKDOWN_BYTES} bytes", field="from-markdown", hint="import it in parts")
    try:
        found = statements(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8 text", field="from-markdown") from None
    notes = [_as_note(path.name, statement, kind) for statement in found]
    places = [statement.line for statement in found]
    if not yes or dry_run:
        would = _ask_for(call, notes, places, dry_run=True)
        if dry_run and call.as_json:
            print_json({"notes": notes, **would})
        elif not call.as_json:
            table(("LINE", "KIND", "NOTE"), _preview(notes, places))
            _show_imported(would, dry_run=True)
            say_notices(would)
        if dry_run:
            if would.get("problems"):
                raise typer.Exit(1)
            return
        if not would["imported"]:
            return
        if not call.confirm(f"import {would['imported']} notes?"):
            raise typer.Exit(1)
    answer = _ask_for(call, notes, places, dry_run=False)
    call.show(answer, partial(_show_imported, answer, dry_run=False))
    if answer.get("problems"):
        raise typer.Exit(1)


def _as_note(name: str, statement: Statement, kind: str) -> dict[str, Any]:
    """A statement as a plain line of an import. It points back at the file where its name can be a pointer."""
    from amnesiad.core.intake import check_source_ref

    note: dict[str, Any] = {"content": statement.content, "kind": "task" if statement.todo else kind}
    if statement.tags:
        note["tags"] = list(statement.tags)
    with suppress(Invalid):
        note["source_ref"] = check_source_ref(f"{name}:{statement.line}")
    return note


def _preview(notes: Iterable[dict[str, Any]], places: Iterable[int]) -> Iterator[list[object]]:
    for note, line in zip(notes, places, strict=True):
        yield [line, note["kind"], " ".join([note["content"], *(f"#{tag}" for tag in note.get("tags", ()))])]


def _ask_for(call: Call, notes: Sequence[dict[str, Any]], places: Sequence[int], *, dry_run: bool) -> Answer:
    """What the daemon makes of the notes; problems name lines of the Markdown file."""
    answer = _sent(call, (json.dumps(note).encode() for note in notes), dry_run=dry_run)
    for problem in answer.get("problems") or ():
        problem["line"] = places[problem["line"] - 1]
    return answer
