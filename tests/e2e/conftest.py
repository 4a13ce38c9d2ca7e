"""A whole amnesiad for the tests of this directory: store, daemon and worker, as ``amnesia up`` runs them."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support import Fleet, Process

START_S = 30.0
"""On a busy machine; an idle one takes one or two seconds."""
LOOK_EVERY_S = 0.02


class Up(NamedTuple):
    """A running ``amnesia up``: where it listens, the environment in which a command finds it, its process id, its
    log."""

    socket: str
    environ: dict[str, str]
    pid: int
    log: Path


@pytest.fixture(scope="session")
def up() -> Iterator[Up]:
    """``amnesia up`` in a directory of its own, shared by the session and stopped in order at its end.

    Tests share it, so each works in a workspace of its own. ``environ`` names no workspace.
    """
    # Not pytest's own directory: its paths can be longer than a socket's may be.
    with tempfile.TemporaryDirectory(prefix="amnesia-e2e-") as directory:
        home, log = Path(directory), Path(directory, "up.log")
        path = str(home / "amnesia.sock")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AMNESIA_")}
        environ |= {
            "AMNESIA_STATE_DIR": str(home / "state"),
            "AMNESIA_SOCKET": path,
            "XDG_CONFIG_HOME": str(home / "config"),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "amnesiad.cli", "up"], env=environ, stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + START_S
            while not ready(path):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(LOOK_EVERY_S)
            yield Up(path, environ, process.pid, log)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(START_S)
        assert code == 0, log.read_text()


@pytest.fixture(scope="session")
def daemon(up: Up) -> str:
    """The socket of the session's ``amnesia up``."""
    return up.socket


@pytest.fixture(scope="session")
def second(up: Up) -> Iterator[str]:
    """The socket of a second daemon on the store of the session's ``amnesia up``."""
    path = str(Path(up.socket).with_name("second.sock"))
    command = [sys.executable, "-m", "amnesiad.cli", "daemon"]
    process = Process(command, up.environ | {"AMNESIA_SOCKET": path}, Path(up.socket).with_name("second.log"))
    try:
        asyncio.run(process.ready("the daemon serves"))
        yield path
    finally:
        process.end()
    assert process.code == 0, process.said


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """A fleet of the test's own, with nothing in it yet; all of it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="amnesia-e2e-") as directory:
        async with Fleet(Path(directory)) as found:
            yield found


def ready(path: str) -> bool:
    """Whether the daemon behind this socket says that it is ready."""
    connection = http.client.HTTPConnection("amnesiad")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(START_S)
    try:
        connection.sock.connect(path)
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
