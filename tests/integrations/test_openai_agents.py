"""Hooks, filter and tools with the SDK's real runner and a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.items import TResponseInputItem
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from redis.asyncio import Redis
from tests.daemon.desk import call, remember
from tests.integrations.running import run_example
from tests.integrations.scripted import PATIENCE_S, Step, heard, steps

from amnesiad.integrations.openai_agents import AmnesiaMemory
from amnesiad.service import Service


class Scripted(Model):
    """Says what it is told to, and keeps what it was sent."""

    def __init__(self, *given: Step) -> None:
        self._steps = steps(given)
        self.instructions: list[str] = []
        self.inputs: list[list[Any]] = []

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        self.instructions.append(system_instructions or "")
        self.inputs.append([input] if isinstance(input, str) else list(input))
        step = self._steps.pop()
        output: Any
        if isinstance(step, str):
            text = ResponseOutputText(annotations=[], text=step, type="output_text")
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        else:
            output = ResponseFunctionToolCall(
                arguments=json.dumps(step[1]), call_id=f"c{len(self.inputs)}", name=step[0], type="function_call"
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@function_tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


@pytest.fixture
async def memory(daemon: str) -> AsyncIterator[AmnesiaMemory]:
    made = AmnesiaMemory(daemon, workspace="desk", timeout_s=PATIENCE_S, session="s1", children=["clerk"])
    yield made
    await made.link.aclose()


async def run(memory: AmnesiaMemory, agent: Agent[Any], prompt: Any, **options: Any) -> Any:
    """One run with everything plugged in; its result."""
    config = RunConfig(call_model_input_filter=memory.remind, tracing_disabled=True)
    return await Runner.run(agent, prompt, hooks=memory, run_config=config, **options)


@pytest.mark.parametrize("prompt", ["is the sky blue?", [{"role": "user", "content": "is the sky blue?"}]])
async def test_every_call_has_the_notes_and_the_conversation_has_none(
    memory: AmnesiaMemory, service: Service, prompt: Any
) -> None:
    """The block stands behind the agent's instructions in each model call; the items that the SDK keeps lack it."""
    await remember(service, "the sky is blue today")
    model = Scripted(("look", {"at": "the sky"}), "It is.")
    result = await run(memory, Agent(name="main", instructions="Be terse.", model=model, tools=[look]), prompt)
    assert result.final_output == "It is."
    for instructions in model.instructions:
        assert instructions.startswith("Be terse.\n\nAMNESIA MEMORY")
        assert "the sky is blue today" in instructions
    assert "AMNESIA" not in json.dumps(result.to_input_list())
    assert "AMNESIA" not in str(model.inputs)


async def test_nothing_to_show_changes_nothing(memory: AmnesiaMemory) -> None:
    """An empty workspace leaves the instructions as they are, or absent."""
    for given in ("Be terse.", None):
        model = Scripted("ok")
        await run(memory, Agent(name="main", instructions=given, model=model), "hello")
        assert model.instructions == [given or ""]


async def test_what_happens_is_reported(memory: AmnesiaMemory, redis: Redis) -> None:
    """Signs of life of the session by each agent, tools included, and one end of the turn; nothing of what was said."""
    model = Scripted(("look", {"at": "the sky"}), "It is.")
    await run(memory, Agent(name="the main one", model=model, tools=[look]), "is the sky blue?")
    (start, tool, end) = await heard(redis)
    assert start[:2] == tool[:2] == ("heartbeat", "s1")
    assert start[2] is not None
    assert start[2].startswith("x")
    assert end == ("turn-end", "s1", None)
    assert "sky" not in str(await redis.xrange("amnesia:lifecycle"))


async def test_a_handoff_to_a_child(memory: AmnesiaMemory, redis: Redis, service: Service) -> None:
    """An agent named as a child starts and ends as a subagent, and sees directives and its own notes only."""
    await remember(service, "a fact of the workspace")
    await remember(service, "always be kind", kind="directive")
    model = Scripted(("transfer_to_clerk", {}), "Done.")
    clerk = Agent[Any](name="clerk", model=model)
    await run(memory, Agent(name="main", model=model, handoffs=[clerk]), "hello")
    assert await heard(redis) == [
        ("heartbeat", "s1", "main"),
        ("subagent-start", "s1", "clerk"),
        ("subagent-end", "s1", "clerk"),
        ("turn-end", "s1", None),
    ]
    assert "a fact of the workspace" in model.instructions[0]
    assert "always be kind" in model.instructions[1]
    assert "a fact of the workspace" not in model.instructions[1]


async def test_a_handoff_between_equals(memory: AmnesiaMemory, redis: Redis) -> None:
    """Any other agent that takes over speaks for the same session; only the run's end ends the turn."""
    model = Scripted(("transfer_to_expert", {}), "Done.")
    expert = Agent[Any](name="expert", model=model)
    await run(memory, Agent(name="main", model=model, handoffs=[expert]), "hello")
    assert [event for event, _, _ in await heard(redis)] == ["heartbeat", "heartbeat", "turn-end"]


async def test_the_tools(memory: AmnesiaMemory, service: Service) -> None:
    """A model remembers with a shelf life in the agent's name, finds it again, and reads why something was refused."""
    model = Scripted(
        ("remember", {"content": "the port is 8080", "shelf_life": "2h", "key": "port"}),
        ("recall", {"query": "port"}),
        ("recall", {"query": "zebra"}),
        ("remember", {"content": "x", "shelf_life": "soon", "key": None}),
        "ok",
    )
    result = await run(memory, Agent(name="main", model=model, tools=memory.tools()), "hello")
    kept, found, nothing, refused = [
        str(item.output) for item in result.new_items if item.type == "tool_call_output_item"
    ]
    (note,) = (await call(service, "list", with_content=True)).notes
    assert (note.content, note.ttl_ms, note.key, note.author) == ("the port is 8080", 7_200_000, "port", "main")
    assert kept == f"kept as {note.id}"
    assert "the port is 8080" in found
    assert nothing == "nothing is kept about that"
    assert refused.startswith("not done: shelf_life must be")
    assert "ttl_ms" not in refused


async def test_a_session_of_each_run(daemon: str, redis: Redis) -> None:
    """One memory serves many conversations: the session is what the function makes of the run's context."""
    memory = AmnesiaMemory(daemon, workspace="desk", timeout_s=PATIENCE_S, session=lambda context: context["thread"])
    for thread in ("t1", "t2"):
        await run(memory, Agent(name="main", model=Scripted("ok")), "hello", context={"thread": thread})
    await memory.link.aclose()
    assert [session for event, session, _ in await heard(redis) if event == "turn-end"] == ["t1", "t2"]


async def test_a_run_goes_on_without_memory(place: Path) -> None:
    """C44: with no daemon the answer is what it would have been, and the tools say what is wrong."""
    memory = AmnesiaMemory(place / "none.sock", workspace="desk", session="s1")
    model = Scripted(("recall", {"query": "port"}), "ok")
    result = await run(memory, Agent(name="main", model=model, tools=memory.tools()), "hello")
    await memory.link.aclose()
    assert result.final_output == "ok"
    assert "not done:" in str(result.new_items[1].output)


async def test_the_example_runs(daemon: str) -> None:
    """What a scripted model kept in one run, it is told in the next."""
    told = await run_example("openai_agents_memory.py", daemon)
    assert told.startswith("You are terse.")
    assert "Deploys go out on Thursdays." in told
