"""What a renewal by injection keeps alive: the setting ``injection_renews``, over a hundred and twenty days of work.

Half the facts are what somebody works on; the other half were true once, and nobody asks for them again. All of them
fit the budget. Time is an argument here, so the figures are of behavior, not of speed: no load of the machine changes
them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final, NamedTuple, cast

from tests.bench.figures import Figure
from tests.daemon.desk import DAY, ManualClock, Recorder, call, listed, remember, sweep

from amnesiad.service import Service
from amnesiad.settings import load_settings
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import connect
from amnesiad.store.keyring import Keyring
from amnesiad.store.server import EmbeddedServer

FACTS: Final = 20
"""Of each half."""
DAYS: Final = 120
ASKED_EVERY: Final = 5
"""Days between two steps about the same fact: well before it goes stale, at two fifths of its thirty days."""


class Outcome(NamedTuple):
    """After all days: how many facts of each half live, and the tokens that all injections cost."""

    asked: int
    unasked: int
    tokens: int


async def figures() -> list[Figure]:
    """``matched``, the default, beside the other settings."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder))
        await server.start()
        try:
            found = {setting: await _lived(server.url, setting) for setting in ("matched", "always", "never")}
        finally:
            await server.stop()
    matched, always, never = found["matched"], found["always"], found["never"]
    alive = f"alive after {DAYS} days"
    return [
        Figure(f"facts nobody asks for, {alive}, matched", matched.unasked, "always", always.unasked, ""),
        Figure(f"facts asked for, {alive}, matched", matched.asked, "of", FACTS, ""),
        Figure(f"facts asked for, {alive}, never", never.asked, "of", FACTS, ""),
        Figure(f"tokens injected in {DAYS} days, matched", matched.tokens, "always", always.tokens, ""),
    ]


async def _lived(url: str, setting: str) -> Outcome:
    redis = await connect(url)
    try:
        clock = ManualClock(1_700_000_000_000)
        settings = load_settings(environ={"AMNESIA_INJECTION_RENEWS": setting})
        service = Service(redis, Keyring(b"k" * 32), settings, cast(StoreClock, clock), Recorder())
        place = {"workspace": setting}
        texts = [f"service{n} keeps its sessions in vault{n}" for n in range(2 * FACTS)]
        ids = [await remember(service, text, **place) for text in texts]
        tokens = 0
        for day in range(DAYS):
            for n in range(day % ASKED_EVERY, FACTS, ASKED_EVERY):
                told = await call(service, "inject", query=f"service{n} vault{n}", **place)
                await service.quiesce()
                tokens += told.tokens
            clock.advance(DAY)
            await sweep(service, setting)
        alive = set(await listed(service, states=["active", "stale"], **place))
        return Outcome(len(alive.intersection(ids[:FACTS])), len(alive.intersection(ids[FACTS:])), tokens)
    finally:
        await redis.aclose()
