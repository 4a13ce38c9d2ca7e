"""Answering a batch: in order, each on its own, writes of new notes side by side.

Consecutive remembers that have nothing to do with one another are decided at once and reach the store in one call;
anything else waits for what stands before it, so that a batch means the same as its requests one after another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError

Answer = Callable[[str, Any], Awaitable[object]]
_ORDERED: Final = frozenset({"key", "supersedes", "workspace", "caller"})
"""Fields that may make a remember depend on the one before it: it waits, as does one that repeats a text or request
id."""
AT_ONCE: Final = 250
"""Remembers decided in one go. The store writes one group while the next is decided, so neither waits for the other."""


async def answer_batch(request: wire.BatchRequest, answer: Answer) -> wire.BatchAnswer:
    """The answers or error envelopes of a batch, in the order of its requests."""
    items = [_read(raw) for raw in request.requests]
    answers: list[object] = [None] * len(items)
    together: list[int] = []
    seen: set[bytes] = set()

    async def one(index: int) -> None:
        item = items[index]
        try:
            if isinstance(item, AmnesiaError):
                raise item
            decoded = wire.decode_item(request, item)
        except AmnesiaError as error:
            answers[index] = wire.error_answer(error)
            return
        answers[index] = await answer(item.verb, decoded)

    async def flush() -> None:
        groups = []
        for start in range(0, len(together), AT_ONCE):
            groups.append(asyncio.gather(*(one(index) for index in together[start : start + AT_ONCE])))
            # One turn of the loop to decide the group, one in which what it wants written is sent.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.gather(*groups)
        together.clear()
        seen.clear()

    for index, item in enumerate(items):
        if isinstance(item, wire.BatchItem) and item.verb == "remember" and _ORDERED.isdisjoint(item.body):
            marks = {bytes(item.body[field]) for field in ("content", "request_id") if field in item.body}
            if seen.isdisjoint(marks):
                together.append(index)
                seen |= marks
                continue
        await flush()
        await one(index)
    await flush()
    return wire.BatchAnswer(answers=tuple(answers))


def _read(raw: msgspec.Raw) -> wire.BatchItem | AmnesiaError:
    """An item, or what is wrong with it: for itself alone."""
    try:
        return wire.read_item(raw)
    except AmnesiaError as error:
        return error
