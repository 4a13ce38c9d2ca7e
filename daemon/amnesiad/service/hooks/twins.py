"""The same thing told twice at once: an agent runs a hook for each file that names it, the user's and the project's.

Which are twins is said by a key that the caller makes; here it is only remembered for a moment, in this process. Two
daemons each answer their own half of such a pair.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

WINDOW_MS: Final = 5_000
"""How far apart twins may be: they are started together, and a loaded machine takes seconds for the second."""
MAX_KEPT: Final = 4096
"""Keys that are remembered; more calls in one window are those of hundreds of agents."""


class _Step(NamedTuple):
    key: str
    at: int
    number: int


class Twins:
    """What was told within the last moment. One event loop."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, int] = OrderedDict()
        self._steps: OrderedDict[str, _Step] = OrderedDict()

    def in_order(self, context: str, key: str, now: int) -> str:
        """The key of something that a context tells one at a time, such as its start and its end: told again after
        something else it is no twin, however soon. Counted anew after a moment's rest, so that daemons agree."""
        last = self._steps.get(context)
        if last is None or not 0 <= now - last.at < WINDOW_MS:
            last = _Step(key, now, 0)
        elif last.key != key:
            last = _Step(key, now, last.number + 1)
        self._steps[context] = last
        self._steps.move_to_end(context)
        if len(self._steps) > MAX_KEPT:
            self._steps.popitem(last=False)
        return f"{key} {last.number}"

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
