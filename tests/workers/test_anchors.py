"""Drift: what a file's change does to the notes anchored to it, and what its absence does not."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis
from tests.workers.seeding import KEYRING, MINUTE, World, new_world

from amnesiad.core import decisions
from amnesiad.core.callers import Caller
from amnesiad.core.notes import Anchor, Words
from amnesiad.store.due import DueItem, read_items
from amnesiad.store.keys import Keys
from amnesiad.store.policies import read_policy
from amnesiad.store.units import Builder
from amnesiad.store.vault import find_many, heads
from amnesiad_workers.passes import check_anchors


def anchored(path: Path) -> Anchor:
    """An anchor to the file as it is now."""
    return Anchor(path.name, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> World:
    """A workspace whose root is a directory with one file, and one note about it."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.py").write_text("one")
    found = await new_world(redis, str(root))
    await found.remember("noted00000", kind="finding", ttl_ms=None, anchors=[anchored(root / "a.py")])
    return found


async def flags(world: World) -> int:
    """How often the note was flagged."""
    return (await world.counts())["stale_flagged"]


async def state(world: World) -> tuple[str, tuple[str, ...]]:
    """The note's state, with its causes."""
    note = await world.note("noted00000")
    assert note is not None
    return note.state, note.causes


async def reinstate(world: World, anchor: Anchor) -> None:
    """What the verb writes: the note stands again, anchored to the file as it is now."""
    (head,) = await heads(world.redis, world.keys, ["noted00000"])
    old = (await find_many(world.redis, world.keys, ["noted00000"]))[0].words
    policy = await read_policy(world.redis, world.keys, world.policy)
    builder = Builder(world.keys, KEYRING, policy.policy, policy.version)
    events = decisions.reinstate(head.note, Caller(role="human"), world.now)  # type: ignore[union-attr]
    builder.change(head.note, events, old, Words(content=old.content, tags=old.tags, anchors=(anchor,)))  # type: ignore[union-attr]
    assert (await world.log.commit(builder.build())).status == "ok"


async def test_one_drift_is_flagged_once_by_however_many(world: World, tmp_path: Path) -> None:
    """Passes that run at once and again and again write one stale_flagged; a file that changes once more adds none."""
    (tmp_path / "root" / "a.py").write_text("two")
    await asyncio.gather(*(check_anchors(world.context, world.ws) for _ in range(4)))
    assert await flags(world) == 1
    (tmp_path / "root" / "a.py").write_text("three")
    await check_anchors(world.context, world.ws)
    assert (await flags(world), await state(world)) == (1, ("stale", ("anchor",)))


async def test_a_file_that_comes_back_clears_nothing(world: World, tmp_path: Path) -> None:
    """Deleted is drift where the root is visible; put back as it was, the note still waits for somebody to verify
    it."""
    file = tmp_path / "root" / "a.py"
    file.unlink()
    await check_anchors(world.context, world.ws)
    assert await state(world) == ("stale", ("anchor",))
    file.write_text("one")
    await check_anchors(world.context, world.ws)
    assert (await flags(world), await state(world)) == (1, ("stale", ("anchor",)))


async def test_an_absent_root_is_unknown(world: World, tmp_path: Path) -> None:
    """A worker that does not see the workspace's directory knows nothing of its files; one that sees it again does."""
    root = tmp_path / "root"
    root.rename(tmp_path / "elsewhere")
    assert (await check_anchors(world.context, world.ws)).stale == 0
    (tmp_path / "root").write_text("a file where the directory was")
    assert (await check_anchors(world.context, world.ws)).stale == 0
    (tmp_path / "root").unlink()
    (tmp_path / "elsewhere").rename(root)
    assert (await check_anchors(world.context, world.ws)).stale == 0
    (root / "a.py").write_text("two")
    assert (await check_anchors(world.context, world.ws)).stale == 1


async def test_reinstated_it_is_watched_anew(world: World, tmp_path: Path) -> None:
    """A note that stands again is anchored to the file as it is then, and the next drift is another."""
    file = tmp_path / "root" / "a.py"
    file.write_text("two")
    await check_anchors(world.context, world.ws)
    await reinstate(world, anchored(file))
    assert (await check_anchors(world.context, world.ws)).stale == 0
    file.write_text("three")
    assert (await check_anchors(world.context, world.ws)).stale == 1
    assert await flags(world) == 2


async def test_a_pass_reads_only_notes_with_a_file(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many notes there are, those are read that have a file to look at; ended ones are not among them."""
    await world.remember(*(f"plain{number:05d}" for number in range(50)), kind="finding", ttl_ms=None)
    await world.remember("unread0000", kind="finding", ttl_ms=None, anchors=[Anchor("nowhere")])
    await world.remember("ended00000", kind="finding", ttl_ms=None, anchors=[anchored(tmp_path / "root" / "a.py")])
    (head,) = await heads(world.redis, world.keys, ["ended00000"])
    old = (await find_many(world.redis, world.keys, ["ended00000"]))[0].words
    policy = await read_policy(world.redis, world.keys, world.policy)
    builder = Builder(world.keys, KEYRING, policy.policy, policy.version)
    events = decisions.revoke(head.note, Caller(role="human"), world.now, reason="gone")  # type: ignore[union-attr]
    builder.change(head.note, events, old)  # type: ignore[union-attr]
    assert (await world.log.commit(builder.build())).status == "ok"
    read: list[str] = []

    async def reading(redis: Redis, keys: Keys, ids: Sequence[str]) -> list[DueItem]:
        read.extend(ids)
        return await read_items(redis, keys, ids)

    monkeypatch.setattr("amnesiad_workers.passes.anchors.read_items", reading)
    (tmp_path / "root" / "a.py").write_text("two")
    assert (await check_anchors(world.context, world.ws)).stale == 1
    assert read == ["noted00000"]


async def test_some_notes_may_be_checked_alone(world: World, tmp_path: Path) -> None:
    """Ids narrow a check to these notes, also where one of them is nothing any more."""
    (tmp_path / "root" / "b.py").write_text("one")
    await world.remember("other00000", kind="finding", ttl_ms=None, anchors=[anchored(tmp_path / "root" / "b.py")])
    for name in ("a.py", "b.py"):
        (tmp_path / "root" / name).write_text("two")
    assert (await check_anchors(world.context, world.ws, ["other00000", "nobody0000"])).stale == 1
    assert await state(world) == ("active", ())
    assert (await check_anchors(world.context, world.ws)).stale == 1


async def test_any_of_a_note_s_files_is_enough(world: World, tmp_path: Path) -> None:
    """V12: the first file is as it was and the last is not; a file that was never read says nothing."""
    root = tmp_path / "root"
    (root / "b.py").write_text("one")
    anchors = [anchored(root / "a.py"), Anchor("nowhere.py"), anchored(root / "b.py")]
    await world.remember("several000", kind="finding", ttl_ms=None, anchors=anchors)
    assert (await check_anchors(world.context, world.ws)).stale == 0
    (root / "b.py").write_text("two")
    assert (await check_anchors(world.context, world.ws)).stale == 1
    note = await world.note("several000")
    assert note is not None
    assert note.causes == ("anchor",)


async def test_what_is_over_or_damaged_is_not_flagged(world: World, tmp_path: Path) -> None:
    """V09: a note that time has ended is left to its settling without a word; one that cannot be read is named."""
    file = anchored(tmp_path / "root" / "a.py")
    await world.remember("over000000", anchors=[file])
    await world.remember("bad0000000", kind="finding", ttl_ms=None, anchors=[file])
    await world.redis.hset(world.keys.heads, "bad0000000", "garbage")
    world.now += 2 * MINUTE
    (tmp_path / "root" / "a.py").write_text("two")
    figures = await check_anchors(world.context, world.ws)
    assert figures.stale == 1
    assert [told.partition(":")[0] for told in figures.unreadable] == ["bad0000000"]
    assert len(await world.events("over000000")) == 1
