"""One exchange over the socket, or many on a kept connection: within a deadline and a limit, whatever answers."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.shims.standin import PATIENCE_S, http, served

from amnesiad.client.identity import daemon_socket
from amnesiad.places import config_file, configured_socket, default_state_dir
from amnesiad.shims.connect import MAX_HEAD_BYTES, BadAnswer, Connection


@contextmanager
def scripted(path: Path, lines: Sequence[Sequence[bytes]]) -> Iterator[None]:
    """A server with one script a connection: it reads something before each part, and hangs up after the last."""

    def serve() -> None:
        for parts in lines:
            line, _ = door.accept()
            with line:
                for part in parts:
                    line.recv(65536)
                    line.sendall(part)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(path))
        door.listen()
        server = threading.Thread(target=serve)
        server.start()
        yield
        server.join(PATIENCE_S)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n2\r\nde\r\n0\r\nt: 1\r\n\r\n"


def test_many_exchanges_on_one_connection(path: Path) -> None:
    """Answers of a known length, in chunks and without a body follow each other."""
    parts = [http(b"one"), CHUNKED, b"HTTP/1.1 204 No Content\r\n\r\n", http(b"", "404 Not Found")]
    with scripted(path, [parts]), Connection(str(path)) as connection:
        answers = [connection.exchange("/x", b"body") for _ in parts]
    assert [(answer.status, answer.body) for answer in answers] == [
        (200, b"one"),
        (200, b"abcde"),
        (204, b""),
        (404, b""),
    ]


def test_an_interim_answer_is_passed_over(path: Path) -> None:
    """Such as 100 Continue."""
    with scripted(path, [[b"HTTP/1.1 100 Continue\r\n\r\n" + http(b"x")]]), Connection(str(path)) as connection:
        assert connection.exchange("/").body == b"x"


def test_a_kept_connection_that_was_closed_is_opened_again(path: Path) -> None:
    """A daemon that has started anew meanwhile; a first connection that breaks is not tried twice."""
    with scripted(path, [[http(b"1")], [http(b"2")], [b""]]), Connection(str(path)) as connection:
        assert connection.exchange("/").body == b"1"
        assert connection.exchange("/").body == b"2"
        connection.close()
        with pytest.raises(BadAnswer, match="hung up"):
            connection.exchange("/")


def test_a_connection_that_is_to_be_closed_is(path: Path) -> None:
    """The next exchange has one of its own."""
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n"
    with scripted(path, [[closing], [closing]]), Connection(str(path)) as connection:
        assert [connection.exchange("/").status for _ in range(2)] == [200, 200]


def test_headers_and_method_go_along(path: Path) -> None:
    """As the MCP shim needs them."""
    with served(path, lambda _: http(b"")) as seen, Connection(str(path)) as connection:
        connection.exchange("/mcp", b"{}", method="PUT", headers=[("accept", "text/plain"), ("Content-Type", "x/y")])
    head = seen[0].split(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"put /mcp http/1.1\r\nhost: amnesiad\r\n")
    assert (b"accept: text/plain" in head, head.count(b"content-type")) == (True, 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffff\r\n", b"x" * (MAX_HEAD_BYTES + 70_000), b"",
    ],
)  # fmt: skip
def test_what_is_no_answer_is_an_oserror(answer: bytes, path: Path) -> None:
    """Cut off, too long, or something else than HTTP: one kind of error for all of it."""
    connection = Connection(str(path), max_answer_bytes=100)
    with served(path, lambda _: answer), pytest.raises(OSError):  # noqa: PT011 - any of them, that is the point
        connection.exchange("/", b"x")


def test_a_slow_trickle_has_one_deadline(path: Path) -> None:
    """A byte now and then does not buy more time."""
    begun = threading.Event()

    def trickle(door: socket.socket) -> None:
        line, _ = door.accept()
        with line:
            line.recv(65536)
            while not begun.wait(0.05):
                try:
                    line.sendall(b"H")
                except OSError:
                    return

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(path))
        door.listen()
        server = threading.Thread(target=trickle, args=(door,))
        server.start()
        began = time.monotonic()
        with Connection(str(path)) as connection, pytest.raises(TimeoutError):
            connection.exchange("/", deadline_s=0.3)
        took = time.monotonic() - began
        begun.set()
        server.join(PATIENCE_S)
    assert 0.25 < took < 5


class TestPlaces:
    """Where the daemon is, read without the settings: the same place that the settings say."""

    @pytest.mark.parametrize(
        "text",
        ["", 'socket = "$HOME/x/a.sock"', 'socket = "~/a.sock"', 'state_dir = "/var/lib/a"', 'default_ttl = "7d"'],
    )
    @pytest.mark.parametrize("environ", [{}, {"AMNESIA_STATE_DIR": "/srv/a"}, {"AMNESIA_SOCKET": "~/b.sock"}])
    def test_as_the_settings_say(
        self, text: str, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Environment before file, file before default; variables and ~ as there."""
        monkeypatch.setenv("HOME", str(tmp_path))
        config = tmp_path / "amnesia.toml"
        config.write_text(text)
        environ = {"HOME": str(tmp_path), "AMNESIA_CONFIG": str(config), **environ}
        assert configured_socket(environ) == daemon_socket(environ)

    def test_a_file_that_is_wrong_says_nothing(self, tmp_path: Path) -> None:
        """The daemon's start is where it is refused; a hook goes to the default."""
        config, state = tmp_path / "amnesia.toml", tmp_path / "state"
        for text in ("socket = 5", "socket = [", 'socket = "$NOWHERE/x"', "\x00"):
            config.write_text(text)
            environ = {"AMNESIA_CONFIG": str(config), "XDG_STATE_HOME": str(state)}
            assert configured_socket(environ) == str(state / "amnesia/run/amnesia.sock")
        environ["AMNESIA_CONFIG"] = str(tmp_path / "missing.toml")
        assert configured_socket(environ) == str(state / "amnesia/run/amnesia.sock")

    def test_homes_of_each_platform(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As the XDG specification and Apple say; a relative variable is ignored."""
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_state_dir({"XDG_STATE_HOME": "relative"}) == tmp_path / ".local/state/amnesia"
        assert default_state_dir({"XDG_STATE_HOME": "/x"}) == Path("/x/amnesia")
        monkeypatch.setattr(sys, "platform", "darwin")
        assert default_state_dir({}) == tmp_path / "Library/Application Support/amnesia"
        found = tmp_path / "Library/Application Support/amnesia/amnesia.toml"
        assert config_file({}) is None
        found.parent.mkdir(parents=True)
        found.touch()
        assert config_file({}) == found
