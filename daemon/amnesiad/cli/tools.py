"""Tools for agents beside the MCP server: the skill, a page that teaches an agent when to remember and how notes
end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from amnesiad.cli.dialog import Dialog, check_places
from amnesiad.cli.screen import say
from amnesiad.errors import Invalid

app = typer.Typer()

NAME: Final = "amnesia"
"""The skill's name, and so, by the format, that of the folder it stands in."""


class Shelf(NamedTuple):
    """Where an agent looks for skills, below the home directory and below a project: the same path in both. ``home`` is
    a variable that moves the first part of the former."""

    folder: str
    home: str = ""


SHELVES: Final[Mapping[str, Shelf]] = {
    "claude-code": Shelf(".claude/skills", "CLAUDE_CONFIG_DIR"),
    "codex": Shelf(".agents/skills"),
    "cursor": Shelf(".cursor/skills"),
    "dsh": Shelf(".agents/skills"),
}
"""The agents that read skills. Codex and DSH look into the same folder, as do others that follow the convention."""


@app.command()
def skill(
    action: Annotated[str, typer.Argument(metavar="install|show", help="What to do.")],
    agent: Annotated[
        str, typer.Option("--agent", metavar="AGENT", help="claude-code, codex, cursor or dsh.")
    ] = "claude-code",
    scope: Annotated[
        str, typer.Option("--scope", metavar="SCOPE", help="user: yours everywhere. project: this directory's.")
    ] = "user",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change; change nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take away what install wrote, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Teach an agent when to remember and how notes end, by a skill. Shows the change first; can be undone."""
    if action not in ("install", "show"):
        raise Invalid(f"skill takes install or show, not {action!r}", field="action", hint="amnesia skill install")
    if agent not in SHELVES:
        known = ", ".join(SHELVES)
        raise Invalid(f"there is no skill for {agent!r}", field="agent", hint=f"one of {known}")
    if scope not in ("user", "project"):
        raise Invalid(f"--scope must be user or project, not {scope!r}", field="scope")
    if action == "show":
        say(skill_text().rstrip("\n"))
        return
    from amnesiad.install import folders

    check_places()
    dialog = Dialog(dry_run=dry_run, yes=yes, as_json=as_json)
    target, wanted = place_of(SHELVES[agent], scope, os.environ), {"SKILL.md": skill_text()}
    if not undo:
        dialog.make(folders.install(wanted, target), f"{target} is up to date")
    elif dialog.make(folders.undo(wanted, target), f"nothing of ours is in {target}"):
        folders.prune(target)


def skill_text() -> str:
    """The page itself, from the package."""
    return files("amnesiad").joinpath("skill", NAME, "SKILL.md").read_text(encoding="utf-8")


def place_of(shelf: Shelf, scope: str, environ: Mapping[str, str]) -> Path:
    """The folder of the skill for an agent's user, or for the project of the current directory."""
    if scope == "project":
        return Path.cwd() / shelf.folder / NAME
    first, _, rest = shelf.folder.partition("/")
    moved = environ.get(shelf.home, "") if shelf.home else ""
    # Of a user that there is not, unlike pathlib, the function keeps the name.
    return (Path(os.path.expanduser(moved)) if moved else Path.home() / first) / rest / NAME  # noqa: PTH111
