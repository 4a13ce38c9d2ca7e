"""The passes: everything that runs beside the request path, as async functions of a context and ids.

Each may be run at any time, by any number of workers at once, and again after it was killed at any point: every effect
is decided and written in a unit that compares what it was decided from. No queue is known here; ``jobs`` is where RQ
enters.
"""

from amnesiad_workers.passes.anchors import check_anchors
from amnesiad_workers.passes.context import Context, Figures
from amnesiad_workers.passes.ending import reconcile, unplug
from amnesiad_workers.passes.settling import settle
from amnesiad_workers.passes.upkeep import purge_audit, refile, scrub, trim

__all__ = [
    "Context",
    "Figures",
    "check_anchors",
    "purge_audit",
    "reconcile",
    "refile",
    "scrub",
    "settle",
    "trim",
    "unplug",
]
