"""The service that brings the daemon back after a reboot: a systemd user unit, or a launchd agent on macOS.

Hooks fail open, so a daemon that did not come back would be missed by nobody. The text is made here; which commands
make the system take it in is said here, and run by the command line. The platform is an argument.
"""

from __future__ import annotations

import os
import plistlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from amnesiad import places
from amnesiad.install.changes import Change, read

UNIT: Final = "amnesia.service"
LABEL: Final = "amnesiad"

CARRIED: Final = ("AMNESIA_CONFIG", "AMNESIA_STATE_DIR", "AMNESIA_SOCKET")
"""Variables that the service is given as they are now, since it does not see the shell's. Only paths: a file that lies
about may not come to hold an address with a password."""

WATCHDOG_S: Final = 60
"""A daemon whose loop stands still for so long is stuck. Loading a large workspace holds it for a second at most."""
START_S: Final = 600
"""Until the workspaces used last are loaded; the store of a large installation is read first."""
STOP_S: Final = 60
"""Requests in flight, a job under way and the last writing of the store have limits of their own, below this
together."""


class Service(NamedTuple):
    """A service's file; the commands that take it in, that stop it while the file is there, and that follow when it is
    gone."""

    path: Path
    text: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    forget: tuple[tuple[str, ...], ...] = ()
    link: Path | None = None
    """What enabling it leaves beside it; disabling takes it away, if there is a manager to do so."""


def service(environ: Mapping[str, str], platform: str = sys.platform, python: str = sys.executable) -> Service:
    """The service for this user on this platform, run by this Python."""
    path = places.service_file(environ, platform)
    carried = {name: _whole(environ[name]) for name in CARRIED if environ.get(name)}
    if platform == "darwin":
        domain = f"gui/{os.getuid()}"
        start = ("launchctl", "bootstrap", domain, str(path))
        return Service(path, _plist(python, carried), (start,), (("launchctl", "bootout", f"{domain}/{LABEL}"),))
    control = ("systemctl", "--user")
    return Service(
        path,
        _unit(python, carried),
        start=((*control, "daemon-reload"), (*control, "enable", "--now", UNIT)),
        stop=((*control, "disable", "--now", UNIT),),
        forget=((*control, "daemon-reload"),),
        link=enabled_by(path),
    )


def enabled_by(unit: Path) -> Path:
    """The link by which systemd starts a user's unit at login."""
    return unit.parent / "default.target.wants" / unit.name


def install(wanted: Service) -> list[Change]:
    """The change that puts the service's file where it belongs."""
    change = Change(wanted.path, read(wanted.path), wanted.text, mode=0o644)
    return [change] if change.needed else []


def undo(wanted: Service) -> list[Change]:
    """The change that takes it away."""
    before = read(wanted.path)
    return [] if before is None else [Change(wanted.path, before, None)]


def unseen(environ: Mapping[str, str]) -> list[str]:
    """Settings of this environment that the service will not see."""
    from amnesiad.settings import RULES

    names = (f"AMNESIA_{name.upper()}" for name in RULES)
    return [name for name in names if environ.get(name) and name not in CARRIED]


def _whole(path: str) -> str:
    """The path as the settings read it here and now: the service starts in another directory."""
    return os.path.abspath(os.path.expanduser(os.path.expandvars(path)))  # noqa: PTH100, PTH111


def _unit(python: str, environ: Mapping[str, str]) -> str:
    carried = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in environ.items())
    return f"""\
# Written by "amnesia install service"; "amnesia install service --undo" takes it away.
[Unit]
Description=amnesiad, the working memory of AI agents and its end

[Service]
Type=notify
ExecStart={_quoted(python)} -I -m amnesiad.entry up
{carried}Restart=always
RestartSec=2
WatchdogSec={WATCHDOG_S}
TimeoutStartSec={START_S}
TimeoutStopSec={STOP_S}
RuntimeDirectory=amnesia
RuntimeDirectoryMode=0700
# A daemon that was started by hand may have its socket there, and this one may end because of it.
RuntimeDirectoryPreserve=yes
UMask=0077

# What a user's own service manager can enforce. File systems stay as they are: anchors are files anywhere in the home.
NoNewPrivileges=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=default.target
"""


def _quoted(text: str) -> str:
    """One word of a unit's line, with ``%``, which systemd expands, doubled. ``$`` stays: neither in ``Environment=``
    nor in the path of a program is it a sign, and doubled it would be two."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
    return f'"{escaped}"' if escaped != text or any(sign in text for sign in " '\t=$") else text


def _plist(python: str, environ: Mapping[str, str]) -> str:
    fields = {
        "Label": LABEL,
        "ProgramArguments": [python, "-I", "-m", "amnesiad.entry", "up"],
        "EnvironmentVariables": dict(environ),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ProcessType": "Background",
        "ExitTimeOut": STOP_S,
        "Umask": 0o077,
        "StandardErrorPath": str(Path(os.path.expanduser("~/Library/Logs/amnesiad.log"))),  # noqa: PTH111
    }
    return plistlib.dumps(fields, sort_keys=False).decode()
