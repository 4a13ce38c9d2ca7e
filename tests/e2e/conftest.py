"""A whole amnesiad for the tests of this directory: store, daemon and worker, as ``amnesia up`` runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amnesiad.client import Client
from amnesiad.errors import AmnesiaError

START_S = 30.0
"""On a busy machine; an idle one takes one or two seconds."""
LOOK_EVERY_S = 0.02


@pytest.fixture(scope="session")
def daemon() -> Iterator[str]:
    """The socket of ``amnesia up`` in a directory of its own, shared by the session and stopped in order at its end."""
    # Not pytest's own directory: its paths can be longer than a socket's may be.
    with tempfile.TemporaryDirectory(prefix="amnesia-e2e-") as directory:
        home, log = Path(directory), Path(directory, "up.log")
        socket = str(home / "amnesia.sock")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AMNESIA_")}
        environ |= {
            "AMNESIA_STATE_DIR": str(home / "state"),
            "AMNESIA_SOCKET": socket,
            "XDG_CONFIG_HOME": str(home / "config"),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "amnesiad.cli", "up"], env=environ, stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + START_S
            while not answers(socket):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(LOOK_EVERY_S)
            yield socket
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(START_S)
        assert code == 0, log.read_text()


def answers(socket: str) -> bool:
    """Whether a daemon answers there."""
    try:
        with Client(socket) as client:
            client.call("workspaces", {})
    except AmnesiaError:
        return False
    return True
