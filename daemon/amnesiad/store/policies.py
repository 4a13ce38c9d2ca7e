"""A workspace's live policy overrides: a hash of names and JSON values, and a version that every unit compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from redis.asyncio import Redis

from amnesiad.core.policy import Policy, apply_overrides
from amnesiad.errors import NotFound
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.log import Cell, Unit, parse_stored
from amnesiad.store.workspaces import POLICY_CELL


class Effective(NamedTuple):
    """The policy in force for a workspace, its version, and the overrides it was made from."""

    policy: Policy
    version: int
    overrides: dict[str, object]


async def read_policy(redis: Redis, keys: Keys, base: Policy) -> Effective:
    """Read the overrides over the operator's ``base``. Raises ``NotFound`` when the workspace was dropped."""
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        pipe.hget(keys.cells, POLICY_CELL)
        pipe.hgetall(keys.policy)
        cell, rows = await pipe.execute()
    if cell is None:
        raise NotFound("the workspace was dropped", field="workspace")
    overrides = {name.decode(): msgspec.json.decode(value) for name, value in rows.items()}
    return Effective(apply_overrides(base, overrides), int(parse_stored(cell).stamp), overrides)


def write_policy(unit: Unit, keys: Keys, version: int, changes: Mapping[str, object], resets: tuple[str, ...]) -> None:
    """Set and reset overrides, and move the version that every unit compares."""
    unit.cells.append(Cell(POLICY_CELL, str(version), str(version + 1)))
    unit.sets += [(keys.policy, "HSET", name, msgspec.json.encode(value)) for name, value in changes.items()]
    unit.sets += [(keys.policy, "HDEL", name, "") for name in resets]
