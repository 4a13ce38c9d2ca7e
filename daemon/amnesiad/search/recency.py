"""The notes of an index in the order in which they were made, the newest first, found and sorted only as far as they
are read.

What cannot be wanted is left out in arrays, before any note is looked at; whoever reads still asks of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from amnesiad.search.foremost import Flags, foremost
from amnesiad.search.index import Index

FIRST: Final = 256
"""Notes sorted at first; each time they do not suffice, four times as many. A page and its filters seldom need more."""


def newest(
    index: Index,
    *,
    among: Callable[[Any], bool] | None = None,
    classes: Callable[[Any], bool] | None = None,
    now: int = 0,
    only: Flags | None = None,
    before: tuple[int, str] | None = None,
) -> Iterator[str]:
    """Ids by time of creation, then id, both falling; ``before`` begins behind the note made then with that id.

    ``among`` tells which groups are wanted, ``classes`` which classes (a note that is of another by ``now``, epoch ms,
    comes whatever its class is), ``only`` what else, by slot. Read it before the index changes.
    """
    slots, standings = index.everything(among), index.standings
    if only is not None:
        slots = slots[only[slots]]
    if classes is not None and (wanted := standings.classes.wanted(classes)) is not None:
        slots = slots[wanted[standings.numbers[slots]] | (standings.until[slots] <= now)]
    made = standings.created_at[slots]
    if before is not None:
        earlier = made <= before[0]
        slots, made = slots[earlier], made[earlier]
    size = FIRST
    while len(slots):
        chosen = foremost(made, -index.order[slots], size)
        times = made[chosen].astype(np.int64).tolist()
        ranked = zip(times, [index.ids[slot] for slot in slots[chosen].tolist()], strict=True)
        for note in sorted(ranked, reverse=True):
            if before is None or note < before:
                yield note[1]
        slots, made = slots[~chosen], made[~chosen]
        size *= 4
