"""The embedded store: a private Redis-compatible server, run as our own child process.

What lives here is a process: one server per data directory, its start and its end. Which program runs and what it is
told is ``engine``'s business; commands to it are sent through the client that ``connect`` hands out.

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
Nothing here is bound to an event loop: ``asyncio.run(server.start())`` in a plain program and
``asyncio.run(server.stop())`` later are fine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from amnesiad.errors import Bug, ConfigError, StoreUnavailable, StoreUnfit
from amnesiad.limits import SUN_PATH_BYTES
from amnesiad.store.engine import NO_ENGINE_HINT, Durability, Engine, configuration, find_engine, record
from amnesiad.store.locks import open_lock, read_lock, try_lock, write_lock
from amnesiad.store.syncing import Syncer

START_TIMEOUT_S: Final = 30.0
"""A fresh server answers in 35-50 ms; the rest is for a machine with no processor to spare."""
LOAD_TIMEOUT_S: Final = 600.0
"""An answering server may still be loading: 64 MB and more of append-only file, on a slow disk."""
STOP_TIMEOUT_S: Final = 10.0
"""A clean shutdown flushes the append-only file; past this, SIGKILL, which loses no acknowledged write either."""
ASK_TIMEOUT_S: Final = 5.0
"""One question over the raw socket; a server deaf for longer is treated as alive."""
POLL_S: Final = 0.005
"""How often a start or a stop looks again."""
LOG_TAIL_BYTES: Final = 2_000
"""What of the server's log is quoted when it will not start."""
LOG_TAIL_LINES = 3

# Reads the server's pid, then waits for the end of its input, which means that the owner has died.
_GUARD = 'read -r pid && [ -n "$pid" ] || exit 0; read -r _; kill -TERM "$pid"'


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

        Raises ``ConfigError`` where the directory or socket (``field`` says which) cannot be used or another process
        owns it, ``StoreUnfit`` where no engine can be run here or none is recent enough, and ``StoreUnavailable`` where
        the server does not come up, or one left behind does not go.
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
            record(self.data_dir, engine)
            self.engine = engine
            if self.durability == "everysec":
                self._syncer = Syncer(self.data_dir)
                self._syncer.start()
        except OSError as error:
            self._release()
            raise StoreUnavailable(
                f"the embedded server cannot be started in {self.data_dir}: {error.strerror or type(error).__name__}",
                hint="look for room on the disk, and for limits on files and processes",
            ) from error
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
                except OSError:
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
        if length > SUN_PATH_BYTES:
            raise ConfigError(
                f"the store's socket path is {length} bytes long, the limit is {SUN_PATH_BYTES}: {self.socket_path}",
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
        lock = open_lock(path)
        if not try_lock(lock):
            holder = read_lock(lock)
            os.close(lock)
            raise ConfigError(
                f"the store in {self.data_dir} is already run by process {holder.get('pid', 'unknown')}",
                hint="use that one, stop it, or choose another state_dir",
                field="state_dir",
            )
        write_lock(lock, {"pid": os.getpid()})
        return lock

    async def _retire_left_behind(self) -> int:
        """Take the server's lock; when a server without an owner still holds it, shut that one down first."""
        lock = open_lock(self.data_dir / "server.lock")
        try:
            if try_lock(lock):
                return lock
            left = read_lock(lock)
            address = left.get("socket")
            if isinstance(address, str):
                # The lock says *a* server writes here; the pid it reports says that the socket leads to that one.
                with contextlib.suppress(OSError):
                    answer = await _ask(Path(address), "INFO server")
                    if f"process_id:{left.get('pid')}\r\n" in answer:
                        await _ask(Path(address), "SHUTDOWN NOSAVE")
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while not try_lock(lock):
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
        except OSError:
            pass  # Something is there, however unwell: not ours to take.
        raise ConfigError(
            f"another server answers on {self.socket_path}",
            hint="stop it, or choose another state_dir",
            field="state_dir",
        )

    def _spawn(self, engine: Engine) -> None:
        """Start the guard, then the server in a session and process group of its own, configured over standard
        input."""
        if self._server_lock is None:
            raise Bug("the server's lock is taken before the server starts")
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
                # A terminal's Ctrl-C must not stop the store before the daemon is done with it.
                start_new_session=True,
                umask=0o077,
                pass_fds=(self._server_lock,),
            )
        except OSError as error:
            raise StoreUnfit(f"{engine.label} cannot be run: {error.strerror}", hint=NO_ENGINE_HINT) from error
        finally:
            os.close(log)
        _say(self._guard, f"{self._process.pid}\n".encode())
        write_lock(self._server_lock, {"pid": self._process.pid, "socket": str(self.socket_path)})
        _say(self._process, configuration(engine, self.data_dir, self.socket_path, self.durability), close=True)

    async def _until_ready(self) -> None:
        began = time.monotonic()
        limit_s = START_TIMEOUT_S
        while True:
            if not self.alive:
                raise StoreUnavailable(
                    f"the embedded server ended while starting: {self._log_tail()}", hint=self._see_log
                )
            with contextlib.suppress(OSError):
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
        """Signal the server's whole group, so that a rewrite it forked goes with it; only while we have not reaped
        it."""
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


# -- pipes and the raw socket ----------------------------------------------------------------------------------------


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


async def _ask(path: Path, command: str) -> str:
    """Send one inline command over a connection of its own and return the reply, raw; empty when the server hung up.

    Raises ``OSError`` where nobody listens: ``TimeoutError``, which is one, where somebody does and says nothing.
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
