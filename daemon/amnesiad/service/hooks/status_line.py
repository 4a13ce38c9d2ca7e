"""What a status line shows of a workspace: one line of text, from counts that may be some seconds old.

An agent draws its status line many times a minute, so this never counts notes for one caller alone, and it makes,
renews and logs nothing.
"""

from __future__ import annotations

from typing import Final

from amnesiad import wire
from amnesiad.agents.payload import Payload
from amnesiad.core.callers import Caller
from amnesiad.core.errors import Invalid
from amnesiad.core.render import glance_line
from amnesiad.core.times import SECOND_MS
from amnesiad.service.hooks.hooking import Hooking
from amnesiad.service.reading.counting import losses, tally

MAX_AGE_MS: Final = 10 * SECOND_MS
"""How old the counts of a status line may be: counting a hundred thousand notes takes a fifth of a second."""


class StatusLine(Hooking):
    """The question behind a status line."""

    async def glance(self, request: wire.HooksRequest) -> str:
        """The line for an agent's own payload, in the workspace that is named or that of the directory in the payload.

        Empty for a workspace that nobody has written to. Raises ``Invalid`` for a payload that tells no directory,
        ``StoreUnavailable``. A session that is none is left out: a line about the workspace is better than none.
        """
        payload = Payload(request.payload)
        directory = payload.any_object("workspace").any_text("current_dir") or payload.any_text("cwd")
        name = request.workspace or await self._name_of(directory)
        workspace = await self.caught_up(name)
        if workspace is None:
            return ""
        caller, now = Caller(session=payload.any_id(("session_id",))), self.clock.now_ms()
        sees = workspace.audience(caller)
        seen = (await tally(workspace, now, max_age_ms=MAX_AGE_MS)).seen(sees)
        _, forgotten_at = (await losses(workspace)).seen(sees)
        return glance_line(
            active=seen.by_state["active"],
            stale=seen.by_state["stale"],
            tokens=seen.tokens,
            forgotten_ago_ms=None if forgotten_at is None else max(0, now - forgotten_at),
        )

    async def _name_of(self, directory: str | None) -> str:
        if directory is None or not directory.startswith("/"):
            raise Invalid("the payload names no absolute directory", field="workspace", hint="name the workspace")
        return (await self.whereabouts.of(directory)).workspace
