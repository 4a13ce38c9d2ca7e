"""The daemon as its users meet it: the shipped client over the socket, beside bare Redis in the same run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis
from tests.bench.figures import Figure, side_by_side

from amnesiad import AsyncClient
from amnesiad.errors import AmnesiaError
from amnesiad.store.connect import connect
from amnesiad.store.location import store_url

SINGLES = 1_000
BATCH = 1_000
CONTENT = "the nightly build of the billing service fails unless the cache is warmed up first, as seen in run "
"""About a hundred bytes; with a number and padding a note has some two hundred."""
START_TIMEOUT_S = 30.0


async def figures() -> list[Figure]:
    """Everything that is measured over the socket, against a daemon, worker and store of its own."""
    async with running() as (client, redis):
        return [await _singles(client, redis), await _batches(client, redis)]


@asynccontextmanager
async def running() -> AsyncIterator[tuple[AsyncClient, Redis]]:
    """``up``, with a client of it and a connection to its store."""
    async with up() as environ:
        client = AsyncClient(environ["AMNESIA_SOCKET"], workspace="bench", role="agent")
        redis = await connect(store_url(None, Path(environ["AMNESIA_STATE_DIR"]), "bench"))
        try:
            yield client, redis
        finally:
            await redis.aclose()
            await client.aclose()


@asynccontextmanager
async def up(**given: str) -> AsyncIterator[dict[str, str]]:
    """``amnesia up`` in a state directory of its own, with room for large workspaces; the environment it runs in.

    ``given`` are further variables of it.
    """
    with tempfile.TemporaryDirectory() as folder:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AMNESIA_")}
        environ |= {"AMNESIA_STATE_DIR": folder, "AMNESIA_SOCKET": str(Path(folder) / "run" / "amnesia.sock")}
        environ |= {"AMNESIA_MAX_RECORD_BYTES": "1GiB", "AMNESIA_MAX_STORE_BYTES": "1GiB", **given}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "amnesiad.cli", "up", env=environ, stdout=DEVNULL, stderr=DEVNULL
        )
        try:
            async with AsyncClient(environ["AMNESIA_SOCKET"], workspace="bench") as client:
                await _ready(client)
            yield environ
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), START_TIMEOUT_S)


async def _ready(client: AsyncClient) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            await client.status()
            return
        except AmnesiaError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


def text(number: int) -> str:
    """A note of about two hundred bytes that no other note says."""
    return f"{CONTENT}{number} {'x' * 90}"


async def _singles(client: AsyncClient, redis: Redis) -> Figure:
    """One remember after another, beside one XADD after another of the same bytes."""

    async def ours(number: int) -> None:
        for index in range(SINGLES):
            await client.remember(text(number * SINGLES + index), kind="finding")

    async def theirs(number: int) -> None:
        for index in range(SINGLES):
            await redis.xadd("bench:plain", {"e": text(number * SINGLES + index)})

    mine, bare = await side_by_side(ours, theirs)
    return Figure("remember, one by one", SINGLES / mine, "bare XADD one by one", SINGLES / bare, "/s")


async def _batches(client: AsyncClient, redis: Redis) -> Figure:
    """A thousand remembers in one batch, beside pipelined XADD x100 of the same bytes."""

    async def ours(number: int) -> None:
        answer = await client.batch(
            [("remember", {"content": "b" + text(number * BATCH + index), "kind": "finding"}) for index in range(BATCH)]
        )
        assert all("id" in one for one in answer.answers), answer.answers[0]

    async def theirs(number: int) -> None:
        for start in range(0, BATCH, 100):
            pipe = redis.pipeline(transaction=False)
            for index in range(start, start + 100):
                pipe.xadd("bench:piped", {"e": text(number * BATCH + index)})
            await pipe.execute()

    mine, bare = await side_by_side(ours, theirs)
    return Figure("remember, in batches", BATCH / mine, "XADD pipelined x100", BATCH / bare, "/s")
