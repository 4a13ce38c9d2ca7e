"""The entry points of RQ. Their names and arguments are wire format: a job may be older than this code.

Each runs one pass on an event loop and a connection of its own. Arguments are ids and numbers; what a job returns are
figures; what it raises says what happened and quotes nothing, because RQ keeps both in clear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from amnesiad.errors import AmnesiaError
from amnesiad.logs import exception_chain, log_loop_fault
from amnesiad.settings import Settings
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import connect
from amnesiad.store.keyring import Keyring
from amnesiad.store.workspaces import all_workspaces
from amnesiad_workers import passes
from amnesiad_workers.passes import Context, Figures

logger = structlog.get_logger()


class JobFailed(Exception):
    """A job did not do its work; RQ tries it again. The message names the error and holds no words of a note."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the jobs of this process work with."""

    url: str
    keyring: Keyring
    settings: Settings


_setup: list[Setup] = []


def use(setup: Setup) -> None:
    """Set what the jobs of this process work with; once, before the first job."""
    _setup[:] = [setup]


def settle(ws: str) -> dict[str, Any]:
    """Write down what is due in the workspace."""
    return _run("settle", lambda context: passes.settle(context, ws), ws=ws)


def unplug(
    ws: str, owner: str, heard_at: int, at: int | None = None, source: str | None = None, children: bool = False
) -> dict[str, Any]:
    """End an owner and erase its notes."""

    def work(context: Context) -> Awaitable[Figures]:
        return passes.unplug(context, ws, owner, heard_at=heard_at, at=at, source=source, children=children)

    return _run("unplug", work, ws=ws)


def check_anchors(ws: str, *ids: str) -> dict[str, Any]:
    """Flag notes whose anchored files changed: of the whole workspace, or these."""
    return _run("check_anchors", lambda context: passes.check_anchors(context, ws, ids), ws=ws)


def refile(ws: str) -> dict[str, Any]:
    """File every note of the workspace anew."""
    return _run("refile", lambda context: passes.refile(context, ws), ws=ws)


def reconcile() -> dict[str, Any]:
    """End the owners whose leases ran out, in every workspace."""
    return _run("reconcile", lambda context: _everywhere(context, passes.reconcile))


def purge_audit() -> dict[str, Any]:
    """Trim ledgers and purge old tombs, in every workspace."""
    return _run("purge_audit", lambda context: _everywhere(context, passes.purge_audit))


def scrub() -> dict[str, Any]:
    """Rewrite the store's files without the words that were erased."""
    return _run("scrub", passes.scrub)


def trim() -> dict[str, Any]:
    """Bound the lifecycle streams."""
    return _run("trim", passes.trim)


JOBS: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    f"{__name__}.{job.__name__}": job
    for job in (settle, unplug, check_anchors, refile, reconcile, purge_audit, scrub, trim)
}
"""The only functions a worker runs, by the name in the job."""


async def _everywhere(context: Context, work: Callable[[Context, str], Awaitable[Figures]]) -> Figures:
    """Run a pass over every workspace. One that fails holds up no other, and fails the job at the end."""
    figures, failure = Figures(), None
    for ws in (await all_workspaces(context.redis)).values():
        try:
            figures.add(await work(context, ws))
        except AmnesiaError as error:
            failure = error
    if failure is not None:
        raise failure
    return figures


def _run(name: str, work: Callable[[Context], Awaitable[Any]], **ids: str) -> dict[str, Any]:
    if not _setup:
        raise JobFailed("jobs are run by amnesiad's own worker only")
    try:
        result = asyncio.run(_work(_setup[0], work))
    except AmnesiaError as error:
        # Without its cause: a server's answer may quote what it was sent.
        raise JobFailed(f"{name}: {type(error).__name__}: {error.message}") from None
    except Exception as error:
        # Any other message may quote a note's words or a file's path, so what is wrong is in the log, by its places.
        logger.error("a job broke", job=name, **ids, exception=exception_chain(error))
        raise JobFailed(f"{name}: {type(error).__name__}") from None
    figures: dict[str, Any] = result.as_dict() if isinstance(result, Figures) else result
    if any(figures.values()):
        logger.info(name, **ids, **figures)
    return figures


async def _work(setup: Setup, work: Callable[[Context], Awaitable[Any]]) -> Any:
    asyncio.get_running_loop().set_exception_handler(log_loop_fault)
    redis = await connect(setup.url)
    try:
        clock = StoreClock()
        await clock.sync(redis)
        settings = setup.settings
        return await work(
            Context(
                redis,
                setup.keyring,
                settings.policy,
                clock.now_ms,
                session_lease=settings.session_lease,
                child_lease=settings.child_lease,
            )
        )
    finally:
        await redis.aclose()
