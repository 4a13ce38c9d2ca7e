"""The worker that ``amnesia up`` runs: a child process, started again when it ends, never outliving us.

The child reads its settings from the first line of its standard input and ends when that input does; the pipe closes
with our process, whatever kills it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from amnesiad.settings import RULES, Settings
from amnesiad.tasks import Backoff

COMMAND: Final = ("-m", "amnesiad_workers.worker", "--child")
PAUSE_S: Final = (0.2, 30.0)
"""First and longest pause before a worker that ended is started again."""
STEADY_S: Final = 30.0
"""A worker that ran this long was well; the pauses begin anew."""
STOP_TIMEOUT_S: Final = 15.0
"""How long the job under way may take to its end; past this the worker is killed, and the job is done again later."""

logger = structlog.get_logger()


class WorkerChild:
    """One worker process at a time, for as long as ``run`` runs."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._line = msgspec.json.encode(_told(settings, url)) + b"\n"
        self._environ = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        if settings.config_file is not None:
            self._environ["AMNESIA_CONFIG"] = str(settings.config_file)
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keep a worker running until cancelled. Never returns."""
        backoff = Backoff(*PAUSE_S, STEADY_S)
        while True:
            began = time.monotonic()
            try:
                code: int | None = await self._once()
            except OSError as error:  # No process or memory left for one: that passes, and is no reason to end as well.
                logger.error("the worker cannot be started", error=error.strerror or type(error).__name__)
                code = None
            pause = backoff.pause_s(time.monotonic() - began)
            logger.warning("the worker has ended and is started again", code=code, pause_s=pause)
            await asyncio.sleep(pause)

    async def _once(self) -> int:
        # In a session of its own: a terminal's Ctrl-C is for us, and the worker stops when we say so.
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, *COMMAND, stdin=asyncio.subprocess.PIPE, env=self._environ, start_new_session=True
        )
        assert process.stdin is not None  # noqa: S101 - it was asked for just above
        with contextlib.suppress(OSError):
            process.stdin.write(self._line)
            await process.stdin.drain()
        return await process.wait()

    async def stop(self) -> None:
        """End the worker: its job under way is finished, or after ``STOP_TIMEOUT_S`` cut short."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _told(settings: Settings, url: str) -> dict[str, Any]:
    """What the child cannot find out from the environment and the file: where the store is, and the command line's."""
    given = {name: getattr(settings, name) for name in RULES if settings.origin(name) == "argument"}
    given |= {"redis_url": url, "state_dir": settings.state_dir}
    return {
        name: "none" if value is None else str(value) if isinstance(value, Path) else value
        for name, value in given.items()
    }
