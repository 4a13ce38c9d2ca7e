"""``verify`` proves that everything derived equals the fold of the log; ``rebuild`` makes it so.

Both run the same checks. Each check reads some structures and the log's last id in one MULTI, folds the log to exactly
that id and compares, so that concurrent writers cannot make a sound store look damaged. A difference comes with the
commands that mend it, where the log and the vault know enough. ``verify`` only lists the differences; ``rebuild``
watches every key it judges by, and applies all mends in one MULTI that fails, and is tried again, if any writer came
between. So no concurrent commit is lost; only a workspace that never rests long enough is refused.

What is ignored, because the log cannot tell: which operation wrote a head, tomb or cell; the hash, kept copy and purge
time of a tomb (they are kept where a readable tomb stands, else gone); the state of owners (a cell that is missing is
made anew, open, in the incarnation of its latest note); how many erasures are unscrubbed (rebuilt as the most it can
be); use, leases and ledgers; vectors, but that none outlives its words. Words that are lost are reported and cannot be
mended. No text is ever in a report.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from amnesiad.core.errors import Refused
from amnesiad.core.policy import Policy
from amnesiad.errors import Conflict
from amnesiad.store.checks import Checks, judged_by
from amnesiad.store.faults import store_errors
from amnesiad.store.findings import Report
from amnesiad.store.keyring import Keyring
from amnesiad.store.keys import Keys

__all__ = ["Rebuilt", "Report", "rebuild", "verify"]

MAX_ATTEMPTS: Final = 5
"""How often a check or a rebuild that a writer came between is made again."""


class Rebuilt(NamedTuple):
    """What ``rebuild`` did: the differences it found, and how many commands mended those that can be."""

    found: Report
    mended: int

    @property
    def figures(self) -> dict[str, int]:
        """``Report.figures`` and ``mended``."""
        return {**self.found.figures, "mended": self.mended}


async def verify(redis: Redis, keys: Keys, keyring: Keyring, base_policy: Policy) -> Report:
    """Compare every derived structure with the fold of the log. Writers may be active.

    A policy change that has not yet re-filed ``due`` shows as differences there. Raises ``StoreUnavailable``.
    """
    for _ in range(MAX_ATTEMPTS):
        checks = Checks(redis, keys, keyring, base_policy)
        await checks.run()
        if not checks.disturbed:
            break
    return checks.report()


async def rebuild(redis: Redis, keys: Keys, keyring: Keyring, base_policy: Policy) -> Rebuilt:
    """Make every derived structure what the log and the vault say. Writers may be active; none of their units is lost.

    Words of notes that the log calls forgotten, or does not know, are erased. Raises ``Conflict`` when writers left no
    gap in ``MAX_ATTEMPTS`` tries, ``Refused`` when the log is empty beside heads: then it is the log that is lost.
    """
    first: Report | None = None
    mended = 0
    for _ in range(MAX_ATTEMPTS):
        async with redis.pipeline(transaction=True) as pipe:
            checks = Checks(redis, keys, keyring, base_policy)
            with store_errors():
                await pipe.watch(*judged_by(keys))
            await checks.run()
            first = first or checks.report()
            if checks.log_lost:
                raise Refused(
                    "the log is empty, but there are notes: a rebuild would erase them all",
                    rule="log-lost",
                    hint="restore the store's data directory from a copy",
                )
            if not checks.disturbed and not checks.found.mends:
                return Rebuilt(first, mended)
            cast(Any, pipe).multi()
            for mend in checks.found.mends:
                pipe.execute_command(*mend)
            try:
                with store_errors():
                    await _execute(pipe)
            except Conflict:
                continue
            mended += len(checks.found.mends)
            if not checks.damaged_types:
                return Rebuilt(first, mended)
    raise Conflict(
        "the workspace was written to during every try of the rebuild", hint="stop its writers and try again"
    )


async def _execute(pipe: Pipeline) -> None:
    try:
        await pipe.execute()
    except WatchError:
        raise Conflict("a writer came between") from None
