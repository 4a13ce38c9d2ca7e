"""The documents say what the code does."""

from __future__ import annotations

from pathlib import Path

from amnesiad.core.diagram import BEGIN, END, marked_block

ROOT = Path(__file__).parents[1]


def test_architecture_shows_the_transition_table_that_runs() -> None:
    """The block between the markers in ARCHITECTURE.md is the diagram of the table; to mend it, paste the expected text."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert text.count(BEGIN) == 1
    assert text.count(END) == 1
    block = text[text.index(BEGIN) : text.index(END) + len(END)]
    assert block == marked_block()
