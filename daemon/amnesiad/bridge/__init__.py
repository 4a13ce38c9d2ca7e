"""What leads from the daemon to the workers: lifecycle events become effects and jobs, and due times become jobs.

Jobs are enqueued by name; the workers' package is never imported. RQ's own calls block, so they run in threads.
"""

from amnesiad.bridge.jobs import Job, Jobs
from amnesiad.bridge.reader import Bridge
from amnesiad.bridge.timer import Timer
from amnesiad.store.queue import worker_alive

__all__ = ["Bridge", "Job", "Jobs", "Timer", "worker_alive"]
