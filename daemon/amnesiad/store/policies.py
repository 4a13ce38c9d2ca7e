"""A workspace's live policy overrides: a hash of names and JSON values, and a version that every unit compares.

What follows from a policy and stands in the store (due times, how long tombs are kept and with what) is filed anew
after a change, by a job. A cell beside the version says by which policy it is filed, so that no lost job leaves it as
it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec
import structlog
from redis.asyncio import Redis

from amnesiad.core.errors import Invalid
from amnesiad.core.policy import Policy, apply_overrides
from amnesiad.errors import NotFound
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys
from amnesiad.store.log import Cell, Log, Unit, parse_stored
from amnesiad.store.workspaces import FIRST_POLICY, POLICY_CELL

FILED_CELL: Final = "filed"
"""Its stamp is the version of the policy by which everything is filed, its payload the ``fingerprint`` of the base."""

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


def fingerprint(base: Policy) -> str:
    """What tells an operator's policy from another one, in 16 hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode(base)).hexdigest()[:16]


class Filed(NamedTuple):
    """By which policy a workspace is filed: whether that is the version in force, and the base's ``fingerprint``."""

    current: bool
    base: str


def filed_by(policy: bytes | None, filed: bytes | None) -> Filed:
    """What the two cells say. One that is damaged is for ``verify`` to name: no filing would mend it."""
    version = b"" if policy is None else policy.partition(b"|")[0]
    parts = (b"%d|||" % FIRST_POLICY if filed is None else filed).split(b"|", 3)
    damaged = len(parts) < 4 or not version.isdigit()
    return Filed(damaged or parts[0] == version, parts[-1].decode(errors="replace"))


async def mark_filed(log: Log, version: int, base: Policy) -> bool:
    """Record that everything is filed by that version of the policy over this base; ``False`` where it has moved on."""
    with store_errors():
        raw = cast(bytes | None, await log.redis.hget(log.keys.cells, FILED_CELL))
    held, mark = "" if raw is None else parse_stored(raw).stamp, fingerprint(base)
    if raw is not None and held == str(version) and parse_stored(raw).value == mark.encode():
        return True
    unit = Unit()
    unit.cells += [Cell(POLICY_CELL, str(version), "="), Cell(FILED_CELL, held, str(version), mark)]
    return (await log.commit(unit)).status in ("ok", "own")


def write_policy(unit: Unit, keys: Keys, version: int, changes: Mapping[str, object], resets: tuple[str, ...]) -> None:
    """Set and reset overrides, and move the version that every unit compares."""
    unit.cells.append(Cell(POLICY_CELL, str(version), str(version + 1)))
    unit.sets += [(keys.policy, "HSET", name, msgspec.json.encode(value)) for name, value in changes.items()]
    unit.sets += [(keys.policy, "HDEL", name, "") for name in resets]
