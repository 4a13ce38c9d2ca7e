"""Memory for the OpenAI Agents SDK: ``AmnesiaMemory`` is run hooks, an input filter and two function tools in one.

::

    memory = AmnesiaMemory(workspace="/src/app", session="thread-7")
    agent = Agent(name="main", tools=memory.tools())
    await Runner.run(agent, "…", hooks=memory, run_config=RunConfig(call_model_input_filter=memory.remind))

The filter adds the notes to the instructions of one model call; the conversation that the SDK keeps does not grow. The
hooks report signs of life and the end of each turn. Whoever holds the conversation speaks for its session, so a handoff
changes who wrote a note and not what is seen; agents named in ``children`` are subagents instead, whose own notes end
with their part. A run whose memory is away goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from amnesiad.integrations import tools
from amnesiad.integrations.link import STEP_TIMEOUT_S, Link, missing, session_of, token

try:
    from agents import Agent, RunContextWrapper, RunHooks, Tool, function_tool
    from agents.items import TResponseInputItem
    from agents.run import CallModelData, ModelInputData
    from agents.run_context import AgentHookContext
except ImportError as error:
    raise ImportError(missing("the OpenAI Agents SDK", "openai-agents")) from error

Session = str | Callable[[Any], str | None]
"""A session's id, or a function that gives it for the context object of a run."""


class AmnesiaMemory(RunHooks[Any]):
    """The memory of the runs of one workspace. See the module.

    ``budget_tokens`` bounds what is added to a model call (default: the policy's ``max_injected_tokens``). Other
    arguments are those of ``amnesiad.AsyncClient``.
    """

    def __init__(
        self,
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        session: Session | None = None,
        children: Collection[str] = (),
        budget_tokens: int | None = None,
        timeout_s: float = STEP_TIMEOUT_S,
        **who: str | None,
    ) -> None:
        self._session = session
        self._children = frozenset(children)
        self._budget_tokens = budget_tokens
        self.link = Link(socket, workspace=workspace, timeout_s=timeout_s, **who)
        """The connections; close them with the loop."""

    # -- before a model call -------------------------------------------------------------------------------------------

    async def remind(self, data: CallModelData[Any]) -> ModelInputData:
        """The input of a model call with the notes in its instructions: a ``call_model_input_filter``."""
        model = data.model_data
        block = await self.link.ablock(_prompt(model.input), self._budget_tokens, self._who(data.context, data.agent))
        if not block:
            return model
        return ModelInputData(input=model.input, instructions=f"{model.instructions or ''}\n\n{block}".lstrip())

    # -- what happens --------------------------------------------------------------------------------------------------

    async def on_agent_start(self, context: AgentHookContext[Any], agent: Agent[Any]) -> None:
        """An agent begins its part: a sign of life, and of a child its start."""
        event = "subagent-start" if agent.name in self._children else "heartbeat"
        await self.link.areport(event, self._who(context.context, agent))

    async def on_handoff(
        self,
        context: RunContextWrapper[Any],
        from_agent: Agent[Any],
        to_agent: Agent[Any],  # noqa: ARG002
    ) -> None:
        """An agent gives the conversation away: a child's part is over."""
        await self._end_child(context.context, from_agent)

    async def on_tool_end(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        tool: Tool,  # noqa: ARG002
        result: object,  # noqa: ARG002
    ) -> None:
        """A tool has run: a sign of life, so that long work is not taken for death. Nothing of it is reported."""
        await self.link.areport("heartbeat", self._who(context.context, agent))

    async def on_agent_end(self, context: AgentHookContext[Any], agent: Agent[Any], output: Any) -> None:  # noqa: ARG002
        """The run has its output: a child's part is over, the turn is over, and the workspace settles."""
        await self._end_child(context.context, agent)
        who = self._who(context.context, agent)
        await self.link.areport("turn-end", {"session": who["session"]})

    async def _end_child(self, context: Any, agent: Agent[Any]) -> None:
        if agent.name in self._children:
            await self.link.areport("subagent-end", self._who(context, agent))

    # -- what a model may do by itself --------------------------------------------------------------------------------

    def tools(self) -> list[Tool]:
        """The function tools ``remember`` and ``recall``, which answer in words also when they are refused."""

        async def remember(
            context: RunContextWrapper[Any], content: str, shelf_life: str = "30d", key: str | None = None
        ) -> str:
            return await tools.remember(self.link, self._of(context), content, shelf_life, key)

        async def recall(context: RunContextWrapper[Any], query: str) -> str:
            return await tools.recall(self.link, self._of(context), query)

        return [
            function_tool(remember, description_override=tools.REMEMBER),
            function_tool(recall, description_override=tools.RECALL),
        ]

    def _of(self, context: RunContextWrapper[Any]) -> dict[str, str | None]:
        return self._who(context.context, getattr(context, "agent", None))

    def _who(self, context: Any, agent: Any) -> dict[str, str | None]:
        session = self._session(context) if callable(self._session) else self._session
        name = getattr(agent, "name", None)
        return {
            "session": session_of(session),
            "agent": token(name) if name else None,
            "agent_kind": "subagent" if name in self._children else None,
        }


def _prompt(items: list[TResponseInputItem]) -> str | None:
    """What the user said last."""
    for item in reversed(items):
        if item.get("role") != "user":
            continue
        content: Any = item.get("content")
        if isinstance(content, str):
            return content
        return " ".join(str(part["text"]) for part in content or () if isinstance(part, dict) and part.get("text"))
    return None
