"""Many at once: batch, export and import, as NDJSON, one JSON object a line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from amnesiad.cli.call import Answer, Call, print_json, verb
from amnesiad.cli.screen import safe, say, sentence
from amnesiad.errors import Invalid
from amnesiad.limits import MAX_REQUEST_BYTES

app = typer.Typer()

CHUNK_ITEMS: Final = 1000
"""The most requests or events the daemon takes at once (``wire.MAX_BATCH``, which is slow to import)."""
CHUNK_BYTES: Final = MAX_REQUEST_BYTES * 3 // 4
"""The rest of a request is for the frame around the items, and for the ids that the client adds to each."""


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
    for group in chunks(read_lines(sys.stdin.buffer)):
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
) -> None:
    """Print the whole workspace as NDJSON. Events, states, words and policy: what import takes."""
    if output is None:
        for row in call.client.export():
            print_json(row)
        return
    try:
        # The file holds the words of every note, so nobody else may read it, and no other file is written over.
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Invalid(f"{output} cannot be made: {error.strerror}", field="output", hint="name a new file") from None
    lines = 0
    with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123 - it is open already
        for row in call.client.export():
            lines += 1
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    say(f"exported {lines} lines to {safe(output)}")


@verb(app, "import")
def import_notes(
    call: Call,
    source: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: standard input.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be imported.")] = False,
) -> None:
    """Take in an export. What has run out meanwhile ends at once; exit 1 if any line was refused."""
    import msgspec

    with ExitStack() as stack:
        try:
            lines = sys.stdin.buffer if source is None else stack.enter_context(source.open("rb"))
        except OSError as error:
            raise Invalid(f"{source} cannot be read: {error.strerror}", field="file") from None
        answer: Answer = msgspec.to_builtins(call.client.import_notes(lines, dry_run=dry_run))
    call.show(answer, partial(_show_imported, answer, dry_run=dry_run))
    if answer.get("problems"):
        raise typer.Exit(1)


def _show_imported(answer: Answer, *, dry_run: bool) -> None:
    done = "would import" if dry_run else "imported"
    say(f"{done} {answer['imported']} of {answer['lines']} lines, {answer['skipped']} skipped")
    for problem in answer.get("problems") or ():
        say(f"line {problem['line']}: {problem['code']}: {sentence(problem['message'])}")
