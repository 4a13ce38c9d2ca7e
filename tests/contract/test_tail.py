"""Log and ledger as one sequence: one order, one cursor, no gap and no repeat at any page or resumption."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis
from tests.support import wait_until

from amnesiad.store import tail
from amnesiad.store.keys import Keys
from amnesiad.store.tail import Place, Tails, place_behind

IDS = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3)), unique=True).map(sorted)


async def fill(redis: Redis, keys: Keys, log: list[tuple[int, int]], shown: list[tuple[int, int]]) -> None:
    """Put entries at these ids into both streams, each with its name as its payload."""
    await redis.delete(keys.log, keys.access)
    for key, name, ids in ((keys.log, "log", log), (keys.access, "shown", shown)):
        for ms, number in ids:
            await redis.xadd(key, {"e": f"{name} {ms}-{number}"}, id=f"{ms}-{number}")


async def read_on(tails: Tails, keys: Keys, place: Place) -> list[tail.Item]:
    """Everything behind a place, page by page."""
    found: list[tail.Item] = []
    while (page := await tails.read(keys, place)).items:
        found += page.items
        place = page.place
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=IDS, shown=IDS, page=st.integers(1, 5))
async def test_any_cursor_resumes_exactly_behind_its_item(
    redis: Redis, log: list[tuple[int, int]], shown: list[tuple[int, int]], page: int
) -> None:
    """In whatever pages it is read, each entry comes once, by time, the log first in each millisecond; and what a
    cursor resumes is what came behind it."""
    keys, tails = Keys("w"), Tails(redis)
    await fill(redis, keys, log, shown)
    wanted = sorted([(ms, 0, n) for ms, n in log] + [(ms, 1, n) for ms, n in shown])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "PAGE", page)
        items = await read_on(tails, keys, place_behind("0-0"))
        assert [item.raw for item in items] == [f"{('log', 'shown')[of]} {ms}-{n}".encode() for ms, of, n in wanted]
        for index, item in enumerate(items):
            assert await read_on(tails, keys, place_behind(item.cursor)) == items[index + 1 :]
        place, cursor = await tails.end(keys)
        assert (await tails.read(keys, place)).items == []
        assert cursor == (items[-1].cursor if items else "0-0")
    await tails.aclose()


async def test_a_millisecond_that_is_not_over_is_waited_for(redis: Redis) -> None:
    """An entry of this very millisecond, before which another may still come, is told when the millisecond is over;
    one far ahead, by a clock that was put back, at once."""
    keys, tails = Keys("w"), Tails(redis)
    seconds, micros = await redis.time()
    soon = seconds * 1000 + micros // 1000 + 500
    await redis.xadd(keys.log, {"e": "soon"}, id=f"{soon}-0")
    page = await tails.read(keys, place_behind("0-0"))
    assert (page.items, page.place, 0 < page.again_s <= 0.6) == ([], place_behind("0-0"), True)
    await redis.delete(keys.log)
    await redis.xadd(keys.log, {"e": "far"}, id=f"{soon + 3_600_000}-0")
    assert [item.raw for item in (await tails.read(keys, place_behind("0-0"))).items] == [b"far"]
    await tails.aclose()


@pytest.mark.parametrize("of_ledger", [False, True])
async def test_who_waits_holds_one_connection_and_is_woken_by_either_stream(redis: Redis, of_ledger: bool) -> None:
    """Waiting blocks in the store, on one connection and without asking again, until either stream grows."""
    keys, tails = Keys("w"), Tails(redis)

    async def blocked() -> int:
        return int((await redis.info("clients"))["blocked_clients"])

    async def none_blocked() -> bool:
        return await blocked() == 0

    waiting = asyncio.ensure_future(tails.wait(keys, place_behind("0-0")))
    await wait_until(blocked)
    assert await blocked() == 1
    assert not waiting.done()
    await redis.xadd(keys.access if of_ledger else keys.log, {"e": "x"})
    await waiting
    await wait_until(none_blocked)
    again = asyncio.ensure_future(tails.wait(keys, (await tails.end(keys))[0]))
    await wait_until(blocked)
    again.cancel()
    await wait_until(lambda: again.done())
    await tails.aclose()
    await wait_until(none_blocked)


async def test_what_was_trimmed_is_noticed_by_who_had_not_read_it(redis: Redis) -> None:
    """Trimmed entries count as missed only for a reader whose place lies before the oldest that is left."""
    keys, tails = Keys("w"), Tails(redis)
    assert not await tails.trimmed(keys, place_behind("0-0"))
    await fill(redis, keys, [], [(n, 0) for n in range(1, 6)])
    assert not await tails.trimmed(keys, place_behind("0-0"))
    await redis.xtrim(keys.access, maxlen=2, approximate=False)
    assert await tails.trimmed(keys, place_behind("2-0"))
    assert not await tails.trimmed(keys, place_behind("5-0"))
    await redis.xtrim(keys.access, maxlen=0, approximate=False)
    assert await tails.trimmed(keys, place_behind("5-0"))
    await tails.aclose()


async def test_any_id_may_be_a_place(redis: Redis) -> None:
    """Ids at the ends of what the store knows, and past them, are places too, and none is refused by the store."""
    keys, tails = Keys("w"), Tails(redis)
    await fill(redis, keys, [(5, 0)], [(5, 0)])
    for cursor in ("0", "0-0", "5", "4-99999999999999999999"):
        assert len((await tails.read(keys, place_behind(cursor))).items) >= 1
    for cursor in ("99999999999999999999", "99999999999999999999-99999999999999999999", f"{2**64 - 1}-{2**64 - 1}"):
        assert (await tails.read(keys, place_behind(cursor))).items == []
    await tails.aclose()
