"""What a tool call is about to touch: the files it changes, the command it runs, or amnesiad itself.

Agents name their tools as they like and rename them often, so this is a list of what is known; a tool that is not in it
is one that nothing is injected for.
"""

from __future__ import annotations

import re
from typing import Final

from amnesiad.agents.payload import MAX_PATH_CHARS, MAX_PATHS, Payload

EDITING: Final = frozenset(
    {
        "Edit", "MultiEdit", "NotebookEdit", "Write",  # Claude Code; Cursor has some of them
        "apply_patch",  # Codex
        "replace", "write_file",  # Gemini CLI
        "createFile", "create_file", "editFiles", "edit_notebook_file", "insert_edit_into_file",
        "multi_replace_string_in_file", "replace_string_in_file",  # VS Code
        "Delete", "EditNotebook", "StrReplace",  # Cursor
        "file_editor", "str_replace_editor",  # OpenHands
    }
)  # fmt: skip
"""Tools that change files."""

RUNNING: Final = frozenset(
    {
        "Bash", "Monitor", "PowerShell",  # Claude Code
        "exec_command", "local_shell", "shell",  # Codex
        "run_shell_command",  # Gemini CLI
        "runCommands", "runInTerminal", "run_in_terminal",  # VS Code
        "Shell",  # Cursor
        "execute_bash", "terminal",  # OpenHands
    }
)  # fmt: skip
"""Tools that run a command."""

_PATH_FIELDS: Final = ("file_path", "notebook_path", "filePath", "path", "target_file", "files", "file_paths")
_PATCHED: Final = re.compile(r"^\*\*\* (?:(?:Update|Add|Delete) File|Move to): (.+)$", re.MULTILINE)
_OURS: Final = re.compile(r"mcp__(?:plugin_.+_)?amnesiad?__.+|MCP:amnesia_.+")


def is_ours(tool: str) -> bool:
    """Whether the tool is one of amnesiad's own, by the name its MCP server has in a configuration or a plugin."""
    return _OURS.fullmatch(tool) is not None


def files_changed(tool: str, given: Payload) -> tuple[str, ...]:
    """The files that the tool changes with this input, as the agent wrote them; none for a tool that changes none."""
    if tool not in EDITING or given.any_text("command") == "view":
        return ()
    found = given.any_texts(*_PATH_FIELDS)
    if tool == "apply_patch":
        for text in given.any_texts("command", "input", "patch"):
            found += _PATCHED.findall(text)
    paths = (path.strip() for path in found)
    return tuple(dict.fromkeys(path for path in paths if path and len(path) <= MAX_PATH_CHARS))[:MAX_PATHS]


def command_run(tool: str, given: Payload) -> str | None:
    """The command that the tool runs with this input; ``None`` for a tool that runs none."""
    return " ".join(given.any_texts("command", "cmd")) or None if tool in RUNNING else None
