"""``amnesia up``: store, daemon and one worker in the foreground; all that one machine needs.

The store is the embedded one where no ``redis_url`` is set: its directory below the state directory has one owner, and
a second ``up`` on it is refused with the first one's process id. Store and worker are started again when they die.
Shutdown: the daemon in its own order, then the worker, then the store; the store is last, since both write to it to
their end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

import structlog

from amnesiad.daemon.child import WorkerChild
from amnesiad.daemon.notify import notify
from amnesiad.daemon.serving import Daemon, run_process
from amnesiad.errors import AmnesiaError
from amnesiad.settings import Settings
from amnesiad.store.keyring import Keyring
from amnesiad.store.location import data_dir
from amnesiad.store.server import EmbeddedServer
from amnesiad.tasks import Backoff, end

LOOK_S: Final = 0.2
"""How often is looked whether the embedded server lives."""
PAUSE_S: Final = (0.2, 30.0)
"""First and longest pause before a store that will not start is tried again."""
STEADY_S: Final = 30.0
"""A store that ran this long was well; the pauses begin anew."""

logger = structlog.get_logger()


def run_up(settings: Settings) -> int:
    """Run everything until SIGTERM or SIGINT, and return the exit code. One line on standard output says it is
    ready."""
    return run_process(settings, "up", lambda: _up(settings))


async def _up(settings: Settings) -> None:
    Keyring.open(settings.state_dir)  # refused before anything is started
    store: EmbeddedServer | None = None
    if settings.redis_url is None:
        store = EmbeddedServer(data_dir(settings.state_dir), durability=settings.durability)
    url = str(settings.redis_url) if store is None else await store.start()
    daemon, worker, tasks = Daemon(settings, url), WorkerChild(settings, url), list[asyncio.Task[None]]()
    try:
        await daemon.start()
        parts = [daemon.watch(), worker.run(), *([_keep(store)] if store is not None else ())]
        tasks += [asyncio.create_task(part) for part in parts]
        sys.stdout.write(f"amnesia is up: {settings.socket}\n")
        sys.stdout.flush()
        notify("READY=1")
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        notify("STOPPING=1")
        await end(*tasks)
        await daemon.stop()
        await worker.stop()
        if store is not None:
            await store.stop()


async def _keep(store: EmbeddedServer) -> None:
    """Start the embedded server again whenever it has died under us. Never returns."""
    backoff, began = Backoff(*PAUSE_S, STEADY_S), time.monotonic()
    while True:
        await asyncio.sleep(LOOK_S)
        if store.alive:
            continue
        pause = backoff.pause_s(time.monotonic() - began)
        logger.error("the store has died and is started again", pause_s=pause)
        await asyncio.sleep(pause)
        began = time.monotonic()
        try:
            await store.start()
        except AmnesiaError as error:
            logger.error("the store does not start", error=error.message)
