"""How tokens are charged against a budget: the counter's protocol, the strict counter, and the charge of a line.

Vocabularies are not here: a counter that needs one is built in ``amnesiad.tokens`` and passed in. What a line and a
finished block cost is decided here, once, so that an estimate and the recount cannot drift apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

NOTE_OVERHEAD_TOKENS: Final = 4
"""Charged for each note beside its words: chat templates and newer vocabularies spend a little on every line."""


class Counter(Protocol):
    """Counts what a text costs in the context of a model. Pure: the same text always costs the same."""

    @property
    def name(self) -> str:
        """The counter's name in the setting ``token_counter``."""

    @property
    def per_note(self) -> int:
        """Tokens charged for each line beside its text."""

    def __hash__(self) -> int:
        """Equal counters count alike, so that what one has counted may be kept for the other."""

    def units(self, text: str) -> int:
        """What is added up before it is charged. The lines of a block have together the units of the block, as long as
        each ends in its line break and begins with neither a space nor a slash: so each needs to be counted only once.
        """

    def charge(self, units: int) -> int:
        """Tokens charged for so many units."""

    def tokens(self, text: str) -> int:
        """Tokens charged for the text alone, ``charge(units(text))``; 0 for an empty one."""


class ByteCounter(msgspec.Struct, frozen=True):
    """The strict bound: UTF-8 bytes, which no byte-level vocabulary can exceed."""

    name: str = "bytes"
    per_note: int = 0

    def units(self, text: str) -> int:
        """The length of the text in UTF-8; a lone surrogate counts as three bytes."""
        return len(text.encode("utf-8", "surrogatepass"))

    def charge(self, units: int) -> int:
        """A token a byte."""
        return units

    def tokens(self, text: str) -> int:
        """As ``units``."""
        return self.units(text)


class MarginCounter(msgspec.Struct, frozen=True):
    """A vocabulary's count times a margin, rounded up, for the models whose vocabulary is not published."""

    name: str
    count: Callable[[str], int]
    margin: float
    per_note: int = NOTE_OVERHEAD_TOKENS

    def units(self, text: str) -> int:
        """Tokens in the vocabulary."""
        return self.count(text)

    def charge(self, units: int) -> int:
        """``ceil(margin * units)``."""
        return math.ceil(self.margin * units)

    def tokens(self, text: str) -> int:
        """``ceil(margin * count(text))``."""
        return self.charge(self.units(text))


def line_cost(counter: Counter, line: str) -> int:
    """What one line of a block is charged, its line break included."""
    return counter.tokens(line + "\n") + counter.per_note


def block_cost(counter: Counter, text: str, lines: int) -> int:
    """What a finished block with that many note lines is charged: its text once, and the overhead of each line."""
    return counter.tokens(text) + counter.per_note * lines
