"""The feed from within: what it tells a reader that was away too long, and what damage does to it."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from tests.daemon.desk import DAY, HUMAN, WORKSPACE, ManualClock, call, projection, remember

from amnesiad import wire
from amnesiad.service import Service


async def told(service: Service, count: int, after: str = "0-0") -> list[wire.FeedItem]:
    """The first items a human gets."""
    pairs = {"workspace": WORKSPACE, "after": after, "role": "human"}
    found: list[wire.FeedItem] = []
    feed: Any = service.feed(wire.decode_query(wire.FeedRequest, pairs))
    async with aclosing(feed):
        while len(found) < count:
            found.append(await anext(feed))
    return found


async def test_a_reader_that_was_away_too_long_is_told_what_it_missed(service: Service, clock: ManualClock) -> None:
    """Injections are on record for ``audit_retention``: who resumes from before that is told that some are gone, and
    still gets every transition; who resumes from later, or finds nothing trimmed, is told nothing of the sort."""
    note_id = await remember(service, "a fact", kind="finding")
    for _ in range(3):
        await call(service, "inject")
    whole = [item.type for item in await told(service, 5)]
    assert whole == ["opened", "written", "injected", "injected", "injected"]
    clock.advance(100 * DAY)
    assert [item.type for item in await told(service, 5)] == whole
    keys = (await projection(service)).keys
    await service.redis.xtrim(keys.access, maxlen=1, approximate=False)
    opened, missed, written, injected = await told(service, 4)
    assert [missed.type, written.data["id"], injected.type] == ["missed", note_id, "injected"]
    assert missed.data["types"] == ["injected"]
    assert opened.seq == missed.seq == "0-0"
    await remember(service, "another fact", kind="finding")
    assert [item.type for item in await told(service, 2, injected.seq)] == ["opened", "written"]
    await service.stop()


async def test_damage_in_log_ledger_or_tombs_stops_no_feed(service: Service) -> None:
    """V09: entries that are none of ours and a note that cannot be read are left out; everything else is told."""
    gone, stays = await remember(service, "goes", kind="finding"), await remember(service, "stays", kind="finding")
    await call(service, "forget", id=gone, caller=HUMAN)
    keys = (await projection(service)).keys
    await service.redis.hset(keys.tomb, gone, "garbage")
    foreign: list[dict[Any, Any]] = [{"who": "a stranger"}, {"e": "not ours"}, {"e": b"\xff"}]
    for fields in foreign:
        await service.redis.xadd(keys.access, fields)
    await call(service, "inject")
    assert [(item.type, item.data.get("id")) for item in await told(service, 3)][1:] == [
        ("written", stays), ("injected", None),
    ]  # fmt: skip
    await service.stop()
