"""Clients of the daemon: ``Client`` for blocking code, ``AsyncClient`` for asyncio; the same verbs, typed once.

    with Client(workspace="/src/app") as memory:
        memory.remember("the staging database is read-only", ttl_ms="7d")

``call(verb, body)`` sends any request of the API and returns plain objects; the named methods take its fields as
keyword arguments and return the answer types of ``amnesiad.wire``. Both raise the errors of ``amnesiad.errors``:
those of the daemon as it sent them, ``DaemonUnreachable`` where nothing listens, ``Deadline`` where no answer came.

A request is repeated once when the connection breaks under it. That is safe: every write carries a ``request_id``, and
the daemon answers a repeated one from its record. Only imports and hook payloads are never repeated.

Blocking code needs neither asyncio nor the types of the wire, so importing this module costs little.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amnesiad.client.aio import AsyncClient
    from amnesiad.client.blocking import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from amnesiad.client.blocking import Client

        return Client
    if name == "AsyncClient":
        from amnesiad.client.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
