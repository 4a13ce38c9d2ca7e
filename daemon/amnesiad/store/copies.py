"""The copies that tombs hold while ``restorable`` is on: taking all of them out, and nothing else.

Here and not with the worker's passes, because whoever switches copies on again must know that none is left from before.
"""

from __future__ import annotations

from amnesiad.store.due import DueTomb, read_items, scan_ids
from amnesiad.store.keyring import Keyring
from amnesiad.store.log import Log
from amnesiad.store.policies import Effective
from amnesiad.store.units import Builder


async def drop_copies(log: Log, keyring: Keyring, policy: Effective, now: int) -> bool:
    """Take the copy out of every tomb of the workspace, under a policy that keeps none; the files are the scrub's.

    ``False`` where the policy moved or a tomb changed meanwhile: to be run again. What was taken out until then is out.
    """
    async for ids in scan_ids(log.redis.hscan, log.keys.tomb):
        units = []
        for item in await read_items(log.redis, log.keys, ids):
            if isinstance(item, DueTomb) and item.tomb.kept is not None:
                builder = Builder(log.keys, keyring, policy.policy, policy.version)
                builder.retomb(item.tomb, now=now)
                units.append(builder.build())
        outcomes = await log.commit_now(units) if units else []
        if any(outcome.status not in ("ok", "own") for outcome in outcomes):
            return False
    return True
