"""The daemon: one owner of everything between a store and a socket.

Start: state directory and install key, the store (waited for, then checked), its clock, the service, the socket, the
bridge and the timer, and at last the workspaces used last are loaded. Until then ``/readyz`` tells how far it has come;
requests are answered all the same. Shutdown, in this order:

1. the socket goes; requests in flight are answered, feeds end;
2. the MCP server ends, if any client ever came for it;
3. bridge, timer and clock are cancelled; what they had not finished is still in the store, unacknowledged;
4. the service finishes its after-work;
5. the queue's threads and the store's connections are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, Final

import structlog
import uvloop

from amnesiad.api.app import App, Readiness
from amnesiad.api.errors import answerable
from amnesiad.api.serve import ApiServer
from amnesiad.bridge import Bridge, Jobs, Timer
from amnesiad.daemon.notify import keep_alive, notify, watchdog_s
from amnesiad.errors import AmnesiaError, StoreUnavailable
from amnesiad.logs import configure_logging, log_loop_fault
from amnesiad.mcp import McpFace
from amnesiad.service import Service, residence
from amnesiad.settings import Settings
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import check_fit, connect
from amnesiad.store.keyring import Keyring
from amnesiad.store.location import store_url
from amnesiad.tasks import end

WAIT_S: Final = 0.5
"""Between two tries to reach the store at the start."""
IDLE_LOOK_S: Final = 10.0
"""How often is looked for workspaces that nobody uses."""
CLOCK_LOOK_S: Final = 1.0
"""How often is looked whether the store's time should be asked for again."""

MCP_PATH: Final = "/mcp"
"""Where MCP is spoken, on the socket and on the loopback listener; the shim and every client's settings name it."""

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""How much is allocated between two looks for cycles. A projection is hundreds of thousands of objects that hold none;
walking them every few hundred requests costs more than all the cycles a request could leave behind."""

logger = structlog.get_logger()


class Daemon:
    """A daemon over the store at ``url``. ``start``, then ``watch`` until it is told to stop, then ``stop``."""

    def __init__(self, settings: Settings, url: str) -> None:
        self.settings = settings
        self.url = url
        self._redis: Any = None
        self._jobs: Jobs | None = None
        self._service: Service | None = None
        self._server: ApiServer | None = None
        self._mcp: McpFace | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._readiness = Readiness(ready=False, stage="starting")

    async def start(self) -> None:
        """Come up, waiting for the store as long as it takes. Leaves nothing behind when it fails or is cancelled.

        Raises ``ConfigError`` for a socket that is taken or a store of another install key, ``StoreUnfit``.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        settings = self.settings
        keyring = Keyring.open(settings.state_dir)
        self._redis = redis = await self._reach_store()
        await check_fit(redis)
        await keyring.check_store(redis)
        clock = StoreClock()
        await clock.sync(redis)
        self._jobs = jobs = Jobs(redis, self.url)
        self._service = service = Service(redis, keyring, settings, clock, jobs)
        await service.start()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._mcp = McpFace(service, answerable=answerable)
        app = App(service, readiness=lambda: self._readiness, mounts={MCP_PATH: self._mcp})
        self._server = ApiServer(app, settings.socket, http=settings.http_address, state_dir=settings.state_dir)
        await self._server.start()
        if (every_s := watchdog_s(os.environ)) is not None:
            self._run("watchdog", keep_alive(every_s))
        self._run("clock", _keep_time(clock, redis))
        self._run("bridge", Bridge(redis, jobs, settings.policy, service.secrets).run())
        self._run("timer", Timer(redis, clock, jobs, settings.policy, erase_within=settings.erase_within).run())
        self._run("residence", _keep_small(service))
        # A store that goes away meanwhile costs the first readers the load, not the start.
        with contextlib.suppress(StoreUnavailable):
            await residence.preload(service, self._report)
        self._readiness = Readiness(ready=True)
        logger.info("the daemon serves", socket=str(settings.socket), http=self._server.http_address)

    def _report(self, done: int, total: int) -> None:
        self._readiness = Readiness(ready=False, stage="loading workspaces", done=done, total=total)

    async def _reach_store(self) -> Any:
        said = False
        while True:
            try:
                return await connect(self.url)
            except StoreUnavailable as error:
                if not said:
                    logger.warning("waiting for the store", error=error.message)
                    said = True
                await asyncio.sleep(WAIT_S)

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def watch(self) -> None:
        """Wait until a part of the daemon breaks, and raise what broke it; none ends by itself."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Shut down in the order the module's head tells. Safe to call twice, and after a start that failed."""
        if self._server is not None:
            await self._server.stop()
        if self._mcp is not None:
            await self._mcp.close()
        tasks, self._tasks = self._tasks, []
        await end(*tasks)
        if self._service is not None:
            await self._service.stop()
        if self._jobs is not None:
            self._jobs.close()
        if self._redis is not None:
            await self._redis.aclose()
        self._server = self._mcp = self._service = self._jobs = self._redis = None
        self._readiness = Readiness(ready=False, stage="stopped")


async def _keep_time(clock: StoreClock, redis: Any) -> None:
    while True:
        if clock.stale:
            # While the store is away our clock goes on by itself.
            with contextlib.suppress(StoreUnavailable):
                await clock.sync(redis)
        await asyncio.sleep(CLOCK_LOOK_S)


async def _keep_small(service: Service) -> None:
    while True:
        await asyncio.sleep(IDLE_LOOK_S)
        if dropped := residence.drop_idle(service):
            logger.debug("dropped idle workspaces", count=dropped)


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until SIGTERM or SIGINT comes, its terminal closes, or it ends by itself; then it is cancelled and
    waited for. What ``nohup`` started outlives its terminal.

    More signals change nothing: every step of a shutdown has its own limit of time. Raises what ``work`` raised.
    """
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise


async def _serve(daemon: Daemon) -> None:
    await daemon.start()
    try:
        notify("READY=1")
        await daemon.watch()
    finally:
        notify("STOPPING=1")
        await daemon.stop()


def run_daemon(settings: Settings) -> int:
    """Run a daemon until SIGTERM or SIGINT, and return the exit code.

    Without ``redis_url`` it joins the store of an ``amnesia up`` on the same state directory, and is refused where none
    runs.
    """

    def work() -> Coroutine[Any, Any, None]:
        return _serve(Daemon(settings, store_url(settings.redis_url, settings.state_dir, "daemon")))

    return run_process(settings, "daemon", work)


def run_process(settings: Settings, name: str, work: Any) -> int:
    """Run a process's coroutine on an event loop of its own; 0 after a signal, 1 with one sentence when it failed."""
    configure_logging(settings.log_level, name)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.get_loop().set_exception_handler(log_loop_fault)
            runner.run(until_stopped(work()))
    except AmnesiaError as error:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"amnesia {name}: {error.message}{hint}\n")
        return 1
    logger.info(f"amnesia {name} has stopped")
    return 0
