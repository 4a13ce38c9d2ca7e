"""The store's time, as ``StoreClock`` tells it."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from amnesiad.errors import StoreUnavailable
from amnesiad.store.clock import SAMPLES, SYNC_EVERY_S, StoreClock

NS = 1_000_000_000


class Bench:
    """A steady clock and a store whose clock, distance and health the test sets. Stands in for the client."""

    def __init__(self, *, store_s: float = 1_700_000_000.0) -> None:
        self.steady_ns = 5 * NS
        self.ahead_ns = int(store_s * NS) - self.steady_ns
        self.trips_ns: list[tuple[int, int]] = []
        self.down = False
        self.asked = 0

    async def time(self) -> tuple[int, int]:
        """Answer like TIME, after the way there and before the way back."""
        self.asked += 1
        if self.down:
            raise RedisConnectionError("gone")
        there, back = self.trips_ns.pop(0) if self.trips_ns else (0, 0)
        self.steady_ns += there
        told_us = self.told_us
        self.steady_ns += back
        return divmod(told_us, 1_000_000)

    @property
    def told_us(self) -> int:
        return (self.steady_ns + self.ahead_ns) // 1_000

    @property
    def store_ms(self) -> int:
        return self.told_us // 1_000

    def clock(self) -> StoreClock:
        return StoreClock(steady=lambda: self.steady_ns)

    async def sync(self, clock: StoreClock) -> None:
        await clock.sync(self)  # type: ignore[arg-type]


async def test_it_agrees_with_a_real_store(redis: Redis) -> None:
    """Between two answers of the store itself, the clock tells a time between them, give or take its doubt."""
    clock = StoreClock()
    await clock.sync(redis)
    before, told, after = await redis.time(), clock.now_ms(), await redis.time()
    slack = clock.doubt_ms + 1
    assert before[0] * 1000 + before[1] / 1000 - slack <= told <= after[0] * 1000 + after[1] / 1000 + slack


async def test_the_time_is_unknown_before_the_first_sync() -> None:
    """A clock that has never been set says so instead of guessing from the wall clock."""
    clock = Bench().clock()
    assert clock.stale
    assert clock.doubt_ms == float("inf")
    with pytest.raises(StoreUnavailable):
        clock.now_ms()


async def test_it_runs_on_without_asking() -> None:
    """Between two syncs the time goes on by the steady clock alone."""
    bench = Bench()
    clock = bench.clock()
    await bench.sync(clock)
    assert bench.asked == SAMPLES
    first = clock.now_ms()
    bench.steady_ns += 1_500_000_000
    assert clock.now_ms() == first + 1_500
    assert bench.asked == SAMPLES


async def test_the_middle_of_the_quickest_round_trip_counts() -> None:
    """Answers that were held up on one way are outweighed by the one that was quick."""
    bench = Bench()
    slow = (400_000_000, 0)
    bench.trips_ns = [slow, slow, (2_000_000, 2_000_000), (0, 300_000_000), slow]
    clock = bench.clock()
    await bench.sync(clock)
    assert abs(clock.now_ms() - bench.store_ms) <= 1
    assert clock.doubt_ms < 3


async def test_a_worse_answer_later_does_not_spoil_a_good_one() -> None:
    """A sync over a bad line keeps the offset that an earlier, quicker one found."""
    bench = Bench()
    clock = bench.clock()
    await bench.sync(clock)
    bench.steady_ns += 60 * NS
    bench.trips_ns = [(300_000_000, 0)] * SAMPLES
    await bench.sync(clock)
    assert abs(clock.now_ms() - bench.store_ms) <= 1


async def test_drift_is_followed() -> None:
    """A store whose clock runs slightly faster is followed even over a slow line: an old answer is trusted ever
    less."""
    bench = Bench()
    clock = bench.clock()
    await bench.sync(clock)
    bench.steady_ns += 1000 * NS
    bench.ahead_ns += 100_000_000
    bench.trips_ns = [(110_000_000, 110_000_000)] * SAMPLES
    await bench.sync(clock)
    assert abs(clock.now_ms() - bench.store_ms) <= 1


async def test_it_never_goes_backwards() -> None:
    """When the store's clock is set back the time stands still until the store has caught up, then goes on with it."""
    bench = Bench()
    clock = bench.clock()
    await bench.sync(clock)
    told = clock.now_ms()
    bench.ahead_ns -= 10 * NS
    await bench.sync(clock)
    assert clock.now_ms() == told
    bench.steady_ns += 9 * NS
    assert clock.now_ms() == told
    bench.steady_ns += 3 * NS
    assert clock.now_ms() == told + 2_000 == bench.store_ms


async def test_a_store_set_forward_is_followed_over_a_slow_line() -> None:
    """An answer that contradicts the old one wins however slow it was: a clock was set, or the machine slept."""
    bench = Bench()
    clock = bench.clock()
    await bench.sync(clock)
    bench.ahead_ns += 3600 * NS
    bench.trips_ns = [(100_000_000, 100_000_000)] * SAMPLES
    await bench.sync(clock)
    assert abs(clock.now_ms() - bench.store_ms) <= 1


async def test_a_lost_store_leaves_the_clock_running() -> None:
    """A failed sync raises, keeps the time that was known, and leaves the clock due for the next try."""
    bench = Bench()
    clock = bench.clock()
    await bench.sync(clock)
    assert not clock.stale
    bench.steady_ns += SYNC_EVERY_S * NS
    assert clock.stale
    bench.down = True
    with pytest.raises(StoreUnavailable):
        await bench.sync(clock)
    assert clock.stale
    assert clock.now_ms() == bench.store_ms
