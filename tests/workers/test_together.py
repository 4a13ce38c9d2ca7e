"""Two daemons and the passes at once, on random sequences of ending, erasing, restoring and changes of policy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.daemon.conftest import serve
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, kept, problems, projection, remember

from amnesiad.service import Service
from amnesiad.store.connect import connect
from amnesiad.store.vault import read_tomb
from amnesiad_workers.passes import Context, purge_audit, refile, settle

ROUNDS = 25
AT_ONCE = 8
KEPT = 3 * DAY


def one_of_many(dice: random.Random, service: Service, context: Context, ws: str, note_id: str) -> Awaitable[Any]:
    """Something that is done to a note, to the policy, or to all by a pass."""
    about = {"id": note_id, "caller": HUMAN}
    choices: list[Callable[[], Awaitable[Any]]] = [
        lambda: call(service, "forget", **about),
        lambda: call(service, "restore", **about),
        lambda: call(service, "reinstate", **about),
        lambda: call(service, "undo", **about),
        lambda: call(service, "revoke", reason="a marked reason", **about),
        lambda: call(service, "mirror", target="mem0", result=dice.choice(["deleted", "hidden"]), **about),
        lambda: call(service, "policy", set={"restorable": dice.random() < 0.6}, caller=HUMAN),
        lambda: refile(context, ws),
        lambda: settle(context, ws),
        lambda: purge_audit(context, ws),
    ]
    return dice.choice(choices)()


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_that_is_erased_comes_back(redis: Redis, redis_url: str, seed: int) -> None:
    """C21, C30: whatever came between whatever, heads and all that follows are as the log says, no tomb holds words
    once copies are off, and no hash outlives its time."""
    dice = random.Random(seed)
    seconds, micros = await redis.time()
    clock = ManualClock(seconds * 1000 + micros // 1000)
    other = await connect(redis_url)
    services = [serve(redis, clock), serve(other, clock)]
    await call(services[0], "policy", set={"audit_retention": KEPT, "restorable": True}, caller=HUMAN)
    ws = (await projection(services[0])).ws
    settings = services[0].settings
    context = Context(
        redis,
        services[0].keyring,
        settings.policy,
        clock.now_ms,
        session_lease=settings.session_lease,
        child_lease=settings.child_lease,
    )
    ids: list[str] = []
    for number in range(ROUNDS):
        fields = {"kind": dice.choice(["fact", "finding"]), "key": dice.choice(["one", "two"]), "source_ref": "mem0:1"}
        ids.append(
            await remember(dice.choice(services), f"marked {number}", ttl_ms=dice.choice(["1d", "9d"]), **fields)
        )
        work = [one_of_many(dice, dice.choice(services), context, ws, dice.choice(ids)) for _ in range(AT_ONCE)]
        for answer in await asyncio.gather(*work, return_exceptions=True):
            assert not isinstance(answer, BaseException) or getattr(answer, "code", "") in ("refused", "not_found"), (
                answer
            )
        clock.advance(dice.choice([0, 0, DAY]))
    await refile(context, ws)
    assert await problems(services[0]) == ()
    await call(services[1], "policy", set={"restorable": False}, caller=HUMAN)
    await refile(context, ws)
    assert "marked" not in repr(await tombs_of(services[0]))
    clock.advance(KEPT)
    await settle(context, ws)
    assert await problems(services[0]) == ()
    for grave in map(read_tomb, (await tombs_of(services[0])).values()):
        assert grave.tomb.content_hash is None or clock.now_ms() - grave.tomb.note.state_at < KEPT
    for service in services:
        await service.quiesce()
    await other.aclose()


async def tombs_of(service: Service) -> dict[bytes, bytes]:
    """Every tomb of the workspace, as it stands."""
    return next((value for key, value in (await kept(service)).items() if key.endswith(":tomb")), {})
