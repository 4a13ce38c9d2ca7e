"""An agent's settings with our hooks in them, and without: what is there already stays, ours can always be told apart.

Pure but for reading the files: each function returns the changes that ``changes.apply`` would make.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from amnesiad.errors import Invalid
from amnesiad.install import commands, jsontext
from amnesiad.install.changes import BOM, Change, read
from amnesiad.install.table import SERVER, Agent, Hook, Mcp, Scope

_NEW_FILE_MODES: Final[Mapping[Scope, int]] = {"user": 0o600, "project": 0o644}
"""A file in a home may come to hold tokens; one in a repository is for all who work there."""


class Wanted(NamedTuple):
    """How an agent is to reach us."""

    socket: str
    workspace: str | None = None
    form: commands.Form = "curl"
    statusline: bool = False


class Found(NamedTuple):
    """One of our hooks in a file: at which event, and its command line."""

    path: Path
    event: str
    command: str


class Places(NamedTuple):
    """The directories that files are below."""

    home: Path
    project: Path
    environ: Mapping[str, str]

    def of(self, agent: Agent, scope: Scope, file: str) -> Path:
        """The whole path of one of the agent's files."""
        if scope == "project":
            return self.project / file
        moved = self.environ.get(agent.home, "") if agent.home else ""
        if moved and os.path.isabs(moved):  # noqa: PTH117 - text, before it is a path
            return Path(moved) / file.removeprefix(agent.home_default + "/")
        return self.home / file


def install(agent: Agent, scope: Scope, places: Places, wanted: Wanted) -> list[Change]:
    """The changes that lead the agent's hooks and its MCP client to us. Done before, they change nothing.

    Raises ``Invalid`` for a file that cannot be edited, and where a status line is wanted of an agent that has none.
    """
    if wanted.statusline and not agent.status_line:
        raise Invalid(f"{agent.title} has no status line that a command fills", field="statusline")
    drafts = _Drafts(_NEW_FILE_MODES[scope])
    hooks_file = places.of(agent, scope, agent.files[scope])
    text = drafts.text(hooks_file)
    for key, number in agent.frame.items():
        if key not in _parsed(text, hooks_file):
            text = jsontext.put(text, (key,), number)
    ours = hook_values(agent, wanted)
    text = _without_hooks(agent, text, hooks_file, keep=ours)
    for event, value in ours:
        entries = _entries(_parsed(text, hooks_file), hooks_file, event, adding=True)
        if not any(_ours(agent, entry) for entry in entries):
            text = jsontext.put(text, ("hooks", event, len(entries)), value)
    if wanted.statusline:
        text = _with_status_line(text, hooks_file, wanted)
    drafts.put(hooks_file, text)
    if (mcp := agent.mcp.get(scope)) is not None:
        path = places.of(agent, scope, mcp.file)
        text = drafts.text(path)
        if _servers(text, path, mcp).get(SERVER) != (value := mcp_value(mcp, wanted)):
            text = jsontext.put(text, (mcp.key, SERVER), value)
        drafts.put(path, text)
    return drafts.changes()


def undo(agent: Agent, scope: Scope, places: Places) -> list[Change]:
    """The changes that take away what ``install`` added, and nothing else. A file that held only that goes as well."""
    drafts = _Drafts(_NEW_FILE_MODES[scope])
    hooks_file = places.of(agent, scope, agent.files[scope])
    if (text := drafts.text(hooks_file)).strip():
        text = _without_hooks(agent, text, hooks_file, keep=())
        parsed = _parsed(text, hooks_file)
        line = parsed.get("statusLine")
        if isinstance(line, dict) and commands.is_our_status_line(line.get("command")):
            text = jsontext.take(text, ("statusLine",))
        drafts.put(hooks_file, text)
    if (mcp := agent.mcp.get(scope)) is not None:
        path = places.of(agent, scope, mcp.file)
        if SERVER in _servers(text := drafts.text(path), path, mcp):
            text = jsontext.take(text, (mcp.key, SERVER))
            if not _servers(text, path, mcp):
                text = jsontext.take(text, (mcp.key,))
            drafts.put(path, text)
    return [_emptied(change, agent) for change in drafts.changes()]


def hook_values(agent: Agent, wanted: Wanted) -> list[tuple[str, Any]]:
    """Event and entry of each of our hooks, as they stand in the agent's file."""
    return [(hook.event, entry_of(agent, hook, _line(agent, hook, wanted))) for hook in agent.hooks]


def entry_of(agent: Agent, hook: Hook, command: str) -> Any:
    """One entry below an event: a hook, in a group of its own where the agent has groups."""
    handler = {**agent.handler, "command": command, "timeout": agent.timeout}
    matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
    return {**matcher, "hooks": [handler]} if agent.grouped else {**matcher, **handler}


def mcp_value(mcp: Mcp, wanted: Wanted) -> dict[str, Any]:
    """Our entry among the agent's MCP servers."""
    program, *arguments = commands.mcp_command(socket=wanted.socket)
    value: dict[str, Any] = {**({"type": "stdio"} if mcp.typed else {}), "command": program, "args": arguments}
    return {**value, "env": {"AMNESIA_WORKSPACE": wanted.workspace}} if wanted.workspace else value


def printed(agent: Agent, scope: Scope, wanted: Wanted) -> dict[str, Any]:
    """What ``install`` would write, by file, for people who add it by hand."""
    hooks: dict[str, list[Any]] = {}
    for event, value in hook_values(agent, wanted):
        hooks.setdefault(event, []).append(value)
    files: dict[str, Any] = {agent.files[scope]: {**agent.frame, "hooks": hooks}}
    if wanted.statusline:
        files[agent.files[scope]]["statusLine"] = status_value(wanted)
    if (mcp := agent.mcp.get(scope)) is not None:
        files.setdefault(mcp.file, {})[mcp.key] = {SERVER: mcp_value(mcp, wanted)}
    return files


def status_value(wanted: Wanted) -> dict[str, Any]:
    """Claude Code's setting of a status line that is ours."""
    return {"type": "command", "command": commands.status_line(socket=wanted.socket, workspace=wanted.workspace)}


def has_another_status_line(agent: Agent, scope: Scope, places: Places) -> bool:
    """Whether somebody else's status line is set, which ``install`` leaves alone."""
    path = places.of(agent, scope, agent.files[scope])
    line = _parsed((read(path) or "").removeprefix(BOM), path).get("statusLine")
    return line is not None and not _is_our_line(line)


def switched_off(agent: Agent, scope: Scope, places: Places) -> bool:
    """Whether the agent's file keeps it from running any hook. Raises ``Invalid`` for a file that cannot be read."""
    path = places.of(agent, scope, agent.files[scope])
    return bool(agent.off) and _parsed((read(path) or "").removeprefix(BOM), path).get(agent.off) is True


def find(agent: Agent, scope: Scope, places: Places) -> list[Found]:
    """Our hooks in the agent's file. Raises ``Invalid`` for a file that cannot be read."""
    path = places.of(agent, scope, agent.files[scope])
    text = read(path)
    if text is None:
        return []
    parsed = _parsed(text.removeprefix(BOM), path)
    return [
        Found(path, event, handler["command"])
        for event in _events(parsed, path)
        for entry in _entries(parsed, path, event)
        for handler in _handlers(agent, entry)
        if commands.is_our_hook(handler.get("command"))
    ]


# -- reading and taking out ------------------------------------------------------------------------------------------


class _Drafts:
    """The files that are being changed: two parts of one setting may stand in the same file."""

    def __init__(self, new_file_mode: int) -> None:
        self._mode = new_file_mode
        self._files: dict[Path, tuple[str | None, str]] = {}

    def text(self, path: Path) -> str:
        if path not in self._files:
            before = read(path)
            self._files[path] = before, (before or "").removeprefix(BOM)
        return self._files[path][1]

    def put(self, path: Path, text: str) -> None:
        self._files[path] = self._files[path][0], text

    def changes(self) -> list[Change]:
        made = [
            Change(path, before, None if before is None and not text else _mark(before) + text, self._mode)
            for path, (before, text) in self._files.items()
        ]
        return [change for change in made if change.needed]


def _mark(before: str | None) -> str:
    return BOM if (before or "").startswith(BOM) else ""


def _line(agent: Agent, hook: Hook, wanted: Wanted) -> str:
    form = "python" if hook.writes_env else wanted.form
    return commands.hook_line(agent.name, form, socket=wanted.socket, workspace=wanted.workspace)


def _parsed(text: str, path: Path) -> dict[str, Any]:
    value = jsontext.parse(text, str(path))
    if not isinstance(value, dict):
        raise Invalid(f"{path} is no JSON object", field="file", hint="mend it by hand")
    return value


def _events(parsed: dict[str, Any], path: Path) -> dict[str, Any]:
    hooks = parsed.get("hooks", {})
    if not isinstance(hooks, dict):
        raise Invalid(f'"hooks" in {path} is no object', field="file", hint="mend it by hand")
    return hooks


def _entries(parsed: dict[str, Any], path: Path, event: str, *, adding: bool = False) -> list[Any]:
    """What stands below an event. Raises ``Invalid`` for what cannot be hooks, or cannot be added to."""
    entries = _events(parsed, path).get(event, [])
    if not isinstance(entries, list):
        if not adding and (isinstance(entries, bool | int | str) or entries is None):  # a switch, such as "enabled"
            return []
        raise Invalid(f"the hooks of {event} in {path} are no array", field="file", hint="mend it by hand")
    return entries


def _handlers(agent: Agent, entry: Any) -> list[dict[str, Any]]:
    if not isinstance(entry, dict):
        return []
    if not agent.grouped:
        return [entry]
    handlers = entry.get("hooks", [])
    return [handler for handler in handlers if isinstance(handler, dict)] if isinstance(handlers, list) else []


def _ours(agent: Agent, entry: Any) -> bool:
    return any(commands.is_our_hook(handler.get("command")) for handler in _handlers(agent, entry))


def _without_hooks(agent: Agent, text: str, path: Path, keep: Collection[tuple[str, Any]]) -> str:
    """The text without our hooks but those that stand exactly as in ``keep``, and without what that leaves empty."""
    for event in list(_events(_parsed(text, path), path)):
        took = False
        place = len(_entries(_parsed(text, path), path, event))
        kept = False
        while place:
            place -= 1
            entry = _entries(_parsed(text, path), path, event)[place]
            if not _ours(agent, entry):
                continue
            if not kept and (event, entry) in keep:
                kept = True
                continue
            text, took = _without_ours(agent, text, ("hooks", event, place), entry), True
        if took and not _entries(_parsed(text, path), path, event):
            text = jsontext.take(text, ("hooks", event))
            if not _events(_parsed(text, path), path):
                text = jsontext.take(text, ("hooks",))
    return text


def _without_ours(agent: Agent, text: str, at: jsontext.Path, entry: Any) -> str:
    """The text without our part of one entry: the whole of it, unless somebody has put a hook beside ours."""
    handlers = entry["hooks"] if agent.grouped else [entry]
    ours = [
        place
        for place, handler in enumerate(handlers)
        if isinstance(handler, dict) and commands.is_our_hook(handler.get("command"))
    ]
    if len(ours) == len(handlers):
        return jsontext.take(text, at)
    for place in reversed(ours):
        text = jsontext.take(text, (*at, "hooks", place))
    return text


def _servers(text: str, path: Path, mcp: Mcp) -> dict[str, Any]:
    servers = _parsed(text, path).get(mcp.key, {})
    if not isinstance(servers, dict):
        raise Invalid(f'"{mcp.key}" in {path} is no object', field="file", hint="mend it by hand")
    return servers


def _with_status_line(text: str, path: Path, wanted: Wanted) -> str:
    """The text with our status line, unless somebody else's is set: that one stays."""
    line = _parsed(text, path).get("statusLine")
    value = status_value(wanted)
    if line == value or (line is not None and not _is_our_line(line)):
        return text
    return jsontext.put(text, ("statusLine",), value)


def _is_our_line(line: Any) -> bool:
    return isinstance(line, dict) and commands.is_our_status_line(line.get("command"))


def _emptied(change: Change, agent: Agent) -> Change:
    """A file in which nothing is left but what we had put around our entries is taken away, unless it is a link."""
    if change.after is None or change.path.is_symlink():
        return change
    left = jsontext.parse(change.after.removeprefix(BOM), str(change.path))
    return change._replace(after=None) if not left or left == dict(agent.frame) else change
