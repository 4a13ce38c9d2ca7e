"""Connections to a store that may fall silent: there and not answering, as when it is stopped or its machine swaps.

Once a reply has not come in time, nobody else waits for one: every command fails at once until a connection made in the
background was answered. A store that is gone needs none of this, since connecting to it fails by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool
from redis.exceptions import ConnectionError as Unreachable
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as Unanswered

LOOK_EVERY_S: Final = 0.2
"""Between two attempts to be answered; each waits for the store as long as a command does."""


class AttentivePool(BlockingConnectionPool):
    """A pool that hands out no connection while the store is silent. Raises redis-py's ``ConnectionError`` then."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.connection_class = _telling(self.connection_class, self._unanswered)
        self._looking: asyncio.Task[None] | None = None

    async def get_connection(self, *names: Any, **options: Any) -> Any:
        """As the library's, but at once in a silence."""
        if self._looking is not None:
            raise Unreachable("the store does not answer")
        try:
            return await super().get_connection(*names, **options)  # type: ignore[no-untyped-call]
        except Unanswered:
            self._unanswered()
            raise

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """As the library's; nobody looks for an answer any more."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        await super().disconnect(inuse_connections)

    def _unanswered(self) -> None:
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            silent = True
            while silent:
                await asyncio.sleep(LOOK_EVERY_S)
                silent = await self._silent()
        finally:
            self._looking = None

    async def _silent(self) -> bool:
        connection = self.connection_class(**self.connection_kwargs)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except Unanswered:
            return True
        except (RedisError, OSError):
            return False  # Whatever else it is, the next command meets it by itself.
        finally:
            await connection.disconnect(nowait=True)
        return False


def _telling(base: type[Any], unanswered: Callable[[], None]) -> type[Any]:
    """The kind of connection, telling of each reply that did not come in time."""

    class Telling(base):  # type: ignore[misc]
        async def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return await super().read_response(*args, **options)
            except Unanswered:
                unanswered()
                raise

    return Telling
