"""The capability in real pydantic-ai agents with function models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from redis.asyncio import Redis
from tests.daemon.desk import call, remember
from tests.integrations.running import run_example
from tests.integrations.scripted import PATIENCE_S, Step, heard, steps

from amnesiad.integrations.pydantic_ai import Amnesia
from amnesiad.service import Service


class Script:
    """Says what it is told to, and keeps the instructions and tools that it was given."""

    def __init__(self, *given: Step) -> None:
        self._steps = steps(given)
        self.instructions: list[str] = []
        self.tools: list[str] = []
        self.model = FunctionModel(self._answer)

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG002
        self.instructions.append(info.instructions or "")
        self.tools = sorted(tool.name for tool in info.function_tools)
        step = self._steps.pop()
        if isinstance(step, str):
            return ModelResponse(parts=[TextPart(step)])
        return ModelResponse(parts=[ToolCallPart(step[0], step[1])])


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


@pytest.fixture
async def amnesia(daemon: str) -> AsyncIterator[Amnesia]:
    made = Amnesia(daemon, workspace="desk", timeout_s=PATIENCE_S, session="s1")
    yield made
    await made.link.aclose()


async def test_every_request_has_the_notes_and_they_are_computed_anew(amnesia: Amnesia, service: Service) -> None:
    """V32: each request of a run carries the notes that stand then, behind the agent's own instructions, once."""
    note_id = await remember(service, "the sky is green")
    await remember(service, "the sea is deep")

    async def refute(at: str) -> str:
        await call(service, "revoke", id=note_id, reason="looked up")
        return f"{at} is blue"

    script = Script(("refute", {"at": "the sky"}), "It is blue.")
    agent = Agent(script.model, instructions="Be terse.", capabilities=[amnesia], tools=[refute])
    result = await agent.run("and the weather?")
    assert result.output == "It is blue."
    first, second = script.instructions
    assert "Be terse." in first
    assert first.count("AMNESIA MEMORY (notes") == second.count("AMNESIA MEMORY (notes") == 1
    assert "agent: the sky is green" in first
    assert "agent: the sky is green" not in second
    assert "the sea is deep" in second


async def test_a_conversation_does_not_grow_by_it(amnesia: Amnesia, service: Service) -> None:
    """In the next turn over the same history the notes stand once in what the model gets."""
    await remember(service, "the sea is deep")
    script = Script("one", "two")
    agent = Agent(script.model, capabilities=[amnesia])
    first = await agent.run("hello")
    await agent.run("again", message_history=first.all_messages())
    assert [given.count("the sea is deep") for given in script.instructions] == [1, 1]


async def test_nothing_to_show_changes_nothing(amnesia: Amnesia) -> None:
    """An empty workspace adds no instruction."""
    script = Script("ok")
    await Agent(script.model, instructions="Be terse.", capabilities=[amnesia]).run("hello")
    assert script.instructions == ["Be terse."]


async def test_the_turn_ends_however_the_run_does(amnesia: Amnesia, redis: Redis) -> None:
    """A run that finishes and one that fails each end one turn of the session."""

    def fail() -> str:
        raise RuntimeError("no")

    await Agent(Script("ok").model, capabilities=[amnesia]).run("hello")
    with pytest.raises(RuntimeError, match="no"):
        await Agent(Script(("fail", {})).model, capabilities=[amnesia], tools=[fail]).run("hello")
    assert await heard(redis) == [("turn-end", "s1", None)] * 2


async def test_the_conversation_is_the_session(daemon: str, redis: Redis, service: Service) -> None:
    """C23: with no session given, a conversation sees its own notes and no other's, and its turns are its own."""
    await remember(service, "only for the first", scope="session", caller={"session": "c1"})
    amnesia = Amnesia(daemon, workspace="desk", timeout_s=PATIENCE_S)
    seen = []
    for conversation in ("c1", "c2"):
        script = Script("ok")
        await Agent(script.model, capabilities=[amnesia]).run("hello", conversation_id=conversation)
        seen.append("only for the first" in script.instructions[0])
    await amnesia.link.aclose()
    assert seen == [True, False]
    assert [session for _, session, _ in await heard(redis)] == ["c1", "c2"]


async def test_the_tools(amnesia: Amnesia, service: Service) -> None:
    """A model remembers with a shelf life, is told of what it keeps twice, finds it, and reads why it was refused."""
    script = Script(
        ("remember", {"content": "the port is 8080", "shelf_life": "2h"}),
        ("remember", {"content": "the port is 8080"}),
        ("recall", {"query": "port"}),
        ("remember", {"content": " "}),
        "ok",
    )
    result = await Agent(script.model, capabilities=[amnesia]).run("hello")
    said = [
        str(part.content)
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    (note,) = (await call(service, "list", with_content=True)).notes
    assert (note.content, note.ttl_ms) == ("the port is 8080", 7_200_000)
    assert said[:2] == [f"kept as {note.id}", f"known already, as {note.id}"]
    assert "the port is 8080" in said[2]
    assert said[3].startswith("not done: content is blank")
    assert script.tools == ["recall", "remember"]


async def test_without_tools(daemon: str) -> None:
    """A model that is only reminded has none of ours."""
    amnesia = Amnesia(daemon, workspace="desk", timeout_s=PATIENCE_S, session="s1", with_tools=False)
    script = Script("ok")
    await Agent(script.model, capabilities=[amnesia]).run("hello")
    await amnesia.link.aclose()
    assert script.tools == []


async def test_a_refuted_belief_comes_with_its_warning(amnesia: Amnesia, service: Service) -> None:
    """C29: a model that keeps again what was revoked is told so."""
    note_id = await remember(service, "the port is 8080")
    await call(service, "revoke", id=note_id, reason="it moved")
    script = Script(("remember", {"content": "the port is 8080"}), "ok")
    result = await Agent(script.model, capabilities=[amnesia]).run("hello")
    assert "REVOKED" in str(result.all_messages())


async def test_a_run_goes_on_without_memory(place: Path) -> None:
    """C44: with no daemon the answer is what it would have been, and the tools say what is wrong."""
    amnesia = Amnesia(place / "none.sock", workspace="desk", session="s1")
    script = Script(("recall", {"query": "port"}), "ok")
    result = await Agent(script.model, capabilities=[amnesia]).run("hello")
    await amnesia.link.aclose()
    assert result.output == "ok"
    assert "not done:" in str(result.all_messages())


async def test_the_example_runs(daemon: str) -> None:
    """What a scripted model kept in one run, it is told in the next."""
    assert "Ada drinks green tea." in await run_example("pydantic_ai_memory.py", daemon)
