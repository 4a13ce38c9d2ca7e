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
from amnesiad.errors import AmnesiaError

SMALL: Final = 10_000
LARGE: Final = 100_000
TRIGGERED: Final = 50_000
BATCH: Final = 1000
ASKED: Final = 1000
"""Requests of each measurement; the hundredth part of them are the p99."""
WARMUP: Final = 50
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
        await _write(client, [{"content": text, "kind": kinds[n % 4]} for n, text in enumerate(notes.contents)])
        answer = await client.call("recall", {"query": notes.queries[0], "limit": LIMIT})

        async def recall(number: int) -> None:
            found = await client.call("recall", {"query": notes.queries[number % len(notes.queries)], "limit": LIMIT})
            assert len(found["notes"]) == LIMIT

        async def bare(number: int) -> None:
            query = notes.queries[number % len(notes.queries)]
            await echo.call("recall", {"query": query, "limit": LIMIT, "echo": answer})

        async def inject(_: int) -> None:
            assert (await client.call("inject", {"budget_tokens": 2000}))["ids"]

        bare_ms, recall_ms, inject_ms = await _in_turns(bare, recall, inject)
        many = f"{size:,} notes"
        made = [
            _beside(f"recall p50, {many}", _median(recall_ms), "bare echo p50", _median(bare_ms)),
            _beside(f"recall p99, {many}", _p99(recall_ms), "limit", 10 if size == SMALL else 12),
            _beside(f"inject p50, {many}", _median(inject_ms), "limit", 2 if size == SMALL else 5),
            _beside(f"inject p99, {many}", _p99(inject_ms), "bare echo p99", _p99(bare_ms)),
        ]
        if size == LARGE:
            made.insert(1, _beside(f"recall p50, {many}", _median(recall_ms), "limit", 4))
        async with _writing(client, notes):
            (busy_ms,) = await _in_turns(recall)
        made.append(_beside(f"recall p99, {WRITES_PER_S} writes/s", _p99(busy_ms), "quiet p99", _p99(recall_ms)))
        return made


async def _fire(socket: Path) -> list[Figure]:
    """``fire`` before an edit that concerns two notes of fifty thousand; each time another session's."""
    async with AsyncClient(socket, workspace="triggered") as client:
        triggers = [{"event": "pre-edit", "path": f"src/part{n % 100}/module_{n // 2}.py"} for n in range(TRIGGERED)]
        notes = [
            {"content": f"mind the lock of module {n // 2}, part {n}", "kind": "gotcha", "triggers": [trigger]}
            for n, trigger in enumerate(triggers)
        ]
        await _write(client, notes)

        async def fire(number: int) -> None:
            files = [f"src/part{n % 100}/module_{number}.py" for n in (2 * number, 2 * number + 1)]
            shown = await client.call("fire", {"event": "pre-edit", "paths": files})
            assert len(shown["notes"]) == 2

        (fire_ms,) = await _in_turns(fire)
        what = f"fire p50, 2 matches of {TRIGGERED:,}"
        return [
            _beside(what, _median(fire_ms), "limit", 2),
            _beside(what.replace("50", "99", 1), _p99(fire_ms), "limit", 12),
        ]


async def _start(environ: dict[str, str]) -> list[Figure]:
    """Another daemon on the same store: how long until it is ready, and what it weighs with the large workspace in it."""
    other = str(Path(environ["AMNESIA_SOCKET"]).with_name("other.sock"))
    started = time.perf_counter()
    daemon = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "amnesiad.cli",
        "daemon",
        env=environ | {"AMNESIA_SOCKET": other},
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        async with AsyncClient(other, workspace=f"w{LARGE}") as client:
            await _answers(client, "recall", {"query": "anything", "limit": LIMIT})
            ready_ms = (time.perf_counter() - started) * 1000
            await client.call("inject", {"budget_tokens": 2000})
            return [
                _beside(f"start to ready, {LARGE:,} notes", ready_ms, "limit", START_LIMIT_MS),
                Figure(f"memory, {LARGE:,} notes", _resident_mb(daemon.pid), "limit", MEMORY_LIMIT_MB, "MB"),
            ]
    finally:
        await _end(daemon)


async def _write(client: AsyncClient, notes: Sequence[dict[str, Any]]) -> None:
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


async def _in_turns(*asks: Ask) -> list[list[float]]:
    """The milliseconds that each request took, sorted; the measurements take turns, so that all meet the same weather."""
    times: list[list[float]] = [[] for _ in asks]
    for number in range(WARMUP + ASKED):
        for ask, took in zip(asks, times, strict=True):
            started = time.perf_counter()
            await ask(number)
            if number >= WARMUP:
                took.append((time.perf_counter() - started) * 1000)
    return [sorted(took) for took in times]


def _median(times: Sequence[float]) -> float:
    return statistics.median(times)


def _p99(times: Sequence[float]) -> float:
    return times[len(times) * 99 // 100]


def _beside(what: str, ms: float, than: str, baseline_ms: float) -> Figure:
    return Figure(what, ms * 1000, than, baseline_ms * 1000, "µs")


def _resident_mb(pid: int) -> float:
    """Of this process, in megabytes; Linux tells."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
