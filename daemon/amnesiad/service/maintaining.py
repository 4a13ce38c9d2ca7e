"""Having a workspace kept in order: passes that the worker runs when it is asked, and proofs that all is as the log
says.

What the worker does is asked of it and its figures are handed on; nothing is done twice.
"""

from __future__ import annotations

from typing import Any, Final

from amnesiad import wire
from amnesiad.core import intake
from amnesiad.core.callers import Caller, governs
from amnesiad.core.errors import NotFound
from amnesiad.service.base import Base
from amnesiad.store import verify, workspaces
from amnesiad.store.keys import Keys
from amnesiad.workspace import Workspace

MAX_PROBLEMS: Final = 50
"""Problems that verify and rebuild name; the rest are counted."""
MAX_CHECKED: Final = 500
"""Notes that a check of some paths names to the worker, 5 kB of ids in a job; for more of them it looks at all there
are."""


class Maintaining(Base):
    """The verbs that run passes and proofs."""

    async def settle(self, request: wire.SettleRequest) -> wire.SettleAnswer:
        """Have the worker run the workspace's due transitions now, and wait for its figures."""
        workspace = await self.existing(request)
        figures = await self.jobs.run("settle", workspace.ws)
        await self.follow(workspace)
        return _figures(figures, workspace, request.caller.to_core())

    async def scrub(self, request: wire.ScrubRequest) -> wire.ScrubAnswer:
        """Have the worker rewrite the store's files so that erased words are absent from them, and wait for it."""
        workspace = await self.existing(request)
        figures = await self.jobs.run("scrub")
        await self.follow(workspace)
        return _figures(figures, workspace, request.caller.to_core())

    async def check(self, request: wire.CheckRequest) -> wire.CheckAnswer:
        """Have the worker compare anchors with the files they name; drifted notes are flagged.

        With ``paths``, those of notes anchored at or below one of them, and no work where there are none. A job's
        arguments are kept in clear: it is told which notes, never which paths.
        """
        paths = intake.check_paths(request.paths)
        workspace = await self.existing(request)
        notes = sorted(workspace.pathed.anchored(paths))
        if paths and not notes:
            return _figures({"stale": 0}, workspace, request.caller.to_core())
        named = notes if len(notes) <= MAX_CHECKED else ()
        figures = await self.jobs.run("check_anchors", workspace.ws, *named)
        await self.follow(workspace)
        return _figures(figures, workspace, request.caller.to_core())

    async def verify(self, request: wire.VerifyRequest) -> wire.VerifyAnswer:
        """Prove that the heads and all that follows from them are what the log says. Problems carry no words, but ids:
        a child, teammate or fresh agent is refused (``Forbidden``)."""
        self.require_governor(request.workspace, request.caller.to_core(), "verify a workspace", "proof-role")
        keys = await self._keys(request)
        report = await verify.verify(self.redis, keys, self.keyring, self.settings.policy)
        problems = tuple(str(one) for one in report.differences[:MAX_PROBLEMS])
        return wire.VerifyAnswer(figures=report.figures, problems=problems, seq=report.seq)

    async def rebuild(self, request: wire.RebuildRequest) -> wire.RebuildAnswer:
        """Make heads, cells, members, due times and totals anew from log and vault; not for those below the main
        agent."""
        self.require_governor(request.workspace, request.caller.to_core(), "rebuild a workspace", "proof-role")
        keys = await self._keys(request)
        rebuilt = await verify.rebuild(self.redis, keys, self.keyring, self.settings.policy)
        self.close(request.workspace)
        return wire.RebuildAnswer(figures=rebuilt.figures, seq=rebuilt.found.seq)

    async def _keys(self, request: wire.Request) -> Keys:
        """The workspace's keys, without a projection: what these two mend may be what a projection cannot load."""
        ws = await workspaces.find(self.redis, request.workspace)
        if ws is None:
            raise NotFound("there is no such workspace", field="workspace", hint="amnesia workspaces lists them")
        return Keys(ws)


def _figures(figures: dict[str, Any], workspace: Workspace, caller: Caller) -> wire.FiguresAnswer:
    """What a pass did, to those who see the whole workspace; others learn that it is done."""
    if not governs(caller):
        return wire.FiguresAnswer(figures={}, problems=(), seq=workspace.position)
    counts = {name: value for name, value in figures.items() if isinstance(value, int)}
    problems = tuple(str(problem) for problem in figures.get("unreadable", ()))[:MAX_PROBLEMS]
    return wire.FiguresAnswer(figures=counts, problems=problems, seq=workspace.position)
