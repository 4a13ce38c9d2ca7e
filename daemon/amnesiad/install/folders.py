"""Folders that come with the package and are copied somewhere else: the Claude Code plugin, the DSH bundle.

The folders are package data. The plugin's hooks come from the same table as the settings that ``install`` writes: the
folder in the package names the command ``amnesia``, a copy that ``install`` makes names everything by its full path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from amnesiad.errors import Invalid
from amnesiad.install.changes import Change, read
from amnesiad.install.settings import Wanted, entry_of, hook_values, mcp_value
from amnesiad.install.table import CLAUDE_CODE, SERVER, Mcp

HOOKS_FILE: Final = "hooks/hooks.json"
MCP_FILE: Final = ".mcp.json"
PORTABLE_LINE: Final = 'sh "${CLAUDE_PLUGIN_ROOT}/hooks/hook.sh"'
"""What each hook of the packaged plugin runs, wherever the plugin lies."""
_SCRIPT: Final = "hooks/hook.sh"


def bundle(name: str) -> Traversable:
    """A folder of the package. Raises ``Invalid`` where it was left out."""
    folder = resources.files("amnesiad") / "bundles" / name
    if not folder.is_dir():
        raise Invalid(f"this package comes without the folder {name}", field="target", hint="install it anew")
    return folder


def contents(folder: Traversable, below: str = "") -> Iterator[tuple[str, str]]:
    """Every file of a folder, at any depth: its path in it, and its text."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name not in ("__pycache__", "node_modules"):
                yield from contents(entry, f"{below}{entry.name}/")
        else:
            yield below + entry.name, entry.read_text(encoding="utf-8")


def portable_hooks() -> str:
    """``hooks.json`` of the packaged plugin."""
    return _hooks_file([(hook.event, entry_of(CLAUDE_CODE, hook, PORTABLE_LINE)) for hook in CLAUDE_CODE.hooks])


def plugin(wanted: Wanted) -> dict[str, str]:
    """The plugin for this machine: path in the folder → text."""
    files = dict(contents(bundle("claude-code")))
    del files[_SCRIPT]
    files[HOOKS_FILE] = _hooks_file(hook_values(CLAUDE_CODE, wanted))
    files[MCP_FILE] = _json({"mcpServers": {SERVER: mcp_value(Mcp(MCP_FILE, "mcpServers"), wanted)}})
    return files


def install(files: dict[str, str], target: Path) -> list[Change]:
    """The changes that put these files into a folder."""
    changes = [Change(target / name, read(target / name), text) for name, text in files.items()]
    return [change for change in changes if change.needed]


def undo(files: dict[str, str], target: Path) -> list[Change]:
    """The changes that take these files out of a folder; others that lie there stay."""
    found = [(target / name, read(target / name)) for name in files]
    return [Change(path, before, None) for path, before in found if before is not None]


def prune(target: Path) -> None:
    """Take away the folder and those below it, where nothing is left in them. A link is its owner's and stays."""
    for folder in sorted((path for path in target.rglob("*") if path.is_dir()), key=_depth, reverse=True):
        _remove_if_empty(folder)
    _remove_if_empty(target)


def _depth(path: Path) -> int:
    return len(path.parts)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


def _hooks_file(values: list[tuple[str, Any]]) -> str:
    return _json({"hooks": {event: [entry] for event, entry in values}})


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
