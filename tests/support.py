"""What several test files need and pytest does not have."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

#: Between two looks of ``wait_until``.
LOOK_EVERY_S = 0.005


async def wait_until(predicate: Callable[[], object | Awaitable[object]], timeout_s: float = 20.0) -> None:
    """Look until ``predicate`` (plain or async) is true; fail the test when it is not within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = predicate()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {timeout_s} s: {getattr(predicate, '__qualname__', predicate)}")
        await asyncio.sleep(LOOK_EVERY_S)
