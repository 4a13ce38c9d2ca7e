"""Lives of owners: which life an end reaches and whether a start begins one, by whose clock; two pure functions."""

from __future__ import annotations

import msgspec
import pytest

from amnesiad.store.owners import NO_OWNER, Owner, end_owner, reopened, start_owner

OPEN = Owner(incarnation=2, open=True, opened_at=1000, started_at=10, source="host")
CALLED = Owner(incarnation=2, open=True, opened_at=1000)
CLOSED = Owner(incarnation=2, open=False, opened_at=1000, closed_at=2000, started_at=10, ended_at=20, source="host")


@pytest.mark.parametrize(
    ("known", "heard_at", "at", "source", "through", "closes"),
    [
        (OPEN, 2000, 20, "host", 2, True),
        (OPEN, 2000, 10, "host", 2, True),  # begun and ended in one millisecond
        (OPEN, 2000, 9, "host", 1, False),  # of the life before, come late
        (OPEN, 2000, 9, "other", 2, True),  # another producer's clock says nothing here
        (OPEN, 999, 9, "other", 1, False),
        (OPEN, 2000, None, None, 2, True),
        (CALLED, 1000, 9, "host", 2, True),
        (CALLED, 999, 9, "host", 1, False),  # heard before the call that opened it
        (CLOSED, 3000, 20, "host", 2, False),  # the same end again
        (CLOSED, 3000, None, None, 2, False),
    ],
)
def test_which_life_an_end_reaches(
    known: Owner, heard_at: int, at: int | None, source: str | None, through: int, closes: bool
) -> None:
    """C35: an end takes the life it belongs to and those before it, and none that began after it was said or heard."""
    ending = end_owner(known, heard_at=heard_at, at=at, source=source)
    assert (ending.through, ending.owner is not None and not ending.owner.open) == (through, closes)


def test_a_later_end_of_a_closed_owner_is_remembered() -> None:
    """C35: a start that lies before the latest end that was heard opens nothing, in whatever order both came."""
    later = end_owner(CLOSED, heard_at=2500, at=30, source="host").owner
    assert later is not None
    assert (later.open, later.incarnation, later.ended_at, later.closed_at) == (False, 2, 30, 2500)
    assert start_owner(later, heard_at=2600, at=25, source="host", agent_kind="main") is None
    assert start_owner(later, heard_at=2600, at=31, source="host", agent_kind="main") is not None
    early = end_owner(NO_OWNER, heard_at=100, at=30, source="host").owner
    assert early is not None
    assert start_owner(early, heard_at=200, at=29, source="host", agent_kind="main") is None


@pytest.mark.parametrize(
    ("known", "heard_at", "at", "source", "incarnation"),
    [
        (NO_OWNER, 1000, 10, "host", 1),
        (OPEN, 2000, 10, "host", None),  # repeated
        (OPEN, 2000, 9, "host", None),  # late
        (OPEN, 2000, 11, "host", 3),  # the end in between was lost or is late
        (OPEN, 2000, 11, "other", None),
        (CALLED, 2000, 11, "host", 3),  # the first start that is heard of what calls have opened
        (CALLED, 2000, None, None, None),
        (CLOSED, 3000, 20, "host", None),  # not after the end
        (CLOSED, 3000, 21, "host", 3),
        (CLOSED, 3000, 5, "other", 3),
        (CLOSED, 1999, 5, "other", None),  # heard before the end was
        (CLOSED, 1999, None, None, None),
        (CLOSED, 2000, None, None, 3),
    ],
)
def test_whether_a_start_begins_a_life(
    known: Owner, heard_at: int, at: int | None, source: str | None, incarnation: int | None
) -> None:
    """C35: a start begins a life once, and none that was over already when it was said or heard."""
    new = start_owner(known, heard_at=heard_at, at=at, source=source, agent_kind="main")
    assert (new and new.incarnation) == incarnation
    if new is not None:
        assert new.open
        assert new.opened_at >= max(heard_at, (known.closed_at or 0) + 1)


def test_a_call_right_at_an_end_opens_a_life_behind_it() -> None:
    """V28: opened in the very millisecond of the end, it is still later: that end, run again, does not reach it."""
    again = reopened(CLOSED, 2000)
    assert (again.incarnation, again.opened_at) == (3, 2001)
    assert end_owner(again, heard_at=2000, at=None, source=None).through == 2
    assert msgspec.structs.replace(again, opened_at=0).stamp == again.stamp == "3o"
