"""What the embedded server acknowledges is in the kernel's hands at once, and on the disk within moments."""

# ruff: noqa: ASYNC240 - a test may block its own event loop for a file of a few bytes.

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs
from tests.support import wait_until

from amnesiad.store import syncing
from amnesiad.store.server import EmbeddedServer


@pytest.fixture
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a short name, because socket paths have a limit."""
    return tmp_path_factory.mktemp("s") / "store"


async def test_what_is_acknowledged_has_left_the_server(data_dir: Path) -> None:
    """Each write is in the append-only file, whoever then dies, the moment it is acknowledged."""
    async with EmbeddedServer(data_dir) as server, Redis.from_url(server.url) as redis:
        for number in range(200):
            await redis.set("key", f"value {number}.")
            written = b"".join(path.read_bytes() for path in data_dir.glob(syncing.APPEND_ONLY))
            assert f"value {number}.".encode() in written


async def test_it_is_synced_within_moments(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change is synced to disk soon and once; an idle store is left in peace; a disk that fails is told of once,
    and tried again until it takes what was written."""
    synced: list[int] = []
    fails: list[OSError] = []

    def sync(handle: int) -> None:
        if fails:
            raise fails[0]
        synced.append(os.fstat(handle).st_size)

    monkeypatch.setattr(syncing, "SYNC_EVERY_S", 0.01)
    monkeypatch.setattr(syncing, "_sync", sync)

    def size() -> int:
        return max(path.stat().st_size for path in data_dir.glob(syncing.APPEND_ONLY))

    with capture_logs() as logs:
        async with EmbeddedServer(data_dir) as server, Redis.from_url(server.url) as redis:
            await redis.set("key", "first")
            await wait_until(lambda: synced and synced[-1] == size())
            count = len(synced)
            fails.append(OSError(errno.EIO, "Input/output error"))
            await redis.set("key", "second")
            await wait_until(lambda: logs)
            assert len(synced) == count
            fails.clear()
            await wait_until(lambda: synced[-1] == size())
            assert synced[count:] == [size()]
    assert [(entry["log_level"], entry["error"]) for entry in logs] == [("error", "Input/output error")]


async def test_always_is_left_to_the_server(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With durability always the server syncs before it acknowledges, and nobody else does."""
    monkeypatch.setattr(syncing.Syncer, "start", lambda _self: pytest.fail("it was started"))
    async with EmbeddedServer(data_dir, durability="always") as server, Redis.from_url(server.url) as redis:
        assert list((await redis.config_get("appendfsync")).values()) == ["always"]
