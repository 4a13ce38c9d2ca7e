"""``hook.sh``, what the hooks of the packaged plugin run wherever it lies: it finds the daemon, and it fails open."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.shims.standin import START, http, run, served

import amnesiad

SCRIPT = Path(amnesiad.__file__).parent / "bundles/claude-code/hooks/hook.sh"


@pytest.fixture
def hook(tmp_path: Path) -> list[str]:
    """The script, for a shell whose path holds curl and what a shell needs, and no ``amnesia``."""
    return ["env", f"HOME={tmp_path}", "PATH=/usr/bin:/bin", "sh", str(SCRIPT)]


@pytest.fixture
def amnesia(tmp_path: Path) -> str:
    """A directory to put first on the path: the command ``amnesia`` of this very package."""
    command = tmp_path / "bin/amnesia"
    command.parent.mkdir()
    roots = Path(amnesiad.__file__).parent.parent
    command.write_text(f'#!/bin/sh\nPYTHONPATH={roots} exec {sys.executable} -m amnesiad.entry "$@"\n')
    command.chmod(0o755)
    return f"PATH={command.parent}:/usr/bin:/bin"


@pytest.mark.parametrize("place", ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "AMNESIA_SOCKET"])
def test_it_finds_the_daemon(place: str, hook: list[str], path: Path) -> None:
    """Where the daemon listens by default, and where the environment says."""
    below = {"XDG_RUNTIME_DIR": "amnesia/amnesia.sock", "XDG_STATE_HOME": "amnesia/run/amnesia.sock"}
    where = path.parent / below.get(place, "odd dir/s")
    where.parent.mkdir(parents=True)
    value = str(where) if place == "AMNESIA_SOCKET" else str(path.parent)
    with served(where, lambda _: http(b'{"a":1}')) as seen:
        assert run(hook, **{place: value})[:3] == (0, b'{"a":1}', b"")
    assert seen[0].startswith(b"POST /v1/hooks/claude-code ")


def test_without_a_daemon_it_says_nothing(hook: list[str], path: Path) -> None:
    """C44: nor without curl or the command."""
    assert run(hook)[:3] == (0, b"", b"")
    assert run(hook, AMNESIA_SOCKET=str(path))[:3] == (0, b"", b"")
    assert run(["env", "-i", "PATH=/nowhere", "/bin/sh", str(SCRIPT)])[:3] == (0, b"", b"")


def test_at_the_start_of_a_session_the_command_runs(amnesia: str, path: Path, tmp_path: Path) -> None:
    """It alone can tell the session's shells whom they speak for."""
    env_file = tmp_path / "env.sh"
    with served(path, lambda _: http(b"{}")) as seen:
        told = {"CLAUDE_ENV_FILE": str(env_file), "AMNESIA_SOCKET": str(path)}
        assert run(["env", amnesia, "sh", str(SCRIPT)], START, **told)[:3] == (0, b"{}\n", b"")
    assert env_file.read_text() == "export AMNESIA_SESSION='s-1'\n"
    assert len(seen) == 1


def test_a_named_workspace_goes_by_the_command(amnesia: str, path: Path) -> None:
    """A shell cannot quote it for a URL."""
    with served(path, lambda _: http(b"{}")) as seen:
        told = {"AMNESIA_WORKSPACE": "/a b", "AMNESIA_SOCKET": str(path)}
        assert run(["env", amnesia, "sh", str(SCRIPT)], **told).out == b"{}\n"
    assert seen[0].split(b" ")[1] == b"/v1/hooks/claude-code?workspace=%2Fa%20b"
