"""The kinds of note, the regime each belongs to, and the two tables, checked when the process starts.

The kind decides the regime: a *record* is the only copy of something and ends as a state; a *perishable* has a shelf
life and is erased with it. The tables come from a data file (read by the settings, not here); a kind missing from
either is an error that says which. Look-ups subscript and never fall back to a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from amnesiad.core.errors import Invalid

Kind = Literal[
    "directive",
    "operational",
    "task",
    "gotcha",
    "finding",
    "reference",
    "decision",
    "preference",
    "fact",
    "episode",
    "task-context",
]
Regime = Literal["record", "perishable"]
Curve = Literal["flat", "linear", "ebbinghaus"]

DAY_MS: Final = 86_400_000
MAX_TABLE_DAYS: Final = 36_500
"""No half-life or TTL in a table may exceed a hundred years, the longest TTL of a note."""

REGIMES: Final[Mapping[str, Regime]] = {
    "directive": "record",
    "operational": "record",
    "task": "record",
    "gotcha": "record",
    "finding": "record",
    "reference": "record",
    "decision": "record",
    "preference": "perishable",
    "fact": "perishable",
    "episode": "perishable",
    "task-context": "perishable",
}
"""Every kind, in the order the documents list them, with its regime."""

EXEMPT_KINDS: Final = frozenset({"directive"})
"""Kinds that no age, TTL or operator override ends. Checked before any override is looked at."""


class KindTable(msgspec.Struct, frozen=True):
    """Both tables in milliseconds. ``None`` is exempt; a perishable's TTL is ``None`` here, for it is the policy's."""

    half_life_ms: dict[str, int | None]
    ttl_ms: dict[str, int | None]


def load_kinds(tables: Mapping[str, Any]) -> KindTable:
    """Check the parsed data file and return both tables in milliseconds.

    Raises ``Invalid`` naming the table and kind when a kind is missing or unknown, when a number is not finite and
    positive, or when an exempt kind is given an age.
    """
    unknown = sorted(set(tables) - {"half_life_days", "ttl_days"})
    if unknown:
        raise Invalid(f"the kinds file has an unknown table {unknown[0]!r}", field=unknown[0], hint="remove it")
    half_life = _table("half_life_days", tables.get("half_life_days", {}))
    ttl = _table("ttl_days", tables.get("ttl_days", {}))
    return KindTable(half_life_ms=half_life, ttl_ms=ttl)


def _table(name: str, rows: object) -> dict[str, int | None]:
    if not isinstance(rows, Mapping):
        raise Invalid(f"{name} must be a table with a row for every kind", field=name)
    missing = [kind for kind in REGIMES if kind not in rows]
    if missing:
        raise Invalid(
            f"the kind {missing[0]!r} has no row in the table {name}",
            field=f"{name}.{missing[0]}",
            hint="every kind needs a row in half_life_days and in ttl_days",
        )
    unknown = sorted(set(rows) - set(REGIMES))
    if unknown:
        raise Invalid(f"the table {name} has a row for an unknown kind {unknown[0]!r}", field=f"{name}.{unknown[0]}")
    return {kind: _row(name, kind, rows[kind]) for kind in REGIMES}


def _row(table: str, kind: str, value: object) -> int | None:
    field = f"{table}.{kind}"
    exempt = kind in EXEMPT_KINDS
    if value == "none" and (exempt or table == "half_life_days" or REGIMES[kind] == "record"):
        return None
    if exempt:
        raise Invalid(f'{field} must be "none": a {kind} is exempt at any age', field=field)
    if table == "ttl_days" and REGIMES[kind] == "perishable":
        if value == "default":
            return None
        raise Invalid(f'{field} must be "default": a perishable takes the setting default_ttl', field=field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(f'{field} must be a number of days or "none", not {value!r}', field=field)
    # The range is checked before any conversion: it refuses NaN, infinities and integers too large for a float.
    # A row of less than a millisecond would become a clock of zero, which nothing can be divided by.
    if not 0 < value <= MAX_TABLE_DAYS or round(value * DAY_MS) < 1:
        raise Invalid(f"{field} must lie above 0 and at most {MAX_TABLE_DAYS} days", field=field)
    return round(value * DAY_MS)
