"""Where this user's configuration, state and socket are when nothing says otherwise.

Environment and file system only, and cheap to import: a client looks here at every start, where reading the settings
would cost more than the request.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path


def config_file(environ: Mapping[str, str]) -> Path | None:
    """The TOML file of the settings: what ``AMNESIA_CONFIG`` names, else the user's own if it exists."""
    if named := environ.get("AMNESIA_CONFIG"):
        return Path(named).expanduser()
    path = _config_home(environ) / "amnesia.toml"
    try:
        return path if path.is_file() else None
    except OSError:  # a home that this user may not enter holds no settings for it
        return None


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Where what lasts is kept."""

    def fallback() -> Path:
        import platformdirs

        return platformdirs.user_state_path("amnesia", appauthor=False)

    return _user_dir(environ, "XDG_STATE_HOME", fallback)


def default_socket(environ: Mapping[str, str], state_dir: Callable[[], Path]) -> Path:
    """The socket in the session's runtime directory, else in one of ours under the state directory."""
    runtime = Path(environ.get("XDG_RUNTIME_DIR", ""))
    # After su or sudo the variable may still name somebody else's directory, or one that no login session made.
    try:
        ours = runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == os.geteuid()
    except OSError:
        ours = False
    return runtime / "amnesia" / "amnesia.sock" if ours else state_dir() / "run" / "amnesia.sock"


def _config_home(environ: Mapping[str, str]) -> Path:
    def fallback() -> Path:
        import platformdirs

        return platformdirs.user_config_path("amnesia", appauthor=False)

    return _user_dir(environ, "XDG_CONFIG_HOME", fallback)


def _user_dir(environ: Mapping[str, str], variable: str, fallback: Callable[[], Path]) -> Path:
    base = environ.get(variable, "")
    if Path(base).is_absolute():  # the XDG specification has relative ones ignored
        return Path(base) / "amnesia"
    return fallback()
