"""Who sees what, asked group by group: an index must never leave out a note that its reader may see."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.core.strategies import callers, examples, newborns, policies
from tests.daemon.desk import call, recalled, remember

from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import Refused
from amnesiad.core.notes import Note
from amnesiad.core.policy import Policy
from amnesiad.projection import Audience, group_of
from amnesiad.service import Service

CHILD = {"agent_kind": "subagent", "session": "s1", "agent": "a1"}
MAIN = {"session": "s1"}
OTHER = {"session": "s2"}


@examples(200)
@given(st.lists(newborns(), min_size=1, max_size=5), callers(), policies())
def test_a_group_is_seen_as_its_notes_are(notes: list[Note], caller: Caller, policy: Policy) -> None:
    """Nothing but a note's group decides whether a caller may see it."""
    audience = Audience(caller, policy)
    for note in notes:
        try:
            seen: bool | None = visible(note, caller, policy)
        except Refused:
            seen = None
        try:
            assert audience[group_of(note)] is seen
        except Refused:
            assert seen is None


async def test_a_note_is_found_by_whoever_sees_it_and_when_it_moves_by_others(service: Service) -> None:
    """C23: a child's note is found by the child alone, until it is promoted to the workspace."""
    note_id = await remember(service, "the lighthouse is green", scope="session", caller=CHILD)
    await remember(service, "the lighthouse of the others", scope="session", caller=OTHER)
    assert await recalled(service, "lighthouse", caller=CHILD) == ["the lighthouse is green"]
    assert await recalled(service, "lighthouse", caller=OTHER) == ["the lighthouse of the others"]
    await call(service, "promote", id=note_id, to="workspace", caller=CHILD)
    assert set(await recalled(service, "lighthouse", caller=OTHER)) == {
        "the lighthouse is green",
        "the lighthouse of the others",
    }
    assert await recalled(service, "lighthouse", caller=MAIN) == ["the lighthouse is green"]
