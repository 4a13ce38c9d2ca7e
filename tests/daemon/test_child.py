"""The worker child of ``up``: it is started again whatever ends it, also where it cannot be started at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support import wait_until

from amnesiad.daemon import child
from amnesiad.settings import load_settings
from amnesiad.tasks import end


async def test_a_worker_that_cannot_be_started_yet_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """C43: for a moment the machine has no process left; ``up`` goes on, and the worker comes as soon as there is
    one."""
    spawn, refusals = asyncio.create_subprocess_exec, 2

    async def spawn_later(*argv: Any, **options: Any) -> Any:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await spawn(*argv, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn_later)
    monkeypatch.setattr(child, "COMMAND", ("-c", "import sys; sys.stdin.read()"))
    monkeypatch.setattr(child, "PAUSE_S", (0.01, 0.01))
    worker = child.WorkerChild(load_settings(environ={}), "unix:///nowhere")
    task = asyncio.create_task(worker.run())
    await wait_until(lambda: worker._process is not None)
    assert not task.done()
    await end(task)
    await worker.stop()
