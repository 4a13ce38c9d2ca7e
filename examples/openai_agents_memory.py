"""An agent of the OpenAI Agents SDK that is reminded, and may remember. Run it beside ``amnesia up``.

In the place of a model there is one that keeps a fact in its first run and prints what it is told in its second, so
that no key and no network is needed.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from amnesiad.integrations.openai_agents import AmnesiaMemory


class Script(Model):
    """Calls ``remember`` once, and otherwise answers with its instructions."""

    def __init__(self) -> None:
        self._kept = False

    async def get_response(self, system_instructions: str | None, *args: Any, **kwargs: Any) -> ModelResponse:  # noqa: ARG002
        """The next step."""
        output: Any
        if not self._kept:
            self._kept = True
            called = json.dumps({"content": "Deploys go out on Thursdays.", "shelf_life": "30d", "key": "deploys"})
            output = ResponseFunctionToolCall(arguments=called, call_id="c1", name="remember", type="function_call")
        else:
            text = ResponseOutputText(annotations=[], text=system_instructions or "", type="output_text")
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """It does not stream."""
        raise NotImplementedError


async def main() -> None:
    """Let a model keep a fact in one run, and print what it is told in the next."""
    workspace = os.environ.get("AMNESIA_WORKSPACE", "example")
    memory = AmnesiaMemory(workspace=workspace, session="thread-1")
    async with memory.link:
        agent = Agent(name="main", instructions="You are terse.", model=Script(), tools=memory.tools())
        config = RunConfig(call_model_input_filter=memory.remind, tracing_disabled=True)
        for prompt in ("Deploys go out on Thursdays, keep that in mind.", "When do deploys go out?"):
            result = await Runner.run(agent, prompt, hooks=memory, run_config=config)
        print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
