"""Drift: notes whose anchored file is no longer what it was are flagged, so that whoever reads them verifies.

Files are looked at where this process can see the workspace's root. A root it cannot see makes every file unknown, and
nothing is flagged for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from amnesiad.anchors import root_of, sha256_of
from amnesiad.core import clocks, decisions
from amnesiad.core.notes import Words, apply
from amnesiad.errors import AmnesiaError, NotFound
from amnesiad.store.due import SCAN_COUNT, DueNote, read_items, scan_ids
from amnesiad.store.keys import Keys
from amnesiad.store.log import Log
from amnesiad.store.policies import Effective, read_policy
from amnesiad.store.units import Builder
from amnesiad.store.vault import Unreadable
from amnesiad.store.workspaces import all_workspaces
from amnesiad_workers.passes.context import Context, Figures


async def check_anchors(context: Context, ws: str, ids: Sequence[str] = ()) -> Figures:
    """Flag every live note of the workspace, or of these, with an anchored file that changed or is gone; once each.

    It reads the notes that have a file's hash and no others, and hashes a file once however many notes are anchored to
    it. Raises ``StoreUnavailable``; running it again goes on from there.
    """
    figures = Figures()
    names = {ws_: name for name, ws_ in (await all_workspaces(context.redis)).items()}
    root = await root_of(names[ws]) if ws in names else None
    if root is None:
        return figures
    log, seen = Log(context.redis, Keys(ws)), dict[str, str | None]()
    try:
        policy = await read_policy(context.redis, log.keys, context.base)
        async for page in _pages(ids) if ids else scan_ids(context.redis.sscan, log.keys.anchored):
            await _check(context, log, policy, root, page, seen, figures)
    except NotFound:
        pass  # Dropped meanwhile.
    return figures


async def _pages(ids: Sequence[str]) -> AsyncIterator[list[str]]:
    for at in range(0, len(ids), SCAN_COUNT):
        yield list(ids[at : at + SCAN_COUNT])


async def _check(
    context: Context,
    log: Log,
    policy: Effective,
    root: Path,
    ids: list[str],
    seen: dict[str, str | None],
    figures: Figures,
) -> None:
    units = []
    for item in await read_items(context.redis, log.keys, ids):
        if isinstance(item, Unreadable):
            figures.report(item)
        if not isinstance(item, DueNote) or item.words is None or not await _drifted(root, item.words, seen):
            continue
        now = context.now()
        try:
            events = clocks.due_events(item.note, policy.policy, now)
            note = item.note
            for event in events:
                note = apply(note, event)
            if not note.live:
                continue  # Settling's to write down.
            events += decisions.flag(note, None, now, cause="anchor")
            builder = Builder(log.keys, context.keyring, policy.policy, policy.version)
            if builder.change(item.note, events, item.words) is not item.note:
                units.append((events, builder.build()))
        except AmnesiaError as error:
            figures.report(Unreadable(item.note.id, f"cannot be flagged: {error.message}"))
    outcomes = await log.commit_now([unit for _, unit in units]) if units else []
    for (events, _), outcome in zip(units, outcomes, strict=True):
        if outcome.status in ("ok", "own"):
            figures.count(events)
        else:
            # Somebody else changed it just now: the next check sees what it is then.
            figures.conflicts += 1


async def _drifted(root: Path, words: Words, seen: dict[str, str | None]) -> bool:
    """Whether a file the words are anchored to, with the hash it had, is another now or gone."""
    for anchor in words.anchors:
        if anchor.sha256 is None:
            continue
        if anchor.path not in seen:
            seen[anchor.path] = await asyncio.to_thread(sha256_of, root, anchor.path)
        if seen[anchor.path] != anchor.sha256:
            return True
    return False
