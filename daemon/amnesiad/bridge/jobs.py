"""Asking the workers for work: jobs by name, with ids and numbers for arguments and nothing else.

RQ keeps arguments in clear and logs them, so no word of a note may be one. Its calls block and wait for seconds when
the store is away: they run in threads of their own, never on the event loop.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

import redis as sync_redis
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry as ConnectionRetry

from amnesiad import wire
from amnesiad.errors import Bug, Deadline
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import BRIDGE_GROUP, LIFECYCLE, Keys
from amnesiad.store.log import Log
from amnesiad.store.owners import close_owners
from amnesiad.store.queue import MODULE, QUEUE, queue_health, use_prefix, worker_alive

MAX_RETRIES: Final = 3
"""A job that died between being taken and being begun fails for good without a retry; so does one that lost the
store."""
RETRY_AFTER_S: Final = (0, 0, 0)
"""At once: with a pause RQ would need a scheduler, and what is repeated compares before it writes."""
FAILURE_TTL_S: Final = 86_400
"""A failed job is kept a day for whoever looks; RQ's own year would block its id as long."""
SOCKET_TIMEOUT_S: Final = 5.0
"""The longest silence inside one reply; a blocking wait asks for less."""
THREADS: Final = 4
"""Two for enqueuing and some for waiting on results; more calls wait their turn."""
RESULT_WAIT_S: Final = 2
"""One wait on a result; the daemon's end is noticed in between."""
RESULT_LOOK_S: Final = 0.05
"""Between two waits: while a job is being retried its result so far comes at once."""
RUN_DEADLINE_S: Final = 60.0
"""How long an operator's command waits for the worker's figures."""

R = TypeVar("R")


class Spec(NamedTuple):
    """How long a job may run, how long its result is kept, and within which time one is enough (0: each counts).

    A worker killed in the middle is noticed some 15 s after the job's time is over, so what must not wait runs short.
    """

    timeout_s: int
    result_ttl_s: int
    once_in_ms: int


SPECS: Final[dict[str, Spec]] = {
    "settle": Spec(timeout_s=45, result_ttl_s=0, once_in_ms=15_000),
    "unplug": Spec(timeout_s=45, result_ttl_s=0, once_in_ms=0),
    "check_anchors": Spec(timeout_s=120, result_ttl_s=0, once_in_ms=15_000),
    "refile": Spec(timeout_s=120, result_ttl_s=0, once_in_ms=15_000),
    "scrub": Spec(timeout_s=120, result_ttl_s=0, once_in_ms=15_000),
    "reconcile": Spec(timeout_s=300, result_ttl_s=60, once_in_ms=60_000),
    "purge_audit": Spec(timeout_s=600, result_ttl_s=3_600, once_in_ms=86_400_000),
    "trim": Spec(timeout_s=120, result_ttl_s=3_600, once_in_ms=3_600_000),
}
"""Every job. A lost one blocks its like for ``once_in_ms`` at most, because that is part of its id."""


class Job(NamedTuple):
    """One job to enqueue. ``key`` makes it the only one of its kind, by id; ``None`` for a random id."""

    name: str
    args: tuple[str | int | bool | None, ...] = ()
    key: str | None = None


class Jobs:
    """The daemon's end of the queue, on one event loop. ``close`` ends its threads and connections.

    ``on_due`` and ``on_scrub`` are called for what is better coalesced than enqueued at once; the timer sets them, and
    would find out by itself a little later.
    """

    def __init__(self, redis: Redis, url: str) -> None:
        self.on_due: Callable[[str, int], None] | None = None
        self.on_scrub: Callable[[], None] | None = None
        self._redis = redis
        self._connection = sync_redis.Redis.from_url(
            url,
            retry=ConnectionRetry(NoBackoff(), 0),
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=SOCKET_TIMEOUT_S,
            max_connections=2 * THREADS,
        )
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="amnesia-jobs")
        self._queue: Any = None
        self._importing = threading.Lock()
        self._closed = False

    # -- what the service asks for -------------------------------------------------------------------------------------

    async def scrub(self) -> None:
        """Have erased words rewritten off the disk; the timer makes one job of many such wishes."""
        if self.on_scrub is not None:
            self.on_scrub()

    async def refile(self, ws: str) -> None:
        """Have every note filed anew by the policy in force. A lost wish is made up for by the timer."""
        await self.enqueue("refile", ws, key=ws)

    async def end_owner(self, ws: str, owner: str) -> None:
        """End an owner now, with all below it: closed at once, so that what is written from here on is of another life,
        and their notes by a job. Raises ``NotFound`` for a workspace that was dropped."""
        seconds, micros = await self._store_time()
        heard_at = seconds * 1000 + micros // 1000
        log = Log(self._redis, Keys(ws))
        await close_owners(log, owner, children=True, heard_at=heard_at, at=None, source=None)
        await self.enqueue("unplug", ws, owner, heard_at, None, None, True)

    def due(self, ws: str, at: int) -> None:
        """Tell that something of the workspace is due at store time ``at`` (ms)."""
        if self.on_due is not None:
            self.on_due(ws, at)

    async def run(self, name: str, *args: str | int | bool | None) -> dict[str, Any]:
        """Run a job now and return its figures.

        Raises ``Deadline`` when no worker lives or none answers in time, ``Bug`` when the job failed.
        """
        if not await worker_alive(self._redis):
            raise Deadline(f"no worker is alive, so {name} cannot run", hint='start one: "amnesia worker"')
        job_id = f"run-{name}-{secrets.token_hex(8)}"
        await self._in_thread(self._enqueue, Job(name, args), job_id, result_ttl_s=int(RUN_DEADLINE_S))
        deadline = time.monotonic() + RUN_DEADLINE_S
        while time.monotonic() < deadline and not self._closed:
            done, figures = await self._in_thread(self._result, job_id)
            if done:
                if not isinstance(figures, dict):
                    raise Bug(f"the job {name} failed", hint="the worker's log says why")
                return figures
            await asyncio.sleep(RESULT_LOOK_S)
        raise Deadline(f"the worker did not finish {name} within {RUN_DEADLINE_S:.0f} s", hint="it may still do so")

    async def worker_status(self) -> wire.WorkerStatus:
        """For status and doctor."""
        alive, lag_ms = await queue_health(self._redis)
        return wire.WorkerStatus(alive=alive, lag_ms=lag_ms)

    # -- enqueuing -----------------------------------------------------------------------------------------------------

    async def enqueue(self, name: str, *args: str | int | bool | None, key: str | None = None) -> bool:
        """Enqueue a job. With ``key`` there is at most one of it in its ``once_in_ms``; returns whether this is it.

        Raises ``StoreUnavailable``.
        """
        job = Job(name, args, key)
        return await self._in_thread(self._enqueue, job, _job_id(job))

    async def hand_over(self, jobs: Sequence[Job], acknowledged: Sequence[str]) -> None:
        """Enqueue jobs and acknowledge the lifecycle events they came from, both or neither. Raises
        ``StoreUnavailable``.

        Events whose reply got lost are handled again; what their jobs do is the same the second time.
        """
        if jobs:
            await self._in_thread(self._hand_over, jobs, acknowledged)
        elif acknowledged:
            with store_errors():
                await self._redis.xack(LIFECYCLE, BRIDGE_GROUP, *acknowledged)

    def close(self) -> None:
        """End the threads and connections. What is under way gets ``StoreUnavailable`` or ends by itself."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    # -- in threads ----------------------------------------------------------------------------------------------------

    async def _in_thread(self, call: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        def guarded() -> R:
            with store_errors():
                return call(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._threads, guarded)

    async def _store_time(self) -> tuple[int, int]:
        with store_errors():
            seconds, micros = await self._redis.time()
        return int(seconds), int(micros)

    def _rq(self) -> Any:
        """RQ's queue. Imported here, so that a daemon is up before RQ is loaded; by one thread, while the others wait:
        half of an imported module looks like one with another prefix."""
        with self._importing:
            if self._queue is None:
                use_prefix()
                from rq import Queue
                from rq.serializers import JSONSerializer

                self._queue = Queue(QUEUE, connection=self._connection, serializer=JSONSerializer)
        return self._queue

    def _data(self, job: Job, job_id: str, result_ttl_s: int | None = None) -> dict[str, Any]:
        from rq import Retry

        spec = SPECS[job.name]
        return {
            "args": list(job.args),
            "job_id": job_id,
            "timeout": spec.timeout_s,
            "result_ttl": spec.result_ttl_s if result_ttl_s is None else result_ttl_s,
            "failure_ttl": min(FAILURE_TTL_S, spec.once_in_ms // 1000) or FAILURE_TTL_S,
            "description": job.name,
            "retry": Retry(max=MAX_RETRIES, interval=list(RETRY_AFTER_S)),
        }

    def _enqueue(self, job: Job, job_id: str, *, result_ttl_s: int | None = None) -> bool:
        queue = self._rq()
        from rq.exceptions import DuplicateJobError

        try:
            queue.enqueue_call(f"{MODULE}.{job.name}", unique=True, **self._data(job, job_id, result_ttl_s))
        except DuplicateJobError:
            return False
        return True

    def _hand_over(self, jobs: Sequence[Job], acknowledged: Sequence[str]) -> None:
        queue = self._rq()
        datas = {(job_id := _job_id(job)): self._data(job, job_id) | {"name": job.name} for job in jobs}
        with self._connection.pipeline(transaction=True) as pipe:
            queue.enqueue_many(
                [queue.prepare_data(f"{MODULE}.{data.pop('name')}", **data) for data in datas.values()], pipeline=pipe
            )
            if acknowledged:
                pipe.xack(LIFECYCLE, BRIDGE_GROUP, *acknowledged)
            pipe.execute()

    def _result(self, job_id: str) -> tuple[bool, object]:
        """Whether the job is done, and what it returned; ``None`` for a failure."""
        from rq.exceptions import NoSuchJobError
        from rq.job import Job as RQJob
        from rq.results import Result
        from rq.serializers import JSONSerializer

        try:
            job = RQJob.fetch(job_id, connection=self._connection, serializer=JSONSerializer)
        except NoSuchJobError:
            return True, None
        found = Result.fetch_latest(job, serializer=JSONSerializer, timeout=RESULT_WAIT_S)
        if found is None or found.type is Result.Type.RETRIED:
            return False, None
        return True, found.return_value if found.type is Result.Type.SUCCESSFUL else None


def _job_id(job: Job) -> str:
    """An id by which RQ knows that it has this job already, for as long as one is enough."""
    if job.key is None:
        return f"{job.name}-{secrets.token_hex(8)}"
    once_in_ms = SPECS[job.name].once_in_ms
    bucket = f"-{int(time.time() * 1000) // once_in_ms}" if once_in_ms else ""
    return f"{job.name}-{job.key}{bucket}"
