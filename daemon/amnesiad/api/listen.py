"""Opening the Unix socket safely, and closing only what is ours; and the token that guards the loopback port instead.

The socket is 0600 in a 0700 directory of this user's. Before anything is removed the path is looked at: what is no
socket is refused, a living daemon is named, and only a socket that nobody answers on is taken away. Two daemons that
start at once are kept apart by a lock on the directory itself, so that no kind of death leaves a lock file behind.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import secrets
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from amnesiad.errors import ConfigError
from amnesiad.limits import SUN_PATH_BYTES

BACKLOG: Final = 512
"""Connections the kernel holds before they are accepted; macOS and Linux cut it to their own limit."""
PROBE_TIMEOUT_S: Final = 1.0
"""How long a daemon found at the path has to say its process id before it is taken for a silent one."""
TOKEN_FILE: Final = "http.token"  # noqa: S105
MIN_TOKEN_CHARS: Final = 32
"""A token shorter than this was not made by us and could be guessed."""

_XUCRED: Final = struct.Struct("=II")
_UCRED: Final = struct.Struct("=iII")
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1


class Listener:
    """A bound, listening socket of ours. ``close`` is safe to call twice and never removes another's socket."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        self.sock = sock
        self.path = path
        self._identity = _identity(path)

    def close(self) -> None:
        """Stop listening and remove the path, if what stands there is still what we made."""
        self.sock.close()
        with suppress(OSError), _locked(self.path.parent):
            if self._identity is not None and _identity(self.path) == self._identity:
                self.path.unlink()


def open_socket(path: Path) -> Listener:
    """A listening socket at ``path``; creates its directory.

    Raises ``ConfigError`` with field ``socket`` if the path is too long or holds something else, if its directory is
    another user's or open to others, and if a process listens there already (naming its id).
    """
    if len(os.fsencode(path)) > SUN_PATH_BYTES:
        raise ConfigError(
            f"the socket path {path} has {len(os.fsencode(path))} bytes, the limit is {SUN_PATH_BYTES}",
            field="socket",
            hint="set socket to a shorter path",
        )
    _prepare_directory(path.parent)
    with _locked(path.parent):
        _clear(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _umask(0o177):
                sock.bind(str(path))
            path.chmod(0o600)
            sock.listen(BACKLOG)
            sock.setblocking(False)
            return Listener(sock, path)
        except OSError as failure:
            sock.close()
            raise ConfigError(f"the socket {path} cannot be opened: {failure.strerror}", field="socket") from failure


def _prepare_directory(directory: Path) -> None:
    try:
        with _umask(0o077):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as failure:
        raise ConfigError(
            f"the directory {directory} of the socket cannot be made: {failure.strerror}", field="socket"
        ) from failure
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"the directory {directory} of the socket belongs to user {found.st_uid}, not to user {os.geteuid()}",
            field="socket",
            hint="set socket to a path in a directory of your own",
        )
    if found.st_mode & 0o077:
        raise ConfigError(
            f"the directory {directory} of the socket is open to others (mode {stat.S_IMODE(found.st_mode):04o})",
            field="socket",
            # Whoever closes a directory that programs share, like /tmp, has worse to mend afterwards.
            hint=f"set socket to a path in a directory of its own, such as {directory / 'amnesia' / 'amnesia.sock'}",
        )


def _clear(path: Path) -> None:
    """Make room for a new socket: remove a dead one, refuse everything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(
            f"{path} is there already and is not a socket",
            field="socket",
            hint="move it away, or set socket to another path",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except FileNotFoundError:
            return
        except OSError as failure:
            raise ConfigError(f"the socket {path} cannot be probed: {failure}", field="socket") from failure
        who = _ask_pid(probe) or peer_pid(probe)
    raise ConfigError(
        f"amnesiad is running already (process {who}) on {path}" if who else f"a process listens on {path} already",
        field="socket",
        hint="use it, or stop it first" if who else "stop it first, or set socket to another path",
    )


def _ask_pid(probe: socket.socket) -> int | None:
    try:
        probe.sendall(b"GET /healthz HTTP/1.1\r\nhost: amnesiad\r\nconnection: close\r\n\r\n")
        answer = http.client.HTTPResponse(probe)
        answer.begin()
        pid = json.loads(answer.read(64 * 1024))["pid"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) else None


def peer_pid(sock: socket.socket) -> int | None:
    """The process at the other end, where the system tells (Linux)."""
    if sys.platform != "linux":
        return None
    pid: int = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
    return pid or None


def peer_uid(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket, by the kernel's word. Raises ``OSError`` where there is none."""
    uid: int
    if sys.platform == "linux":
        _, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    else:
        _, uid = _XUCRED.unpack_from(sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 128))
    return uid


def bearer_token(state_dir: Path) -> str:
    """The token that TCP clients must send, from a 0600 file in the state directory, made on first use.

    Raises ``ConfigError`` with field ``http`` if the file is readable by others or holds no token of ours.
    """
    path = state_dir / TOKEN_FILE
    try:
        with _umask(0o077):
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
            found = os.fstat(file.fileno())
            token = file.read(1024).strip()
    except OSError as failure:
        raise ConfigError(f"the token file {path} cannot be used: {failure.strerror}", field="http") from failure
    if found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise ConfigError(f"the token file {path} is not yours alone", field="http", hint=f"chmod 600 {path}")
    if len(token) < MIN_TOKEN_CHARS or not token.isascii():
        raise ConfigError(f"the token file {path} holds no token", field="http", hint="remove it; a new one is made")
    return token


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    # The time of making tells a new socket from ours where the file system gave it the same inode number.
    return found.st_dev, found.st_ino, found.st_mtime_ns


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
