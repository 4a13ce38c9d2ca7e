"""Opening and closing the doors: the socket and who may use it, the loopback port and its token, two daemons, a
stop."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.daemon.door import Clerk, Wire, request, still_answers
from tests.support import wait_until

from amnesiad.api import serve as serve_module
from amnesiad.api.app import App
from amnesiad.api.serve import ApiServer, serve
from amnesiad.errors import ConfigError
from amnesiad.limits import SUN_PATH_BYTES


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


async def test_a_stop_lets_requests_finish_and_ends_feeds(clerk: Clerk, place: Path) -> None:
    """Stopping answers what is in flight, ends the feeds properly, and removes the socket."""
    running = await serve(App(clerk), place / "a.sock")
    feed, busy, idle = [await Wire.to(place / "a.sock") for _ in range(3)]
    await feed.send(b"GET /v1/feed?workspace=/x HTTP/1.1\r\nhost: x\r\n\r\n")
    await feed.reader.readuntil(b"forgotten")
    assert (await idle.ask("/healthz", method="GET")).status == 200
    clerk.gate.clear()
    await busy.send(request("/v1/recall", b'{"workspace": "/x", "query": "q"}'))
    await wait_until(lambda: clerk.waiting)
    stopping = asyncio.create_task(running.stop())
    assert (await feed.reader.read()).endswith(b"0\r\n\r\n")
    assert not (place / "a.sock").exists()
    with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
        await Wire.to(place / "a.sock")
    clerk.gate.set()
    assert (await busy.reply()).json["text"] == "q"
    await stopping
    await running.stop()
    assert await idle.closed()
    for connection in (feed, busy, idle):
        await connection.close()


async def test_the_doors_share_one_bound_on_connections(
    clerk: Clerk, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection over the loopback port counts beside those over the socket; a second bound would leave none for the
    store."""
    monkeypatch.setattr(serve_module, "MAX_CONNECTIONS", 1)
    running = await serve(App(clerk), place / "a.sock", http=("127.0.0.1", 0), state_dir=place / "state")
    assert running.http_address is not None
    first = await Wire.to(place / "a.sock")
    assert (await first.ask("/healthz", method="GET")).status == 200
    second = Wire(*await asyncio.open_connection(*running.http_address))
    assert (await second.reply()).status == 429
    for connection in (first, second):
        await connection.close()
    await running.stop()


async def test_a_stop_does_not_wait_for_ever(clerk: Clerk, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What outlives the grace is cancelled and gone when stop returns."""
    monkeypatch.setattr(serve_module, "GRACE_S", 0)
    running = await serve(App(clerk), place / "a.sock")
    line = await Wire.to(place / "a.sock")
    clerk.gate.clear()
    await line.send(request("/v1/recall", b'{"workspace": "/x"}'))
    await wait_until(lambda: clerk.waiting)
    await running.stop()
    assert clerk.waiting == 0
    await line.close()


async def test_the_socket_is_private(place: Path) -> None:
    """0600 in a 0700 directory that is made when missing, whatever the umask."""
    before = os.umask(0)
    try:
        other = await serve(App(Clerk()), place / "deep" / "er" / "b.sock")
    finally:
        os.umask(before)
    assert (place / "deep" / "er" / "b.sock").stat().st_mode & 0o777 == 0o600
    assert (place / "deep" / "er").stat().st_mode & 0o777 == 0o700
    await other.stop()
    assert names(place / "deep" / "er") == []


async def test_a_socket_left_by_a_dead_daemon_is_replaced(clerk: Clerk, place: Path) -> None:
    """C41: what a killed daemon left behind does not stop the next one, and no lock file is left either."""
    script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()"
    path = place / "a.sock"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script, str(path)], check=True)
    assert path.is_socket()
    running = await serve(App(clerk), path)
    assert await still_answers(path)
    await running.stop()
    assert names(place) == []


async def test_a_file_at_the_sockets_path_is_left_alone(clerk: Clerk, place: Path) -> None:
    """C41: a regular file, a directory or a link there is refused and not touched."""
    file = place / "a.sock"
    file.write_text("precious")
    link = place / "link.sock"
    link.symlink_to(file)
    (place / "dir.sock").mkdir()
    for path in (file, link, place / "dir.sock"):
        with pytest.raises(ConfigError, match="not a socket") as refusal:
            await serve(App(clerk), path)
        assert refusal.value.field == "socket"
    assert file.read_text() == "precious"


async def test_a_living_daemon_is_named(server: ApiServer) -> None:
    """C41: a second daemon names the process that listens there and leaves its socket working."""
    script = (
        "import asyncio, sys; from pathlib import Path; from amnesiad.api.listen import open_socket;"
        "from amnesiad.errors import ConfigError\n"
        "try: open_socket(Path(sys.argv[1]))\n"
        "except ConfigError as refusal: print(refusal.message)"
    )
    found = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(server.socket_path)], capture_output=True, text=True
    )
    assert f"process {os.getpid()}" in found.stdout
    assert await still_answers(server.socket_path)


async def test_two_daemons_that_start_at_once_do_not_both_win(place: Path) -> None:
    """C41: of several starting at the same instant over a stale socket exactly one listens, and is reachable."""
    path = place / "a.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from amnesiad.api.app import App; from amnesiad.api.serve import serve\n"
        "from amnesiad.errors import ConfigError\n"
        "async def main():\n"
        "    sys.stdin.readline()\n"
        "    try: running = await serve(App(None), Path(sys.argv[1]))\n"
        "    except ConfigError: print('refused', flush=True); return\n"
        "    print('won', flush=True); await asyncio.to_thread(sys.stdin.readline); await running.stop()\n"
        "asyncio.run(main())"
    )
    pipe = asyncio.subprocess.PIPE
    racers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(path), stdin=pipe, stdout=pipe)
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdin
        racer.stdin.write(b"go\n")
    said = [await racer.stdout.readline() for racer in racers if racer.stdout]
    assert sorted(said) == [b"refused\n"] * 3 + [b"won\n"]
    assert await still_answers(path)
    for racer in racers:
        await racer.communicate(b"stop\n")
    assert names(place) == []


async def test_only_our_own_socket_is_removed(clerk: Clerk, place: Path) -> None:
    """C41: a daemon that stops leaves alone what somebody else has put in the place of its socket."""
    path = place / "a.sock"
    running = await serve(App(clerk), path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        await running.stop()
        assert path.is_socket()


async def test_a_directory_open_to_others_is_refused(clerk: Clerk, place: Path) -> None:
    """A socket in a directory that others can enter is not opened, and nothing is changed there."""
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    with pytest.raises(ConfigError, match="open to others") as refusal:
        await serve(App(clerk), shared / "a.sock")
    assert "chmod" not in refusal.value.hint, "nobody is to be told to close /tmp"
    assert shared.stat().st_mode & 0o777 == 0o755


async def test_a_port_that_is_taken_is_told_of_once(clerk: Clerk, place: Path) -> None:
    """The address stands in the sentence once, and what to do about it behind it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as refusal:
            await serve(App(clerk), place / "a.sock", http=("127.0.0.1", port), state_dir=place / "state")
    assert refusal.value.message == f"http cannot listen on 127.0.0.1:{port}: Address already in use"
    assert "another port" in refusal.value.hint


async def test_a_path_too_long_for_a_socket_is_refused(clerk: Clerk, place: Path) -> None:
    """The limit of the platform is named instead of a strange error from the kernel."""
    with pytest.raises(ConfigError, match=str(SUN_PATH_BYTES)):
        await serve(App(clerk), place / ("x" * SUN_PATH_BYTES))


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="becoming another user needs root")
async def test_another_user_is_turned_away(server: ApiServer) -> None:
    """Even where the file permissions were opened, the kernel's word about the peer keeps others out."""
    path = server.socket_path
    path.parent.chmod(0o755)
    path.chmod(0o666)
    script = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "try: s.sendall(b'GET /healthz HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n')\n"
        "except BrokenPipeError: pass\n"
        "print(s.recv(4096).decode())"
    )
    found = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(server.socket_path)], capture_output=True, text=True
    )
    assert found.stdout.startswith("HTTP/1.1 403 "), found.stderr
    assert "another user" in found.stdout


async def test_loopback_needs_the_token(clerk: Clerk, place: Path) -> None:
    """Over TCP nothing is answered without the token, which lies in a 0600 file and outlives a restart."""
    tokens: set[str] = set()
    for _ in range(2):
        running = await serve(App(clerk), place / "a.sock", http=("127.0.0.1", 0), state_dir=place / "state")
        file = place / "state" / "http.token"
        assert file.stat().st_mode & 0o777 == 0o600
        tokens.add(file.read_text().strip())
        assert running.http_address
        host, port = running.http_address
        line = Wire(*await asyncio.open_connection(host, port))
        token = next(iter(tokens))
        for wrong in ("", "Bearer ", "Bearer wrong", f"Basic {token}", token, f"Bearer {token}x", f"Bearer{token}"):
            header = f"authorization: {wrong}\r\n" if wrong else ""
            assert (await line.ask("/healthz", method="GET", headers=header)).status == 403
        for scheme in ("Bearer", "bearer", "BEARER", "bearer "):
            header = f"authorization: {scheme} {token}\r\n"
            assert (await line.ask("/healthz", method="GET", headers=header)).status == 200
        await line.close()
        await running.stop()
    assert len(tokens) == 1


@pytest.mark.parametrize(("mode", "content"), [(0o644, "x" * 43), (0o600, "short"), (0o600, "")])
async def test_a_token_file_that_cannot_be_trusted_stops_the_start(
    mode: int, content: str, clerk: Clerk, place: Path
) -> None:
    """A token that others can read, or that is none, is refused, and no door is left open."""
    (place / "state").mkdir(mode=0o700)
    file = place / "state" / "http.token"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(ConfigError) as refusal:
        await serve(App(clerk), place / "a.sock", http=("127.0.0.1", 0), state_dir=place / "state")
    assert refusal.value.field == "http"
    assert not (place / "a.sock").exists()
