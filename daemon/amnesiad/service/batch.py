"""Answering a batch: in order, each on its own, writes of new notes side by side.

Consecutive remembers are decided at once and reach the store in one call; anything else waits for what stands before
it, so that a batch means the same as its requests one after another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError

Answer = Callable[[str, Any], Awaitable[object]]


async def answer_batch(request: wire.BatchRequest, answer: Answer) -> wire.BatchAnswer:
    """The answers or error envelopes of a batch, in the order of its requests."""
    answers: list[object] = [None] * len(request.requests)
    together: list[int] = []

    async def one(index: int) -> None:
        item = request.requests[index]
        try:
            decoded = wire.decode_item(request, item)
        except AmnesiaError as error:
            answers[index] = wire.error_answer(error)
            return
        answers[index] = await answer(item.verb, decoded)

    async def flush() -> None:
        await asyncio.gather(*(one(index) for index in together))
        together.clear()

    for index, item in enumerate(request.requests):
        if item.verb == "remember":
            together.append(index)
            continue
        await flush()
        await one(index)
    await flush()
    return wire.BatchAnswer(answers=tuple(answers))
