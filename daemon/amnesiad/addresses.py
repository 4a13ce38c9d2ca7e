"""Paths and addresses as settings: what they may be, and how a refused one is shown without its password."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from amnesiad.core.rules import Rule
from amnesiad.core.times import quoted
from amnesiad.limits import SUN_PATH_BYTES

_UNSET: Final = re.compile(r"\$(\w+|\{\w+\})")


@dataclass(frozen=True, kw_only=True)
class AbsolutePath(Rule):
    """A path; ``~`` and ``$VARIABLES`` are expanded, a relative one starts at the current directory."""

    @property
    def own_values(self) -> str:
        return "a path"

    def quote(self, value: object) -> str:
        """The value, and for a path that leads nowhere why it does."""
        if not isinstance(value, str | Path):
            return quoted(value)
        path = str(value)
        if unset := _UNSET.search(os.path.expandvars(path)):
            return f"{quoted(path)} ({unset[0]} is not set)"
        homeless = (
            "this user has no home directory: set HOME, or this setting" if path[:2] in ("~", "~/") else "no such user"
        )
        return f"{quoted(path)} ({homeless})" if path.startswith("~") else quoted(path)

    def read(self, value: object) -> Path:
        if isinstance(value, Path):
            value = str(value)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError(value)
        expanded = os.path.expandvars(value)
        if "$" in expanded:  # a variable that is not set would otherwise become a directory of that name
            raise ValueError(value)
        try:
            return Path(expanded).expanduser().absolute()
        except RuntimeError:  # no home directory
            raise ValueError(value) from None

    def write(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True, kw_only=True)
class SocketPath(AbsolutePath):
    """A path that fits a Unix socket address."""

    @property
    def own_values(self) -> str:
        return f"a path of at most {SUN_PATH_BYTES} bytes, the limit for a Unix socket"

    def read(self, value: object) -> Path:
        path = super().read(value)
        if len(os.fsencode(path)) > SUN_PATH_BYTES:
            raise ValueError(value)
        return path

    def quote(self, value: object) -> str:
        try:
            return f"{quoted(str(value))} ({len(os.fsencode(super().read(value)))} bytes)"
        except ValueError:  # it is no path at all
            return super().quote(value)


@dataclass(frozen=True, kw_only=True)
class RedisUrl(Rule):
    """The address of a store. It may hold a password, so it is only ever shown masked."""

    @property
    def own_values(self) -> str:
        return "a redis://, rediss:// or unix:// address such as redis://127.0.0.1:6379/0"

    def read(self, value: object) -> str:
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError
        url = urlsplit(value)
        _ = url.port  # raises ValueError unless it is a port
        if not ((url.scheme in ("redis", "rediss") and url.hostname) or (url.scheme == "unix" and url.path)):
            raise ValueError
        return value

    def write(self, value: Any) -> str:
        return mask_url(value)

    def quote(self, value: object) -> str:
        return repr(mask_url(value)) if isinstance(value, str) else quoted(value)


@dataclass(frozen=True, kw_only=True)
class LoopbackAddress(Rule):
    """``host:port`` on this machine only: the API has no authentication beyond the kernel's word for who is local."""

    @property
    def own_values(self) -> str:
        return "a loopback host:port such as 127.0.0.1:8765 or [::1]:8765"

    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(value)
        url = urlsplit("//" + value)
        if url.netloc != value or "@" in value or not url.port or not is_loopback(url.hostname):
            raise ValueError(value)
        return value


def mask_url(url: str) -> str:
    """The address without its credentials: everything up to the last ``@``, and passwords in the query."""
    scheme, separator, rest = url.rpartition("://") if "://" not in url else url.partition("://")
    if "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    rest = re.sub(r"(?i)((?:user(?:name)?|pass(?:word)?)=)[^&#]*", r"\1***", rest)
    return f"{scheme}{separator}{rest}"


def is_loopback(host: str | None) -> bool:
    """Whether a host, as an address names it, is this machine as it alone can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
