"""Getting deleted words off the disk.

Deleting a key or a hash field frees it in memory, but the append-only file keeps both the write and the delete until
it is rewritten, which the server does by itself only past 64 MB. So after a delete the file is rewritten on demand.
What this promises is "absent from the server's live data files": freed memory, backups, replicas' files and blocks the
file system has not reused are outside it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Literal, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from amnesiad.errors import StoreUnavailable

#: How often to ask how a rewrite goes; one of 100 000 notes takes 0.2-0.6 s.
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class _File:
    """One kind of data file: the command that writes it anew, and the INFO fields that tell how that goes."""

    command: str
    running: tuple[str, ...]
    status: str


_AOF = _File("BGREWRITEAOF", ("aof_rewrite_in_progress", "aof_rewrite_scheduled"), "aof_last_bgrewrite_status")
_RDB = _File("BGSAVE", ("rdb_bgsave_in_progress",), "rdb_last_bgsave_status")


async def rewrite(client: Redis, timeout_s: float) -> Literal["done", "requested"]:
    """Write the server's data files anew, so that nothing deleted before this call is in them any more.

    ``done`` is confirmed. It covers the append-only file where that is on, and the snapshot where save points are set;
    a server with neither keeps nothing on disk, so there it is ``done`` at once. (A snapshot that somebody took by
    hand is theirs to look after.)

    ``requested`` is not confirmed: ask again later. It is the answer after ``timeout_s``, when the last rewrite failed
    (a full disk), and the best answer there is from a server that refuses the commands, or whose replicas have files
    of their own.

    Raises:
        StoreUnavailable: no answer.
    """
    deadline = time.monotonic() + timeout_s
    try:
        done = True
        if (await _info(client, "persistence")).get("aof_enabled"):
            done = await _write_anew(client, _AOF, deadline)
        if done and await _has_save_points(client):
            done = await _write_anew(client, _RDB, deadline)
        done = done and not (await _info(client, "replication")).get("connected_slaves")
    except ResponseError:
        done = False
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"no answer from the store during a rewrite: {type(error).__name__}") from error
    return "done" if done else "requested"


async def _write_anew(client: Redis, file: _File, deadline: float) -> bool:
    """Write one file anew and see it done; False when that failed or did not end by the deadline."""
    while True:
        # One that runs already may have begun before the delete, and then keeps the words: it does not count.
        if await _outcome(client, file, deadline) is None:
            return False
        try:
            await (client.bgrewriteaof() if file is _AOF else client.bgsave())
        except ResponseError as error:
            # Somebody else began one between the question and the command.
            if "in progress" not in str(error):
                raise
            await asyncio.sleep(POLL_S)
        else:
            return await _outcome(client, file, deadline) == "ok"


async def _outcome(client: Redis, file: _File, deadline: float) -> str | None:
    """Wait until no rewrite of this file runs or is scheduled: how the last one ended, or None past the deadline."""
    while True:
        state = await _info(client, "persistence")
        if not any(state.get(field) for field in file.running):
            return str(state.get(file.status))
        if time.monotonic() >= deadline:
            return None
        await asyncio.sleep(POLL_S)


async def _has_save_points(client: Redis) -> bool:
    answer = cast(dict[Any, Any], await client.config_get("save"))
    return any(answer.values())


async def _info(client: Redis, section: str) -> dict[str, Any]:
    return await client.info(section)
