"""amnesiad: the memory sidecar that governs how agent memory ends."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amnesiad.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Loaded on first use: the core, the daemon and the command line have no need of both clients.
    if name in ("AsyncClient", "Client"):
        from amnesiad import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
