"""What is wrong with how agents are connected here: looked at in their own files, changed nowhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from amnesiad import places
from amnesiad.errors import Invalid
from amnesiad.install import commands, service, settings
from amnesiad.install.table import AGENTS, SCOPES, Agent, Scope


class Check(NamedTuple):
    """One check: what of, whether it is well, what was found, and what to do."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def examine(where: settings.Places, socket: str, platform: str = sys.platform) -> Iterator[Check]:
    """The hooks of each agent that is connected, then the service. ``socket`` is where the daemon of this user
    listens."""
    connected = False
    for agent in AGENTS.values():
        for check in _agent(agent, where, socket):
            connected = True
            yield check
    if not connected:
        yield Check(
            "hooks",
            True,
            'none in any agent\'s settings; "amnesia install claude-code" puts them there, unless its plugin is used',
        )
    yield _service(where.environ, platform, connected)


def _agent(agent: Agent, where: settings.Places, socket: str) -> Iterator[Check]:
    name = f"hooks of {agent.title}"
    found: dict[Path, tuple[Scope, list[settings.Found]]] = {}
    for scope in SCOPES:
        try:
            hooks = settings.find(agent, scope, where)
        except Invalid as error:
            # Somebody else's file, and none of our business unless the agent is connected by the other one.
            if found:
                yield Check(name, False, error.message, error.hint or "")
            continue
        if hooks:
            found.setdefault(hooks[0].path, (scope, hooks))
    for path, (scope, hooks) in found.items():
        if settings.switched_off(agent, scope, where):
            yield Check(name, False, f'{path} says "{agent.off}", so none of them runs', "take that out of it")
            continue
        yield _file(agent, name, path, scope, hooks, socket)
    if len(found) > 1:
        remedy = f"keep one: amnesia install {agent.name} --undo --scope project"
        yield Check(name, False, f"both {' and '.join(map(str, found))} have them, so each runs twice", remedy)


def _file(agent: Agent, name: str, path: Path, scope: Scope, hooks: list[settings.Found], socket: str) -> Check:
    again = f"run: amnesia install {agent.name}" + ("" if scope == "user" else f" --scope {scope}")
    others = {commands.socket_of(hook.command) for hook in hooks} - {socket, None}
    if others:
        return Check(name, False, f"those in {path} lead to {', '.join(map(str, others))}, not to {socket}", again)
    gone = [program for hook in hooks for program in commands.files_of(hook.command) if not Path(program).exists()]
    if gone:
        return Check(name, False, f"those in {path} run {gone[0]}, which is not there", again)
    events = [hook.event for hook in hooks]
    missing = [hook.event for hook in agent.hooks if hook.event not in events]
    if missing:
        return Check(name, False, f"{path} lacks {', '.join(missing)}", again)
    if len(events) > len(agent.hooks):
        return Check(name, False, f"{path} has some of them twice", again)
    slow = any("curl" in hook.command for hook in hooks) and shutil.which("curl") is None
    return Check(name, True, f"{path}" + ("; there is no curl, so they run Python, which is slower" if slow else ""))


def _service(environ: Mapping[str, str], platform: str, connected: bool) -> Check:
    path = places.service_file(environ, platform)
    if not path.is_file():
        after = "; after a reboot the hooks will be silent until somebody starts the daemon" if connected else ""
        return Check("service", True, f"none is set up{after}")
    if platform != "darwin" and not service.enabled_by(path).is_symlink():
        return Check("service", False, f"{path} is there but not enabled", f"systemctl --user enable {path.name}")
    return Check("service", True, str(path))
