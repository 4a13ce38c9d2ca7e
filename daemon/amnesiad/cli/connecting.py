"""Connecting agents: install writes the settings that lead their hooks to us; hook, mcp and statusline are what they
run.

The last three are programs of their own (``amnesiad.shims``), which ``main`` runs before any command is looked for.
Their functions here are never called: they are where the help and the documentation find them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from amnesiad.cli.call import print_json
from amnesiad.cli.dialog import Dialog, check_places
from amnesiad.cli.screen import say
from amnesiad.errors import AmnesiaError, Invalid

if TYPE_CHECKING:
    from amnesiad.install.settings import Wanted
    from amnesiad.install.table import Agent, Scope

app = typer.Typer()

CONTROL_TIMEOUT_S: Final = 90.0
"""For the service manager to start or stop the service: the daemon itself takes a second, or waits for its store."""

_STDERR: Final = 2
"""Where the service manager's own words go, so that our output stays what was asked for."""

_BY_DEFAULT: Final = "Name it for every directory; by default each names its own."
Workspace = Annotated[str | None, typer.Option("--workspace", "-w", metavar="NAME", help=_BY_DEFAULT)]
ShimWorkspace = Annotated[str | None, typer.Option("--workspace", metavar="NAME", help=_BY_DEFAULT)]
"""Of the shims, which read long options only."""
Socket = Annotated[str | None, typer.Option("--socket", metavar="PATH", help="The daemon's socket.")]


@app.command()
def install(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="claude-code, codex, cursor, gemini, openhands, vscode; dsh; or service."
        ),
    ],
    scope: Annotated[
        str, typer.Option("--scope", metavar="SCOPE", help="user: your settings. project: this directory's.")
    ] = "user",
    print_only: Annotated[bool, typer.Option("--print", help="Print what to add by hand; change nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change; change nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take away what install added, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    form: Annotated[
        str, typer.Option("--command", metavar="FORM", help="curl (faster) or python: what the hooks run.")
    ] = "curl",
    statusline: Annotated[bool, typer.Option("--statusline", help="Also set the status line, if none is set.")] = False,
    plugin: Annotated[
        Path | None, typer.Option("--plugin", metavar="DIR", help="Make a Claude Code plugin folder there instead.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Where the DSH bundle goes; by default ./dsh-amnesia.")
    ] = None,
    workspace: Workspace = None,
    socket: Socket = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Connect an agent's hooks and tools, or set up a service. Shows the change first; can be undone."""
    from amnesiad.install import folders, table

    _check_options(target, scope, form, statusline, plugin, to)
    if print_only and (plugin is not None or target == "dsh"):  # it promises that nothing is changed
        raise Invalid(
            "there is nothing to add by hand: this copies a folder", field="print", hint="look with --dry-run"
        )
    check_places()
    dialog = Dialog(dry_run=dry_run, yes=yes, as_json=as_json)
    if target == "service":
        _install_service(dialog, undo, print_only, as_json)
        return
    if target == "dsh":
        _copy_folders(dialog, dict(folders.contents(folders.bundle("dsh"))), to or Path("dsh-amnesia"), undo)
        return
    from amnesiad.client.identity import daemon_socket
    from amnesiad.core.intake import check_name
    from amnesiad.install.settings import Wanted
    from amnesiad.wire.fields import MAX_WORKSPACE_BYTES

    if workspace is not None:  # the daemon would refuse every hook, and none would say so
        check_name(workspace, "workspace", MAX_WORKSPACE_BYTES)
    path = Path(socket or daemon_socket(os.environ)).expanduser().absolute()
    wanted = Wanted(str(path), workspace, "python" if form == "python" else "curl", statusline)
    if plugin is not None:
        if _copy_folders(dialog, folders.plugin(wanted), plugin, undo) and not undo:
            dialog.tell(f"try it: claude --plugin-dir {plugin}")
            _tell_of_extra(dialog)
        return
    chosen: Scope = "project" if scope == "project" else "user"
    if print_only:
        _print_settings(table.AGENTS[target], chosen, wanted, as_json=as_json)
        return
    _install_agent(dialog, table.AGENTS[target], chosen, wanted, undo=undo)


@app.command()
def hook(
    name: Annotated[
        str, typer.Argument(metavar="AGENT", help="claude-code, codex, cursor, gemini, openhands, vscode.")
    ],
    workspace: ShimWorkspace = None,
    socket: Socket = None,
) -> None:
    """Hand an agent's hook payload (standard input) to the daemon. Fails open: exit 0, silent without a daemon."""


@app.command()
def mcp(socket: Socket = None) -> None:
    """Serve the agent's tools over MCP on standard input and output. Agents start it; it needs the extra mcp."""


@app.command("statusline")
def status_line(workspace: ShimWorkspace = None, socket: Socket = None) -> None:
    """Print one line about the memory for an agent's status line. Reads the agent's JSON on standard input."""


def _check_options(target: str, scope: str, form: str, statusline: bool, plugin: Path | None, to: Path | None) -> None:
    """Raise ``Invalid`` for a word that is none of those known, and for an option that another target takes."""
    from amnesiad.install import commands, table

    known = [*table.AGENTS, "dsh", "service"]
    if target not in known:
        raise Invalid(f"there is nothing to install for {target!r}", field="target", hint=f"one of {', '.join(known)}")
    if scope not in table.SCOPES:
        raise Invalid(f"--scope must be user or project, not {scope!r}", field="scope")
    if form not in commands.FORMS:
        raise Invalid(f"--command must be curl or python, not {form!r}", field="command")
    if (statusline or plugin is not None) and target != table.CLAUDE_CODE.name:
        raise Invalid("--statusline and --plugin are for claude-code", field="target")
    if to is not None and target != "dsh":
        raise Invalid("--to is for dsh", field="to")


# -- the targets -------------------------------------------------------------------------------------------------------


def _install_agent(dialog: Dialog, agent: Agent, scope: Scope, wanted: Wanted, *, undo: bool) -> None:
    from amnesiad.install import settings

    places = settings.Places(Path.home(), Path.cwd(), os.environ)
    if undo:
        dialog.make(settings.undo(agent, scope, places), f"nothing of ours is in {agent.title}'s settings")
        return
    made = dialog.make(settings.install(agent, scope, places, wanted), f"{agent.title} is connected already")
    if dialog.declined:
        return
    if wanted.statusline and settings.has_another_status_line(agent, scope, places):
        dialog.tell("another status line is set, and it stays; take it out to have ours")
    if scope not in agent.mcp:
        dialog.tell(f"add our MCP server yourself:\n\n{_mcp_by_hand(agent, scope, wanted)}")
    if agent.note:
        dialog.tell(agent.note)
    _tell_of_extra(dialog)
    if made and scope == "project":
        dialog.tell("The lines name paths of this machine; others who share the repository run the same command.")


def _print_settings(agent: Agent, scope: Scope, wanted: Wanted, *, as_json: bool) -> None:
    import json

    from amnesiad.install import settings

    places = settings.Places(Path.home(), Path.cwd(), os.environ)
    files = {
        str(places.of(agent, scope, file)): value for file, value in settings.printed(agent, scope, wanted).items()
    }
    if as_json:
        print_json({"files": files})
        return
    for path, value in files.items():
        say(f"// {path}")
        say(json.dumps(value, indent=2, ensure_ascii=False))
    if scope not in agent.mcp:
        say(_mcp_by_hand(agent, scope, wanted))


def _mcp_by_hand(agent: Agent, scope: Scope, wanted: Wanted) -> str:
    """Our MCP server for a file that is not edited, which is named: as JSON, or for Codex, which has no other, as
    TOML."""
    import json

    from amnesiad.install import settings, table

    if (mcp := agent.mcp_by_hand.get(scope)) is not None:
        entry = {mcp.key: {table.SERVER: settings.mcp_value(mcp, wanted)}}
        return f"// {mcp.file}\n{json.dumps(entry, indent=2, ensure_ascii=False)}"
    value = settings.mcp_value(table.Mcp("", "mcp_servers"), wanted)
    # What JSON writes for strings and arrays of strings, TOML reads as the same.
    lines = [f"# ~/.codex/config.toml\n[mcp_servers.{table.SERVER}]"]
    lines += [f"{name} = {json.dumps(value[name])}" for name in ("command", "args")]
    if "env" in value:
        lines.append(f"env = {{ AMNESIA_WORKSPACE = {json.dumps(wanted.workspace)} }}")
    return "\n".join(lines)


def _copy_folders(dialog: Dialog, files: dict[str, str], target: Path, undo: bool) -> bool:
    """Copy them to ``target``, or take them away again; whether anything was changed."""
    from amnesiad.install import folders

    target = target.expanduser().absolute()
    if not undo:
        return dialog.make(folders.install(files, target), f"{target} is up to date", whole=True)
    made = dialog.make(folders.undo(files, target), f"nothing of ours is in {target}", whole=True)
    if made:
        folders.prune(target)
    return made


def _tell_of_extra(dialog: Dialog) -> None:
    """The tools are entered for every agent; without their library the daemon refuses each call, and says so too
    late."""
    if find_spec("mcp") is None:
        dialog.tell("the tools need the extra mcp where the daemon runs: pip install 'amnesiad[mcp]'")


def _install_service(dialog: Dialog, undo: bool, print_only: bool, as_json: bool) -> None:
    from amnesiad.install import service

    wanted = service.service(os.environ)
    if print_only and as_json:
        print_json({"files": {str(wanted.path): wanted.text}, "then": wanted.start})
        return
    if print_only:
        say(f"# {wanted.path}\n{wanted.text}")
        for command in wanted.start:
            say(f"# then: {' '.join(command)}")
        return
    if undo:
        if dialog.make(service.undo(wanted), "no service of ours is set up", first=lambda: _stop(wanted.stop, dialog)):
            if wanted.link is not None:
                wanted.link.unlink(missing_ok=True)
            _control(wanted.forget, dialog)
        return
    changes = service.install(wanted)
    if dialog.make(changes, f"{wanted.path} is up to date"):
        if changes[0].before is None and _daemon_answers():
            dialog.tell("a daemon runs already: end it where it was started, and within seconds the service takes over")
        _control(wanted.start, dialog)
    if missed := service.unseen(os.environ):
        dialog.tell(f"the service does not see {', '.join(missed)}: put these settings into the configuration file")


def _daemon_answers() -> bool:
    from socket import AF_UNIX, socket

    from amnesiad.client.identity import daemon_socket

    with socket(AF_UNIX) as probe:
        try:
            probe.connect(str(daemon_socket(os.environ)))
        except OSError:
            return False
    return True


def _stop(commands: Sequence[Sequence[str]], dialog: Dialog) -> None:
    """Stop the service. A manager that is not there, or knows nothing of it, keeps nobody from taking its file away."""
    try:
        _control(commands, dialog)
    except AmnesiaError as error:
        dialog.tell(f"{error.message}: a daemon that it started may still run")


def _control(commands: Sequence[Sequence[str]], dialog: Dialog) -> None:
    """Run the service manager's commands. Raises ``AmnesiaError`` with what is left to do, where one fails."""
    for place, command in enumerate(commands):
        left = " && ".join(" ".join(rest) for rest in commands[place:])
        try:
            code = subprocess.run(command, stdout=_STDERR, timeout=CONTROL_TIMEOUT_S).returncode
        except (OSError, subprocess.TimeoutExpired):
            code = -1
        if code != 0:
            raise AmnesiaError(f"{' '.join(command)} did not succeed", hint=f"when it can, run: {left}")
    dialog.tell(f"done: {' && '.join(' '.join(command) for command in commands)}")
