"""The whole error tree, split by who is to blame.

::

    AmnesiaError                 base; code, message, hint, field, rule, choices
    ├── CallerError              the caller can mend it; nothing was changed
    │   ├── Invalid              400  a value is malformed or out of range
    │   ├── Forbidden            403  this role may not do this to this note
    │   ├── NotFound             404  nothing by that address is visible here
    │   ├── Ambiguous            409  an address matches several
    │   ├── Conflict             409  somebody else changed it first, or a request id was reused
    │   ├── TooLarge             413  a request or value exceeds its limit
    │   ├── Refused              422  a domain rule said no
    │   │   └── IllegalTransition     no row of the transition table allows the move
    │   └── StoreFull            507  a capacity bound would be passed
    ├── StoreError               the store, or the way to it
    │   ├── StoreUnavailable     503  no answer from the store; nothing is known to have changed
    │   └── StoreUnfit                the server is refused: too old, or it may evict keys
    ├── Busy                     429  more requests in flight than the daemon accepts
    ├── Deadline                 504  the answer was not ready in time
    ├── DaemonUnreachable             client side: nothing listens on the socket
    ├── ConfigError                   a setting stops the start, named
    └── Bug                      500  ours; a report names an id to find in the log

The core's half of the tree is defined in ``amnesiad.core.errors``; shells import from here.
"""

from __future__ import annotations

from amnesiad.core.errors import (
    Ambiguous,
    AmnesiaError,
    CallerError,
    Forbidden,
    IllegalTransition,
    Invalid,
    NotFound,
    Refused,
    StoreFull,
    TooLarge,
)

__all__ = [
    "Ambiguous",
    "AmnesiaError",
    "Bug",
    "Busy",
    "CallerError",
    "ConfigError",
    "Conflict",
    "DaemonUnreachable",
    "Deadline",
    "Forbidden",
    "IllegalTransition",
    "Invalid",
    "NotFound",
    "Refused",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUnfit",
    "TooLarge",
]


class Conflict(CallerError):
    """Somebody else changed it first and the bounded retries ran out, or a request id was reused with another body."""

    code = "conflict"


class StoreError(AmnesiaError):
    """The store, or the way to it, failed."""

    code = "store_unavailable"


class StoreUnavailable(StoreError):
    """No answer from the store. A write may or may not have landed: repeat it with the same ``request_id``."""


class StoreUnfit(StoreError):
    """The server at the other end must not hold memory: too old, or configured to evict keys by itself."""


class Busy(AmnesiaError):
    """More requests are in flight than the daemon accepts."""

    code = "busy"


class Deadline(AmnesiaError):
    """The answer was not ready within the request's deadline."""

    code = "deadline"


class DaemonUnreachable(AmnesiaError):
    """Nothing answers on the socket (raised by clients)."""

    code = "unreachable"


class ConfigError(AmnesiaError):
    """A setting is unknown or invalid; ``field`` names it and the process does not start."""

    code = "config"


class Bug(AmnesiaError):
    """An invariant of ours does not hold."""

    code = "internal"
