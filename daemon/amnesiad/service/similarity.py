"""Writing reads too: warnings where a new text resembles an ended one, and the guard against echoes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, cast

from amnesiad import wire
from amnesiad.core import render
from amnesiad.core.callers import Caller, visible
from amnesiad.search import similar
from amnesiad.workspace import Workspace

MAX_WARNINGS: Final = 3
"""Warnings in one answer, closest first: an agent reads a few, and pays for all."""
_WARNING_STATES: Final = frozenset({"revoked", "superseded", "expired"})


def warnings(
    workspace: Workspace, caller: Caller, now: int, content: str, *, exclude: Collection[str] = ()
) -> tuple[wire.Warned, ...]:
    """Ended notes the caller may see whose text equals ``content`` or shares most of its words with it.

    The measure and its threshold are ``search.similar``'s: deterministic, and never a reason to refuse.
    """
    if not len(workspace.ended):
        return ()

    def allow(note_id: str) -> bool:
        note = workspace.settled(note_id, now)
        if note is None or note_id in exclude or note.state not in _WARNING_STATES:
            return False
        return visible(note, caller, workspace.policy)

    found = similar(content, workspace.ended, lambda note_id: workspace.words[note_id].content, allow)
    warned = []
    for note_id, _ in found[:MAX_WARNINGS]:
        note = workspace.settled(note_id, now)
        if note is not None:
            text = render.deterrent(note, workspace.words[note_id])
            warned.append(wire.Warned(kind=cast(Any, note.state), id=note_id, text=text))
    return tuple(warned)
