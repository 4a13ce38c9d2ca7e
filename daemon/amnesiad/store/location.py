"""Where the store of this process is: at the address that the settings name, or the embedded one of ``amnesia up``.

``up`` keeps its server's directory and socket below the state directory. A daemon or worker that runs on its own with
the same state directory and no ``redis_url`` joins that server while it runs, and never starts one itself.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from amnesiad.errors import ConfigError
from amnesiad.store.server import EmbeddedServer

STORE_DIR: Final = "store"
PROBE_TIMEOUT_S: Final = 1.0
"""A server that listens takes a connection at once; nothing is asked of it here."""


def data_dir(state_dir: Path) -> Path:
    """The embedded server's directory."""
    return state_dir / STORE_DIR


def store_url(redis_url: str | None, state_dir: Path, what: str) -> str:
    """The store's address. ``what`` names the process that asks, for the message.

    Raises ``ConfigError`` where there is no ``redis_url`` and no ``up`` runs on the state directory.
    """
    if redis_url is not None:
        return redis_url
    embedded = EmbeddedServer(data_dir(state_dir))
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PROBE_TIMEOUT_S)
            probe.connect(str(embedded.socket_path))
    except OSError:
        raise ConfigError(
            f"the {what} has no store: redis_url is not set, and no amnesia up runs on {state_dir}",
            field="redis_url",
            hint="set redis_url, or run amnesia up, which runs store, daemon and worker",
        ) from None
    return embedded.url
