"""Where sessions were heard of: an agent may walk from one workspace into another, and its end concerns them all.

A hook names the directory that its agent stands in at that moment. Whoever ends in another repository than the one it
began in would leave its notes there until its lease is over. Kept in this process's memory only, as a hint: what nobody
here has heard of is left to the lease. Nothing is ended here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MAX_SESSIONS: Final = 4096
"""Sessions that are remembered, those heard of last: more than the agents of a machine begin in a week."""
MAX_PLACES: Final = 8
"""Workspaces of one session, the latest. An end is told to each, together with those of its children in one request."""


class Presence:
    """The workspaces in which each session was heard of. One event loop."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    def heard(self, session: str, workspace: str) -> None:
        """The session has said something in this workspace."""
        known = self._of.setdefault(session, OrderedDict())
        self._of.move_to_end(session)
        known[workspace] = None
        known.move_to_end(workspace)
        if len(known) > MAX_PLACES:
            known.popitem(last=False)
        if len(self._of) > MAX_SESSIONS:
            self._of.popitem(last=False)

    def others(self, session: str, workspace: str) -> tuple[str, ...]:
        """The workspaces but this one in which the session was heard of."""
        return tuple(name for name in self._of.get(session, ()) if name != workspace)
