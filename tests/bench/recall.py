"""Reading at scale, as an agent meets it: the shipped client over the socket, each figure beside its limit.

One daemon, one store, three workspaces: 10 000 and 100 000 notes of some two hundred bytes, and 50 000 with triggers.
The bare echo is the same server stack with nothing behind it, sent and answering the same bytes in the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench.daemon import START_TIMEOUT_S, up
from tests.bench.figures import Figure
from tests.bench.search import Corpus, corpus

from amnesiad import AsyncClient
from amnesiad.core.callers import Role
from amnesiad.errors import AmnesiaError

SMALL: Final = 10_000
LARGE: Final = 100_000
TRIGGERED: Final = 50_000
BATCH: Final = 1000
ASKED: Final = 1000
"""Requests of each measurement; the hundredth part of them are the p99."""
WARMUP: Final = 50
ANCHORED: Final = 1000
"""Notes of each size that are anchored to a file, fifty of them below the folder that is asked for."""
WRITES_PER_S: Final = 200
LIMIT: Final = 10
MEMORY_LIMIT_MB: Final = 250
START_LIMIT_MS: Final = 5000

Ask = Callable[[int], Awaitable[Any]]


async def figures() -> list[Figure]:
    """Every figure of one run."""
    async with up() as environ:
        socket = Path(environ["AMNESIA_SOCKET"])
        async with _echo(socket.with_name("echo.sock")) as echo:
            large = await _sized(socket, echo, LARGE)
            # Before there is anything else that a start would load.
            start = await _start(environ)
            return [*await _sized(socket, echo, SMALL), *large, *await _fire(socket), *start]


async def _sized(socket: Path, echo: AsyncClient, size: int) -> list[Figure]:
    """Recall and inject in a workspace of so many notes."""
    notes = corpus(size)
    kinds = ("finding", "fact", "decision", "episode")
    async with AsyncClient(socket, workspace=f"w{size}", session="s1") as client:
        written: list[dict[str, Any]] = [
            {"content": text, "kind": kinds[n % 4]} for n, text in enumerate(notes.contents)
        ]
        for number, note in enumerate(written[:: size // ANCHORED]):
            note["anchors"] = [f"src/part{number % 20}/module_{number}.py"]
        await write(client, written)
        answer = await client.call("recall", {"query": notes.queries[0], "limit": LIMIT})

        async def recall(number: int) -> None:
            found = await client.call("recall", {"query": notes.queries[number % len(notes.queries)], "limit": LIMIT})
            assert len(found["notes"]) == LIMIT

        async def bare(number: int) -> None:
            query = notes.queries[number % len(notes.queries)]
            await echo.call("recall", {"query": query, "limit": LIMIT, "echo": answer})

        async def inject(_: int) -> None:
            assert (await client.call("inject", {"budget_tokens": 2000}))["ids"]

        async def newest(_: int) -> None:
            assert len((await client.call("recall", {"limit": LIMIT}))["notes"]) == LIMIT

        async def on_path(number: int) -> None:
            assert (await client.call("recall", {"paths": [f"src/part{number % 20}"], "limit": LIMIT}))["notes"]

        bare_ms, recall_ms, inject_ms, newest_ms, path_ms = await in_turns(bare, recall, inject, newest, on_path)
        many = f"{size:,} notes"
        made = [
            beside(f"recall p50, {many}", median(recall_ms), "bare echo p50, at most 8 times", median(bare_ms)),
            beside(f"recall p99, {many}", p99(recall_ms), "limit", 10 if size == SMALL else 12),
            beside(f"recall without a query p50, {many}", median(newest_ms), "limit", 10),
            beside(f"recall by path p50, {many}", median(path_ms), "limit", 10),
            beside(f"inject p50, {many}", median(inject_ms), "limit", 2 if size == SMALL else 5),
            beside(f"inject p99, {many}", p99(inject_ms), "bare echo p99", p99(bare_ms)),
        ]
        if size == LARGE:
            made.insert(1, beside(f"recall p50, {many}", median(recall_ms), "limit", 4))
        async with _writing(client, notes):
            (busy_ms,) = await in_turns(recall)
        made.append(
            beside(f"recall p99, {WRITES_PER_S} writes/s", p99(busy_ms), "quiet p99, at most 4 times", p99(recall_ms))
        )
        return made


async def _fire(socket: Path) -> list[Figure]:
    """``fire`` before an edit that concerns two notes of fifty thousand; each time another session's."""
    async with AsyncClient(socket, workspace="triggered") as client:
        triggers = [{"event": "pre-edit", "path": f"src/part{n % 100}/module_{n // 2}.py"} for n in range(TRIGGERED)]
        notes = [
            {"content": f"mind the lock of module {n // 2}, part {n}", "kind": "gotcha", "triggers": [trigger]}
            for n, trigger in enumerate(triggers)
        ]
        await write(client, notes)

        async def fire(number: int) -> None:
            files = [f"src/part{n % 100}/module_{number}.py" for n in (2 * number, 2 * number + 1)]
            shown = await client.call("fire", {"event": "pre-edit", "paths": files})
            assert len(shown["notes"]) == 2

        (fire_ms,) = await in_turns(fire)
        what = f"fire p50, 2 matches of {TRIGGERED:,}"
        return [
            beside(what, median(fire_ms), "limit", 2),
            beside(what.replace("50", "99", 1), p99(fire_ms), "limit", 12),
        ]


async def _start(environ: dict[str, str]) -> list[Figure]:
    """Another daemon on the same store: how long until it is ready, and what it weighs with the large workspace in
    it."""
    started = time.perf_counter()
    async with another(environ, workspace=f"w{LARGE}") as (client, pid):
        ready_ms = (time.perf_counter() - started) * 1000
        await client.call("inject", {"budget_tokens": 2000})
        return [
            beside(f"start to ready, {LARGE:,} notes", ready_ms, "limit", START_LIMIT_MS),
            Figure(f"memory, {LARGE:,} notes", _resident_mb(pid), "limit", MEMORY_LIMIT_MB, "MB"),
        ]


@asynccontextmanager
async def another(
    environ: dict[str, str], *, workspace: str, role: Role = "agent", **given: str
) -> AsyncIterator[tuple[AsyncClient, int]]:
    """A second daemon on the store of ``environ``, once it has recalled something: a client of it, and its process.

    ``given`` are further variables of its environment.
    """
    other = str(Path(environ["AMNESIA_SOCKET"]).with_name("other.sock"))
    daemon = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "amnesiad.cli",
        "daemon",
        env=environ | {"AMNESIA_SOCKET": other, **given},
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        async with AsyncClient(other, workspace=workspace, session="s1", role=role) as client:
            await _answers(client, "recall", {"query": "anything", "limit": LIMIT})
            yield client, daemon.pid
    finally:
        await _end(daemon)


async def write(client: AsyncClient, notes: Sequence[dict[str, Any]]) -> None:
    """Remember them all, in batches."""
    for start in range(0, len(notes), BATCH):
        answer = await client.batch([("remember", note) for note in notes[start : start + BATCH]])
        assert all("id" in one for one in answer.answers), answer.answers[0]


@asynccontextmanager
async def _writing(client: AsyncClient, notes: Corpus) -> AsyncIterator[None]:
    """Notes that arrive evenly all the while."""
    rng = random.Random(2)

    async def write() -> None:
        due = time.perf_counter()
        while True:
            words = " ".join(rng.sample(rng.choice(notes.contents).split(), 12))
            await client.remember(f"{words} {rng.random()}", kind="finding")
            due += 1 / WRITES_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def _echo(socket: Path) -> AsyncIterator[AsyncClient]:
    server = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.bench.echo", str(socket))
    try:
        async with AsyncClient(socket, workspace="bench") as client:
            await _answers(client, "recall", {})
            yield client
    finally:
        await _end(server)


async def _answers(client: AsyncClient, verb: str, body: dict[str, Any]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            await client.call(verb, body)
            return
        except AmnesiaError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)


async def _end(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.wait(), START_TIMEOUT_S)


async def in_turns(*asks: Ask, asked: int = ASKED) -> list[list[float]]:
    """The milliseconds that each request took, sorted; the measurements take turns, so that all meet the same
    weather."""
    times: list[list[float]] = [[] for _ in asks]
    for number in range(WARMUP + asked):
        for ask, took in zip(asks, times, strict=True):
            started = time.perf_counter()
            await ask(number)
            if number >= WARMUP:
                took.append((time.perf_counter() - started) * 1000)
    return [sorted(took) for took in times]


def median(times: Sequence[float]) -> float:
    """The time that half of them did not exceed."""
    return statistics.median(times)


def p99(times: Sequence[float]) -> float:
    """The time that all but the hundredth part did not exceed."""
    return times[len(times) * 99 // 100]


def beside(what: str, ms: float, than: str, baseline_ms: float) -> Figure:
    """Both in milliseconds."""
    return Figure(what, ms * 1000, than, baseline_ms * 1000, "µs")


def _resident_mb(pid: int) -> float:
    """Of this process, in megabytes; Linux tells."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
