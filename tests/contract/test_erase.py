"""Deleted words leave the disk: a rewrite of the server's files, confirmed or only requested."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, cast

import pytest
from tests.contract.files import holds

from amnesiad.errors import StoreUnavailable
from amnesiad.store.connect import connect
from amnesiad.store.erase import rewrite
from amnesiad.store.server import EmbeddedServer

REWRITE_S = 30.0


async def test_deleted_words_leave_the_disk_with_a_rewrite(data_dir: Path) -> None:
    """A deleted hash field and a deleted key are still in the append-only file, and gone from every file after
    rewrite."""
    in_field, in_key, kept = (secrets.token_hex(16) for _ in range(3))
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        await cast(Any, client.hset("vault", mapping={"a": in_field, "b": kept}))
        await client.set("key", in_key)
        # Written by an earlier rewrite too, so that the base file holds them and not only the newest increment.
        assert await rewrite(client, REWRITE_S) == "done"
        await cast(Any, client.hdel("vault", "a"))
        await client.delete("key")
        assert holds(data_dir, in_field)
        assert holds(data_dir, in_key)
        assert await rewrite(client, REWRITE_S) == "done"
        assert not holds(data_dir, in_field)
        assert not holds(data_dir, in_key)
        assert holds(data_dir, kept)
        await client.aclose()
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        assert await cast(Any, client.hgetall("vault")) == {b"b": kept.encode()}
        await client.aclose()
    assert not holds(data_dir, in_field)


async def test_a_rewrite_that_began_before_the_delete_does_not_count(data_dir: Path) -> None:
    """Words deleted while a rewrite runs are gone after ours, which waits for that one and starts another."""
    marker = secrets.token_hex(16)
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        # Slow enough a rewrite to be deleted under: each key it writes costs it this many microseconds.
        await client.config_set("rdb-key-save-delay", 2_000)
        await client.mset({f"k{number}": number for number in range(100)})
        await cast(Any, client.hset("vault", "a", marker))
        await client.bgrewriteaof()
        assert (await client.info("persistence"))["aof_rewrite_in_progress"]
        await cast(Any, client.hdel("vault", "a"))
        assert await rewrite(client, 0) == "requested"
        assert await rewrite(client, REWRITE_S) == "done"
        assert not holds(data_dir, marker)
        await client.aclose()


async def test_a_snapshot_is_written_anew_as_well(data_dir: Path) -> None:
    """On a server with save points, with or without an append-only file, deleted words leave the snapshot too."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        for appendonly in ("yes", "no"):
            marker = secrets.token_hex(16)
            await client.config_set("save", "3600 1")
            await client.config_set("appendonly", appendonly)
            await client.set("key", marker)
            assert await rewrite(client, REWRITE_S) == "done"
            await client.delete("key")
            assert marker.encode() in (data_dir / "dump.rdb").read_bytes()
            assert await rewrite(client, REWRITE_S) == "done"
            assert marker.encode() not in (data_dir / "dump.rdb").read_bytes()
        await client.config_set("save", "")
        assert await rewrite(client, 0) == "done"  # Nothing is kept on disk, so there is nothing to wait for.
        await client.aclose()


async def test_a_snapshot_put_off_is_not_taken_for_done(data_dir: Path) -> None:
    """While another child of the server runs, ours waits for its turn instead of trusting the last snapshot's
    status."""
    marker = secrets.token_hex(16)
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        await client.config_set("save", "3600 1")
        await client.config_set("appendonly", "no")
        await client.mset({f"k{number}": number for number in range(100)})
        await client.set("key", marker)
        assert await rewrite(client, REWRITE_S) == "done"
        await client.config_set("rdb-key-save-delay", 2_000)
        await client.bgrewriteaof()
        assert (await client.info("persistence"))["aof_rewrite_in_progress"]
        await client.delete("key")
        assert marker.encode() in (data_dir / "dump.rdb").read_bytes()
        assert await rewrite(client, REWRITE_S) == "done"
        assert marker.encode() not in (data_dir / "dump.rdb").read_bytes()
        await client.aclose()


async def test_a_refused_rewrite_is_only_requested(data_dir: Path) -> None:
    """A server that denies the command, or the look at its save points, cannot confirm the erasure."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        for denied in ("bgrewriteaof", "config"):
            await client.execute_command("ACL", "SETUSER", "tenant", "reset", "on", ">pw", "~*", "+@all", f"-{denied}")  # type: ignore[no-untyped-call]
            tenant = await connect(server.url.replace("unix://", "unix://tenant:pw@"))
            assert await rewrite(tenant, REWRITE_S) == "requested"
            await tenant.aclose()
        await server.stop()
        with pytest.raises(StoreUnavailable):
            await rewrite(client, REWRITE_S)
        await client.aclose()
