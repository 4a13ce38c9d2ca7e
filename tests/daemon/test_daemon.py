"""The long-running commands as real processes: how they start, what they survive, and that they leave nothing
behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.workers.seeding import KEYRING

import amnesiad
import amnesiad_workers
from amnesiad.store.server import EmbeddedServer

PATIENCE_S = 40.0


def until(predicate: Callable[[], object], what: str = "") -> None:
    """Look until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < deadline, f"not so in time: {what or predicate}"
        time.sleep(0.02)


class UnixConnection(HTTPConnection):
    """HTTP over the daemon's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self.path))


class Command:
    """One running command of ours, with what it said."""

    def __init__(self, home: Path, *argv: str, **environ: str) -> None:
        self.home = home
        self.log = home / f"{argv[0]}-{secrets.token_hex(4)}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AMNESIA_", "XDG_"))}
        sources = [Path(amnesiad.__file__).parent.parent, Path(amnesiad_workers.__file__).parent.parent]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "amnesiad.cli", *argv],
                env={
                    **kept,
                    "PYTHONPATH": os.pathsep.join(map(str, sources)),
                    "AMNESIA_STATE_DIR": str(home / "state"),
                    "AMNESIA_SOCKET": str(home / "a.sock"),
                    **environ,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def said(self) -> str:
        """Everything it has written so far."""
        return self.log.read_text()

    def ready(self, words: str = "amnesia is up") -> Command:
        """Wait until it says so."""
        until(lambda: words in self.said or self.process.poll() is not None, f"{words}: {self.said}")
        assert self.process.poll() is None, self.said
        return self

    def signal(self, number: int) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


class Site:
    """A home directory and every command started in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.commands: list[Command] = []

    def start(self, *argv: str, **environ: str) -> Command:
        """Start a command here."""
        self.commands.append(Command(self.home, *argv, **environ))
        return self.commands[-1]

    def call(self, verb: str, name: str = "a.sock", **fields: Any) -> dict[str, Any]:
        """Ask the daemon; the answer, or the error's envelope."""
        connection = UnixConnection(self.home / name)
        try:
            connection.request("POST", f"/v1/{verb}", json.dumps({"workspace": "w", **fields}))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    def store_pid(self) -> int:
        """The embedded server's process."""
        return int(json.loads((self.home / "state/store/server.lock").read_text())["pid"])

    def worker_pids(self) -> list[int]:
        """Workers of this home, by the settings they log."""
        found = []
        for command in self.commands:
            found += [int(pid) for pid in re.findall(r'"worker": "[^"]*-(\d+)-[0-9a-f]+"', command.said)]
        return [pid for pid in found if alive(pid)]

    def sockets(self) -> list[Path]:
        """Socket files below the home."""
        return [path for path in self.home.rglob("*") if path.is_socket()]

    def has_worker(self) -> bool:
        """Whether the daemon knows of a living worker."""
        return bool(self.call("status").get("worker", {}).get("alive"))


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        if Path("/proc/self").exists():
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A home with a short name, because socket paths have a limit; everything started in it is gone afterwards."""
    found = Site(tmp_path_factory.mktemp("h"))
    yield found
    for command in found.commands:
        if command.process.poll() is None:
            command.process.terminate()
    for command in found.commands:
        try:
            command.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            command.process.kill()
            command.process.wait()


def test_a_terminal_that_closes_ends_it_in_good_order(site: Site) -> None:
    """Whoever closes the window has stopped it: the socket is gone, and so are store and worker."""
    up = site.start("up").ready()
    until(site.has_worker)
    pids = [site.store_pid(), *site.worker_pids()]
    assert up.signal(signal.SIGHUP) == 0
    assert not [pid for pid in pids if alive(pid)]
    assert site.sockets() == []


def test_what_nohup_started_outlives_its_terminal(site: Site) -> None:
    """A hang-up that is ignored from the start goes on being ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which those that we start inherit
    try:
        up = site.start("up").ready()
    finally:
        signal.signal(signal.SIGHUP, before)
    up.process.send_signal(signal.SIGHUP)
    # One answer says nothing: a daemon that stops gives those that are asked for.
    site.call("remember", content="still there", ttl_ms=300)
    until(lambda: site.call("status")["counts"]["forgotten"] == 1)
    assert up.signal(signal.SIGTERM) == 0


def test_up_serves_forgets_on_time_and_leaves_nothing_behind(site: Site) -> None:
    """One command: a note is written, expires and is erased by itself, and SIGTERM leaves no process and no socket."""
    up = site.start("up").ready()
    until(site.has_worker)
    note = site.call("remember", content="a passing thought", ttl_ms=300)
    until(lambda: site.call("status")["counts"]["forgotten"] == 1)
    until(lambda: "scrub" in up.said)
    assert site.call("audit")["entries"][0]["id"] == note["id"]
    pids = [site.store_pid(), *site.worker_pids()]
    assert len(pids) == 2
    assert "passing thought" not in up.said
    assert up.signal(signal.SIGTERM) == 0
    assert not [pid for pid in pids if alive(pid)]
    assert site.sockets() == []
    assert (site.home / "state").stat().st_mode & 0o777 == 0o700


def test_ctrl_c_stops_everything_cleanly(site: Site) -> None:
    """SIGINT, twice in a row, ends the command with exit code 0 and nothing left."""
    up = site.start("up").ready()
    pid = site.store_pid()
    up.process.send_signal(signal.SIGINT)
    assert up.signal(signal.SIGINT) == 0
    assert not alive(pid)
    assert site.sockets() == []
    assert "Traceback" not in up.said


def test_sigkill_of_everything_in_turn_needs_no_hand(site: Site) -> None:
    """C41: store, worker and at last the command itself are killed with SIGKILL; each time notes and service are
    back."""
    up = site.start("up").ready()
    until(site.has_worker)
    first = site.call("remember", content="kept through it all", kind="finding")["id"]

    store = site.store_pid()
    os.kill(store, signal.SIGKILL)
    until(lambda: site.store_pid() != store, "another store")
    until(lambda: not {"error", "degraded"} & set(site.call("list")), "the store is back")
    assert [note["id"] for note in site.call("list")["notes"]] == [first]

    (worker,) = site.worker_pids()
    os.kill(worker, signal.SIGKILL)
    until(lambda: site.worker_pids() not in ([], [worker]), "another worker")
    site.call("remember", content="a passing thought", ttl_ms=1)
    until(lambda: site.call("status")["counts"]["forgotten"] == 1)

    pids = [site.store_pid(), *site.worker_pids()]
    up.signal(signal.SIGKILL)
    until(lambda: not [pid for pid in pids if alive(pid)], "orphans end")
    site.start("up").ready()
    assert [note["id"] for note in site.call("list")["notes"]] == [first]


def test_a_second_up_is_refused_and_the_first_goes_on(site: Site) -> None:
    """Another up on the same state directory ends with exit code 1 and names the one that runs."""
    up = site.start("up").ready()
    second = site.start("up", AMNESIA_SOCKET=str(site.home / "b.sock"))
    assert second.process.wait(PATIENCE_S) == 1
    assert f"process {up.process.pid}" in second.said
    assert "Traceback" not in second.said
    assert "error" not in site.call("status")


def test_daemon_and_worker_alone_need_a_store(site: Site) -> None:
    """Without redis_url and without an up they end with one sentence that says what to do."""
    for name in ("daemon", "worker"):
        alone = site.start(name)
        assert alone.process.wait(PATIENCE_S) == 1
        assert "redis_url" in alone.said
        assert "amnesia up" in alone.said
        assert "Traceback" not in alone.said


def test_two_daemons_share_a_store(site: Site) -> None:
    """C02: a second daemon with a socket of its own joins the store of up; each sees at once what the other wrote."""
    site.start("up").ready()
    other = site.start("daemon", AMNESIA_SOCKET=str(site.home / "b.sock")).ready("the daemon serves")
    for number in range(10):
        site.call("remember", content=f"from the first, {number}", kind="finding")
        site.call("remember", name="b.sock", content=f"from the second, {number}", kind="finding")
    for name in ("a.sock", "b.sock"):
        assert len(site.call("list", name=name, limit=50)["notes"]) == 20
    assert other.signal(signal.SIGTERM) == 0
    assert site.sockets() == [site.home / "a.sock", site.home / "state/store/store.sock"]


def test_a_daemon_on_a_live_socket_is_refused(site: Site) -> None:
    """C41: a daemon told to serve where another does names that one and ends; the other goes on."""
    up = site.start("up").ready()
    second = site.start("daemon")
    assert second.process.wait(PATIENCE_S) == 1
    assert str(up.process.pid) in second.said
    assert "error" not in site.call("status")


def test_a_daemon_outlives_its_store(site: Site) -> None:
    """The store goes away and comes back: writes fail at once with store_unavailable meanwhile, then work again."""
    server = EmbeddedServer(site.home / "own")
    daemon = site.start("daemon", AMNESIA_REDIS_URL=server.url).ready("waiting for the store")
    try:
        asyncio.run(server.start())
        daemon.ready("the daemon serves")
        site.call("remember", content="before", kind="finding")
        asyncio.run(server.stop())
        began = time.monotonic()
        assert site.call("remember", content="during", kind="finding")["error"]["code"] == "store_unavailable"
        assert time.monotonic() - began < 5
        asyncio.run(server.start())
        until(lambda: "error" not in site.call("remember", content="after", kind="finding"), "it is back")
        assert len(site.call("list")["notes"]) == 2
        assert daemon.signal(signal.SIGTERM) == 0
    finally:
        asyncio.run(server.stop())


def test_a_lifecycle_event_reaches_the_notes(site: Site) -> None:
    """C33, from the outside: an agent writes session notes, its session ends, its notes are gone; others' are not."""
    site.start("up").ready()
    until(site.has_worker)
    mine = {"session": "s1", "agent": "a", "agent_kind": "subagent"}
    site.call("remember", content="the child's note", kind="finding", caller=mine)
    site.call("remember", content="everybody's note", kind="finding", caller={"session": "s1"})
    site.call("events", event="subagent-end", session="s1", agent="a")
    human = {"role": "human"}
    until(lambda: len(site.call("list", caller=human)["notes"]) == 1, "the child's note is gone")
    assert site.call("audit", caller=human)["entries"][0]["reason"] == "agent-disposed"


def test_systemd_is_told(site: Site) -> None:
    """READY=1 when it serves, STOPPING=1 when it stops; the worker is not told where to say so."""
    address = site.home / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        listener.settimeout(PATIENCE_S)
        up = site.start("up", NOTIFY_SOCKET=str(address))
        assert listener.recv(100) == b"READY=1"
        assert up.signal(signal.SIGTERM) == 0
        assert listener.recv(100) == b"STOPPING=1"


def test_a_store_of_another_install_is_refused(site: Site) -> None:
    """A daemon whose install key is not the store's does not start, since its hashes would match nothing."""
    site.start("up").ready()
    (site.home / "other").mkdir(mode=0o700)
    (site.home / "other" / "install.key").write_bytes(b"k" * 32)
    stranger = site.start(
        "daemon",
        AMNESIA_STATE_DIR=str(site.home / "other"),
        AMNESIA_SOCKET=str(site.home / "b.sock"),
        AMNESIA_REDIS_URL=f"unix://{site.home}/state/store/store.sock",
    )
    assert stranger.process.wait(PATIENCE_S) == 1
    assert "another install key" in stranger.said
    assert KEYRING.fingerprint not in stranger.said
