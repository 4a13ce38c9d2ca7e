"""Getting deleted words off the disk.

Deleting a key or a hash field frees it in memory, but the append-only file keeps both the write and the delete until
it is rewritten, which the server does by itself only past 64 MB. So after a delete the file is rewritten on demand.
What this promises is "absent from the server's live data files": freed memory, backups, replicas' files and blocks the
file system has not reused are outside it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Final, Literal, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from amnesiad.errors import StoreUnavailable
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import META
from amnesiad.store.units import UNSCRUBBED

POLL_S: Final = 0.02
"""How often to ask how a rewrite goes; one of 100 000 notes takes 0.2-0.6 s."""


# The server has one child at a time that writes a file; while any runs or waits to, another is refused or put off.
_RUNNING = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
# Parts of the refusals of a server that has such a child.
_REFUSED_FOR_NOW = ("in progress", "child process is active")


async def unscrubbed_of_dropped(client: Redis) -> int:
    """How many notes of dropped workspaces the files may still hold; 0 for a count that is damaged.

    Raises ``StoreUnavailable``.
    """
    with store_errors():
        raw = await cast(Awaitable[bytes | None], client.hget(META, UNSCRUBBED))
    return int(raw) if raw is not None and raw.isdigit() else 0


async def rewrite(client: Redis, timeout_s: float) -> Literal["done", "requested"]:
    """Write the server's data files anew, so that nothing deleted before this call is in them any more.

    ``done`` is confirmed. It covers the append-only file where that is on, and the snapshot where save points are set;
    a server with neither keeps nothing on disk, so there it is ``done`` at once. (A snapshot that somebody took by
    hand is theirs to look after.)

    ``requested`` is not confirmed: ask again later. It is the answer after ``timeout_s``, when the last rewrite failed
    (a full disk), and the best answer there is from a server that refuses the commands, or whose replicas have files
    of their own. Raises ``StoreUnavailable``.
    """
    deadline = time.monotonic() + timeout_s
    try:
        done = True
        if (await _info(client, "persistence")).get("aof_enabled"):
            done = await _write_anew(client, "aof", deadline)
        if done and await _has_save_points(client):
            done = await _write_anew(client, "rdb", deadline)
        done = done and not (await _info(client, "replication")).get("connected_slaves")
    except ResponseError:
        done = False
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"no answer from the store during a rewrite: {type(error).__name__}") from error
    return "done" if done else "requested"


async def _write_anew(client: Redis, kind: Literal["aof", "rdb"], deadline: float) -> bool:
    """Write one file anew and see it done; False when that failed or did not end by the deadline."""
    status = "aof_last_bgrewrite_status" if kind == "aof" else "rdb_last_bgsave_status"
    while True:
        # One that runs already may have begun before the delete, and then keeps the words: it does not count.
        if await _settled(client, deadline) is None:
            return False
        try:
            # BGSAVE without SCHEDULE: INFO does not tell of a snapshot that is put off, so it would look done.
            await (client.bgrewriteaof() if kind == "aof" else client.bgsave(schedule=False))
        except ResponseError as error:
            # Somebody else began one between the question and the command.
            if not any(words in str(error) for words in _REFUSED_FOR_NOW):
                raise
            await asyncio.sleep(POLL_S)
        else:
            state = await _settled(client, deadline)
            return state is not None and state.get(status) == "ok"


async def _settled(client: Redis, deadline: float) -> dict[str, Any] | None:
    """INFO persistence once no file is being written or due to be, or None past the deadline."""
    while True:
        state = await _info(client, "persistence")
        if not any(state.get(field) for field in _RUNNING):
            return state
        if time.monotonic() >= deadline:
            return None
        await asyncio.sleep(POLL_S)


async def _has_save_points(client: Redis) -> bool:
    answer = cast(dict[Any, Any], await client.config_get("save"))
    return any(answer.values())


async def _info(client: Redis, section: str) -> dict[str, Any]:
    return await client.info(section)
