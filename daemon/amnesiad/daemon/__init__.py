"""The long-running processes: ``amnesia daemon``, and ``amnesia up``, which runs store, daemon and worker together.

``serving`` is the daemon proper, from the store to the socket; ``up`` adds the embedded store and a worker child and
keeps both alive; ``child`` is that worker's process; ``notify`` tells systemd. The order of every start and shutdown is
written where it happens.
"""

from amnesiad.daemon.serving import Daemon, run_daemon
from amnesiad.daemon.up import run_up

__all__ = ["Daemon", "run_daemon", "run_up"]
