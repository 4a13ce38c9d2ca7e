"""Upkeep: getting erased words off the disk, purging the audit, keeping streams bounded, and re-filing after a change
of policy."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from amnesiad.core import clocks
from amnesiad.core.events import SYSTEM, Scrubbed, encode
from amnesiad.core.kinds import DAY_MS
from amnesiad.errors import Conflict, NotFound
from amnesiad.store.due import DueNote, DueTomb, Filing, earliest, read_items, scan_ids
from amnesiad.store.due import refile as file_anew
from amnesiad.store.erase import rewrite, unscrubbed_of_dropped
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import BRIDGE_GROUP, DEAD, LIFECYCLE, META, Keys
from amnesiad.store.log import START, Cell, Log, Unit, parse_stored, seq_key
from amnesiad.store.policies import Effective, mark_filed, read_policy
from amnesiad.store.units import SCRUB_CELL, UNSCRUBBED, Builder, left_of
from amnesiad.store.vault import Unreadable
from amnesiad.store.workspaces import all_workspaces
from amnesiad_workers.passes.context import Context, Figures
from amnesiad_workers.passes.settling import settle

HANDLED_MS: Final = 7 * DAY_MS
"""Handled lifecycle events are kept this long, for whoever asks what happened."""
MAX_DEAD: Final = 10_000
"""Poison events kept; a producer that sends more of them than anybody reads is told by the newest."""
CONSUMER_IDLE_MS: Final = DAY_MS
"""A daemon that read nothing for a day is gone; its name is taken off the group."""
MAX_RESTARTS: Final = 5
"""A policy that changes more often than this while notes are filed anew is left to the job's retry."""


class _Mark(NamedTuple):
    """What a workspace had unscrubbed before the rewrite began."""

    ws: str
    through: str
    erased: int
    stamp: str
    last: bytes


async def scrub(context: Context) -> dict[str, Any]:
    """Rewrite the store's files so that erased words are absent from them, and record it in each workspace concerned.

    Only what was erased before the rewrite began is taken off the count. A server that does not confirm it (a user's
    own may refuse) is told of once, and asked again as long as the count stands. Returns ``{workspaces, erased,
    result}``; ``result`` is ``none`` when there was nothing to do.
    """
    redis = context.redis
    names = list((await all_workspaces(redis)).values())
    marks = [
        await _mark(redis, ws)
        for ws, first in zip(names, await earliest(redis, names), strict=True)
        if first.unscrubbed > 0
    ]
    dropped = await unscrubbed_of_dropped(redis)
    if not marks and dropped <= 0:
        return {"workspaces": 0, "erased": 0, "result": "none"}
    result = await rewrite(redis, context.rewrite_timeout_s)
    for mark in marks:
        await _record(context, mark, result)
    if dropped > 0 and result == "done":
        with store_errors():
            await cast(Any, redis.hincrby(META, UNSCRUBBED, -dropped))
    return {"workspaces": len(marks), "erased": sum(mark.erased for mark in marks), "result": result}


async def _mark(redis: Any, ws: str) -> _Mark:
    keys = Keys(ws)
    with store_errors():
        pipe = redis.pipeline(transaction=True)
        pipe.xrevrange(keys.log, count=1)
        pipe.hget(keys.totals, UNSCRUBBED)
        pipe.hget(keys.cells, SCRUB_CELL)
        last, count, cell = await pipe.execute()
    held = None if cell is None else parse_stored(cell)
    through = last[0][0].decode() if last else START
    return _Mark(ws, through, int(count or 0), held.stamp if held else "", held.value if held else b"")


async def _record(context: Context, mark: _Mark, result: Any) -> None:
    """Append what came of the rewrite, and take the count off if it is confirmed. Another scrub's record stands."""
    stamp = f"{mark.through}:{mark.erased}"
    if result == "requested" and mark.last == b"requested" and mark.stamp.endswith(f":{mark.erased}"):
        return
    unit = Unit()
    unit.cells.append(Cell(SCRUB_CELL, mark.stamp, stamp, result))
    unit.events.append(encode(Scrubbed(at=context.now(), actor=SYSTEM, through=mark.through, result=result)))
    if result == "done":
        unit.totals.append((UNSCRUBBED, -mark.erased, None))
    await Log(context.redis, Keys(mark.ws)).commit(unit)


async def purge_audit(context: Context, ws: str) -> Figures:
    """Trim the ledger of what was shown by ``audit_retention``, and purge the tombs that the due index has lost.

    Purges are due like everything else; this walk over the forgotten notes is the net below, to be run once a day.
    """
    redis, keys, now = context.redis, Keys(ws), context.now()
    try:
        policy = await read_policy(redis, keys, context.base)
    except NotFound:
        return Figures()
    before = now - policy.policy.audit_retention
    with store_errors():
        await redis.xtrim(keys.access, minid=str(max(0, before)), approximate=False)
    async for ids in scan_ids(redis.zscan, keys.audit):
        missed = [
            Filing(item.tomb.note.id, item.tomb.note.version, item.tomb.purge_at)
            for item in await read_items(redis, keys, ids)
            if isinstance(item, DueTomb) and item.tomb.purge_at is not None and item.tomb.purge_at <= now
        ]
        if await file_anew(redis, keys, policy.version, missed) is None:
            break  # The policy has moved, so everything is being filed anew already.
    return await settle(context, ws)


async def trim(context: Context) -> dict[str, int]:
    """Trim lifecycle events handled more than seven days ago and the oldest of too many dead ones.

    Nothing that is pending or not yet delivered is ever trimmed. Consumers that are gone and hold nothing are removed.
    """
    redis = cast(Any, context.redis)
    trimmed = consumers = 0
    with store_errors():
        limit = await _handled_before(redis, context.now() - HANDLED_MS)
        if limit is not None:
            trimmed = await redis.xtrim(LIFECYCLE, minid=limit, approximate=False)
            for row in await redis.xinfo_consumers(LIFECYCLE, BRIDGE_GROUP):
                if row["pending"] == 0 and row["idle"] > CONSUMER_IDLE_MS:
                    await redis.xgroup_delconsumer(LIFECYCLE, BRIDGE_GROUP, row["name"])
                    consumers += 1
        dead = await redis.xtrim(DEAD, maxlen=MAX_DEAD, approximate=False)
    return {"trimmed": trimmed, "dead": dead, "consumers": consumers}


async def _handled_before(redis: Any, cutoff: int) -> str | None:
    """The id below which every event was handled and is old enough; ``None`` while nobody has read the stream."""
    if not await redis.exists(LIFECYCLE):
        return None
    group = next((row for row in await redis.xinfo_groups(LIFECYCLE) if row["name"] == BRIDGE_GROUP.encode()), None)
    if group is None:
        return None
    # What was delivered last is kept too: one entry, and the limit needs no arithmetic on ids.
    limits: list[str] = [f"{max(0, cutoff)}-0", group["last-delivered-id"].decode()]
    pending = await redis.xpending(LIFECYCLE, BRIDGE_GROUP)
    if pending["pending"]:
        limits.append(pending["min"].decode())
    return min(limits, key=seq_key)


async def refile(context: Context, ws: str) -> Figures:
    """File every note anew in the due index, by the policy that is in force; for a change of policy.

    Tombs get the new ``audit_retention``, and lose their copies when ``restorable`` is off. The one permitted scan;
    begun anew when the policy moves under it. Raises ``Conflict`` when that does not stop.
    """
    figures, keys = Figures(), Keys(ws)
    try:
        for _ in range(MAX_RESTARTS):
            policy = await read_policy(context.redis, keys, context.base)
            if await _refile(context, keys, policy, figures) and await mark_filed(
                Log(context.redis, keys), policy.version, context.base
            ):
                return figures
    except NotFound:
        return figures
    raise Conflict("the policy kept changing while notes were filed anew", hint="the job is tried again")


async def _refile(context: Context, keys: Keys, policy: Effective, figures: Figures) -> bool:
    redis, log = context.redis, Log(context.redis, keys)
    for key in (keys.heads, keys.tomb):
        async for ids in scan_ids(redis.hscan, key):
            filings: list[Filing] = []
            units: list[Unit] = []
            for item in await read_items(redis, keys, ids):
                if isinstance(item, Unreadable):
                    figures.report(item)
                elif isinstance(item, DueNote):
                    step = clocks.next_transition(item.note, policy.policy)
                    filings.append(Filing(item.note.id, item.note.version, None if step is None else step.at))
                elif isinstance(item, DueTomb) and item.tomb.purge_at is not None:
                    units += _retained(context, keys, policy, item)
            filed = await file_anew(redis, keys, policy.version, filings)
            if filed is None:
                return False
            outcomes = await log.commit_now(units) if units else []
            if any(outcome.status not in ("ok", "own") for outcome in outcomes):
                return False
            figures.refiled += filed + len(units)
    return True


def _retained(context: Context, keys: Keys, policy: Effective, item: DueTomb) -> list[Unit]:
    """The unit that fits a tomb to the policy, if it does not fit: kept as long, with a copy only where that is on."""
    now = context.now()
    if left_of(item.tomb, policy.policy, now) == item.tomb:
        return []
    builder = Builder(keys, context.keyring, policy.policy, policy.version)
    builder.retomb(item.tomb, now=now)
    return [builder.build()]
