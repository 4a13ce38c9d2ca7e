"""Who is calling, where a call itself cannot say: what an agent's hooks told of a tool call just before it was made.

An MCP server is given no identity of the agent behind a call. But the agent's hook before the tool names the call, the
session and the agent inside it, so the hook announces the call here and whoever serves it claims the caller by the
call's id. Kept in this process's memory only: hook and call of one agent reach the same socket, and a call comes
moments after its hook. Nothing is decided here about what an unannounced caller may do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from amnesiad import wire
from amnesiad.core.kinds import DAY_MS
from amnesiad.core.times import MINUTE_MS

KEEP_MS: Final = 30 * MINUTE_MS
"""How long an announced call may take to arrive: its user may be asked for permission first, and be away."""
MAX_CALLS: Final = 4096
"""Announced calls that are kept, the latest: hundreds of agents with several calls each."""
HOOKED_MS: Final = DAY_MS
"""How long one hook's call tells that hooks are installed; without an end, taking them out would never be noticed."""
MAX_HOOKED: Final = 1024
"""Workspaces of which it is known, for each agent; those heard of last."""


class _Call(NamedTuple):
    workspace: str
    caller: wire.CallerSpec
    until: int


class Announced:
    """Calls that were announced, by id. One event loop; ``clock`` tells store time in epoch ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._hooked: OrderedDict[tuple[str, str], int] = OrderedDict()

    def announce(self, tool_use_id: str, workspace: str, caller: wire.CallerSpec, now: int) -> None:
        """A call with this id is about to be made, in this workspace and by this caller. The latest word counts."""
        self._calls[tool_use_id] = _Call(workspace, caller, now + KEEP_MS)
        self._calls.move_to_end(tool_use_id)
        self._trim(now)

    def claim(self, tool_use_id: str) -> tuple[str, wire.CallerSpec] | None:
        """Workspace and caller of the call with this id; ``None`` for one that nobody announced, or long ago.

        Claimed again it answers the same: a call may be sent twice.
        """
        found = self._calls.get(tool_use_id)
        return None if found is None or found.until < self._clock() else (found.workspace, found.caller)

    def heard(self, workspace: str, agent_name: str, now: int) -> None:
        """A hook of this agent, such as ``claude-code``, has called for this workspace."""
        self._hooked[workspace, agent_name] = now
        self._hooked.move_to_end((workspace, agent_name))
        if len(self._hooked) > MAX_HOOKED:
            self._hooked.popitem(last=False)

    def hooked(self, workspace: str, agent_name: str) -> bool:
        """Whether hooks of this agent have called for this workspace within ``HOOKED_MS``."""
        at = self._hooked.get((workspace, agent_name))
        return at is not None and self._clock() - at <= HOOKED_MS

    def _trim(self, now: int) -> None:
        """Drop what is too much, and from the oldest on what is too old."""
        while self._calls:
            oldest = next(iter(self._calls.values()))
            if len(self._calls) <= MAX_CALLS and oldest.until >= now:
                return
            self._calls.popitem(last=False)
