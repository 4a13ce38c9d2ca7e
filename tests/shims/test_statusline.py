"""``amnesia statusline``: a line from the daemon, silence without one, and a word where one should be there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.shims.standin import http, run, run_on_terminal, served

from amnesiad import places, shims

BARE = [sys.executable, "-I", "-S", str(Path(shims.__file__).with_name("statusline.py"))]
DRAWN = {"session_id": "s-1", "workspace": {"current_dir": "/src"}, "model": {"id": "x"}}
LINE = "🧠 3 active · 1.2k tok"


def test_the_line_is_the_daemons_own(path: Path) -> None:
    """Printed as it comes, with one line end; what the agent told goes along."""
    with served(path, lambda _: http(LINE.encode())) as seen:
        ran = run([*BARE, "--socket", str(path)], DRAWN)
        assert run([sys.executable, "-m", "amnesiad.entry", "statusline", "--socket", str(path)], DRAWN).out == ran.out
    assert (ran.code, ran.out.decode(), ran.err) == (0, f"{LINE}\n", b"")
    assert seen[0].startswith(b"POST /v1/statusline HTTP/1.1")
    assert b'"current_dir": "/src"' in seen[0]


def test_without_a_daemon_it_is_silent(path: Path) -> None:
    """Nobody has asked for one."""
    assert run([*BARE, "--socket", str(path)], DRAWN, HOME=str(path.parent))[:3] == (0, b"", b"")


@pytest.mark.parametrize("how", ["variable", "service"])
def test_a_daemon_that_should_be_there_is_missed(how: str, path: Path) -> None:
    """Hooks fail open, so after a reboot nothing else would tell."""
    environ = {"HOME": str(path.parent)}
    if how == "variable":
        environ["AMNESIA_EXPECTED"] = "1"
    else:
        unit = path.parent / places.service_file({}).relative_to(Path.home())
        unit.parent.mkdir(parents=True)
        unit.touch()
    off = "🧠 memory off\n".encode()
    assert run([*BARE, "--socket", str(path)], DRAWN, **environ)[:3] == (0, off, b"")
    with served(path, lambda _: None):
        assert run([*BARE, "--socket", str(path)], DRAWN, **environ).out == off
    with served(path.with_name("b.sock"), lambda _: http(b"{}", "503 Service Unavailable")):
        assert run([*BARE, "--socket", str(path.with_name("b.sock"))], DRAWN, **environ).out == off


@pytest.mark.parametrize("payload", [b"", b"{", b"x" * 2_000_000])
def test_whatever_comes_in_it_ends_well(payload: bytes, path: Path) -> None:
    """Nothing, half of it, too much: the daemon refuses, and the line stays empty."""
    with served(path, lambda _: http(b'{"error": {}}', "400 Bad Request")):
        assert run([*BARE, "--socket", str(path), "--bogus"], payload)[:3] == (0, b"", b"")


def test_on_a_terminal_it_goes_on_without(path: Path) -> None:
    """It says what it would have taken, and asks all the same."""
    with served(path, lambda _: http(LINE.encode())):
        ran = run_on_terminal([*BARE, "--socket", str(path), "--workspace", "/src"])
    assert (ran.code, ran.out.decode()) == (0, f"{LINE}\n")
    assert b"takes an agent's JSON" in ran.err


def test_it_repeats_why_the_daemon_refused(path: Path) -> None:
    """In the daemon's words, when it is asked for."""
    with served(path, lambda _: http(b'{"error": {"message": "no such place"}}', "400 Bad Request")):
        ran = run([*BARE, "--socket", str(path)], DRAWN, AMNESIA_HOOK_DEBUG="1")
    assert ran[:3] == (0, b"", b"amnesia statusline: the daemon answered with status 400: no such place\n")


def test_a_workspace_that_is_named(path: Path) -> None:
    """By argument or environment, as for hooks."""
    with served(path, lambda _: http(b"")) as seen:
        run([*BARE, "--socket", str(path), "--workspace", "/a b"], DRAWN)
        run([*BARE, "--socket", str(path)], DRAWN, AMNESIA_WORKSPACE="w")
    assert [request.split(b" ")[1] for request in seen] == [
        b"/v1/statusline?workspace=%2Fa%20b",
        b"/v1/statusline?workspace=w",
    ]
