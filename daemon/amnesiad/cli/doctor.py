"""What is wrong with this installation, and what to do about each thing: one line per check.

It asks the daemon what the daemon knows, and looks for itself only at what must hold for a daemon to start at all:
settings, the state directory, the install key, the socket, and a store that is not ours; then whether agents' hooks
lead here. It changes nothing.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import stat
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from amnesiad import __version__
from amnesiad.cli.call import Answer, Call
from amnesiad.cli.screen import say, styled, table
from amnesiad.errors import AmnesiaError, ConfigError, DaemonUnreachable

if TYPE_CHECKING:
    from amnesiad.settings import Settings

HEALTH_TIMEOUT_S: Final = 5.0
"""The health page asks nothing of the store; a daemon that takes longer over it is stuck."""
LAG_LIMIT_MS: Final = 60_000
"""How far a worker may be behind: erasure is promised within a minute of its time."""

_LIBRARIES: Final = ("redis", "rq", "uvicorn", "msgspec")


class Finding(NamedTuple):
    """One check: its name, whether it is well, what was found, and what to do if it is not."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def show(findings: list[Finding]) -> None:
    """Print the findings for people."""
    rows = []
    for finding in findings:
        mark = styled("ok", "green") if finding.ok else styled("wrong", "bold red")
        rows.append((mark, finding.name, f"{finding.found}: {finding.remedy}" if finding.remedy else finding.found))
    table(("", "CHECK", "FOUND"), rows)
    wrong = sum(not finding.ok for finding in findings)
    say("nothing is wrong" if not wrong else f"{wrong} of {len(findings)} checks found something wrong")


def examine(call: Call) -> Iterator[Finding]:
    """Every check, in the order in which one failing explains the next."""
    yield _versions()
    try:
        from amnesiad.settings import load_settings

        settings = load_settings(socket=call.socket)
    except ConfigError as error:
        yield Finding("settings", False, error.message, error.hint or "mend the setting")
        return
    yield Finding("settings", True, f"from {settings.config_file or 'the environment and defaults, there is no file'}")
    yield _state_dir(settings.state_dir)
    yield _install_key(settings.state_dir)
    yield _socket(settings.socket)
    workspace = _workspace(call)
    yield workspace
    yield from _daemon(settings, workspace.found if workspace.ok else None)
    yield from _connections(settings)


def _versions() -> Finding:
    parts = [f"amnesia {__version__}", f"Python {platform.python_version()}"]
    for library in _LIBRARIES:
        try:
            parts.append(f"{library} {metadata.version(library)}")
        except metadata.PackageNotFoundError:
            return Finding("versions", False, f"{library} is not installed", "pip install --upgrade amnesiad")
    return Finding("versions", True, ", ".join(parts))


def _privacy(path: Path, name: str) -> Finding | None:
    """What is wrong with who may enter or read a path, if anything is."""
    facts = path.stat()
    if facts.st_uid != os.geteuid():
        return Finding(name, False, f"{path} belongs to another user", f"chown {os.geteuid()} {path}")
    if facts.st_mode & 0o077:
        wanted = "0700" if stat.S_ISDIR(facts.st_mode) else "0600"
        mode = stat.S_IMODE(facts.st_mode)
        return Finding(name, False, f"{path} has mode {mode:04o}, so others may look in", f"chmod {wanted} {path}")
    return None


def _state_dir(path: Path) -> Finding:
    name = "state directory"
    try:
        if not path.exists():
            return Finding(name, True, f"{path} is not there yet; the first start makes it")
        if not path.is_dir():
            return Finding(name, False, f"{path} is not a directory", "move it away, or set state_dir")
        return _privacy(path, name) or Finding(name, True, str(path))
    except OSError as error:
        return Finding(name, False, f"{path} cannot be looked at: {error.strerror}", "mend its permissions")


def _install_key(state_dir: Path) -> Finding:
    from amnesiad.store.keyring import KEY_BYTES, KEY_FILE
    from amnesiad.store.location import data_dir

    name, path = "install key", state_dir / KEY_FILE
    try:
        if not path.exists() and data_dir(state_dir).exists():
            remedy = "put back the file from a backup: no other key opens this store"
            return Finding(name, False, f"{path} is gone, and the store beside it was written with it", remedy)
        if not path.exists():
            return Finding(name, True, "not there yet; the first start makes it")
        size = path.stat().st_size
        if size != KEY_BYTES:
            remedy = "put back the file that belongs to this store"
            return Finding(name, False, f"{path} has {size} bytes, not {KEY_BYTES}", remedy)
        return _privacy(path, name) or Finding(name, True, str(path))
    except OSError as error:
        return Finding(name, False, f"{path} cannot be looked at: {error.strerror}", "mend its permissions")


def _socket(path: Path) -> Finding:
    name = "socket"
    try:
        if not path.parent.exists() or not path.exists():
            return Finding(name, False, f"{path} is not there", 'start the daemon: "amnesia up"')
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return Finding(name, False, f"{path} is not a socket", "move that file away, then start the daemon")
        return _privacy(path, name) or Finding(name, True, str(path))
    except OSError as error:
        return Finding(name, False, f"{path} cannot be looked at: {error.strerror}", "mend its directory's permissions")


def _workspace(call: Call) -> Finding:
    try:
        return Finding("workspace", True, call.workspace)
    except AmnesiaError as error:
        return Finding("workspace", False, error.message, error.hint)


def _daemon(settings: Settings, workspace: str | None) -> Iterator[Finding]:
    from amnesiad.client import Client

    try:
        running = _running_version(settings.socket)
        # Reading makes no workspace, so any name will do to ask how store and worker are.
        with Client(settings.socket, workspace=workspace or "doctor") as client:
            answer = client.call("status", {})
    except (OSError, ValueError, DaemonUnreachable):
        yield Finding("daemon", False, f"nothing answers on {settings.socket}", 'start it with "amnesia up"')
        yield from _store_itself(settings)
        return
    except AmnesiaError as error:
        yield Finding("daemon", False, f"it answers with {error.code}: {error.message}", error.hint)
        yield from _store_itself(settings)
        return
    if running == __version__:
        yield Finding("daemon", True, f"answers on {settings.socket}")
    else:
        yield Finding("daemon", False, f"it is version {running}, this command is {__version__}", "restart the daemon")
    if answer.get("degraded"):
        yield Finding("store", False, "the daemon has lost its store", "it reconnects by itself once the store is back")
    else:
        yield Finding("store", True, _scalars(answer["store"]) or "answers")
    if (trouble := answer["store"].get("embedder_trouble")) is not None:
        yield Finding("embedder", False, str(trouble), "mend it and restart the daemon; until then words alone find")
    yield _worker(answer)


def _running_version(path: Path) -> str:
    """The version of the daemon that listens there. Raises ``OSError`` or ``ValueError`` if none says."""
    connection = HTTPConnection("amnesiad", timeout=HEALTH_TIMEOUT_S)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(HEALTH_TIMEOUT_S)
    try:
        connection.sock.connect(str(path))
        connection.request("GET", "/healthz")
        return str(json.loads(connection.getresponse().read())["version"])
    except (HTTPException, KeyError, TypeError) as error:
        raise ValueError("what listens there is no amnesiad") from error
    finally:
        connection.close()


def _scalars(store: dict[str, Any]) -> str:
    told = {name: value for name, value in store.items() if value is not None and name != "embedder_trouble"}
    return ", ".join(f"{name} {value}" for name, value in told.items())


def _worker(answer: Answer) -> Finding:
    worker = answer["worker"]
    lag_ms = worker.get("lag_ms")
    if not worker["alive"]:
        remedy = 'start one: "amnesia worker" (amnesia up runs its own)'
        return Finding("worker", False, "no worker is alive, so nothing is unplugged, scrubbed or purged", remedy)
    if lag_ms is not None and lag_ms > LAG_LIMIT_MS:
        return Finding("worker", False, f"{lag_ms // 1000} s behind", "run another worker, or see its log")
    return Finding("worker", True, "alive" if lag_ms is None else f"alive, {lag_ms} ms behind")


def _connections(settings: Settings) -> Iterator[Finding]:
    from amnesiad.install import checks
    from amnesiad.install.settings import Places

    try:
        where = Places(Path.home(), Path.cwd(), os.environ)
    except (OSError, RuntimeError):  # no home, or a directory that is gone
        return
    for check in checks.examine(where, str(settings.socket)):
        yield Finding(*check)


def _store_itself(settings: Settings) -> Iterator[Finding]:
    """A store that is not ours, looked at directly because no daemon tells; our own runs only beside a daemon."""
    if settings.redis_url is None:
        return
    import asyncio

    from amnesiad.store.connect import check_fit, connect, shown

    async def look(url: str) -> None:
        client = await connect(url)
        try:
            await check_fit(client)
        finally:
            await client.aclose()

    try:
        asyncio.run(look(settings.redis_url))
    except AmnesiaError as error:
        yield Finding("store", False, error.message, error.hint)
    else:
        yield Finding("store", True, f"{shown(settings.redis_url)} answers and is fit to hold memory")
