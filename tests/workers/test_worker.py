"""The worker process: what it runs, what it refuses, and that it survives what happens to workers."""

from __future__ import annotations

import asyncio
import os
import pickle
import secrets
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as sync_redis
from redis.asyncio import Redis
from structlog.testing import capture_logs
from tests.support import dump, wait_until
from tests.workers.seeding import KEYRING, World, new_world

import amnesiad
import amnesiad_workers
from amnesiad.bridge import Jobs
from amnesiad.bridge.jobs import SPECS
from amnesiad.errors import Deadline
from amnesiad.settings import load_settings
from amnesiad.store.keyring import KEY_FILE
from amnesiad.store.queue import MODULE, PREFIX, QUEUE, use_prefix, worker_alive
from amnesiad.store.server import EmbeddedServer

use_prefix()

# A worker whose maintenance runs every second, so that a test need not wait for the real interval.
QUICK = "from amnesiad_workers import worker; worker.MAINTENANCE_S = 1; import sys; sys.exit(worker.main([]))"


def environment(state_dir: Path, redis_url: str) -> dict[str, str]:
    """A child's environment: nothing of ours but where things are."""
    sources = [Path(amnesiad.__file__).parent.parent, Path(amnesiad_workers.__file__).parent.parent]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AMNESIA_", "XDG_"))}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(map(str, sources)),
        "AMNESIA_STATE_DIR": str(state_dir),
        "AMNESIA_REDIS_URL": redis_url,
    }


class Worker:
    """A real worker process and its log."""

    def __init__(self, state_dir: Path, redis_url: str) -> None:
        self.log = state_dir / f"worker-{secrets.token_hex(4)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", QUICK], env=environment(state_dir, redis_url), stdout=log, stderr=log
            )

    def said(self, words: str) -> bool:
        """Whether the log holds these words."""
        return words in self.log.read_text()

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state directory with the install key that the seeds are written with."""
    (tmp_path / KEY_FILE).write_bytes(b"k" * 32)
    return tmp_path


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Start workers with ``start(workers, …)``; all are gone after the test."""
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.end()


@pytest.fixture
async def jobs(redis: Redis, redis_url: str) -> AsyncIterator[Jobs]:
    """The daemon's end of the queue."""
    found = Jobs(redis, redis_url)
    yield found
    found.close()


async def start(workers: list[Worker], redis: Redis, state_dir: Path, redis_url: str) -> Worker:
    """Start a worker and wait until it listens."""
    worker = Worker(state_dir, redis_url)
    workers.append(worker)
    await wait_until(lambda: worker.said("the worker is ready"), 30)
    await wait_until(lambda: worker_alive(redis), 30)
    return worker


async def gone(redis: Redis, match: str) -> bool:
    """Whether no key matches."""
    return not [key async for key in redis.scan_iter(match=match)]


async def due_world(redis: Redis) -> World:
    """A workspace with one perishable that is due by the real clock."""
    world = await new_world(redis)
    await world.remember("a")
    return world


async def test_a_job_runs_and_its_figures_come_back(
    redis: Redis, redis_url: str, state_dir: Path, workers: list[Worker], jobs: Jobs
) -> None:
    """The daemon asks for a job by name and gets the worker's figures."""
    world = await due_world(redis)
    await start(workers, redis, state_dir, redis_url)
    figures = await jobs.run("settle", world.ws)
    assert (figures["expired"], figures["unreadable"]) == (1, [])
    assert await world.note("a") is None


async def test_every_job_of_the_daemon_exists_at_the_worker(
    redis: Redis, redis_url: str, state_dir: Path, workers: list[Worker], jobs: Jobs
) -> None:
    """The names on both ends of the queue are the same, and each runs over an empty store."""
    from amnesiad_workers.jobs import JOBS

    assert set(JOBS) == {f"{MODULE}.{name}" for name in SPECS}
    await start(workers, redis, state_dir, redis_url)
    for name in SPECS:
        args: list[Any] = ["0" * 16] if name in ("settle", "refile", "check_anchors") else []
        assert isinstance(await jobs.run(name, *(args or (["0" * 16, "s", 1] if name == "unplug" else []))), dict)
    assert isinstance(await jobs.run("check_anchors", "0" * 16, "nobody0000", "nobody0001"), dict)
    assert not [key async for key in redis.scan_iter(match="amnesia:{*")]


async def test_without_a_worker_a_command_says_so_at_once(jobs: Jobs) -> None:
    """An operator's settle does not wait a minute for a worker that nobody started."""
    with pytest.raises(Deadline, match="no worker is alive"):
        await jobs.run("settle", "0")


async def test_a_foreign_function_is_not_run(
    redis: Redis, redis_url: str, state_dir: Path, workers: list[Worker], jobs: Jobs
) -> None:
    """A job that names any other importable function, or one as its callback, fails; the worker lives and works on."""
    from rq import Callback, Queue
    from rq.serializers import JSONSerializer

    target, callback = state_dir / "created", state_dir / "called"
    connection = sync_redis.Redis.from_url(redis_url)
    queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)
    foreign = queue.enqueue("os.mkdir", str(target))
    spied = queue.enqueue(f"{MODULE}.trim", on_success=Callback("os.mkdir"), on_failure=Callback("os.mkdir"))
    worker = await start(workers, redis, state_dir, redis_url)
    await wait_until(lambda: foreign.get_status() == "failed" and spied.get_status() == "finished", 30)
    assert not target.exists()
    assert not callback.exists()
    assert worker.said("none of ours")
    assert await jobs.run("trim") == {"trimmed": 0, "dead": 0, "consumers": 0}
    connection.close()


async def test_a_pickle_is_not_opened(
    redis: Redis, redis_url: str, state_dir: Path, workers: list[Worker], jobs: Jobs
) -> None:
    """A job whose data is a pickle fails without being unpickled; the worker lives and works on."""
    from rq import Queue

    target = state_dir / "unpickled"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(target),)

    connection = sync_redis.Redis.from_url(redis_url)
    job = Queue(QUEUE, connection=connection).create_job(f"{MODULE}.trim")
    job.data = pickle.dumps((f"{MODULE}.trim", None, (Bomb(),), {}))
    Queue(QUEUE, connection=connection).enqueue_job(job)
    await start(workers, redis, state_dir, redis_url)
    await wait_until(lambda: job.get_status() == "failed", 30)
    assert not target.exists()
    assert (await jobs.run("trim"))["trimmed"] == 0
    connection.close()


async def test_jobs_and_logs_hold_no_words(
    redis: Redis, redis_url: str, state_dir: Path, workers: list[Worker], jobs: Jobs
) -> None:
    """Nothing that RQ stores and nothing that the worker logs holds a note's words."""
    world = await due_world(redis)
    await world.remember("bad")
    await redis.hset(world.keys.vault, "bad", b'{"content":["the words of bad"]}')
    await jobs.enqueue("settle", world.ws, key=world.ws)
    assert "words of" not in repr(await dump(redis, f"{PREFIX}*"))
    worker = await start(workers, redis, state_dir, redis_url)
    await wait_until(lambda: worker.said("bad: words: malformed"), 30)
    await wait_until(lambda: gone(redis, f"{PREFIX}:job:*"))
    assert "words of" not in repr(await dump(redis, f"{PREFIX}*")) + worker.log.read_text()


def test_a_job_that_breaks_quotes_nothing(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """RQ logs and keeps what a job raised, with its message and its causes: none of them is a pass's own."""
    from amnesiad_workers import jobs as entries

    async def broken(_context: object, ws: str) -> None:
        try:
            raise KeyError("the words of a note")
        except KeyError as error:
            raise RuntimeError(f"Symlink loop from '/home/somebody' in {ws}") from error

    setup = entries.Setup(redis_url, KEYRING, load_settings(environ={}))
    monkeypatch.setattr(entries, "_setup", [setup])
    monkeypatch.setattr("amnesiad_workers.passes.settle", broken)
    with pytest.raises(entries.JobFailed) as caught, capture_logs() as logs:
        entries.settle("0" * 16)
    kept = "".join(traceback.format_exception(caught.value))
    assert "settle: RuntimeError" in kept
    for told in (kept, str(logs), *capsys.readouterr()):
        assert "the words of" not in told
        assert "somebody" not in told
    (entry,) = logs
    assert [told.partition(" at ")[0] for told in entry["exception"]] == ["RuntimeError", "KeyError"]
    assert (entry["job"], entry["ws"]) == ("settle", "0" * 16)


async def test_a_job_of_a_killed_worker_is_done_by_the_next(
    redis: Redis, redis_url: str, state_dir: Path, workers: list[Worker]
) -> None:
    """C36: a worker is killed with SIGKILL while it runs a job; the next finds the job and finishes it."""
    from rq import Queue, Retry
    from rq.serializers import JSONSerializer

    world = await new_world(redis)
    for page in range(12):
        await world.remember(*(f"n{page}x{number}" for number in range(1000)))
    first = await start(workers, redis, state_dir, redis_url)
    connection = sync_redis.Redis.from_url(redis_url)
    queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)
    job = queue.enqueue_call(f"{MODULE}.settle", args=[world.ws], timeout=5, retry=Retry(max=3), result_ttl=60)
    await wait_until(lambda: connection.xlen(world.keys.log) > 12_000)
    first.end()
    assert connection.xlen(world.keys.log) < 36_000
    await start(workers, redis, state_dir, redis_url)
    await wait_until(lambda: job.get_status() == "finished", 50)
    assert (await world.counts())["expired"] == 12_000
    assert await world.once_each("expired")
    connection.close()


async def test_a_signal_stops_the_worker_cleanly(
    redis: Redis, redis_url: str, state_dir: Path, workers: list[Worker]
) -> None:
    """SIGTERM and SIGINT end it with exit code 0, and it is no longer counted as alive."""
    for number in (signal.SIGTERM, signal.SIGINT):
        worker = await start(workers, redis, state_dir, redis_url)
        worker.process.send_signal(number)
        assert await asyncio.to_thread(worker.process.wait, 20) == 0
        assert not await worker_alive(redis)


async def test_the_worker_waits_for_the_store_and_comes_back(state_dir: Path, workers: list[Worker]) -> None:
    """A worker started before its store waits; when the store is killed and starts again it works on, by itself."""
    server = EmbeddedServer(state_dir / "store")
    worker = Worker(state_dir, server.url)
    workers.append(worker)
    await wait_until(lambda: worker.said("no answer from the store"), 30)
    for _ in range(2):
        await server.start()
        redis = Redis.from_url(server.url)
        await wait_until(lambda redis=redis: worker_alive(redis), 30)  # type: ignore[misc]
        jobs = Jobs(redis, server.url)
        assert (await jobs.run("trim"))["trimmed"] == 0
        jobs.close()
        await redis.aclose()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await wait_until(lambda: not server.alive)
    await server.stop()


def test_the_worker_of_up_ends_with_its_parent(redis_url: str, state_dir: Path) -> None:
    """A child worker whose parent was killed ends by itself: its standard input ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "amnesiad_workers.worker", "--child"],
        env=environment(state_dir, redis_url),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"{}\n")
        process.stdin.flush()
        assert b"the worker is ready" in process.stderr.readline()
        process.stdin.close()
        assert process.wait(30) == 0
