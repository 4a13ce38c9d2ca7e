"""A LangChain agent that is reminded before each model call. Run it beside ``amnesia up``.

In the place of a model there is one that prints what it was told, so that no key and no network is needed.
"""

import os
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from amnesiad import Client
from amnesiad.integrations.langchain import AmnesiaMiddleware


class Parrot(BaseChatModel):
    """Answers with the system message that it got."""

    @property
    def _llm_type(self) -> str:
        return "parrot"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        """It calls none."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:  # noqa: ARG002
        told = "\n\n".join(str(block.get("text")) for block in messages[0].content_blocks)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(told))])


def main() -> None:
    """Remember a fact, ask about it, and print what the model was told."""
    workspace = os.environ.get("AMNESIA_WORKSPACE", "example")
    middleware = AmnesiaMiddleware(workspace=workspace)
    with Client(workspace=workspace) as client, middleware.link:
        note = client.remember("The staging database is read-only.", ttl_ms="7d")
        agent = create_agent(Parrot(), system_prompt="You are terse.", middleware=[middleware])
        state = agent.invoke({"messages": [HumanMessage("May I write to staging?")]})
        print(state["messages"][-1].text)
        client.forget(id=note.id)


if __name__ == "__main__":
    main()
