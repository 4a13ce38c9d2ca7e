"""The real Claude Code as the lead of a team: a member that runs inside its process shares the team's notes.

Teams form only in a session with a terminal, so it is given one that nobody looks at. Its model is one of ours on
loopback; hooks, MCP server and daemon are the real ones.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
from tests.e2e.canned_model import Block, CannedModel, say, texts, use
from tests.e2e.conftest import Up
from tests.support import PATIENCE_S, wait_until

from amnesiad import AsyncClient

REMEMBER: Final = "mcp__amnesiad__amnesia_remember"
TASK: Final = "look around for your team"
ASK_AGAIN_S: Final = 5.0
KEY: Final = "sk-ant-api03-of-nobody-at-all"


def has_ours(request: dict[str, Any]) -> bool:
    """Whether the one who asks has our tools."""
    return REMEMBER in [tool.get("name") for tool in request.get("tools", ())]


def answer(request: dict[str, Any]) -> Block:
    """A lead that has a member remember something, and rests."""
    if not has_ours(request):
        return say("a title")
    said = texts(request)
    if TASK in str(request["messages"][0]):
        find = {"content": "tulips grow on the terrace", "kind": "finding"}
        return say("looked") if "toolu_member" in said else use("toolu_member", REMEMBER, **find)
    call = {"description": "look", "prompt": TASK, "subagent_type": "general-purpose", "name": "amy"}
    return say("done") if "toolu_team" in said else use("toolu_team", "Agent", **call)


@contextmanager
def leading(up: Up, home: Path, project: Path, model: str, log: Path) -> Iterator[Callable[[bytes], object]]:
    """Claude Code at a terminal, in a home where it has nothing left to ask, for as long as this is entered; typing at
    it."""
    spec = find_spec("claude_agent_sdk")
    assert spec is not None
    assert spec.origin is not None
    program = Path(spec.origin).parent / "_bundled" / "claude"
    install = [sys.executable, "-m", "amnesiad.cli", "install", "claude-code", "--yes", "--socket", up.socket]
    subprocess.run(install, env=up.environ | {"HOME": str(home)}, check=True, capture_output=True)
    state = home / ".claude.json"
    asked = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    state.write_text(json.dumps(json.loads(state.read_text()) | asked))
    options = [
        "--debug-file",
        str(log),
        "--permission-mode",
        "acceptEdits",
        "--teammate-mode",
        "in-process",
        "--allowedTools",
        f"Agent,{REMEMBER}",
    ]
    environ = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "ENABLE_TOOL_SEARCH": "false",
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_TMPDIR": str(home),
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
        "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS": "1",
    }
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    process = subprocess.Popen(
        [str(program), *options],
        cwd=project, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    screen = threading.Thread(target=_read_away, args=(ours,))
    screen.start()
    try:
        yield partial(os.write, ours)
    finally:
        process.terminate()  # it tells the end of its session, and goes
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            screen.join()
        os.close(ours)


def _read_away(terminal: int) -> None:
    """Take what is drawn, so that drawing never waits."""
    with suppress(OSError):  # the other end is closed
        while os.read(terminal, 65536):
            pass


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository."""
    path = (tmp_path / "project").resolve()
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


@pytest.mark.timeout(120)
async def test_what_a_member_keeps_outlives_its_turn_and_ends_with_its_lead(up: Up, project: Path) -> None:
    """It is the team's, which is the lead's session; that the member stops and waits ends none of it."""
    log = project.parent / "claude.log"
    async with AsyncClient(up.socket, workspace=str(project), role="human") as human:
        await human.remember("never push on friday", kind="directive")
        with CannedModel(answer) as model, leading(up, project.parent, project, model.url, log) as type_in:
            # A member has the tools that its lead had when it was asked, so those of ours have to be there.
            await wait_until(
                lambda: log.exists() and 'MCP server "amnesiad": Successfully' in log.read_text(), PATIENCE_S
            )

            def led() -> bool:
                return any(has_ours(request) for request in model.asked)

            async def asked() -> bool:  # again, where it was lost or came before the tools of ours
                type_in(b"look around")
                with suppress(AssertionError):  # pressed too early it is a line of the prompt
                    await wait_until(lambda: bool(type_in(b"\r")) and led(), ASK_AGAIN_S)
                return led()

            await wait_until(asked, PATIENCE_S)

            def rests() -> bool:  # it is told after the member's stop
                return log.exists() and "TeammateIdle" in log.read_text()

            await wait_until(rests, PATIENCE_S)
            (note,) = (await human.list_notes(scope="team", with_content=True)).notes
            assert (note.content, note.state) == ("tulips grow on the terrace", "active")
            member = next(request for request in model.asked if TASK in str(request["messages"][0]))
            assert "never push on friday" in texts(member)
            (owner,) = (await human.owners()).rows
            assert (owner.owner, owner.agent_kind) == (note.owner, "main")

        async def ended() -> bool:
            return [entry.id for entry in (await human.audit()).entries] == [note.id]

        await wait_until(ended)
