"""The same thing told twice at once: an agent runs a hook for each file that names it, the user's and the project's.

Which are twins is said by a key that the caller makes; here it is only remembered for a moment, in this process. Two
daemons each answer their own half of such a pair.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

WINDOW_MS: Final = 5_000
"""How far apart twins may be: they are started together, and a loaded machine takes seconds for the second."""
MAX_KEPT: Final = 4096
"""Keys that are remembered; more calls in one window are those of hundreds of agents."""


class Twins:
    """What was told within the last moment. One event loop."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, int] = OrderedDict()

    def told_before(self, key: str, now: int) -> bool:
        """Whether this was told within the window before ``now`` (epoch ms); from now on it was."""
        at = self._told.get(key)
        if at is not None and 0 <= now - at < WINDOW_MS:
            return True
        self._told[key] = now
        self._told.move_to_end(key)
        if len(self._told) > MAX_KEPT:
            self._told.popitem(last=False)
        return False

    def take_back(self, key: str) -> None:
        """Nothing came of it: whoever says it next is the first."""
        self._told.pop(key, None)
