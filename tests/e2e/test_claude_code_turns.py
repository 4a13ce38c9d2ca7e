"""The real Claude Code through turns with tools and a subagent: what each context is shown, and whose each call is.

Its model is one of ours on loopback that says what the test scripts; hooks, MCP server and daemon are the real ones,
and the settings are those that ``amnesia install`` writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.canned_model import Block, CannedModel, answered, say, texts, use
from tests.e2e.conftest import Up
from tests.support import PATIENCE_S, wait_until

from amnesiad import AsyncClient
from amnesiad.core.render import HEADER

REMEMBER = "mcp__amnesiad__amnesia_remember"
CHILD = "look around in the name of your parent"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a folder in it."""
    path = (tmp_path / "project").resolve()
    (path / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


def script(project: Path) -> Any:
    """A session that remembers something, changes a file and has a subagent remember something too."""

    def answer(request: dict[str, Any]) -> Block:
        tools = [tool.get("name") for tool in request.get("tools", ())]
        done = answered(request)
        if REMEMBER not in tools:
            return say("a title")
        if CHILD in str(request["messages"][0]):
            find = {"content": "tulips grow on the child's terrace", "kind": "finding"}
            return use("toolu_child", REMEMBER, **find) if done == 0 else say("looked")
        if done == 0:
            plan = {"content": "roses are the session's plan", "kind": "finding", "scope": "session"}
            return use("toolu_main", REMEMBER, **plan, anchors=["src/new.py"])
        if done == 1:
            return use("toolu_edit", "Write", file_path=str(project / "src/new.py"), content="x = 1\n")
        if done == 2:
            task = {"description": "look", "prompt": CHILD, "subagent_type": "general-purpose"}
            return use("toolu_task", "Agent" if "Agent" in tools else "Task", **task)
        return say("done")

    return answer


def converse(up: Up, project: Path, model: str) -> None:
    """Run Claude Code once, in a home of its own."""
    spec = find_spec("claude_agent_sdk")
    assert spec is not None
    assert spec.origin is not None
    program = Path(spec.origin).parent / "_bundled" / "claude"
    install = ["-m", "amnesiad.cli", "install", "claude-code", "--scope", "project", "--yes", "--socket", up.socket]
    home = str(project.parent)
    subprocess.run(
        [sys.executable, *install], cwd=project, env=up.environ | {"HOME": home}, check=True, capture_output=True
    )
    options = ["--mcp-config", ".mcp.json", "--permission-mode", "acceptEdits"]
    options += ["--allowedTools", f"Write,Agent,Task,{REMEMBER}"]
    environ = {
        "HOME": home,
        "PATH": os.environ["PATH"],
        "ENABLE_TOOL_SEARCH": "false",
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_TMPDIR": home,
    }
    subprocess.run(
        [str(program), "-p", "mend the deploy", *options],
        cwd=project, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip


@pytest.mark.timeout(120)
async def test_a_session_with_a_subagent(up: Up, project: Path) -> None:
    """Each context is shown what is its own to see, each call is its caller's, and all of it ends with its owner."""
    async with AsyncClient(up.socket, workspace=str(project), role="human") as human:
        await human.remember("never push on friday", kind="directive")
        await human.remember("our deploy needs a warm cache", kind="gotcha")
        with CannedModel(script(project)) as model:
            converse(up, project, model.url)
        main = [request for request in model.asked if REMEMBER in str(request.get("tools")) and not _is_child(request)]
        child = [request for request in model.asked if _is_child(request)]
        assert "never push on friday" in texts(main[0])
        assert "warm cache" in texts(main[0])
        assert texts(main[-1]).count("warm cache") == 1
        told = [texts(request).count(HEADER) for request in main]
        assert told[:3] == [1, 1, 2], "the file about to be written brought its note, and the prompt nothing new"
        assert "never push on friday" in texts(child[0])
        assert "warm cache" not in texts(child[0])
        assert "roses" not in texts(child[0])

        rows = (await human.ledger()).rows
        (session,) = {row.session for row in rows}
        owners = {row.owner: row.agent_kind for row in (await human.owners()).rows}
        assert set(owners.values()) == {"main", "subagent"}
        assert {owner.partition("/")[0] for owner in owners} == {session}

        async def ended() -> bool:
            return [entry.reason for entry in (await human.audit()).entries] == ["agent-disposed"] * 2

        await wait_until(ended)
        assert {row.state for row in (await human.owners()).rows} == {"closed"}


def _is_child(request: dict[str, Any]) -> bool:
    return CHILD in str(request["messages"][0])
