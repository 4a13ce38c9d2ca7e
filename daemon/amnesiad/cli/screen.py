"""What people see: plain tables, one line per note, errors as two lines. Programs get JSON and never pass here.

Text that came from a note, or from anybody's request, passes ``safe`` before it is printed, so that no note can clear
the screen or forge a line. Rich and the core are imported when something is drawn: a command that prints JSON never
pays for them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STATE_STYLES: Final = {
    "active": "green",
    "stale": "yellow",
    "expired": "dim",
    "superseded": "dim",
    "revoked": "red",
    "forgotten": "dim",
}

PIPE_WIDTH: Final = 10_000
"""Columns where the output is no terminal: wide enough that a line of a table stays one line for grep."""

WORDS_WIDTH: Final = 24
"""Columns that the last cell of a row has at least. A terminal too narrow for it breaks the lines itself: an id that is
cut cannot be typed, and a note without its words says nothing."""

# Ids, codes, numbers, times and plain paths hold nothing to be made safe; knowing so spares an import.
_CODE: Final = re.compile(r"[\w.:/@+-]*", re.ASCII)

GAP_WIDTH: Final = 2
"""Columns between one cell and the next."""

SHORT_HASH: Final = 10
"""How many characters of a content hash are shown, so that a line of the audit fits; ``--json`` has them all."""


def console(*, error: bool = False) -> Console:
    """A console that prints text as it is: color only on a terminal and without NO_COLOR, no markup, no emoji."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else PIPE_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
    )


def safe(value: object) -> str:
    """Any text on one line, its control characters made visible; empty for ``None``."""
    text = "" if value is None else str(value)
    if _CODE.fullmatch(text):
        return text
    from amnesiad.core.render import one_line

    return one_line(text)


def sentence(text: str) -> str:
    """A text that the daemon or we have made, in which a note's words, if any, are safe already.

    It is left as it is, marks like ``[REVOKED]`` included, unless something in it would not print.
    """
    return text if text.isprintable() else safe(text)


def say(text: str) -> None:
    """One line of our own words, or of text the daemon has already made safe."""
    sys.stdout.write(text + "\n")


def console_note(text: str) -> None:
    """An aside for people that is no part of the answer: on standard error, so that pipes stay clean."""
    sys.stderr.write(text + "\n")


def styled(text: str, style: str | None) -> Text:
    """A cell with a style."""
    from rich.text import Text

    return Text(text, style=style or "")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their headings; the last column wraps on a terminal, the others do not.

    A cell is made safe unless it is a rich ``Text``, which is taken to be.
    """
    from rich.text import Text

    grid = [[Text(column, style="bold") for column in columns]]
    grid += [[cell if isinstance(cell, Text) else Text(safe(cell)) for cell in row] for row in rows]
    # Rich's own table measures and crops each cell anew: of a thousand notes that took longer than all the rest.
    widths = [max(row[place].cell_len for row in grid) + GAP_WIDTH for place in range(len(columns) - 1)]
    screen = console()
    room = max(screen.width - sum(widths), WORDS_WIDTH)
    with screen.capture() as drawn:
        for *cells, words in grid:
            line = Text()
            for cell, width in zip(cells, widths, strict=True):
                line.append_text(cell).append(" " * (width - cell.cell_len))
            for part in words.wrap(screen, room, overflow="fold") or [Text()]:
                screen.print(line.append_text(part), soft_wrap=True)  # it has its breaks already
                line = Text(" " * sum(widths))
    for text in drawn.get().splitlines():
        say(text.rstrip())


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one a line; pairs without a value are left out. The values are safe already."""
    shown = [(name, value) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name:<{width}}  {value}")


def when(time_ms: int | None) -> str | None:
    """An instant with its zone, to the second: people read it, ``--json`` has the milliseconds."""
    from amnesiad.core.times import format_time

    return None if time_ms is None else format_time(time_ms // 1000 * 1000)


def remaining(time_ms: int | None, now_ms: int | None = None) -> str:
    """Coarse time until an instant, as this machine's clock tells it; empty for ``None``, ``due`` once it has come.

    A note that was just given seven days has ``7d`` left, not ``6d``: what lacks a fiftieth of a whole counts as whole.
    """
    if time_ms is None:
        return ""
    from amnesiad.core.times import MINUTE_MS, SECOND_MS, format_coarse

    left_ms = time_ms - (int(time.time() * 1000) if now_ms is None else now_ms)
    if left_ms <= 0:
        return "due"
    if left_ms < MINUTE_MS:
        return f"{-(-left_ms // SECOND_MS)}s"
    return format_coarse(left_ms + left_ms // 50)


def lifetime(expires_at: int | None) -> str:
    """When a note ends by itself, in words."""
    if expires_at is None:
        return "does not expire"
    return f"expires {when(expires_at)} (in {remaining(expires_at)})"


def notes_table(notes: Sequence[Mapping[str, Any]], *, explain: bool = False) -> None:
    """One row per note: id, kind, state, life left, strength, who said so, and the words if the view has them."""
    columns = ["ID", "KIND", "STATE", "LEFT", "STRENGTH", "BY", *(["SCORE/BAND"] if explain else []), "NOTE"]
    table(columns, (_note_row(note, explain) for note in notes))


def _note_row(note: Mapping[str, Any], explain: bool) -> list[object]:
    state = str(note["state"])
    causes = ",".join(note.get("causes") or ())
    life = "pinned" if note["pinned"] else remaining(note["expires_at"]) or "-"
    row: list[object] = [
        note["id"],
        note["kind"],
        styled(f"{state} ({causes})" if causes else state, STATE_STYLES.get(state)),
        life if state in ("active", "stale") else "-",
        f"{note['strength']:.2f}",
        note["provenance"],
    ]
    if explain:
        relevance = note.get("relevance")
        row.append("-" if relevance is None else f"{relevance:.3f}/{note.get('band')}")
    return [*row, _note_words(note)]


def _note_words(note: Mapping[str, Any]) -> str:
    content = note.get("content")
    tags = " ".join(f"#{tag}" for tag in note["tags"])
    key = f"[{note['key']}]" if note.get("key") else ""
    return " ".join(part for part in (key, content or "", tags) if part)


def note_fields(note: Mapping[str, Any], events: int) -> None:
    """Everything known about one note, one field a line. ``events`` is the length of its history."""
    pending = note.get("next_transition")
    facts = (
        ("id", note["id"]),
        ("content", note.get("content")),
        ("kind", f"{note['kind']} ({note['regime']})"),
        ("state", f"{note['state']} since {when(note['state_at'])}"),
        ("causes", ", ".join(note.get("causes") or ())),
        ("reason", note.get("state_reason")),
        ("life", _life(note)),
        ("next", f"{pending['to']} at {when(pending['at'])}" if pending else None),
        ("strength", f"{note['strength']:.2f} ({note['curve']})"),
        ("scope", f"{note['scope']} of {note['owner']}" if note.get("owner") else note["scope"]),
        ("provenance", note["provenance"]),
        ("author", note.get("author")),
        ("key", note.get("key")),
        ("tags", ", ".join(note["tags"])),
        ("anchors", ", ".join(anchor["path"] for anchor in note["anchors"])),
        ("triggers", "; ".join(_trigger(trigger) for trigger in note["triggers"])),
        ("created", when(note["created_at"])),
        ("used", f"{note['access_count']} times" if note["access_count"] else None),
        ("last used", when(note.get("last_access_at"))),
        ("supersedes", ", ".join(note.get("supersedes") or ())),
        ("superseded by", note.get("superseded_by")),
        ("restored from", note.get("restored_from")),
        ("source", note.get("source_ref")),
        ("mirrored", ", ".join(f"{target} {result}" for target, result in (note.get("mirrored") or {}).items())),
        ("history", f"{events} event{'s' if events != 1 else ''}, see: amnesia history {note['id']}"),
    )
    fields((name, safe(value)) for name, value in facts)


def _life(note: Mapping[str, Any]) -> str | None:
    if note["state"] not in ("active", "stale"):
        return None
    return "pinned: its clock stands" if note["pinned"] else lifetime(note["expires_at"])


def _trigger(trigger: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in trigger.items()
    )
