"""RQ, restricted: a worker that takes JSON only, runs our own functions only, and comes back when the store does.

Importing this module imports RQ, whose keys must be ours by then: ``store.queue.use_prefix`` comes first.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import redis as sync_redis
from redis.backoff import NoBackoff
from redis.retry import Retry as ConnectionRetry
from rq import Queue, SimpleWorker
from rq.job import Job
from rq.serializers import JSONSerializer

from amnesiad.store.queue import QUEUE, RQ_GRACE_S, WORKER_TTL_S
from amnesiad_workers.jobs import JOBS, JobFailed

GRACE_S: Final = 5
"""How long after its time a job may still be at its end before it counts as abandoned."""
RECONNECT_S: Final = 2.0
"""The longest pause between two tries to reach the store."""
SOCKET_TIMEOUT_S: Final = 60.0
"""The longest silence inside one reply; a blocking pop waits for half of ``WORKER_TTL_S``."""
CONNECT_TIMEOUT_S: Final = 3.0


class OwnJob(Job):
    """A job that is one of ours or nothing: it imports nothing, calls nobody back and sends nothing anywhere.

    RQ would call whatever importable function a job names, or names as its callback, with the arguments it brings:
    whoever can write to the store could run anything here.
    """

    @property
    def func(self) -> Callable[..., Any]:
        """The entry point that the job names. Raises ``JobFailed`` for any other function."""
        job = None if self.instance is not None else JOBS.get(self.func_name or "")
        if job is None:
            raise JobFailed("the job names a function that is none of ours; it was not run")
        return job

    @property
    def success_callback(self) -> None:
        """None, whatever the job says."""

    @property
    def failure_callback(self) -> None:
        """None, whatever the job says."""

    @property
    def stopped_callback(self) -> None:
        """None, whatever the job says."""

    def send_webhooks(self, status: Any, *, exc_string: str | None = None) -> None:
        """Nothing is sent, whatever the job says."""


class OwnQueue(Queue):
    """A queue that hands out ``OwnJob`` only."""

    job_class = OwnJob


class OwnWorker(SimpleWorker):
    """Runs jobs in its own process, one after another. It takes no commands from the store."""

    job_class = OwnJob
    queue_class = OwnQueue
    max_connection_wait_time = RECONNECT_S

    def __init__(self, connection: sync_redis.Redis, stop: threading.Event, *, maintenance_s: int) -> None:
        self._stop = stop
        super().__init__(
            [OwnQueue(QUEUE, connection=connection, serializer=JSONSerializer, job_class=OwnJob)],
            name=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
            connection=connection,
            job_class=OwnJob,
            queue_class=OwnQueue,
            serializer=JSONSerializer,
            worker_ttl=WORKER_TTL_S,
            maintenance_interval=maintenance_s,
            log_job_description=False,
        )

    def request_stop(self, signum: signal.Signals, frame: FrameType | None) -> None:
        """Finish the job under way, then stop."""
        self._stop.set()
        super().request_stop(signum, frame)  # type: ignore[no-untyped-call]

    def _install_signal_handlers(self) -> None:
        super()._install_signal_handlers()  # type: ignore[no-untyped-call]
        if self._stop.is_set():  # The signal came just before.
            self._stop_requested = True

    def get_heartbeat_ttl(self, job: Job, working_time: float = 0.0) -> int:  # noqa: ARG002 - RQ's signature
        """How long a job may go without a sign of life: nobody gives one while it runs, so its own time and a
        little."""
        return int(job.timeout or WORKER_TTL_S) + GRACE_S

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """A sign of life. Its record never gets less than an idle worker's time: ``worker_alive`` tells its age by
        it."""
        super().heartbeat(max(timeout or 0, WORKER_TTL_S + RQ_GRACE_S), pipeline)

    def subscribe(self) -> None:
        """RQ would listen for commands here: to stop, to kill a job. Nobody gives us any."""

    def unsubscribe(self) -> None:
        """See ``subscribe``."""


def connect_sync(url: str) -> sync_redis.Redis:
    """RQ's connection: bytes, and nothing is repeated behind RQ's back."""
    return sync_redis.Redis.from_url(
        url,
        retry=ConnectionRetry(NoBackoff(), 0),
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
    )
