"""Who makes a tool call, and in which workspace: by the agent's hooks, the shim's environment and the call's arguments.

Strongest first: what a hook announced about this very call; what the arguments say; what the shim was started with (the
``x-amnesia-…`` headers). None of them makes an agent human. A call that names itself as Claude Code does, in a
workspace where the hooks of Claude Code are alive, and that none of them announced, comes from a child that nobody can
tell: it is refused, never widened to its parent. Other agents' hooks tell nothing of such a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from amnesiad import wire
from amnesiad.core.errors import Invalid, Refused
from amnesiad.mcp.table import WHO
from amnesiad.service.hooks.announced import Announced

TOOL_USE: Final = "claudecode/toolUseId"
"""The key in ``_meta`` under which Claude Code names a call, by the id that its hooks are told."""
NAMES_CALLS: Final = "claude-code"
"""The agent that does so, as its hooks are called."""
HEADER: Final = "x-amnesia-"

Headers = Mapping[str, str]
Locate = Callable[[str], Awaitable[str]]


class Named(NamedTuple):
    """The workspace, and the caller as the wire spells it: what is not known is left out."""

    workspace: str
    caller: dict[str, Any]


async def identify(
    arguments: Mapping[str, Any],
    headers: Headers,
    meta: Mapping[str, Any],
    announced: Announced,
    locate: Locate,
) -> Named:
    """The workspace and caller of a call. ``locate`` names the workspace of a directory.

    The values are not checked here; ``wire.decode`` does that. Raises ``Invalid`` where no workspace is named, and
    ``Refused`` for a child that nobody announced.
    """
    given = {name: arguments[name] for name in WHO if arguments.get(name) is not None}
    behalf = {"on_behalf": given.pop("on_behalf")} if "on_behalf" in given else {}
    named = given.pop("workspace", None)
    call = meta.get(TOOL_USE)
    claimed = announced.claim(call) if isinstance(call, str) else None
    if claimed is not None:
        return Named(named or claimed[0], _spelled(claimed[1]) | behalf)
    own = _header(headers, "workspace")
    if own is None and (named is None or isinstance(call, str)):
        try:
            own = await _standing(headers, locate)
        except Invalid:
            if named is None:
                raise
    workspace = named or own
    if not workspace:
        raise Invalid("no workspace is named", field="workspace", hint="pass workspace: the path of the repository")
    asked = [one for one in (workspace, own) if isinstance(one, str)]
    if isinstance(call, str) and any(announced.hooked(one, NAMES_CALLS) for one in asked):
        raise Refused(
            "no hook announced this call, so nobody can tell whose it is",
            rule="unidentified-child",
            hint="go on without memory, and tell the user to run: amnesia install claude-code",
        )
    return Named(workspace, _of_shim(headers) | _of_arguments(given, headers) | behalf)


async def _standing(headers: Headers, locate: Locate) -> str | None:
    """The workspace of the directory that the shim stands in."""
    directory = _header(headers, "cwd")
    if directory is None:
        return None
    if not directory.startswith("/"):
        raise Invalid("the client stands in no absolute directory", field="workspace", hint="pass workspace")
    return await locate(directory)


def _spelled(spec: wire.CallerSpec) -> dict[str, Any]:
    """A caller as the wire spells it, as an agent whatever it was."""
    fields = {name: getattr(spec, name) for name in ("agent_kind", "session", "agent", "team")}
    return {name: value for name, value in fields.items() if value is not None}


def _of_shim(headers: Headers) -> dict[str, Any]:
    found = {name: _header(headers, name.replace("_", "-")) for name in ("session", "agent", "agent_kind", "team")}
    return {name: value for name, value in found.items() if value is not None}


def _of_arguments(given: Mapping[str, Any], headers: Headers) -> dict[str, Any]:
    """What the arguments say. Only a child says its agent id, also one behind the shim of a main agent, which has
    another; and an agent is never made more by saying less."""
    kind = _header(headers, "agent-kind")
    if "agent" in given and (kind is None or (kind == "main" and given["agent"] != _header(headers, "agent"))):
        return {**given, "agent_kind": "subagent"}
    return dict(given)


def _header(headers: Headers, name: str) -> str | None:
    value = headers.get(f"{HEADER}{name}")
    return unquote(value, errors="surrogateescape") if value else None
