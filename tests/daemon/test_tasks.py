"""A task that is to end does, also where its cancellation gets lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from amnesiad import tasks


async def deaf() -> None:
    """Goes on after the first cancellation, as ``asyncio.wait_for`` of Python 3.11 lets one that comes too late."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()


async def loud() -> None:
    """Ends by itself, and badly."""
    raise ValueError


@pytest.mark.parametrize("work", [deaf, loud, asyncio.Event().wait])
async def test_it_ends(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the task makes of being cancelled, waiting for its end comes to an end and raises nothing."""
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)
    made: Coroutine[Any, Any, Any] = work()
    task = asyncio.ensure_future(made)
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await tasks.end(task)
    assert task.done()


async def test_nothing_to_end() -> None:
    """No task is no trouble."""
    await tasks.end()


def test_pauses_grow_and_begin_anew() -> None:
    """What fails at once is begun again after longer and longer pauses, the first one first; what ran well, after
    that."""
    backoff = tasks.Backoff(0.2, 1.0, steady_s=30.0)
    assert [backoff.pause_s(ran) for ran in (0, 0, 30, 0, 0, 31, 0)] == [0.2, 0.4, 0.8, 1.0, 1.0, 0.2, 0.4]
