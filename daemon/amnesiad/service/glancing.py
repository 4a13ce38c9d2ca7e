"""What a status line shows of a workspace: one line of text, from counts that may be some seconds old.

An agent draws its status line many times a minute, so this never counts notes for one caller alone, and it makes, renews
and logs nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from amnesiad import wire
from amnesiad.core.callers import Caller
from amnesiad.core.errors import AmnesiaError, Invalid
from amnesiad.core.intake import check_id
from amnesiad.core.render import glance_line
from amnesiad.core.times import SECOND_MS
from amnesiad.service.hooking import Hooking
from amnesiad.service.tallying import tally

MAX_AGE_MS: Final = 10 * SECOND_MS
"""How old the counts of a status line may be: counting a hundred thousand notes takes a fifth of a second."""


class _Directory(msgspec.Struct, frozen=True, kw_only=True):
    current_dir: str | None = None


class _Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that matter of what an agent hands its status line; it may say much more."""

    session_id: str | None = None
    cwd: str | None = None
    workspace: _Directory = _Directory()


class Glancing(Hooking):
    """The question behind a status line."""

    async def glance(self, request: wire.HooksRequest) -> str:
        """The line for an agent's own payload, in the workspace that is named or that of the directory in the payload.

        Empty for a workspace that nobody has written to. Raises ``Invalid`` for a payload that is not a status line's or
        tells no directory, ``StoreUnavailable``.
        """
        try:
            drawn = msgspec.convert(request.payload, _Drawn)
        except msgspec.ValidationError:
            raise Invalid("the payload is not a status line's", field="payload") from None
        name = request.workspace or await self._name_of(drawn.workspace.current_dir or drawn.cwd)
        workspace = await self.caught_up(name)
        if workspace is None:
            return ""
        caller, now = Caller(session=_token(drawn.session_id)), self.clock.now_ms()
        seen = (await tally(workspace, now, max_age_ms=MAX_AGE_MS)).seen(workspace.audience(caller))
        latest = await self._latest_graves(workspace, caller, 1)
        return glance_line(
            active=seen.by_state["active"],
            stale=seen.by_state["stale"],
            tokens=seen.tokens,
            forgotten_ago_ms=max(0, now - latest[0].note.state_at) if latest else None,
        )

    async def _name_of(self, directory: str | None) -> str:
        if directory is None or not directory.startswith("/"):
            raise Invalid("the payload names no absolute directory", field="workspace", hint="name the workspace")
        return (await self.whereabouts.of(directory)).workspace


def _token(session: str | None) -> str | None:
    """The session, if it is one: a line about the workspace is better than none."""
    try:
        return None if session is None else check_id(session, "session_id")
    except AmnesiaError:
        return None
