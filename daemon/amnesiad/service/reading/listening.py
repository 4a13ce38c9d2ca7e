"""A context that is told things step by step: each note once, unless it changed since, and never more than fits.

What an agent's hooks inject stays in its context until that is compacted, so saying it again at every prompt would only
fill it. What was shown is kept in the ledger (``store.witness.Once``), which a compaction clears; here is only what
follows from it for one selection. Nothing here reads the store or chooses among notes: the selection is
``core.inject``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from amnesiad.core.inject import Pool, Selection
from amnesiad.core.notes import Note
from amnesiad.core.strongest import Tier
from amnesiad.core.triggers import may_fire
from amnesiad.store.witness import Once


class Listener(NamedTuple):
    """Who is told. ``whole``: everything that may matter, not only what the step matched; ``command``: what is about
    to be run; ``max_units``: the most UTF-16 units the text may have."""

    once: Once
    max_units: int
    whole: bool = False
    command: str | None = None

    def is_news(self, note: Note, cooldown_ms: int | None = None, *, now: int = 0) -> bool:
        """Whether the note has not been shown to this listener as it stands. ``cooldown_ms`` of the trigger that asked
        for it lets it be shown again later, though never in the same turn."""
        shown = self.once.shown(note.id)
        if shown is not None and note.state_at > shown[0]:
            return True
        return may_fire(shown, cooldown_ms, self.once.turn, now)

    def fitting(self, choose: Callable[[int], Selection], budget_tokens: int) -> Selection:
        """What is chosen under the budget, or under the largest smaller one tried whose text is not too long.

        Notes are left out whole, as everywhere. A text is as long as JavaScript says, in UTF-16 units: that is how the
        agents that cut it off count.
        """
        chosen = choose(budget_tokens)
        while (units := utf16_units(chosen.text)) > self.max_units:
            budget_tokens = min(chosen.tokens * self.max_units // units, budget_tokens - 1)
            chosen = choose(budget_tokens)
        return chosen


class News:
    """The notes of a pool that are news to a listener. ``count`` is that of the whole pool: nobody is told of more."""

    def __init__(self, pool: Pool, listener: Listener) -> None:
        self.count = pool.count
        self._pool = pool
        self._listener = listener

    def strongest(self, tier: Tier) -> Iterable[Note]:
        """As ``core.inject.Pool.strongest``."""
        return (note for note in self._pool.strongest(tier) if self._listener.is_news(note))


def utf16_units(text: str) -> int:
    """How long JavaScript says the text is."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
