"""Models that say what a test wrote down, and what the daemon heard: shared by the tests of the adapters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, cast

from redis.asyncio import Redis

PATIENCE_S: Final = 30.0
"""What an adapter under test waits for: a busy machine must not look like memory that is away."""

Step = str | tuple[str, dict[str, Any]]
"""What a model does next: an answer, or a call of a tool with its arguments."""


async def heard(redis: Redis) -> list[tuple[str, str | None, str | None]]:
    """The lifecycle events that reached the daemon, oldest first: name, session, agent."""
    entries = cast(list[tuple[bytes, dict[bytes, bytes]]], await redis.xrange("amnesia:lifecycle"))
    events = [json.loads(fields[b"e"]) for _, fields in entries]
    return [(event["event"], event.get("session"), event.get("agent")) for event in events]


def steps(given: Sequence[Step]) -> list[Step]:
    """The steps, last first, to be popped."""
    return list(reversed(given))
