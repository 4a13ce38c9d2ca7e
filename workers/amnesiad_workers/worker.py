"""The worker process: waits for the store, runs jobs until it is told to stop, and comes back when the store goes away.

``amnesia worker`` runs it alone; ``amnesia up`` starts it as a child (``--child``), which is told its settings on
standard input and ends when that input does, so that it never outlives its parent, whatever kills it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Final

import msgspec
import structlog
from redis.exceptions import RedisError

from amnesiad.errors import AmnesiaError, ConfigError, StoreUnavailable, StoreUnfit
from amnesiad.logs import configure_logging, log_loop_fault
from amnesiad.settings import Settings, load_settings
from amnesiad.store.connect import check_fit, connect
from amnesiad.store.keyring import Keyring
from amnesiad.store.location import store_url
from amnesiad.store.queue import use_prefix
from amnesiad.tasks import Backoff
from amnesiad_workers import jobs

MAINTENANCE_S: Final = 15
"""How often a worker looks for jobs whose worker died."""
WAIT_S: Final = (0.1, 2.0)
"""First and longest pause between two tries to reach the store."""
STEADY_S: Final = 10.0
"""A worker that ran this long was well; the pauses begin anew."""
ORPHAN_GRACE_S: Final = 10.0
"""How long a worker whose parent died may take to finish the job it is at."""

logger = structlog.get_logger()


def run_worker(settings: Settings) -> int:
    """Run one worker until SIGTERM or SIGINT; a second signal cuts the job under way short. Returns the exit code.

    The main thread's own: RQ stops overlong jobs by a signal. Without ``redis_url`` it joins the store of an ``amnesia
    up`` on the same state directory.
    """
    configure_logging(settings.log_level, "worker")
    try:
        url = store_url(settings.redis_url, settings.state_dir, "worker")
        keyring = Keyring.open(settings.state_dir)
        jobs.use(jobs.Setup(url, keyring, settings))
        return _serve(url, keyring)
    except (ConfigError, StoreUnfit) as error:
        logger.error("the worker does not start", error=error.message, hint=error.hint)
        return 1


def _serve(url: str, keyring: Keyring) -> int:
    stop = threading.Event()
    backoff = Backoff(*WAIT_S, STEADY_S)
    while not stop.is_set():
        _listen(stop)
        began = time.monotonic()
        try:
            asyncio.run(_check(url, keyring))
            _work(url, stop)
        except (StoreUnavailable, RedisError, OSError) as error:
            logger.warning("no answer from the store", error=type(error).__name__)
        pause = backoff.pause_s(time.monotonic() - began)
        _listen(stop)
        stop.wait(0 if stop.is_set() else pause)
    logger.info("the worker has stopped")
    return 0


def _listen(stop: threading.Event) -> None:
    """Take the signals while RQ does not."""

    def note(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)


async def _check(url: str, keyring: Keyring) -> None:
    """Raises ``StoreUnavailable``, ``StoreUnfit``, or ``ConfigError`` where the store belongs to another key."""
    asyncio.get_running_loop().set_exception_handler(log_loop_fault)
    redis = await connect(url)
    try:
        await check_fit(redis)
        await keyring.check_store(redis)
    finally:
        await redis.aclose()


def _work(url: str, stop: threading.Event) -> None:
    """Run jobs until told to stop or until the store is gone; RQ has logged which."""
    use_prefix()
    from amnesiad_workers.queue import OwnWorker, connect_sync

    connection = connect_sync(url)
    try:
        worker = OwnWorker(connection, stop, maintenance_s=MAINTENANCE_S)
        logger.info("the worker is ready", worker=worker.name)
        worker.work(logging_level=None)
    finally:
        connection.close()


def main(argv: list[str]) -> int:
    """Entry point of ``python -m amnesiad_workers.worker``; ``--child`` for the worker of ``amnesia up``."""
    if argv not in ([], ["--child"]):
        sys.stderr.write("usage: python -m amnesiad_workers.worker [--child]\n")
        return 2
    try:
        given: dict[str, Any] = {}
        if argv:
            given = msgspec.json.decode(sys.stdin.buffer.readline(), type=dict[str, Any])
            threading.Thread(target=_follow_parent, name="parent", daemon=True).start()
        return run_worker(load_settings(**given))
    except AmnesiaError as error:
        sys.stderr.write(f"amnesia worker: {error.message}\n")
        return 1


def _follow_parent() -> None:
    """Stop when the parent is gone: its end of our standard input closes with it, however it dies."""
    # Past Python's buffer, whose lock a thread that is stuck in it would keep from the interpreter's own end.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
