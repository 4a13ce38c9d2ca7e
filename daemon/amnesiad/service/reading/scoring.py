"""What a recall asks of all notes at once, in the terms of ``search.choice``: so that it looks at few of them.

The orders are ``core.recall``'s; here stands which of their criteria notes share. What is chosen is put in order there.
"""

from __future__ import annotations

from amnesiad.core import recall as ranking
from amnesiad.core.callers import Caller
from amnesiad.projection import Class, Group, class_of
from amnesiad.search import Asked, Worth
from amnesiad.workspace import Workspace


def asked(workspace: Workspace, caller: Caller, wanted: ranking.Filter, now: int, *, banded: bool) -> Asked:
    """The question behind a recall. ``banded`` for the order by relevance, in which stale notes come last in their band
    and a pin counts nothing; without a query it is the other way round."""
    sees, policy = workspace.audience(caller), workspace.policy

    def among(group: Group) -> bool:
        scope, owner, kind = group
        return (
            (not wanted.kinds or kind in wanted.kinds)
            and (wanted.scope is None or scope == wanted.scope)
            and (wanted.owner is None or owner == wanted.owner)
            and sees(group)
        )

    def worth(class_: Class) -> Worth | None:
        kind, provenance, pinned, state = class_
        if wanted.states and state not in wanted.states:
            return None
        trusted, half_life = ranking.standing(kind, provenance, policy)
        return Worth((float(state != "stale" if banded else pinned), trusted), half_life)

    def look(note_id: str) -> Class | None:
        note = workspace.live_note(note_id, caller, now)
        if note is None or not wanted.matches(note, workspace.words[note_id], note.state):
            return None
        return class_of(note)

    return Asked(
        among,
        worth,
        look,
        now,
        wanted.since,
        wanted.until,
        only=workspace.live.narrowed(wanted.tags) if wanted.tags else None,
        certain=not (wanted.tags or wanted.paths),
    )
