"""Workspaces and their policies: names, drops, overrides; one contract, held by fakeredis and by the real server."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from tests.contract.driver import NOW, POLICY, Driver, cut_in, policy_unit, replace_policy
from tests.support import foreign_keys

from amnesiad.errors import Conflict, NotFound, StoreUnavailable
from amnesiad.store import workspaces
from amnesiad.store.due import LAST_MS, earliest
from amnesiad.store.keys import Keys
from amnesiad.store.log import Cell, Unit
from amnesiad.store.owners import UNFINISHED, children_of, close_owner, touch_owners
from amnesiad.store.policies import FILED_CELL, Filed, fingerprint, mark_filed, read_policy


class TestWorkspaces:
    """Names, and what becomes of a workspace that goes."""

    async def test_a_dropped_workspace_takes_nothing(self, driver: Driver) -> None:
        """C16: after a drop neither units of any sort, nor a witness, leave a key; the others are untouched."""
        other = await Driver.open(driver.redis, "other")
        kept = await other.remember("stays")
        await driver.remember("goes")
        await driver.open_owner("s1")
        assert await workspaces.drop(driver.redis, "tests")
        assert not await workspaces.drop(driver.redis, "tests")
        for unit in (driver.birth("late")[0], Unit(cells=[Cell("owner:s1", "", "1o")]), Unit(due=[("n", 5)])):
            outcome = await driver.log.commit(unit)
            assert (outcome.status, outcome.detail, outcome.current) == ("conflict", "policy", b"")
        with pytest.raises(NotFound):
            await driver.witness.check(NOW, [], entry=b"{}")
        with pytest.raises(NotFound):
            await read_policy(driver.redis, driver.keys, POLICY)
        assert await foreign_keys(driver.redis) == []
        assert await driver.redis.hexists(other.keys.heads, kept)

    async def test_a_drop_against_writers_leaves_nothing(self, driver: Driver) -> None:
        """Writers who do not know of the drop yet cannot bring a key back."""

        async def write(start: int) -> None:
            for i in range(30):
                await driver.log.commit(driver.birth(f"note {start} {i}")[0])

        await asyncio.gather(write(0), write(1), workspaces.drop(driver.redis, "tests"), write(2))
        assert await foreign_keys(driver.redis) == []

    async def test_two_who_make_it_at_once_share_it(self, store: Redis) -> None:
        """One id for one name, and no cells left of the loser's."""
        ids = await asyncio.gather(*[workspaces.find_or_create(store, "shared") for _ in range(10)])
        assert len(set(ids)) == 1
        assert await foreign_keys(store) == []
        assert await workspaces.all_workspaces(store) == {"shared": ids[0]}

    async def test_whoever_is_killed_while_making_it_leaves_nothing_half_made(self, store: Redis) -> None:
        """C41: cut off behind its first write, a workspace is there with all it needs, or not at all."""
        cut_in(store, ("HSET", "HSETNX", "EVALSHA"), die)
        with pytest.raises(StoreUnavailable):
            await workspaces.find_or_create(store, "half")
        assert await foreign_keys(store) == []
        driver = await Driver.open(store, "half")
        await driver.remember("it takes writes")

    async def test_whoever_is_killed_while_dropping_it_leaves_no_notes_of_owners(self, driver: Driver) -> None:
        """C41: cut off behind the step that takes the name, a drop leaves nothing that would stay for ever."""
        await driver.remember("of a session", scope="session", owner="s1", incarnation=await driver.open_owner("s1"))
        cut_in(driver.redis, ("EVALSHA",), die)
        with pytest.raises(StoreUnavailable):
            await workspaces.drop(driver.redis, "tests")
        assert await foreign_keys(driver.redis) == []

    async def test_a_name_taken_back_takes_its_owners_along(self, driver: Driver) -> None:
        """An owner that began in a workspace without a note leaves no lease behind when its name is taken back."""
        await driver.open_owner("s1")
        assert await workspaces.discard_unused(driver.redis, "tests", driver.keys.ws)
        assert await foreign_keys(driver.redis) == []

    async def test_a_rename_moves_the_name_alone(self, store: Redis) -> None:
        """The id stays; a name that is taken or missing is told."""
        one, two = await workspaces.find_or_create(store, "one"), await workspaces.find_or_create(store, "two")
        with pytest.raises(Conflict):
            await workspaces.rename(store, "one", "two")
        with pytest.raises(NotFound):
            await workspaces.rename(store, "none", "three")
        await workspaces.rename(store, "one", "one")
        await workspaces.rename(store, "one", "three")
        assert await workspaces.all_workspaces(store) == {"three": one, "two": two}
        assert await store.exists(Keys(one).cells)


class TestOwnersMeanwhile:
    """What else happens to an owner between two commands."""

    async def test_a_sign_of_life_beside_an_end_keeps_its_mark(self, driver: Driver) -> None:
        """V28: whoever touches an owner while it ends does not hide from reconciliation that its notes are still
        there."""
        await driver.open_owner("s1")

        async def end() -> None:
            await close_owner(driver.log, "s1", heard_at=NOW + 1, at=None, source=None)

        cut_in(driver.redis, ("HMGET", "EVALSHA"), end)
        await touch_owners(driver.redis, driver.keys, {"s1": NOW + 2})
        await touch_owners(driver.redis, driver.keys, {"s1": NOW + 2})
        assert await driver.redis.zscore(driver.keys.leases, "s1") == UNFINISHED

    async def test_a_sign_of_life_beside_a_drop_leaves_no_lease(self, driver: Driver) -> None:
        """A drop between look and touch leaves nothing that nobody owns."""
        await driver.open_owner("s1")

        async def drop() -> None:
            await workspaces.drop(driver.redis, "tests")

        cut_in(driver.redis, ("HMGET", "EVALSHA"), drop)
        await touch_owners(driver.redis, driver.keys, {"s1": NOW + 2})
        assert await foreign_keys(driver.redis) == []

    async def test_no_child_is_passed_over_while_others_show_themselves(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """V28: children are found however many pages they fill, and though their leases are refreshed between two."""
        monkeypatch.setattr("amnesiad.store.owners.LEASES_PER_READ", 2)
        names = [f"s1/a{number}" for number in range(5)]
        for name in names:
            driver.now += 1
            await driver.open_owner(name)

        async def refresh() -> None:
            await driver.redis.zadd(driver.keys.leases, dict.fromkeys(names[:2], NOW + 100))

        cut_in(driver.redis, ("ZRANGE", "ZSCAN"), refresh)
        assert await children_of(driver.redis, driver.keys, "s1") == names


class TestFiling:
    """By which policy everything is filed stands in the store."""

    async def test_a_change_is_not_filed_until_somebody_says_so(self, driver: Driver) -> None:
        """A workspace begins filed; a change of its policy is outstanding until it was filed under that version."""

        async def filed() -> Filed:
            return (await earliest(driver.redis, [driver.keys.ws]))[0].filed

        assert await filed() == Filed(True, "")
        await driver.log.commit(policy_unit(driver, 0, {"restorable": True}))
        assert not (await filed()).current
        assert not await mark_filed(driver.log, 0, POLICY)
        assert await mark_filed(driver.log, 1, POLICY)
        assert await mark_filed(driver.log, 1, POLICY)
        assert await filed() == Filed(True, fingerprint(POLICY))
        assert fingerprint(POLICY) != fingerprint(replace_policy(audit_retention=1))

    async def test_a_damaged_key_hides_no_other_workspace(self, driver: Driver) -> None:
        """V09: what comes first is found for every workspace, whatever stands where one's index should be."""
        await driver.remember("it falls due")
        other = await Driver.open(driver.redis, "other")
        await driver.redis.set(other.keys.due, "no index")
        await driver.redis.set(other.keys.cells, "no cells")
        third = await Driver.open(driver.redis, "third")
        await driver.redis.hset(third.keys.cells, FILED_CELL, "no cell")
        first, damaged, scrawled = await earliest(driver.redis, [driver.keys.ws, other.keys.ws, third.keys.ws])
        assert first.at is not None
        assert (damaged.at, damaged.filed.current) == (None, True)
        assert scrawled.filed.current
        for score, known in ((float("inf"), LAST_MS), (float("-inf"), 0)):
            await driver.redis.zadd(third.keys.due, {"stranger00": score})
            sound, strange = await earliest(driver.redis, [driver.keys.ws, third.keys.ws])
            assert (sound.at, strange.at) == (first.at, known)


class TestPolicies:
    """Live overrides."""

    async def test_set_and_reset(self, driver: Driver) -> None:
        """An override holds until it is reset; each change moves the version by one."""
        await driver.log.commit(policy_unit(driver, 0, {"max_deterrents": 1, "default_ttl": None}))
        effective = await read_policy(driver.redis, driver.keys, POLICY)
        assert effective.overrides == {"max_deterrents": 1, "default_ttl": None}
        await driver.log.commit(policy_unit(driver, 1, {}, ("default_ttl",)))
        effective = await read_policy(driver.redis, driver.keys, POLICY)
        assert (effective.version, effective.overrides) == (2, {"max_deterrents": 1})
        assert effective.policy.default_ttl == POLICY.default_ttl

    async def test_an_override_that_fits_no_more_is_left_out(self, driver: Driver) -> None:
        """The operator's new settings rule out an old override: the workspace still opens, and it can be reset."""
        await driver.log.commit(policy_unit(driver, 0, {"stale_strength": 0.2, "max_deterrents": 1}))
        base = replace_policy(stale_strength=0.6, forgotten_strength=0.4)
        effective = await read_policy(driver.redis, driver.keys, base)
        assert (effective.policy.stale_strength, effective.policy.max_deterrents) == (0.6, 1)
        assert effective.overrides["stale_strength"] == 0.2

    async def test_two_changes_at_once_are_one(self, driver: Driver) -> None:
        """C50: of two changes of one version one wins, the other is a conflict."""
        units = [policy_unit(driver, 0, {"max_deterrents": i}) for i in (1, 2)]
        assert [outcome.status for outcome in await driver.log.commit_now(units)] == ["ok", "conflict"]


async def die() -> None:
    """The process ends here, as far as the store can tell."""
    raise RedisConnectionError("gone")
