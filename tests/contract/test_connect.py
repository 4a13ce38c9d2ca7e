"""The way to a store: which server may hold memory, what is told where none answers, and that nothing is repeated."""

# ruff: noqa: ASYNC240 - a test may block its own event loop for a file of a few bytes.

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from amnesiad.errors import Bug, ConfigError, StoreUnavailable, StoreUnfit
from amnesiad.store import attention
from amnesiad.store.attention import AttentivePool
from amnesiad.store.connect import check_fit, connect, shown
from amnesiad.store.faults import store_errors
from amnesiad.store.server import EmbeddedServer


async def test_an_embedded_server_is_fit(redis: Redis) -> None:
    """What we start ourselves is accepted."""
    await check_fit(redis)


async def test_a_store_that_evicts_is_refused(data_dir: Path) -> None:
    """maxmemory-policy allkeys-lru is refused by name, and so it is when the server lets nobody read its CONFIG."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        await client.execute_command("ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all", "-config")  # type: ignore[no-untyped-call]
        tenant = await connect(server.url.replace("unix://", "unix://tenant:pw@"))
        await check_fit(tenant)
        await client.config_set("maxmemory-policy", "allkeys-lru")
        for refused in (client, tenant):
            with pytest.raises(StoreUnfit, match="allkeys-lru"):
                await check_fit(refused)
            await refused.aclose()


async def test_a_store_older_than_7_is_refused(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version counts, and for Valkey its own one, not the Redis it is compatible with."""
    told: dict[str, object] = {}

    async def info(*_: str) -> dict[str, object]:
        return told

    monkeypatch.setattr(redis, "info", info)
    for fit in (
        {"redis_version": "7.0.15"},
        {"redis_version": "10.0"},
        {"redis_version": "6.0", "valkey_version": "9.1.2"},
    ):
        told = dict(fit)
        await check_fit(redis)
    for unfit in ({"redis_version": "6.2.14"}, {}, {"redis_version": "7.2.4", "valkey_version": "6.9"}):
        told = dict(unfit)
        with pytest.raises(StoreUnfit, match=r"older than 7\.0"):
            await check_fit(redis)


async def test_no_answer_is_unavailable_and_tells_no_password(data_dir: Path) -> None:
    """An address where nobody listens raises at once, and the message shows the address without its password."""
    data_dir.mkdir()
    with pytest.raises(StoreUnavailable, match=r"none\.sock") as away:
        await connect(f"unix://me:secret@{data_dir}/none.sock")
    assert "secret" not in str(away.value)
    with pytest.raises(ConfigError):
        await connect("http://127.0.0.1")
    assert shown("redis://me:secret@db:6379/2?x=secret") == "redis://db:6379/2"


async def test_a_client_never_repeats_a_command(data_dir: Path) -> None:
    """A command whose server is gone fails; it is not sent again behind the caller's back."""
    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        assert client.get_retry() is not None
        assert cast(Any, client.get_retry())._retries == 0
        await server.stop()
        with pytest.raises(RedisError):
            await client.xadd("log", {"n": 1})
        await client.aclose()


async def test_a_look_that_breaks_is_not_the_last(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks after a silent store may fail in any way: the store is not taken for silent for ever."""

    async def broken(_pool: AttentivePool) -> bool:
        raise RuntimeError("no event loop, no descriptor, no memory")

    async with EmbeddedServer(data_dir) as server:
        client = await connect(server.url)
        monkeypatch.setattr(attention, "LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(AttentivePool, "_silent", broken)
        pool = cast(AttentivePool, client.connection_pool)
        pool._unanswered()
        looking = pool._looking
        assert looking is not None
        with pytest.raises(RedisError):
            await client.ping()
        await asyncio.wait([looking])
        assert isinstance(looking.exception(), RuntimeError)
        assert await client.ping()
        await client.aclose()


def test_a_rejected_command_is_told_without_its_arguments() -> None:
    """What the server says of a command may quote it: no error of ours leads to the server's."""
    with pytest.raises(Bug) as refused, store_errors():
        raise ResponseError("ERR unknown command 'the words of a note'")
    assert "the words" not in "".join(traceback.format_exception(refused.value))
