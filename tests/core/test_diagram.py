"""The diagram shows every row of the transition table and nothing else."""

from __future__ import annotations

import re

from amnesiad.core.diagram import state_diagram
from amnesiad.core.notes import TRANSITIONS, Row

_ARROW = re.compile(r"    (\S+) --> (\S+): (.+)")


def test_every_move_of_the_table_is_an_arrow() -> None:
    """Reading the arrows back gives the table's moves, and the one move that depends on causes."""
    head, *lines = state_diagram().splitlines()
    assert head == "stateDiagram-v2"
    drawn = set()
    for line in lines:
        match = _ARROW.fullmatch(line)
        assert match is not None, line
        drawn |= {(match[1], match[2], name) for name in match[3].split(", ")}
    moves = {(state, row.to or state, name) for name, row in TRANSITIONS.items() for state in row.frm}
    assert drawn == moves | {("[*]", "active", "created"), ("stale", "active", "renewed")}


def test_pairs_of_states_are_drawn_once() -> None:
    """Two events between the same states share an arrow."""
    table = {
        "born": Row(frozenset(), None),
        "a": Row(frozenset({"active"}), None),
        "b": Row(frozenset({"active"}), None),
    }
    assert state_diagram(table).splitlines()[1:] == ["    [*] --> [*]: born", "    active --> active: a, b"]
