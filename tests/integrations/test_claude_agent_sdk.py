"""The Claude Agent SDK's hooks: driven through the real client, with a script in the place of Claude Code."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient
from claude_agent_sdk.types import HookEvent
from examples.claude_agent_sdk_hooks import SESSION, Script, payload
from tests.daemon.desk import call, remember
from tests.integrations.running import run_example

from amnesiad.integrations.claude_agent_sdk import EVENTS, Memory, hooks
from amnesiad.service import Service


@pytest.fixture
async def memory(daemon: str) -> AsyncIterator[Memory]:
    """Memory of the desk's workspace."""
    async with Memory(daemon, workspace="desk") as made:
        yield made


async def take_turn(given: dict[HookEvent, Any], *payloads: dict[str, Any]) -> list[dict[str, Any]]:
    """What the SDK answers Claude Code for each of its hooks, in one turn of a real client."""
    script = Script(list(payloads))
    async with ClaudeSDKClient(ClaudeAgentOptions(hooks=given), transport=script) as client:
        await client.query("go on")
        async for _message in client.receive_response():
            pass
    assert [answer["subtype"] for answer in script.answers] == ["success"] * len(payloads)
    return [answer["response"] for answer in script.answers]


def brought(answer: dict[str, Any]) -> str:
    """What an answer brings into the context."""
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def test_every_hook_is_one_of_the_sdk() -> None:
    """What is listened to is what the SDK can be asked for, with time enough for the daemon."""
    assert set(EVENTS) <= {name for literal in get_args(HookEvent) for name in get_args(literal)}
    assert set(hooks(workspace="desk")) == set(EVENTS)
    assert all(one.timeout and one.timeout > 2 for matchers in hooks(workspace="desk").values() for one in matchers)


async def test_a_prompt_brings_what_matters(memory: Memory, service: Service) -> None:
    """The first prompt of a session brings its notes, the second nothing that was brought already."""
    await remember(service, "deploys go out on Thursdays", kind="finding")
    first, again, stop = await take_turn(
        memory.hooks(),
        payload("UserPromptSubmit", prompt="when do deploys go out?", prompt_id="p1"),
        payload("UserPromptSubmit", prompt="and deploys of what?", prompt_id="p2"),
        payload("Stop", stop_hook_active=False),
    )
    assert "deploys go out on Thursdays" in brought(first)
    assert first["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert "Thursdays" not in brought(again)
    assert stop == {}


async def test_a_tool_brings_what_it_triggers(memory: Memory, service: Service) -> None:
    """A note that waits for a command comes before it runs; what the tool answered is not sent."""
    await remember(service, "ask before you deploy", kind="finding", triggers=[{"command": "make deploy*"}])
    use = {"tool_name": "Bash", "tool_input": {"command": "make deploy"}, "tool_use_id": "t1"}
    before, after = await take_turn(
        memory.hooks(),
        payload("PreToolUse", **use),
        payload("PostToolUse", **use, tool_response={"stdout": "x" * 2_000_000}),
    )
    assert "ask before you deploy" in brought(before)
    assert before["hookSpecificOutput"]["hookEventName"] == "PreToolUse"
    assert "permissionDecision" not in before["hookSpecificOutput"]
    assert after == {}


async def test_a_subagent_is_told_and_ends(memory: Memory, service: Service) -> None:
    """What a subagent starts with is told; its lifecycle events reach the stream."""
    await remember(service, "always run the tests", kind="directive")
    start, stop = await take_turn(
        memory.hooks(),
        payload("SubagentStart", agent_id="a1", agent_type="general-purpose"),
        payload(
            "SubagentStop",
            agent_id="a1",
            agent_type="general-purpose",
            stop_hook_active=False,
            agent_transcript_path="",
        ),
    )
    assert "always run the tests" in brought(start)
    assert stop == {}
    assert await _events(service) == ["subagent-start", "subagent-end"]


async def test_compaction_begins_anew(memory: Memory, service: Service) -> None:
    """What was in the context before it was compacted is brought again."""
    await remember(service, "deploys go out on Thursdays", kind="finding")
    first, _, again = await take_turn(
        memory.hooks(),
        payload("UserPromptSubmit", prompt="deploys?", prompt_id="p1"),
        payload("PreCompact", trigger="auto", custom_instructions=None),
        payload("UserPromptSubmit", prompt="deploys again?", prompt_id="p2"),
    )
    assert "Thursdays" in brought(first)
    assert "Thursdays" in brought(again)


async def test_the_end_of_memory_ends_its_sessions(daemon: str, service: Service) -> None:
    """The SDK has no hook for it: whoever closes the memory tells that its sessions are over."""
    await remember(service, "a passing thought", kind="episode")
    async with Memory(daemon, workspace="desk") as memory:
        await take_turn(memory.hooks(), payload("UserPromptSubmit", prompt="hello"))
        assert await _events(service) == ["pre-step"]
    assert await _events(service) == ["pre-step", "session-end"]


async def test_a_workspace_is_that_of_the_directory(daemon: str, service: Service, tmp_path: Path) -> None:
    """Without a name it is the repository that the agent works in."""
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True)
    await call(service, "remember", workspace=str(tmp_path), content="tabs, not spaces", kind="finding")
    async with Memory(daemon) as memory:
        (answer,) = await take_turn(
            memory.hooks(), {**payload("UserPromptSubmit", prompt="tabs or spaces?"), "cwd": str(tmp_path)}
        )
    assert "tabs, not spaces" in brought(answer)


class TestOpen:
    """A hook never stands in the agent's way."""

    async def test_without_a_daemon(self, place: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Nothing is said, and once in the log why."""
        with caplog.at_level(logging.WARNING, "amnesiad"):
            told = await take_turn(
                hooks(place / "none.sock", workspace="desk"),
                payload("UserPromptSubmit", prompt="my secret"),
                payload("Stop"),
            )
        assert told == [{}, {}]
        assert [record.getMessage() for record in caplog.records] == [
            "an agent goes on without memory: DaemonUnreachable"
        ]

    async def test_with_a_daemon_that_does_not_answer(self, place: Path) -> None:
        """The agent waits no longer than the deadline."""
        heard: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_unix_server(lambda _reader, writer: heard.append(writer), place / "silent.sock")
        given = hooks(place / "silent.sock", workspace="desk", timeout_s=0.05)
        async with asyncio.timeout(20):
            assert await take_turn(given, payload("UserPromptSubmit", prompt="hello")) == [{}]
        silent.close()
        for writer in heard:
            writer.close()
            await writer.wait_closed()

    @pytest.mark.parametrize("fields", [{"session_id": "no id at all"}, {"session_id": 7}, {"prompt": object()}])
    async def test_with_a_payload_that_is_none(self, memory: Memory, fields: dict[str, Any]) -> None:
        """What the daemon refuses, or what is no JSON, is no error of the agent's."""
        (matcher,) = memory.hooks()["UserPromptSubmit"]
        given: Any = {**payload("UserPromptSubmit", prompt="hello"), **fields}
        assert await matcher.hooks[0](given, None, {"signal": None}) == {}


async def test_the_tools_come_with_it(memory: Memory, daemon: str) -> None:
    """The entry of the MCP server starts a shim that answers; the SDK takes the entry as it is."""
    entry: Any = memory.mcp_servers()["amnesia"]
    assert ClaudeAgentOptions(mcp_servers={"amnesia": entry})
    process = await asyncio.create_subprocess_exec(
        entry["command"],
        *entry["args"],
        env=entry["env"],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert entry["env"] == {"AMNESIA_SOCKET": daemon, "AMNESIA_WORKSPACE": "desk"}
    assert b'"id":1' in out.replace(b" ", b"")


async def test_the_example_runs(daemon: str) -> None:
    """A turn of a scripted agent is told the rule that was remembered."""
    told = await run_example("claude_agent_sdk_hooks.py", daemon)
    assert "Deploys go out on Thursdays" in told


async def _events(service: Service) -> list[str]:
    """The lifecycle events of the script's session, oldest first."""
    entries: Any = await service.redis.xrange("amnesia:lifecycle")
    found = [json.loads(fields[b"e"]) for _, fields in entries]
    return [event["event"] for event in found if event["session"] == SESSION]
