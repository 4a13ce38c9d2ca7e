"""A pydantic-ai agent that is reminded, and may remember. Run it beside ``amnesia up``.

In the place of a model there is a function that keeps a fact in its first run and prints what it is told in its second,
so that no key and no network is needed.
"""

import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from amnesiad.integrations.pydantic_ai import Amnesia


async def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls ``remember`` in answer to the first prompt, and otherwise answers with its instructions."""
    if len(messages) == 1 and "keep" in str(messages[0]):
        return ModelResponse(
            parts=[ToolCallPart("remember", {"content": "Ada drinks green tea.", "shelf_life": "90d"})]
        )
    return ModelResponse(parts=[TextPart(info.instructions or "nothing is known")])


async def main() -> None:
    """Let a model keep a fact in one run, and print what it is told in the next."""
    amnesia = Amnesia(workspace=os.environ.get("AMNESIA_WORKSPACE", "example"), session="thread-1")
    async with amnesia.link:
        agent = Agent(FunctionModel(script), capabilities=[amnesia])
        await agent.run("Ada drinks green tea, keep that in mind.")
        print((await agent.run("What does Ada drink?")).output)


if __name__ == "__main__":
    asyncio.run(main())
