"""The Claude Agent SDK's hooks, handed to the daemon: ``hooks(…)`` for ``ClaudeAgentOptions``, or ``Memory`` around a
client.

The SDK calls its hooks with the payloads of Claude Code and takes Claude Code's answers, so a payload goes to the
daemon as it comes, and the answer back as it is. What a hook may bring into a context, and what it tells of an agent's
life, is the daemon's to know. A hook never stands in the agent's way: where memory is away, slow, or refuses, it says
nothing.

The SDK has no hooks for a session's beginning and end. What a new context is told comes with its first prompt, and the
end is told by ``Memory.aclose``; a session that only ``hooks()`` knew of ends by its lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

import amnesiad
from amnesiad.integrations.link import STEP_TIMEOUT_S, Link, missing

try:
    from claude_agent_sdk import HookContext, HookInput, HookJSONOutput, HookMatcher
    from claude_agent_sdk.types import HookEvent, McpStdioServerConfig
except ImportError as error:
    raise ImportError(missing("the Claude Agent SDK", "claude-agent-sdk")) from error

AGENT: Final = "claude-code"
"""Whose payloads these are."""
EVENTS: Final[tuple[HookEvent, ...]] = (
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
)
"""The hooks that say or ask something; notifications, failures and permissions are not among them."""
UNSENT: Final = frozenset({"tool_response", "last_assistant_message"})
"""What of a payload the daemon does not look at: it may be as long as a file, and holds what nobody asked to keep."""
GRACE_S: Final = 1.0
"""How much longer the SDK itself waits for a hook than the hook for the daemon."""
MAX_SESSIONS: Final = 256
"""Sessions whose end is told when memory is closed; of more the last are remembered, the others end by their lease."""
SERVER: Final = "amnesia"
"""The name of the MCP server, and so the prefix of its tools: ``mcp__amnesia__amnesia_recall``."""

_logger: Final = logging.getLogger(__name__)


class Memory:
    """The memory of the agents that one program runs through the SDK, an asynchronous context manager.

    ``workspace`` is by default ``AMNESIA_WORKSPACE``, else the one that an agent's directory belongs to. ``timeout_s``
    bounds each hook.
    """

    def __init__(
        self, socket: Path | str | None = None, *, workspace: str | None = None, timeout_s: float = STEP_TIMEOUT_S
    ) -> None:
        self._workspace = workspace or os.environ.get("AMNESIA_WORKSPACE") or None
        self._socket = socket
        self._timeout_s = timeout_s
        self._link = Link(socket, workspace=self._workspace, timeout_s=timeout_s)
        self._sessions: dict[str, str | None] = {}
        self._away = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Tell the end of the sessions that were heard of, and close the running loop's connections."""
        sessions, self._sessions = self._sessions, {}
        for session, cwd in sessions.items():
            where = {} if cwd is None else {"cwd": cwd}
            await self._tell({"hook_event_name": "SessionEnd", "session_id": session, "reason": "other", **where})
        await self._link.aclose()

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """For ``ClaudeAgentOptions(hooks=…)``. Other hooks may stand beside these: add to the lists."""
        return {event: [HookMatcher(hooks=[self._hook], timeout=self._timeout_s + GRACE_S)] for event in EVENTS}

    def mcp_servers(self) -> dict[str, McpStdioServerConfig]:
        """For ``ClaudeAgentOptions(mcp_servers=…)``: the daemon's tools, by the shim that speaks for this memory."""
        given = {"AMNESIA_SOCKET": self._socket, "AMNESIA_WORKSPACE": self._workspace}
        shim = Path(amnesiad.__file__).parent / "shims" / "mcp.py"
        return {
            SERVER: {
                "type": "stdio",
                "command": sys.executable,
                "args": ["-I", "-S", str(shim)],
                "env": {name: str(value) for name, value in given.items() if value is not None},
            }
        }

    async def _hook(self, payload: HookInput, _tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
        given = cast(Mapping[str, Any], payload)
        if isinstance(session := given.get("session_id"), str):
            self._sessions.pop(session, None)
            self._sessions[session] = given.get("cwd")
            while len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        return cast(HookJSONOutput, await self._tell(given))

    async def _tell(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The daemon's answer; ``{}`` where there is none. Says once in the log that memory is away, and of what
        kind."""
        sent = {name: value for name, value in payload.items() if name not in UNSENT}
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._link.aclient().hook(AGENT, sent, workspace=self._workspace)
        except Exception as error:  # whatever it is, it is no reason for an agent to stop
            if not self._away:
                _logger.warning("an agent goes on without memory: %s", type(error).__name__)
            self._away = True
            return {}
        self._away = False
        return answer


def hooks(
    socket: Path | str | None = None, *, workspace: str | None = None, timeout_s: float = STEP_TIMEOUT_S
) -> dict[HookEvent, list[HookMatcher]]:
    """``Memory(…).hooks()``, for a program that does not tell when its sessions are over."""
    return Memory(socket, workspace=workspace, timeout_s=timeout_s).hooks()
