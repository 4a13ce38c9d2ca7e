"""The Claude Agent SDK with amnesiad: what matters now enters the context by itself, and a session's notes end with it.

Run it beside ``amnesia up``. In the place of Claude Code there is a script that calls the SDK's hooks as Claude Code
does, so that no key and no network is needed; leave ``transport`` out to run the real one.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Transport

from amnesiad import AsyncClient
from amnesiad.integrations.claude_agent_sdk import Memory

SESSION = "session-1"


class Script(Transport):
    """Claude Code's end of the line: answers the SDK, and for each prompt calls the hooks that it was given."""

    def __init__(self, payloads: list[dict[str, Any]]) -> None:
        self.payloads = payloads
        self.answers: list[dict[str, Any]] = []
        self._callbacks: dict[str, list[str]] = {}
        self._said: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._answered: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._turn: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Nothing to start."""

    async def write(self, data: str) -> None:
        """What the SDK says: a request of its own, the answer of a hook, or a prompt."""
        message = json.loads(data)
        if message["type"] == "control_request":
            hooks = message["request"].get("hooks") or {}
            self._callbacks |= {
                event: [id_ for one in several for id_ in one["hookCallbackIds"]] for event, several in hooks.items()
            }
            answer = {"subtype": "success", "request_id": message["request_id"], "response": {"commands": []}}
            await self._said.put({"type": "control_response", "response": answer})
        elif message["type"] == "control_response":
            await self._answered.put(message["response"])
        elif message["type"] == "user":
            self._turn = asyncio.create_task(self._take_turn())

    async def _take_turn(self) -> None:
        for number, payload in enumerate(self.payloads):
            for callback in self._callbacks.get(payload["hook_event_name"], []):
                asked = {"subtype": "hook_callback", "callback_id": callback, "input": payload, "tool_use_id": None}
                await self._said.put({"type": "control_request", "request_id": f"hook-{number}", "request": asked})
                self.answers.append(await self._answered.get())
        result = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "session_id": SESSION}
        await self._said.put({**result, "duration_ms": 1, "duration_api_ms": 1, "result": "done"})

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """What Claude Code says, until it is closed."""
        while (message := await self._said.get()) is not None:
            yield message

    async def close(self) -> None:
        """End what is said."""
        await self._said.put(None)

    def is_ready(self) -> bool:
        """Always."""
        return True

    async def end_input(self) -> None:
        """Nothing more will be asked."""


def payload(event: str, **fields: Any) -> dict[str, Any]:
    """What Claude Code hands a hook."""
    return {"hook_event_name": event, "session_id": SESSION, "transcript_path": "", "cwd": str(Path.cwd()), **fields}


async def main() -> None:
    """Remember a rule, let an agent take a turn, and print what came into its context."""
    workspace = os.environ.get("AMNESIA_WORKSPACE", "example")
    async with AsyncClient(workspace=workspace) as client:
        rule = await client.remember(
            "Deploys go out on Thursdays, never before a holiday.", kind="finding", ttl_ms="30d"
        )
        script = Script([payload("UserPromptSubmit", prompt="When do deploys go out?"), payload("Stop")])
        async with Memory(workspace=workspace) as memory:
            options = ClaudeAgentOptions(hooks=memory.hooks(), mcp_servers=dict(memory.mcp_servers()))
            async with ClaudeSDKClient(options, transport=script) as agent:
                await agent.query("When do deploys go out?")
                async for _message in agent.receive_response():
                    pass
        for answer in script.answers:
            print(answer["response"].get("hookSpecificOutput", {}).get("additionalContext", "(nothing)"))
        await client.forget(id=rule.id)


if __name__ == "__main__":
    asyncio.run(main())
