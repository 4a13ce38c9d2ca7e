"""Turning the Redis library's errors into ours, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from redis import exceptions

from amnesiad.errors import Bug, StoreUnavailable

_AWAY: Final = (exceptions.ConnectionError, OSError)
_UNWILLING: Final = ("MISCONF", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY", "OOM")
"""Answers of a server that is there but will not take writes now."""


class StoreSilent(StoreUnavailable):
    """The store is connected and says nothing; asking again at once would only wait as long again."""


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise ``StoreUnavailable`` for a store that is away or unwilling, ``Bug`` for a command it rejects.

    The library's message is dropped where it could quote arguments, and with them a note's words.
    """
    try:
        yield
    except exceptions.TimeoutError:
        raise StoreSilent("no answer from the store in time", hint="amnesia doctor tells what is wrong") from None
    except _AWAY as error:
        raise StoreUnavailable(
            f"no answer from the store: {type(error).__name__}", hint="try again; amnesia doctor tells what is wrong"
        ) from None
    except (exceptions.OutOfMemoryError, exceptions.ReadOnlyError) as error:
        raise StoreUnavailable(
            f"the store takes no writes now: {type(error).__name__}", hint="amnesia doctor tells what is wrong"
        ) from None
    except exceptions.ResponseError as error:
        word = str(error).split(" ", 1)[0]
        if word in _UNWILLING:
            raise StoreUnavailable(f"the store takes no writes now: {word}", hint="look at the store's log") from None
        raise Bug(f"the store rejected a command: {word if word.isupper() else 'error'}") from None
    except exceptions.RedisError as error:
        raise StoreUnavailable(f"the store failed: {type(error).__name__}") from None
