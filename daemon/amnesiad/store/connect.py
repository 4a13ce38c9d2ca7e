"""The way to the store: one asynchronous client, and whether the server behind it may hold memory.

Every client here is a bytes client that never retries by itself: redis-py would repeat a write whose reply was lost,
and only the write script knows how to do that without writing twice.
"""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from amnesiad.errors import ConfigError, StoreUnavailable, StoreUnfit
from amnesiad.store.attention import AttentivePool
from amnesiad.store.faults import store_errors

Store = Redis
"""The handle that the rest of the code passes around and only this package uses."""

MAX_CONNECTIONS: Final = 32
"""More connections do not help one event loop; this leaves room for the tails, which each block on one."""
POOL_WAIT_S: Final = 5.0
"""How long a command waits for a free connection before the store counts as away."""
CONNECT_TIMEOUT_S: Final = 3.0
"""A server that cannot be reached in this time is away; writes must then fail at once rather than queue up."""
SOCKET_TIMEOUT_S: Final = 5.0
"""The longest silence inside one reply. Every BLOCK of a stream read must be shorter, or an idle stream
would look like a fault."""

MIN_VERSION: Final = (7, 0)
"""Redis 6.2 opens a multi-part append-only directory as an empty database; Valkey started at 7.2."""

_SCHEMES = frozenset({"redis", "rediss", "unix"})


async def connect(url: str) -> Redis:
    """Open a client on ``url`` and have it answer once. The caller closes it with ``aclose()``.

    Raises ``ConfigError`` for a URL that is none of ``redis://``, ``rediss://`` and ``unix://``, or a login that the
    server refuses, and ``StoreUnavailable`` where no answer comes.
    """
    if urlsplit(url).scheme not in _SCHEMES:
        raise ConfigError(
            "redis_url must begin with redis://, rediss:// or unix://",
            hint="leave redis_url out to run the embedded server",
            field="redis_url",
        )
    try:
        pool = AttentivePool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=POOL_WAIT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=SOCKET_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )
    except (ValueError, TypeError) as error:
        # The library's own message may quote the URL, and with it the password.
        raise ConfigError("redis_url cannot be read", hint="see redis-py's from_url", field="redis_url") from error
    client = Redis.from_pool(pool)
    try:
        await cast(Any, client.ping())
    except BaseException as error:
        await client.aclose()
        if isinstance(error, AuthenticationError):
            raise ConfigError(
                f"the store at {shown(url)} refuses the login", hint="check redis_url", field="redis_url"
            ) from error
        if isinstance(error, RedisError | OSError):
            raise StoreUnavailable(
                f"no answer from the store at {shown(url)}: {type(error).__name__}",
                hint="is it running, and is redis_url right?",
            ) from error
        raise
    return client


async def check_fit(client: Redis) -> None:
    """Refuse a server that may lose memory by itself: one that is too old, or that evicts keys when full.

    A managed server that refuses CONFIG is believed when INFO tells its policy. Raises ``StoreUnfit`` with the reason
    and the remedy, or ``StoreUnavailable``.
    """
    try:
        server = await _info(client, "server")
        policy = await _maxmemory_policy(client)
    except ResponseError as error:
        raise StoreUnfit(
            "the store does not say what it is: it refuses INFO",
            hint="allow this user INFO (and CONFIG GET, where there is one)",
        ) from error
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"no answer from the store: {type(error).__name__}") from error
    # Valkey reports the Redis it is compatible with besides its own version; its own is the one that counts.
    name = "valkey" if "valkey_version" in server else "redis"
    version = str(server.get(f"{name}_version", ""))
    if _numbers(version) < MIN_VERSION:
        raise StoreUnfit(
            f"the store is {name} {version or 'of an unknown version'}, older than 7.0",
            hint="upgrade it, or leave redis_url out to run the embedded server",
        )
    if policy != "noeviction":
        raise StoreUnfit(
            f"the store may evict keys: its maxmemory-policy is {policy or 'unknown'}, it must be noeviction",
            hint="CONFIG SET maxmemory-policy noeviction, and in its configuration file; or leave redis_url out",
        )


async def describe(client: Redis) -> dict[str, str]:
    """What the server is: engine, its version, and what it does when memory is full. Raises ``StoreUnavailable``."""
    with store_errors():
        server = await _info(client, "server")
        policy = await _maxmemory_policy(client)
    engine = "valkey" if "valkey_version" in server else "redis"
    version = server.get("valkey_version") or server.get("redis_version", "unknown")
    return {"engine": engine, "engine_version": str(version), "maxmemory_policy": policy}


def shown(url: str) -> str:
    """The URL for a message: without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def _info(client: Redis, section: str) -> dict[str, Any]:
    return await client.info(section)


async def _maxmemory_policy(client: Redis) -> str:
    try:
        answer = cast(dict[Any, Any], await client.config_get("maxmemory-policy"))
    except ResponseError:
        answer = {}
    for policy in answer.values():
        return policy.decode() if isinstance(policy, bytes) else str(policy)
    return str((await _info(client, "memory")).get("maxmemory_policy", ""))


def _numbers(version: str) -> tuple[int, ...]:
    """``7.0.15`` as numbers, as far as they go; empty, and so older than anything, for what is no version."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
