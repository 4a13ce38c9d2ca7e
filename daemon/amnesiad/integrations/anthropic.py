"""Anthropic's memory tool over notes: ``MemoryTool`` and ``AsyncMemoryTool`` keep the files of ``/memories`` in a
workspace.

What a command does, and how files are kept in notes, is ``amnesiad.integrations.commands``'; here are the two tools
that carry its requests, for a blocking client and for an asynchronous one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from amnesiad.errors import AmnesiaError
from amnesiad.integrations.commands import Commands, Steps
from amnesiad.integrations.link import Link, missing

try:
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
    from anthropic.types.beta import BetaCacheControlEphemeralParam
except ImportError as error:
    raise ImportError(missing("Anthropic's client", "anthropic")) from error

TIMEOUT_S: Final = 5.0
"""What a command waits for the daemon; a tool that hangs holds up its agent."""


def _refused(error: AmnesiaError) -> ToolError:
    """A refusal in the words of the daemon, for the model to act on."""
    return ToolError(f"{error.message}{f' ({error.hint})' if error.hint else ''}")


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool for a blocking client. See the module.

    Arguments left out are taken from their ``AMNESIA_*`` variables. ``kind`` and ``ttl`` (``"7d"``, milliseconds) are
    those of the notes; without them the workspace's policy decides. ``scope`` narrows the files to the session's or the
    team's own.
    """

    def __init__(
        self,
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        kind: str | None = None,
        ttl: str | int | None = None,
        scope: str | None = None,
        timeout_s: float = TIMEOUT_S,
        cache_control: BetaCacheControlEphemeralParam | None = None,
        **caller: str | None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self.link = Link(socket, workspace=workspace, timeout_s=timeout_s, **caller)
        self._commands = Commands(kind=kind, ttl=ttl, scope=scope)

    def close(self) -> None:
        """Close the connection; a later command opens a new one."""
        self.link.close()

    def _run(self, steps: Steps) -> str:
        try:
            asks = next(steps)
            while True:
                asks = steps.send(self.link.ask_all(asks))
        except StopIteration as end:
            return str(end.value)
        except AmnesiaError as error:
            raise _refused(error) from error

    def execute(self, command: Any) -> str:
        """The answer to one command, which says itself which it is. Raises ``ToolError`` with what a model can act
        on."""
        return self._run(self._commands.asked(command))

    # Which of them it is, a command says itself.
    view = create = str_replace = insert = delete = rename = execute

    def clear_all_memory(self) -> str:
        """Forget every file."""
        return self._run(self._commands.clear())


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """``MemoryTool`` for an asynchronous client."""

    def __init__(
        self,
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        kind: str | None = None,
        ttl: str | int | None = None,
        scope: str | None = None,
        timeout_s: float = TIMEOUT_S,
        cache_control: BetaCacheControlEphemeralParam | None = None,
        **caller: str | None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self.link = Link(socket, workspace=workspace, timeout_s=timeout_s, **caller)
        self._commands = Commands(kind=kind, ttl=ttl, scope=scope)

    async def aclose(self) -> None:
        """Close the running loop's connections; a later command opens new ones."""
        await self.link.aclose()

    async def _run(self, steps: Steps) -> str:
        try:
            asks = next(steps)
            while True:
                asks = steps.send(await self.link.aask_all(asks))
        except StopIteration as end:
            return str(end.value)
        except AmnesiaError as error:
            raise _refused(error) from error

    async def execute(self, command: Any) -> str:
        """``MemoryTool.execute`` without blocking the loop."""
        return await self._run(self._commands.asked(command))

    # Which of them it is, a command says itself.
    view = create = str_replace = insert = delete = rename = execute

    async def clear_all_memory(self) -> str:
        """Forget every file."""
        return await self._run(self._commands.clear())
