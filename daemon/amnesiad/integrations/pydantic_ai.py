"""Memory for pydantic-ai: the capability ``Amnesia`` gives an agent its notes, two tools, and an end to each turn.

The notes are instructions computed anew for each model request, which pydantic-ai does not carry on in the message
history. The session is the one given, else the conversation's id. When a run is over, finished or failed, the workspace
settles. A run whose memory is away goes on without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amnesiad.integrations import tools
from amnesiad.integrations.link import STEP_TIMEOUT_S, Link, missing, session_of

try:
    from pydantic_ai import FunctionToolset, RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.capabilities.abstract import WrapRunHandler
    from pydantic_ai.run import AgentRunResult
except ImportError as error:
    raise ImportError(missing("pydantic-ai", "pydantic-ai")) from error


class Amnesia(AbstractCapability[Any]):
    """The memory of one workspace as a capability: ``Agent(model, capabilities=[Amnesia(workspace=…)])``.

    ``budget_tokens`` bounds the notes (default: the policy's ``max_injected_tokens``); ``with_tools`` says whether the
    model may remember and recall by itself. Other arguments are those of ``amnesiad.AsyncClient``.
    """

    def __init__(
        self,
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        session: str | None = None,
        budget_tokens: int | None = None,
        with_tools: bool = True,
        timeout_s: float = STEP_TIMEOUT_S,
        **who: str | None,
    ) -> None:
        self.id = "amnesia"
        self._session = session_of(session)
        self._budget_tokens = budget_tokens
        self._with_tools = with_tools
        self.link = Link(socket, workspace=workspace, session=self._session, timeout_s=timeout_s, **who)
        """The connections; close them with the loop."""

    def get_instructions(self) -> Any:
        """The function that computes the notes for each request."""
        return self.remind

    async def remind(self, ctx: RunContext[Any]) -> str | None:
        """The notes for one model request, ``None`` where there are none."""
        return await self.link.ablock(_text(ctx.prompt), self._budget_tokens, self._who(ctx)) or None

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """``remember`` and ``recall``, which answer in words also when they are refused."""
        if not self._with_tools:
            return None

        async def remember(ctx: RunContext[Any], content: str, shelf_life: str = "30d", key: str | None = None) -> str:
            return await tools.remember(self.link, self._who(ctx), content, shelf_life, key)

        async def recall(ctx: RunContext[Any], query: str) -> str:
            return await tools.recall(self.link, self._who(ctx), query)

        toolset: FunctionToolset[Any] = FunctionToolset()
        toolset.add_function(remember, description=tools.REMEMBER)
        toolset.add_function(recall, description=tools.RECALL)
        return toolset

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """The run, and then the end of its turn, however it ended."""
        try:
            return await handler()
        finally:
            await self.link.areport("turn-end", self._who(ctx))

    def _who(self, ctx: RunContext[Any]) -> dict[str, str | None]:
        return {"session": self._session or session_of(ctx.conversation_id)}


def _text(prompt: str | Sequence[Any] | None) -> str | None:
    """The words of a prompt; pictures and files are left out."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return " ".join(part if isinstance(part, str) else str(getattr(part, "content", "")) for part in prompt)
