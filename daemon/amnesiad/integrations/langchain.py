"""A LangChain agent that is reminded before each model call, and whose turns end: ``AmnesiaMiddleware``.

The notes stand in the system message of the one request, so the agent's state, and with it what every later call costs,
does not grow. After the agent has ended its turn, the workspace is told, and settles. An agent whose memory is away
goes on without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from amnesiad.integrations.link import STEP_TIMEOUT_S, Link, missing, session_of

try:
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
    from langgraph.runtime import Runtime
except ImportError as error:
    raise ImportError(missing("LangChain", "langgraph")) from error


class AmnesiaMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Injects the notes of ``workspace`` into each model request, and reports the end of each turn.

    ``budget_tokens`` bounds the block (default: the policy's ``max_injected_tokens``). The session is the one given,
    else the thread of the graph's checkpoints. Other arguments are those of ``amnesiad.AsyncClient``.
    """

    def __init__(
        self,
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        session: str | None = None,
        budget_tokens: int | None = None,
        timeout_s: float = STEP_TIMEOUT_S,
        **who: str | None,
    ) -> None:
        super().__init__()
        self._session = session_of(session)
        self._budget_tokens = budget_tokens
        self.link = Link(socket, workspace=workspace, session=self._session, timeout_s=timeout_s, **who)
        """The connections; close them with the program."""

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage:
        """The model's answer to the request with the notes in it."""
        block = self.link.block(_prompt(request.messages), self._budget_tokens, self._who(request.runtime))
        return handler(_with(request, block))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | AIMessage:
        """``wrap_model_call`` without blocking the loop."""
        block = await self.link.ablock(_prompt(request.messages), self._budget_tokens, self._who(request.runtime))
        return await handler(_with(request, block))

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """The turn is over: the workspace settles. The state stays as it is."""
        self.link.report("turn-end", self._who(runtime))
        return None

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """``after_agent`` without blocking the loop."""
        await self.link.areport("turn-end", self._who(runtime))
        return None

    def _who(self, runtime: Runtime[Any] | None) -> dict[str, str | None]:
        known = getattr(runtime, "execution_info", None)
        return {"session": self._session or session_of(None if known is None else known.thread_id)}


def _prompt(messages: Sequence[BaseMessage]) -> str | None:
    """What the user said last."""
    return next((str(message.text) for message in reversed(messages) if isinstance(message, HumanMessage)), None)


def _with(request: ModelRequest[Any], block: str) -> ModelRequest[Any]:
    if not block:
        return request
    before = request.system_message
    if before is None:
        return request.override(system_message=SystemMessage(block))
    parts = [{"type": "text", "text": before.content}] if isinstance(before.content, str) else list(before.content)
    content: list[Any] = [*parts, {"type": "text", "text": block}]
    return request.override(system_message=before.model_copy(update={"content": content}))
