"""The store's time, told by this machine's steady clock.

Several processes write to one store from machines whose wall clocks disagree; the store's clock is the one they share.
Asking it for every request would cost a round trip, so a ``StoreClock`` asks now and then how far the store's clock is
from this machine's steady one, and tells the time from that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from amnesiad.errors import StoreUnavailable

SAMPLES: Final = 5
"""Questions per sync; the quickest answer is used, so one that was held up does no harm."""
SYNC_EVERY_S: Final = 30
"""How often to ask again."""
DRIFT: Final = 200e-6
"""How far apart two honest clocks may drift: 200 parts in a million, twice a poor quartz."""

_NS = 1_000_000_000
# A clock that goes on while the machine sleeps, as the store's does: Linux has a name for it, elsewhere it is this one.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_ns() -> int:
    """Nanoseconds on a clock that is never set and goes on during sleep."""
    return time.clock_gettime_ns(_STEADY)


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer of TIME: the store's clock minus ours, how long the question took, and when it was asked."""

    offset_ns: int
    round_trip_ns: int
    at_ns: int

    def doubt_ns(self, now_ns: int) -> int:
        """How wrong the offset can be by now: half the round trip, and what the clocks may have drifted since."""
        return self.round_trip_ns // 2 + int(max(0, now_ns - self.at_ns) * DRIFT)


class StoreClock:
    """Tells the store's time in milliseconds since 1970, never going backwards.

    When the store's clock is set back, the time stands still until the store has caught up with it.
    """

    def __init__(self, steady: Callable[[], int] = steady_ns) -> None:
        self._steady = steady
        self._sample: Sample | None = None
        self._synced_ns = 0
        self._last_ms = 0

    @property
    def stale(self) -> bool:
        """Whether it is time to ``sync`` again (or for the first time)."""
        return self._sample is None or self._steady() - self._synced_ns >= SYNC_EVERY_S * _NS

    @property
    def doubt_ms(self) -> float:
        """How far ``now_ms`` may be from the store's clock, in milliseconds; infinite before the first ``sync``."""
        return self._sample.doubt_ns(self._steady()) / 1e6 if self._sample else float("inf")

    def now_ms(self) -> int:
        """The store's time. Raises ``StoreUnavailable`` before the first ``sync`` that succeeds."""
        if self._sample is None:
            raise StoreUnavailable("the store's time is not known yet", hint="the store has to answer once first")
        self._last_ms = max(self._last_ms, (self._steady() + self._sample.offset_ns) // 1_000_000)
        return self._last_ms

    async def sync(self, client: Redis) -> None:
        """Ask the store for its time and take it over where that makes ours more certain.

        Raises ``StoreUnavailable`` where no answer comes; ours is kept then.
        """
        for _ in range(SAMPLES):
            before = self._steady()
            try:
                seconds, micros = await client.time()
            except (RedisError, OSError) as error:
                raise StoreUnavailable(f"the store does not tell its time: {type(error).__name__}") from error
            after = self._steady()
            told_ns = int(seconds) * _NS + int(micros) * 1_000
            # The answer was true somewhere between question and reply; the middle is wrong by half of that at most.
            self._weigh(Sample(told_ns - (before + after) // 2, after - before, after))
        self._synced_ns = self._steady()

    def _weigh(self, new: Sample) -> None:
        """Keep the more certain of two samples; when they contradict each other a clock was set, and the new one
        holds."""
        old = self._sample
        if old is None:
            self._sample = new
            return
        doubt = old.doubt_ns(new.at_ns)
        contradicted = abs(new.offset_ns - old.offset_ns) > doubt + new.doubt_ns(new.at_ns)
        if contradicted or new.doubt_ns(new.at_ns) <= doubt:
            self._sample = new
