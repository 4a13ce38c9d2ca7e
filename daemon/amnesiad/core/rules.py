"""What a setting may hold: one small class per sort of value, each of which reads, bounds and shows it.

A rule stands in the annotation of the field it governs (``core.policy.Policy``, ``amnesiad.settings.Settings``), so
that a start-up file, an environment variable and a live override are held to the same range by the same object. No
rule knows a setting's name, default or origin, and none does I/O.
"""

from __future__ import annotations

import difflib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

from amnesiad.core.errors import Invalid
from amnesiad.core.times import (
    DURATION_ACCEPTS,
    MAX_DURATION_MS,
    format_duration,
    parse_duration,
    quoted,
)

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
TIB: Final = 1024 * GIB

_SIZE_UNITS: Final = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?(|b|kib|mib|gib|tib)", re.IGNORECASE)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?")
_FLAG_WORDS: Final = {
    "true": True, "yes": True, "on": True, "1": True,
    "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """Base of all rules. ``words`` are taken beside the rule's own values; the word ``none`` reads as ``None``."""

    words: tuple[str, ...] = ()

    def parse(self, value: object, *, field: str) -> Any:
        """The canonical, JSON-able value. Raises ``Invalid`` naming ``field``, the value and what is accepted."""
        if value is None and "none" in self.words:
            return None
        if isinstance(value, str):
            value = value.strip()
            word = value.lower()
            if word in self.words:
                return None if word == "none" else word
        try:
            return self.read(value)
        except ValueError:
            raise Invalid(f"{field} must be {self.accepts}, not {self.quote(value)}", field=field) from None

    def show(self, value: Any) -> object:
        """The value as a person writes it; ``parse`` reads it back."""
        if value is None:
            return "none"
        return value if value in self.words else self.write(value)

    @property
    def accepts(self) -> str:
        """What is accepted, to complete the sentence *it must be …*."""
        own = self.own_values
        return f"{own}, or {' or '.join(self.words)}" if self.words else own

    def quote(self, value: object) -> str:
        """The refused value as the message shows it. Rules that guard secrets mask them here."""
        return quoted(value)

    @property
    @abstractmethod
    def own_values(self) -> str:
        """What is accepted beside ``words``."""

    @abstractmethod
    def read(self, value: object) -> Any:
        """The value of anything but a word; ``ValueError`` if it is not acceptable."""

    def write(self, value: Any) -> object:
        return value


@dataclass(frozen=True, kw_only=True)
class Choice(Rule):
    """One of a few names; here ``none`` is a name like any other."""

    names: tuple[str, ...]

    @property
    def own_values(self) -> str:
        return f"{', '.join(self.names[:-1])} or {self.names[-1]}"

    def read(self, value: object) -> str:
        if not isinstance(value, str) or value.lower() not in self.names:
            raise ValueError(value)
        return value.lower()


@dataclass(frozen=True, kw_only=True)
class Flag(Rule):
    """On or off."""

    @property
    def own_values(self) -> str:
        return "true or false"

    def read(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _FLAG_WORDS:
            return _FLAG_WORDS[value.lower()]
        raise ValueError(value)


@dataclass(frozen=True, kw_only=True)
class Duration(Rule):
    """Milliseconds above 0, written ``15s 12h 7d``."""

    at_most: int = MAX_DURATION_MS

    @property
    def own_values(self) -> str:
        limit = "100 years" if self.at_most == MAX_DURATION_MS else format_duration(self.at_most)
        return f"{DURATION_ACCEPTS}, above 0 and at most {limit}"

    def read(self, value: object) -> int:
        try:
            duration_ms = parse_duration(value, field="")
        except Invalid:
            raise ValueError(value) from None
        if duration_ms > self.at_most:
            raise ValueError(value)
        return duration_ms

    def write(self, value: Any) -> str:
        return format_duration(value)


@dataclass(frozen=True, kw_only=True)
class Size(Rule):
    """Bytes, written plainly or as ``256KiB`` and ``64MiB``."""

    at_least: int = 1
    at_most: int

    @property
    def own_values(self) -> str:
        return f"a size from {self.write(self.at_least)} to {self.write(self.at_most)} such as 2048, 256KiB or 64MiB"

    def read(self, value: object) -> int:
        if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
            value = int(match[1]) * _SIZE_UNITS[match[2].lower()]
        if isinstance(value, bool) or not isinstance(value, int) or not self.at_least <= value <= self.at_most:
            raise ValueError(value)
        return value

    def write(self, value: Any) -> str:
        for unit, unit_bytes in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
            if value and value % unit_bytes == 0:
                return f"{value // unit_bytes}{unit}"
        return f"{value}B"


@dataclass(frozen=True, kw_only=True)
class Count(Rule):
    """A whole number."""

    at_least: int = 0
    at_most: int

    @property
    def own_values(self) -> str:
        return f"a whole number from {self.at_least} to {self.at_most}"

    def read(self, value: object) -> int:
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.at_least <= value <= self.at_most:
            raise ValueError(value)
        return value


@dataclass(frozen=True, kw_only=True)
class Number(Rule):
    """A finite number; ``above`` and ``below`` exclude their bound, ``at_least`` and ``at_most`` include it."""

    at_least: float = -math.inf
    above: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf

    @property
    def own_values(self) -> str:
        low = f"above {self.above:g}" if self.above > self.at_least else f"from {self.at_least:g}"
        high = f"below {self.below:g}" if self.below < self.at_most else f"at most {self.at_most:g}"
        return f"a number {low} and {high}"

    def read(self, value: object) -> float:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(value)
        # Comparing before float(): an integer may be too large to convert, but not too large to compare. NaN fails.
        if not (self.at_least <= value <= self.at_most and self.above < value < self.below):
            raise ValueError(value)
        return float(value)


def rules_of(annotated: type) -> dict[str, Rule]:
    """The rule of each field of a class, read from its annotations; fields without one are left out."""
    return {
        name: rule
        for name, hint in get_type_hints(annotated, include_extras=True).items()
        for rule in getattr(hint, "__metadata__", ())
        if isinstance(rule, Rule)
    }


def suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The known name closest to a misspelt one, as a question to add to an error; empty if none is close. ``prefix`` is
    written before it: where all names share one, they are compared without it, or everything would resemble everything.
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {prefix}{close[0]}?" if close else ""
