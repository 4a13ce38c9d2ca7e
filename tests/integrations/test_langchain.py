"""The middleware in real LangChain agents with a scripted model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import PrivateAttr
from redis.asyncio import Redis
from tests.daemon.desk import call, remember
from tests.integrations.running import run_example
from tests.integrations.scripted import PATIENCE_S, Step, heard, steps

from amnesiad.integrations.langchain import AmnesiaMiddleware
from amnesiad.service import Service

THREADS: Final = ThreadPoolExecutor(2)
LOOKS: Final[list[Step]] = [("look", {"at": "the sky"}), ("look", {"at": "the sea"}), "It is blue."]


class Scripted(BaseChatModel):
    """Says what it is told to, and keeps what it was sent."""

    _steps: list[Step] = PrivateAttr(default_factory=list)
    _sent: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @classmethod
    def of(cls, *given: Step) -> Scripted:
        model = cls()
        model._steps = steps(given)
        return model

    @property
    def sent(self) -> list[list[BaseMessage]]:
        return self._sent

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:  # noqa: ARG002
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self._sent.append(messages)
        step = self._steps.pop()
        if isinstance(step, str):
            message = AIMessage(content=step)
        else:
            called = {"name": step[0], "args": step[1], "id": f"call{len(self._steps)}", "type": "tool_call"}
            message = AIMessage(content="", tool_calls=[called])
        return ChatResult(generations=[ChatGeneration(message=message)])


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


@pytest.fixture
async def middleware(daemon: str) -> AsyncIterator[AmnesiaMiddleware]:
    made = AmnesiaMiddleware(daemon, workspace="desk", timeout_s=PATIENCE_S)
    yield made
    await made.link.aclose()


@pytest.fixture(params=["blocking", "asynchronous"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "asynchronous")


async def ask(agent: Any, prompt: str, asynchronous: bool, **config: Any) -> list[BaseMessage]:
    """Run the agent for one turn; the messages it ends with."""
    given = {"messages": [HumanMessage(prompt)]}
    if asynchronous:
        state = await agent.ainvoke(given, {"configurable": config})
    else:
        work = partial(agent.invoke, given, {"configurable": config})
        state = await asyncio.get_running_loop().run_in_executor(THREADS, work)
    messages: list[BaseMessage] = state["messages"]
    return messages


def system_of(sent: list[BaseMessage]) -> str:
    """The words of the system message of a request; ``""`` for none."""
    return "".join(str(message.text) for message in sent if isinstance(message, SystemMessage))


async def test_every_request_has_the_notes_and_the_state_has_none(
    middleware: AmnesiaMiddleware, service: Service, asynchronous: bool
) -> None:
    """Each model call of a tool loop sees the block once, behind the agent's own prompt; no message is kept of it."""
    await remember(service, "the sky is blue today")
    model = Scripted.of(*LOOKS)
    agent = create_agent(model, [look], system_prompt="You are terse.", middleware=[middleware])
    messages = await ask(agent, "what color is the sky?", asynchronous)
    assert len(model.sent) == 3
    for sent in model.sent:
        assert system_of(sent).startswith("You are terse.")
        assert system_of(sent).count("AMNESIA MEMORY (notes") == 1
        assert "the sky is blue today" in system_of(sent)
    assert [type(message).__name__ for message in messages] == [
        "HumanMessage", "AIMessage", "ToolMessage", "AIMessage", "ToolMessage", "AIMessage",
    ]  # fmt: skip
    assert "AMNESIA" not in str(messages)


async def test_a_note_that_ends_in_mid_turn_is_gone_from_the_next_request(
    middleware: AmnesiaMiddleware, service: Service
) -> None:
    """V32: what a tool revokes is no fact in the request after it."""
    note_id = await remember(service, "the sky is green")

    async def refute(at: str) -> str:
        """Look, and refute."""
        await call(service, "revoke", id=note_id, reason="looked up")
        return f"{at} is blue"

    model = Scripted.of(("refute", {"at": "the sky"}), "It is blue.")
    await ask(create_agent(model, [refute], middleware=[middleware]), "how is the weather?", asynchronous=True)
    assert "agent: the sky is green" in system_of(model.sent[0])
    assert "agent: the sky is green" not in system_of(model.sent[1])


async def test_the_turn_ends_once(middleware: AmnesiaMiddleware, redis: Redis, asynchronous: bool) -> None:
    """After the agent, the workspace is told, in the name of the thread; an id that fits no log is digested."""
    agent = create_agent(Scripted.of(*LOOKS, "Bye."), [look], middleware=[middleware], checkpointer=InMemorySaver())
    await ask(agent, "look", asynchronous, thread_id="t1")
    await ask(agent, "bye", asynchronous, thread_id="a thread / with spaces")
    (first, second) = await heard(redis)
    assert first == ("turn-end", "t1", None)
    assert second[0] == "turn-end"
    assert second[1] is not None
    assert second[1].startswith("x")


async def test_a_thread_sees_its_own_notes(middleware: AmnesiaMiddleware, service: Service) -> None:
    """C23: notes of a session are injected for its thread and for no other."""
    await remember(service, "only for the first", scope="session", caller={"session": "t1"})
    seen = []
    for thread in ("t1", "t2"):
        model = Scripted.of("ok")
        agent = create_agent(model, [], middleware=[middleware], checkpointer=InMemorySaver())
        await ask(agent, "hello", asynchronous=True, thread_id=thread)
        seen.append("only for the first" in system_of(model.sent[0]))
    assert seen == [True, False]


@pytest.mark.parametrize("thread", [0, 7, UUID(int=7)])
async def test_a_thread_is_called_as_programs_like(thread: object, middleware: AmnesiaMiddleware, redis: Redis) -> None:
    """Checkpointers take numbers and UUIDs for a thread's id, so it is no reason for an agent to fail."""
    agent = create_agent(Scripted.of("ok"), [], middleware=[middleware], checkpointer=InMemorySaver())
    await ask(agent, "hello", asynchronous=True, thread_id=thread)
    assert await heard(redis) == [("turn-end", str(thread), None)]


async def test_a_budget_is_kept(daemon: str, service: Service) -> None:
    """C45: no more than the budget is added to a request."""
    for n in range(50):
        await remember(service, f"fact number {n} about the sky")
    middleware = AmnesiaMiddleware(daemon, workspace="desk", timeout_s=PATIENCE_S, session="s", budget_tokens=200)
    model = Scripted.of("ok")
    await ask(create_agent(model, [], middleware=[middleware]), "the sky", asynchronous=True)
    await middleware.link.aclose()
    assert 1 <= system_of(model.sent[0]).count("fact number") < 15


async def test_an_agent_goes_on_without_memory(
    place: Path, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """C44: with no daemon the answer is what it would have been; the log says so once, and holds no words."""
    middleware = AmnesiaMiddleware(place / "none.sock", workspace="desk")
    model = Scripted.of(*LOOKS)
    with caplog.at_level(logging.WARNING, "amnesiad"):
        messages = await ask(create_agent(model, [look], middleware=[middleware]), "the sky?", asynchronous)
    await middleware.link.aclose()
    assert messages[-1].content == "It is blue."
    assert [system_of(sent) for sent in model.sent] == ["", "", ""]
    assert [record.getMessage() for record in caplog.records] == ["an agent goes on without memory: unreachable"]


async def test_the_example_runs(daemon: str) -> None:
    """A scripted model is told the agent's own prompt and what was remembered."""
    told = await run_example("langchain_agent.py", daemon)
    assert told.startswith("You are terse.")
    assert "The staging database is read-only." in told
