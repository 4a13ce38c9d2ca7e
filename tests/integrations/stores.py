"""A LangGraph store as tests ask it, blocking or not, and ours over a daemon of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest
from langgraph.store.base import (
    BaseStore,
    Item,
    Op,
    Result,
    SearchItem,
)

from amnesiad.integrations.langgraph import AmnesiaStore

WORKSPACE: Final = "desk"
THREADS: Final = ThreadPoolExecutor(8)
"""Of blocking code. Not the loop's own threads: those the daemon needs, which is in this process."""


class Face:
    """One store asked in one way, blocking (in a thread, as blocking code would be) or asynchronously."""

    def __init__(self, store: BaseStore, asynchronous: bool) -> None:
        self.store = store
        self._asynchronous = asynchronous

    async def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._asynchronous:
            return await getattr(self.store, f"a{name}")(*args, **kwargs)
        work = partial(getattr(self.store, name), *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(THREADS, work)

    async def put(self, namespace: tuple[str, ...], key: str, value: dict[str, Any], **options: Any) -> None:
        await self._ask("put", namespace, key, value, **options)

    async def get(self, namespace: tuple[str, ...], key: str, **options: Any) -> Item | None:
        found: Item | None = await self._ask("get", namespace, key, **options)
        return found

    async def value(self, namespace: tuple[str, ...], key: str) -> dict[str, Any] | None:
        item = await self.get(namespace, key)
        return None if item is None else item.value

    async def delete(self, namespace: tuple[str, ...], key: str) -> None:
        await self._ask("delete", namespace, key)

    async def search(self, prefix: tuple[str, ...], **options: Any) -> list[SearchItem]:
        found: list[SearchItem] = await self._ask("search", prefix, **options)
        return found

    async def keys(self, prefix: tuple[str, ...], **options: Any) -> list[str]:
        return [item.key for item in await self.search(prefix, **options)]

    async def namespaces(self, **options: Any) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = await self._ask("list_namespaces", **options)
        return found

    async def batch(self, ops: list[Op]) -> list[Result]:
        results: list[Result] = await self._ask("batch", ops)
        return results


@pytest.fixture(params=["blocking", "asynchronous"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "asynchronous")


@pytest.fixture
async def amnesia(daemon: str) -> AsyncIterator[AmnesiaStore]:
    async with AmnesiaStore(daemon, workspace=WORKSPACE) as store:
        yield store


@pytest.fixture
async def ours(amnesia: AmnesiaStore, asynchronous: bool) -> Face:
    return Face(amnesia, asynchronous)
