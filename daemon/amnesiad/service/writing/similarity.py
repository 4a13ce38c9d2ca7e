"""Writing reads too: warnings where a new text resembles an ended one, and the guard against echoes."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, cast

from amnesiad import wire
from amnesiad.core import render
from amnesiad.core.callers import Caller, visible
from amnesiad.core.notes import Note
from amnesiad.search import similar
from amnesiad.workspace import Workspace

MAX_WARNINGS: Final = 3
"""Warnings in one answer, closest first: an agent reads a few, and pays for all."""
LOOKED_AT: Final = 64
"""Live notes, the closest, that are looked at for those among them that time has ended: while no pass runs they may be
any number."""
_WARNING_STATES: Final = frozenset({"revoked", "superseded", "expired"})


def warnings(
    workspace: Workspace, caller: Caller, now: int, content: str, *, exclude: Collection[str] = ()
) -> tuple[wire.Warned, ...]:
    """Ended notes the caller may see whose text equals ``content`` or shares most of its words with it.

    The measure and its threshold are ``search.similar``'s: deterministic, and never a reason to refuse.
    """
    seen = workspace.audience(caller)

    def allow(note_id: str) -> bool:
        note = workspace.settled(note_id, now)
        if note is None or note_id in exclude or note.state not in _WARNING_STATES:
            return False
        return visible(note, caller, workspace.policy)

    def content_of(note_id: str) -> str:
        return workspace.words[note_id].content

    found = similar(content, workspace.ended, content_of, allow, seen)
    if workspace.overdue(now):
        # Dead is dead, swept or not: what time has ended stands among the live notes until a pass has written so.
        found += similar(content, workspace.live, content_of, allow, seen, looked_at=LOOKED_AT)
        found.sort(key=lambda one: (-one[1], one[0]))
    warned = []
    for note_id, _ in found[:MAX_WARNINGS]:
        note = workspace.settled(note_id, now)
        if note is not None:
            text = render.deterrent(note, workspace.words[note_id])
            warned.append(wire.Warned(kind=cast(Any, note.state), id=note_id, text=text))
    return tuple(warned)


_LINE: Final = re.compile(r"\[(?P<id>[0-9a-z]{10})\] (?P<rest>.+)")
_HEAD: Final = re.compile(r"[a-z-]+ \S+ (?:human|user-stated|agent|auto)(?: \([^()]*\))*")
"""Kind, life, provenance and marks: what stands between a memory line's id and its content. The life moves on."""
_FOOTER: Final = re.compile(re.escape(render.FOOTER).replace(r"\{tokens\}", r"\d+").replace(r"\{budget\}", r"\d+"))


def echo_of(workspace: Workspace, caller: Caller, now: int, content: str) -> Note | None:
    """The live note that ``content`` merely shows again: a rendered memory line, or a block of lines that we injected.

    Of a block it is the first live note's line. ``None`` as soon as one line is anything else than the frame, the line
    of a live note the caller may see, or the deterrent of an ended one: then somebody has something to say.
    """
    if "[" not in content:
        return None
    first: Note | None = None
    for line in content.strip().split("\n"):
        line = line.strip()
        if not line or line == render.HEADER or _FOOTER.fullmatch(line):
            continue
        found = _LINE.fullmatch(line)
        note = None if found is None else workspace.settled(found["id"], now)
        if found is None or note is None or not visible(note, caller, workspace.policy):
            return None
        words = workspace.words[note.id]
        if not note.live:
            if note.state == "forgotten" or line != render.deterrent(note, words):
                return None
            continue
        head, _, said = found["rest"].partition(": ")
        if said.strip() != render.one_line(words.content).strip() or not _HEAD.fullmatch(head):
            return None
        first = first or note
    return first
