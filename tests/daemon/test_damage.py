"""What is damaged in the store hides itself, and denies nothing else to anybody."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from tests.daemon.desk import (
    HUMAN,
    call,
    listed,
    projection,
    recalled,
    refused,
    remember,
)

from amnesiad import wire
from amnesiad.service import Service

SENTENCES = (
    "the deploy job of module {n} needs a clean checkout before it may run",
    "修改 module {n} 之前先运行测试",
    "module {n}: retries are capped at {n} because the queue drops the rest 🦊",
    "never trust the cache of module {n}\nit is warmed by hand",
)


@pytest.mark.parametrize("damage", ["another version", "no head at all"])
async def test_one_damaged_head_leaves_the_others_readable(service: Service, second: Service, damage: str) -> None:
    """V09: a head that is overwritten under running daemons takes its own note out of every read, and nothing else."""
    good = await remember(service, "the good fact", triggers=[{"event": "pre-run"}])
    bad = await remember(service, "the bad fact", triggers=[{"event": "pre-run"}])
    await listed(second)
    workspace = await projection(service)
    raw = cast(bytes, await service.redis.hget(workspace.keys.heads, bad))
    await service.redis.hset(workspace.keys.heads, bad, b"9" + raw if damage == "another version" else b"garbage")
    for one in (service, second):
        assert await recalled(one, "fact") == ["the good fact"]
        assert await recalled(one) == ["the good fact"]
        assert list((await call(one, "inject")).ids) == [good]
    assert [note.id for note in (await call(service, "fire", event="pre-run")).notes] == [good]
    assert any(bad in problem for problem in (await call(service, "verify")).problems)


@pytest.mark.parametrize("damage", ["another version", "no head at all"])
@pytest.mark.parametrize("noticed", [False, True])
async def test_a_note_with_a_damaged_head_is_forgotten_once_it_is_mended(
    service: Service, second: Service, damage: str, noticed: bool
) -> None:
    """V09: forget neither says that nothing matched nor blames other writers, whether or not a read has noticed the
    damage before; it names what mends it, and after that erases the words, through any daemon."""
    bad = await remember(service, "the bad fact", kind="finding")
    await listed(second)
    keys = (await projection(service)).keys
    raw = cast(bytes, await service.redis.hget(keys.heads, bad))
    await service.redis.hset(keys.heads, bad, b"9" + raw if damage == "another version" else b"garbage")
    for one in (service, second):
        if noticed:
            assert await recalled(one, "fact") == []
        error = await refused(call(one, "forget", id=bad, caller=HUMAN))
        assert (error.code, error.field, "rebuild" in str(error.hint)) == ("conflict", "id", True)
        assert bad in error.message
    await service.redis.hset(keys.heads, bad, raw)  # as rebuild does
    assert (await call(second, "forget", id=bad, caller=HUMAN)).forgotten == 1
    assert await service.redis.hget(keys.vault, bad) is None


async def test_damage_beside_the_notes_denies_nothing_else(service: Service) -> None:
    """V09: a garbage tomb, owner's cell, use counter and ledger entry: audit, status, export, list, owners and ledger
    tell the rest, and only the writes of that owner are refused, with what mends it."""
    gone, damaged = await remember(service, "goes"), await remember(service, "goes too")
    for note_id in (gone, damaged):
        await call(service, "forget", id=note_id, caller=HUMAN)
    stays = await remember(service, "stays", triggers=[{"event": "pre-run"}])
    await remember(service, "of s1", scope="session", caller={"session": "s1"})
    await remember(service, "of s2", scope="session", caller={"session": "s2"})
    assert list((await call(service, "inject", caller={"session": "s1"})).ids) != []
    keys, redis = (await projection(service)).keys, service.redis
    await redis.hset(keys.tomb, damaged, "garbage")
    await redis.hset(keys.cells, "owner:s2", "garbage")
    await redis.hset(keys.use, f"{stays}:n", "many")
    await redis.xadd(keys.access, {"who": "a stranger"})
    await redis.xadd(keys.access, {"e": "not ours"})
    service.close("desk")
    assert [entry.id for entry in (await call(service, "audit", caller=HUMAN)).entries] == [gone]
    assert [end.id for end in (await call(service, "status", caller=HUMAN)).recent] == [gone]
    assert await listed(service, states=["forgotten"], caller=HUMAN) == [gone]
    assert (await refused(call(service, "inspect", id=damaged, caller=HUMAN))).code == "not_found"
    request = wire.decode("export", msgspec.json.encode({"workspace": "desk", "caller": HUMAN}))
    assert [line async for line in service.export(request)]
    assert [row.owner for row in (await call(service, "owners", caller=HUMAN)).rows] == ["s1"]
    assert len((await call(service, "ledger", caller=HUMAN)).rows) == 1
    await remember(service, "more of s1", scope="session", caller={"session": "s1"})
    refusal = await refused(remember(service, "more of s2", scope="session", caller={"session": "s2"}))
    assert (refusal.code, "amnesia rebuild" in str(refusal.hint)) == ("conflict", True)


async def test_an_owner_with_damaged_facts_lives_on_by_its_stamp(service: Service) -> None:
    """V09: where only the facts of an owner's cell are damaged, its stamp still says which life it is in."""
    await remember(service, "of s1", scope="session", caller={"session": "s1"})
    keys = (await projection(service)).keys
    await service.redis.hset(keys.cells, "owner:s1", "1o|x|1-0|{]")
    service.close("desk")
    await remember(service, "more of s1", scope="session", caller={"session": "s1"})
    (row,) = (await call(service, "owners", caller=HUMAN)).rows
    assert (row.owner, row.state, row.incarnation, row.notes) == ("s1", "open", 1, 2)
