"""Where this user's configuration, state and socket are when nothing says otherwise.

Environment and file system only, the standard library alone, and cheap to import: a client looks here at every start,
where reading the settings would cost more than the request, and a shim looks where no other package can be imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_MAC_HOME = "~/Library/Application Support"


def config_file(environ: Mapping[str, str]) -> Path | None:
    """The TOML file of the settings: what ``AMNESIA_CONFIG`` names, else the user's own if it exists."""
    if named := environ.get("AMNESIA_CONFIG"):
        return Path(os.path.expanduser(named))  # noqa: PTH111 - of a user that there is not, unlike pathlib, it keeps the name
    path = _user_dir(environ, "XDG_CONFIG_HOME", "~/.config") / "amnesia.toml"
    try:
        return path if path.is_file() else None
    except OSError:  # a home that this user may not enter holds no settings for it
        return None


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Where what lasts is kept."""
    return _user_dir(environ, "XDG_STATE_HOME", "~/.local/state")


def default_socket(environ: Mapping[str, str], state_dir: Callable[[], Path]) -> Path:
    """The socket in the session's runtime directory, else in one of ours under the state directory."""
    runtime = Path(environ.get("XDG_RUNTIME_DIR", ""))
    # After su or sudo the variable may still name somebody else's directory, or one that no login session made.
    try:
        ours = runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == os.geteuid()
    except OSError:
        ours = False
    return runtime / "amnesia" / "amnesia.sock" if ours else state_dir() / "run" / "amnesia.sock"


def named_socket(given: str) -> str:
    """A socket's path as somebody wrote it, read as the settings read it; what cannot be expanded is kept, to be told
    of."""
    return str(_path(given) or given)


def configured_socket(environ: Mapping[str, str]) -> str:
    """Where the daemon listens as far as environment and configuration file tell, read without judging them.

    What the settings would refuse counts as not said: whoever starts the daemon is told, and a hook has nobody to tell.
    """
    if given := environ.get("AMNESIA_SOCKET", "").strip():
        return named_socket(given)
    file = _read(config_file(environ))
    if (named := _path(file.get("socket"))) is not None:
        return str(named)

    def state_dir() -> Path:
        told = _path(environ.get("AMNESIA_STATE_DIR", "").strip()) or _path(file.get("state_dir"))
        return told or default_state_dir(environ)

    return str(default_socket(environ, state_dir))


def service_file(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Where this user's service manager finds the service that ``amnesia install service`` sets up."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - without a home, unlike pathlib, it goes on
    if platform == "darwin":
        return home / "Library" / "LaunchAgents" / "amnesiad.plist"
    config = environ.get("XDG_CONFIG_HOME", "")
    return (Path(config) if Path(config).is_absolute() else home / ".config") / "systemd" / "user" / "amnesia.service"


def _read(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    import tomllib  # ten milliseconds, for those alone who have a file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _path(value: object) -> Path | None:
    """A path as the settings read it: ``~`` and variables expanded, from the current directory on."""
    if not isinstance(value, str) or not value:
        return None
    expanded = os.path.expandvars(value)
    try:
        return None if "$" in expanded else Path(expanded).expanduser().absolute()
    except RuntimeError:  # no home directory
        return None


def _user_dir(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    base = environ.get(variable, "")
    if not Path(base).is_absolute():  # the XDG specification has relative ones ignored
        base = _MAC_HOME if sys.platform == "darwin" else usual
    return Path(os.path.expanduser(base)) / "amnesia"  # noqa: PTH111 - without a home, unlike pathlib, it goes on
