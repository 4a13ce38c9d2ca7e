"""Agents' hooks as whole processes against a running amnesiad: a line of curl, or the program that stands in for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agents.payloads import CHILD, payload
from tests.e2e.conftest import Up
from tests.support import wait_until

import amnesiad
from amnesiad import AsyncClient
from amnesiad.limits import MAX_REQUEST_BYTES

HOOK = Path(amnesiad.__file__).with_name("shims") / "hook.py"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of the test's own, and so a workspace of its own."""
    path = tmp_path / "project"
    (path / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(path)], check=True)
    return path.resolve()


def run(up: Up, agent: str, body: bytes) -> subprocess.CompletedProcess[bytes]:
    """One hook: curl where there is one, as agents' settings have it, else our own program."""
    command = [sys.executable, "-I", "-S", str(HOOK), agent, "--socket", up.socket]
    if curl := shutil.which("curl"):
        address = f"http://amnesiad/v1/hooks/{agent}"
        command = [curl, "-qsf", "--max-time", "10", "--unix-socket", up.socket, "--data-binary", "@-", address]
    return subprocess.run(command, input=body, capture_output=True, env=up.environ)


def told(up: Up, agent: str, said: str, where: Path, **fields: Any) -> str:
    """What a hook of an agent that works in a directory brings into the context."""
    body = payload(agent, said, **{"workspace_roots" if agent == "cursor" else "cwd": str(where), **fields})
    if agent == "cursor":
        body["workspace_roots"] = [str(where)]
    done = run(up, agent, json.dumps(body).encode())
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return str(answer.get("hookSpecificOutput", answer).get("additionalContext", answer.get("additional_context", "")))


async def test_a_session_from_its_start_to_its_end(up: Up, repository: Path) -> None:
    """Started in any folder of the repository; its subagent's notes end with the subagent, its own with the session."""
    inside, session = repository / "src", "e2e-session"
    one = {"session_id": session}
    async with AsyncClient(up.socket, workspace=str(repository), session=session) as client:
        await client.remember("never push on friday", kind="directive")
        await client.remember("a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        plan = (await client.remember("the session's plan", scope="session")).id
        assert "friday" in told(up, "claude-code", "SessionStart", inside, **one)
        edit = {"tool_name": "Edit", "tool_input": {"file_path": "a.py"}}
        assert told(up, "claude-code", "PreToolUse", inside, **one, **edit) == ""
        assert "friday" in told(up, "claude-code", "SubagentStart", inside, **one)
        async with AsyncClient(
            up.socket, workspace=str(repository), session=session, agent=CHILD, agent_kind="subagent"
        ) as child:
            find = (await child.remember("the child's find")).id
            assert "lock order" not in told(up, "claude-code", "PreToolUse", inside, agent_id=CHILD, **one, **edit)
        told(up, "claude-code", "SubagentStop", inside, **one)

        async with AsyncClient(up.socket, workspace=str(repository), role="human") as human:

            async def state(note: str) -> str:
                return str((await human.inspect(note)).note.state)

            async def forgotten(note: str) -> bool:
                return await state(note) == "forgotten"

            await wait_until(lambda: forgotten(find))
            assert await state(plan) == "active"
            told(up, "claude-code", "SessionEnd", inside, **one)
            await wait_until(lambda: forgotten(plan))


@pytest.mark.parametrize(
    ("agent", "said"), [("codex", "SessionStart"), ("gemini", "BeforeAgent"), ("cursor", "sessionStart")]
)
async def test_every_form_of_an_answer(up: Up, repository: Path, agent: str, said: str) -> None:
    """The workspace is found from where the agent says that it works, whatever it calls that."""
    async with AsyncClient(up.socket, workspace=str(repository)) as client:
        await client.remember("never push on friday", kind="directive")
    assert "friday" in told(up, agent, said, repository)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"hook_event_name": "Stop"}',
        b'{"hook_event_name": "Stop", "session_id": 5, "cwd": "/"}',
        b'{"hook_event_name": "SubagentStop", "session_id": "s", "cwd": "/"}',
        b'{"hook_event_name": "Stop", "x": "' + b"x" * MAX_REQUEST_BYTES + b'"}',
        b'{"hook_event_name": "Stop", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=["empty", "no json", "a list", "no session", "no text", "no agent", "huge", "deep"],
)
async def test_what_cannot_be_used_brings_nothing(up: Up, body: bytes) -> None:
    """C44: the agent goes on without memory: nothing is printed that it would read, and the daemon is unharmed."""
    assert run(up, "claude-code", body).stdout == b""
    async with AsyncClient(up.socket, workspace="hooks-unharmed") as client:
        await client.status()
