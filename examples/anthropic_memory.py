"""Anthropic's memory tool on amnesiad: the files that Claude keeps end when nobody needs them.

Run it beside ``amnesia up``. The model here is a script, so that no key and no network is needed; leave ``http_client``
out and give a real key to talk to Claude.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx2
from anthropic import Anthropic

from amnesiad.integrations.anthropic import MemoryTool

NOTES = "/memories/deploys.md"
SAYS: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories"},
    {"command": "create", "path": NOTES, "file_text": "Deploys go out on Tuesdays.\n"},
    {"command": "str_replace", "path": NOTES, "old_str": "Tuesdays", "new_str": "Thursdays"},
    {"command": "view", "path": NOTES},
]


def script() -> Iterator[list[dict[str, Any]]]:
    """What the model says, message by message."""
    for number, command in enumerate(SAYS):
        yield [{"type": "tool_use", "id": f"toolu_{number}", "name": "memory", "input": command}]
    yield [{"type": "text", "text": "I have noted when deploys go out."}]


def model() -> httpx2.Client:
    """A model that keeps to the script."""
    messages = script()

    def answer(_request: httpx2.Request) -> httpx2.Response:
        content = next(messages)
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5-5",
            "content": content,
            "stop_reason": "tool_use" if content[0]["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=json.dumps(message))

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def main() -> None:
    """Let the model keep a file, and print what it was answered."""
    memory = MemoryTool(workspace=os.environ.get("AMNESIA_WORKSPACE", "example"), kind="fact", ttl="7d")
    client = Anthropic(api_key="none", http_client=model())
    runner = client.beta.messages.tool_runner(
        model="claude-sonnet-5-5",
        max_tokens=1024,
        messages=[{"role": "user", "content": "When do deploys go out? Remember it."}],
        tools=[memory],
    )
    for message in runner:
        for block in message.content:
            if block.type == "text":
                print(block.text)
        if response := runner.generate_tool_call_response():
            print(response["content"][0]["content"])  # type: ignore[index]
    memory.clear_all_memory()
    memory.close()


if __name__ == "__main__":
    main()
