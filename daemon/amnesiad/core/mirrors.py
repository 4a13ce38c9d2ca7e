"""Notes that mirror an item of another store: the pointer that says which, and the record of what became of it there.

A note's ``source_ref`` may point at items elsewhere, as ``target:id``, several of them joined by ``+``. It is a bare
fact, so it outlives the words, and whoever governs the other store can still read it from a forgotten note. This module
reads and writes the pointer and decides whether a result is news; it reaches no other store, and no result moves a
note's state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from amnesiad.core.callers import Caller
from amnesiad.core.errors import Invalid, Refused
from amnesiad.core.events import AnyNoteEvent, Mirrored, MirrorResult
from amnesiad.core.intake import check_source_ref
from amnesiad.core.notes import Note

JOIN: Final = "+"
"""Between two pointers of one ``source_ref``; so no target's name and no id holds one."""
_TARGET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def mirror_ref(items: Mapping[str, str]) -> str:
    """The ``source_ref`` of a note that mirrors these items: target's name to the item's id there.

    Raises ``Invalid`` for a name or an id that cannot stand in a pointer, and for pointers beyond 128 characters.
    """
    if not items:
        raise Invalid("a mirror needs a target and an id", field="source_ref", hint="like mem0:4f2a")
    for target, item in items.items():
        if not _TARGET.fullmatch(target):
            raise Invalid(f"a target's name is letters, digits and ._-, not {target!r}", field="source_ref")
        if not item or JOIN in item:
            raise Invalid(f"the id in {target} is empty or holds a {JOIN}", field="source_ref")
    return check_source_ref(JOIN.join(f"{target}:{item}" for target, item in items.items()))


def mirrors_of(source_ref: str | None) -> dict[str, str]:
    """Target's name to item's id, for every pointer in a ``source_ref``; what is no pointer is left out."""
    found: dict[str, str] = {}
    for pointer in (source_ref or "").split(JOIN):
        target, colon, item = pointer.partition(":")
        if colon and item and _TARGET.fullmatch(target):
            found[target] = item
    return found


def mirror(note: Note, caller: Caller, now: int, *, target: str, result: MirrorResult) -> list[AnyNoteEvent]:
    """Record what became of the note's item in ``target``; ``[]`` where that is the last that is known of it.

    Whoever sees the note may: it adds no words and moves no state. Raises ``Refused`` for a target that the note does
    not point at.
    """
    if target not in mirrors_of(note.source_ref):
        raise Refused(
            f"note {note.id} mirrors nothing in {target}",
            rule="no-mirror",
            field="target",
            hint="a note mirrors what its source_ref points at, as target:id",
        )
    if dict(note.mirrored).get(target) == result:
        return []
    return [
        Mirrored(
            note=note.id,
            version=note.version + 1,
            at=now,
            actor=caller.actor,
            on_behalf=caller.on_behalf,
            target=target,
            result=result,
        )
    ]
