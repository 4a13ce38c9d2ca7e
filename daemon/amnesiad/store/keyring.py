"""The install key and every keyed hash made with it.

The key lives in the state directory, outside the store, so that nobody who holds the store alone can test a guess
against a hash: a short secret stays secret. The store records the key's fingerprint; a process with another key refuses
to start, because its hashes would match nothing.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
from pathlib import Path
from typing import Final, cast

from redis.asyncio import Redis

from amnesiad.errors import ConfigError
from amnesiad.store import keys
from amnesiad.store.faults import store_errors

KEY_BYTES: Final = 32
KEY_FILE: Final = "install.key"
CELL_BYTES: Final = 16
"""128 bits name a slot or a text: enough against collisions, and half the memory of the whole hash."""
LAYOUT: Final = "1"
"""Version of the key layout; a process that does not know it refuses to start."""


class Keyring:
    """Keyed hashes (HMAC-SHA-256) under the install key. The label keeps hashes for different uses apart."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def open(cls, state_dir: Path) -> Keyring:
        """Read the install key, making it and its directory first if there is none. Two processes starting at once
        agree on one. Raises ``ConfigError`` when the file is not a key, or the directory cannot be used.
        """
        path = state_dir / KEY_FILE
        try:
            key = cls._read_or_make(path)
        except OSError as error:
            raise ConfigError(
                f"the state directory {state_dir} cannot be used: {error.strerror}",
                field="state_dir",
                hint="choose one that this user can write to",
            ) from error
        if len(key) != KEY_BYTES:
            raise ConfigError(
                f"the install key {path} has {len(key)} bytes, not {KEY_BYTES}",
                field="state_dir",
                hint="put back the file that belongs to this store",
            )
        return cls(key)

    @staticmethod
    def _read_or_make(path: Path) -> bytes:
        state_dir = path.parent
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            draft = state_dir / f".{KEY_FILE}.{secrets.token_hex(4)}"
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(handle, secrets.token_bytes(KEY_BYTES))
                os.fsync(handle)
            finally:
                os.close(handle)
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
            # The store will know the key's fingerprint at once: a key lost with the machine's power would lock it out.
            folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return path.read_bytes()

    def _mac(self, label: str, parts: tuple[str, ...]) -> bytes:
        message = "\x00".join([label, *[f"{len(part)}:{part}" for part in parts]])
        return hmac.digest(self._key, message.encode("utf-8", "surrogatepass"), "sha256")

    def digest(self, label: str, *parts: str) -> str:
        """A hash by which the same parts are known again, for the use that the label names: 64 hex digits."""
        return self._mac(label, parts).hex()

    def content_hash(self, content: str) -> str:
        """What the audit keeps of erased content: 64 hex digits."""
        return self.digest("content", content)

    def cell(self, label: str, *parts: str) -> str:
        """A cell field that names a slot or a text without telling it."""
        digest = base64.urlsafe_b64encode(self._mac(label, parts)[:CELL_BYTES]).rstrip(b"=").decode()
        return f"{label}:{digest}"

    def body_hash(self, body: bytes) -> str:
        """The hash by which a repeated request is known to be the same."""
        return self.digest("body", body.decode())[:32]

    @property
    def fingerprint(self) -> str:
        """A public name of the key: 16 hex digits."""
        return self.digest("fingerprint")[:16]

    async def check_store(self, redis: Redis) -> None:
        """Record our fingerprint in a new store; raise ``ConfigError`` if the store belongs to another key or
        layout."""
        with store_errors():
            await redis.hsetnx(keys.META, "key", self.fingerprint)
            await redis.hsetnx(keys.META, "layout", LAYOUT)
            found = cast(list[bytes | None], await redis.hmget(keys.META, ["key", "layout"]))
        if found[0] != self.fingerprint.encode():
            raise ConfigError(
                "the store was written with another install key",
                field="state_dir",
                hint=f"use the state directory whose {KEY_FILE} has the fingerprint {(found[0] or b'').decode()}",
            )
        if found[1] != LAYOUT.encode():
            raise ConfigError(
                f"the store has layout {(found[1] or b'').decode()}, this version knows {LAYOUT}",
                field="redis_url",
                hint="use the version of amnesiad that wrote it",
            )
