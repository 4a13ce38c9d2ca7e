"""The real Claude Code, as its agent SDK brings it along, with our hooks in its settings or as a plugin. No network:
its model is at an address where nobody listens, and everything of ours happens before it finds that out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.e2e.conftest import Up
from tests.support import PATIENCE_S

import amnesiad
from amnesiad import Client

PACKAGE = Path(amnesiad.__file__).parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository, in which a note is kept."""
    path = tmp_path / "project"
    subprocess.run(["git", "init", "-q", path], check=True)
    return path


def claude(up: Up, project: Path, *options: str) -> str:
    """Ask Claude Code something in a home of its own; the log of what it did."""
    spec = find_spec("claude_agent_sdk")
    assert spec is not None
    assert spec.origin is not None
    log = project.parent / "claude.log"
    # The command amnesia, for the plugin, without its directory on the path, where the machine's own may lie.
    command = project.parent / "bin/amnesia"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH={PACKAGE.parent} exec {sys.executable} -m amnesiad.entry "$@"\n')
    command.chmod(0o755)
    environ = {
        "HOME": str(project.parent),
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "AMNESIA_SOCKET": up.socket,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_TMPDIR": str(project.parent),
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    program = Path(spec.origin).parent / "_bundled" / "claude"
    asked = [str(program), "-p", "deploy the thing", "--debug-file", str(log), *options]
    subprocess.run(asked, cwd=project, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
    return log.read_text()


@pytest.mark.parametrize("way", ["settings", "plugin"])
def test_a_session_of_claude_code(way: str, up: Up, project: Path) -> None:
    """It takes the hooks, starts the server, shows its model the note, and tells its shells whom they speak for."""
    with Client(up.socket, workspace=str(project.resolve()), role="human") as client:
        client.remember("never deploy on a friday", kind="directive")
        options: list[str] = []
        if way == "settings":
            install = [sys.executable, "-m", "amnesiad.cli", "install", "claude-code", "--yes", "--socket", up.socket]
            subprocess.run(install, env=up.environ | {"HOME": str(project.parent)}, check=True, capture_output=True)
        else:
            plugin = shutil.copytree(PACKAGE / "bundles/claude-code", project.parent / "plugin")
            options = ["--plugin-dir", str(plugin)]
        log = claude(up, project, *options)
        (shown, *_) = client.ledger().rows
    assert "never deploy on a friday" in log
    assert 'amnesiad": Starting connection' in log
    (script,) = project.parent.glob(".claude/session-env/*/*.sh")
    assert script.read_text() == f"export AMNESIA_SESSION='{script.parent.name}'\n"
    assert shown.session == script.parent.name
