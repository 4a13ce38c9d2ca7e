"""From notes to what answers show: the note view and the answer to a change. No verb decides anything here."""

from __future__ import annotations

from typing import TypeVar

from amnesiad import wire
from amnesiad.core import clocks
from amnesiad.core.notes import Note, Words
from amnesiad.core.policy import Policy
from amnesiad.core.recall import trust
from amnesiad.projection import Use
from amnesiad.service.writing.change import Change
from amnesiad.workspace import Workspace

C = TypeVar("C", bound=wire.ChangeAnswer)


def view_fields(
    note: Note, words: Words | None, policy: Policy, use: Use, workspace: str, now: int, *, content: bool = True
) -> dict[str, object]:
    """The fields of a note view, for a note settled at ``now``; without words (forgotten) it shows bare facts only."""
    step = clocks.next_transition(note, policy)
    live = note.live
    return {
        "id": note.id,
        "workspace": workspace,
        "kind": note.kind,
        "regime": note.regime,
        "state": note.state,
        "state_at": note.state_at,
        "scope": note.scope,
        "tags": words.tags if words else (),
        "anchors": words.anchors if words else (),
        "triggers": words.triggers if words else (),
        "provenance": note.provenance,
        "pinned": note.pinned,
        "curve": note.curve,
        "ttl_ms": clocks.lease_ttl(note, policy) if live else note.ttl_ms,
        "expires_at": clocks.expires_at(note, policy) if live else None,
        "stale_at": clocks.stale_at(note, policy) if live else None,
        "strength": clocks.strength(note, policy, now) if live else 0.0,
        "rank": clocks.rank(note, policy, now),
        "trust": trust(note.provenance, policy),
        "access_count": use.times,
        "created_at": note.created_at,
        "content": words.content if words and content else None,
        "causes": note.causes,
        "state_reason": note.state_reason,
        "owner": note.owner,
        "key": words.key if words else None,
        "author": note.author,
        "next_transition": None if step is None else wire.NextTransition(at=step.at, to=step.to),
        "last_access_at": use.last_at or None,
        "supersedes": note.supersedes,
        "superseded_by": note.superseded_by,
        "restored_from": note.restored_from,
        "source_ref": note.source_ref,
        "mirrored": dict(note.mirrored),
    }


def view(workspace: Workspace, note: Note, now: int, *, content: bool = True) -> wire.NoteView:
    """A note of the projection as reads show it."""
    fields = view_fields(
        note,
        None if note.state == "forgotten" else workspace.words.get(note.id),
        workspace.policy,
        workspace.use.get(note.id, Use()),
        workspace.name,
        now,
        content=content,
    )
    return wire.NoteView(**fields)  # type: ignore[arg-type]


def changed(change: Change, note: Note, answer_type: type[C], did: bool) -> C:
    """How a note stands after a change; ``did`` tells whether anything changed."""
    return answer_type(
        id=note.id,
        changed=did,
        state=note.state,
        expires_at=clocks.expires_at(note, change.policy) if note.live else None,
        stale_at=clocks.stale_at(note, change.policy) if note.live else None,
        provenance=note.provenance,
        scope=note.scope,
        seq="",
    )
