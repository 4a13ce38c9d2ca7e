"""Calls of agents' hooks as the door would make them, and what comes of them."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

from tests.agents.payloads import CHILD, SESSION, payload
from tests.daemon.desk import WORKSPACE

from amnesiad import wire
from amnesiad.service import Service
from amnesiad.store.keys import LIFECYCLE

_turns = itertools.count()

MAIN: Final[dict[str, Any]] = {"session": SESSION}
CHILD_CALLER: Final[dict[str, Any]] = {"session": SESSION, "agent": CHILD, "agent_kind": "subagent"}


async def hook(service: Service, agent: str, said: str, *, workspace: str | None = WORKSPACE, **fields: Any) -> Any:
    """One call of a hook, as the door would make it; each in a turn of its own unless the fields say otherwise."""
    turn = {"cursor": "generation_id", "codex": "turn_id"}.get(agent, "prompt_id")
    body = payload(agent, said, **{turn: str(next(_turns)), **fields})
    named = {} if workspace is None else {"workspace": workspace}
    return await service.hooks(wire.decode_hook(agent, named, json.dumps(body).encode()))


async def told(service: Service, said: str, agent: str = "claude-code", **fields: Any) -> str:
    """The text that a hook brings into the context; empty for none."""
    answer = await hook(service, agent, said, **fields)
    if not answer:
        return ""
    if "hookSpecificOutput" in answer:
        assert list(answer) == ["hookSpecificOutput"]
        keys = set(answer["hookSpecificOutput"])
        assert (
            {"hookEventName"}
            < keys
            <= {"hookEventName", "additionalContext", *(["watchPaths"] if agent == "claude-code" else [])}
        )
        return str(answer["hookSpecificOutput"].get("additionalContext", ""))
    (text,) = answer.values()
    return str(text)


async def stream(service: Service) -> list[dict[str, Any]]:
    """The lifecycle events on the stream, oldest first."""
    rows: Any = await service.redis.xrange(LIFECYCLE)
    return [json.loads(fields[b"e"]) for _, fields in rows]


def session_of(agent: str, session: str) -> dict[str, Any]:
    """The field that names the session, as the agent calls it."""
    return {{"cursor": "conversation_id", "vscode": "sessionId"}.get(agent, "session_id"): session}
