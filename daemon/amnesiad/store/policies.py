"""A workspace's live policy overrides: a hash of names and JSON values, and a version that every unit compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
import structlog
from redis.asyncio import Redis

from amnesiad.core.errors import Invalid
from amnesiad.core.policy import Policy, apply_overrides
from amnesiad.errors import NotFound
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.log import Cell, Unit, parse_stored
from amnesiad.store.workspaces import POLICY_CELL

logger = structlog.get_logger()


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
        cell, rows = cast(tuple[bytes | None, dict[bytes, Any]], await pipe.execute())
    if cell is None:
        raise NotFound("the workspace was dropped", field="workspace")
    overrides = {name.decode(): _value(value) for name, value in rows.items()}
    return Effective(fitting(base, overrides), int(parse_stored(cell).stamp), overrides)


def _value(raw: bytes) -> object:
    """A stored value. What is no JSON fits no setting, and is left out (and logged) like anything that does not fit."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace")


def fitting(base: Policy, overrides: Mapping[str, object]) -> Policy:
    """The base with all overrides, or, where these do not fit it any more, with those that do.

    They fitted when they were set; the operator has changed the base since, or gone back to an older version. To
    refuse would shut the workspace, and with it the way to reset them. What is left out is logged.
    """
    try:
        return apply_overrides(base, overrides)
    except Invalid:
        policy = base
    for name, value in overrides.items():
        try:
            policy = apply_overrides(policy, {name: value})
        except Invalid as error:
            logger.warning("a live setting does not fit and is left out", setting=name, reason=error.message)
    return policy


def write_policy(unit: Unit, keys: Keys, version: int, changes: Mapping[str, object], resets: tuple[str, ...]) -> None:
    """Set and reset overrides, and move the version that every unit compares."""
    unit.cells.append(Cell(POLICY_CELL, str(version), str(version + 1)))
    unit.sets += [(keys.policy, "HSET", name, msgspec.json.encode(value)) for name, value in changes.items()]
    unit.sets += [(keys.policy, "HDEL", name, "") for name in resets]
