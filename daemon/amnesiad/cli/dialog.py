"""Changing files in dialog: what would change is shown, somebody agrees, and what was done is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from amnesiad.cli.call import agreed, on_terminal, print_json
from amnesiad.cli.screen import console_note, say
from amnesiad.errors import Invalid

if TYPE_CHECKING:
    from amnesiad.install.changes import Change


class Dialog:
    """Shows changes, asks, and makes them; what was done is told once, at the end."""

    def __init__(self, *, dry_run: bool, yes: bool, as_json: bool) -> None:
        self._dry_run = dry_run
        self._yes = yes
        self._as_json = as_json
        self.declined = False
        """Whether somebody was asked and said no: what would be left to do is of no interest then."""

    def make(
        self,
        changes: Sequence[Change],
        nothing: str,
        *,
        first: Callable[[], None] | None = None,
        whole: bool = False,
    ) -> bool:
        """Show the changes and make them; whether they were made. ``nothing`` is said where there are none, and
        ``first`` is done once it is agreed that they will be. With ``whole`` files that come or go are named and not
        quoted: they are ours from the first line to the last.

        Raises ``Invalid`` where nobody can be asked, and for a file that cannot be written.
        """
        from amnesiad.install.changes import apply

        if not self._as_json:
            self._show(changes, nothing, whole)
        made = bool(changes) and not self._dry_run and self._agreed()
        self.declined = bool(changes) and not self._dry_run and not made
        if made and first is not None:
            first()
        if made:
            apply(changes)
            if not self._as_json:
                self.tell(f"done: {_summary(changes)}")
        if self._as_json:
            print_json(
                {"changes": [{"path": str(change.path), "to": _verb(change)} for change in changes], "made": made}
            )
        return made

    def tell(self, text: str) -> None:
        """Something to know besides."""
        console_note(text)

    def _show(self, changes: Sequence[Change], nothing: str, whole: bool) -> None:
        from amnesiad.install.changes import diff

        for change in changes:
            if whole and (change.before is None or change.after is None):
                say(f"{_verb(change)} {change.path}")
                continue
            for line in diff(change):
                say(line)
        if not changes:
            say(nothing)

    def _agreed(self) -> bool:
        if self._yes:
            return True
        if self._as_json or not on_terminal():
            raise Invalid(
                "this changes files, and there is no terminal to ask on",
                field="yes",
                hint="add --yes, or look with --dry-run",
            )
        return agreed("make this change?")


def check_places() -> None:
    """Raise ``Invalid`` where there is no home, or no directory to stand in, to put anything below."""
    try:
        Path.home()
    except RuntimeError:
        raise Invalid("this user has no home directory", field="scope", hint="set HOME") from None
    try:
        Path.cwd()
    except OSError:
        raise Invalid("the current directory is gone", field="scope", hint="change into one that is there") from None


def _verb(change: Change) -> str:
    if change.before is None:
        return "create"
    return "remove" if change.after is None else "change"


def _summary(changes: Sequence[Change]) -> str:
    """What was done, such as ``1 file created, 2 files changed``."""
    counts = Counter(f"{_verb(change)}d" for change in changes)
    return ", ".join(f"{count} file{'s' if count > 1 else ''} {done}" for done, count in sorted(counts.items()))
