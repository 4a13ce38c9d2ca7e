"""The two tables of kinds: complete or refused, never patched up by a fallback."""

from __future__ import annotations

import copy
import math
import tomllib
from importlib import resources
from typing import Any, get_args

import pytest

from amnesiad.core.errors import Invalid
from amnesiad.core.kinds import DAY_MS, EXEMPT_KINDS, REGIMES, Kind, load_kinds

SHIPPED: dict[str, dict[str, Any]] = tomllib.loads((resources.files("amnesiad") / "kinds.toml").read_text())
RECORDS = [kind for kind, regime in REGIMES.items() if regime == "record" and kind not in EXEMPT_KINDS]
PERISHABLES = [kind for kind, regime in REGIMES.items() if regime == "perishable"]


@pytest.fixture
def tables() -> dict[str, dict[str, Any]]:
    return copy.deepcopy(SHIPPED)


def test_the_shipped_tables_are_those_of_the_specification() -> None:
    """Section 3: every kind has its half-life and TTL in milliseconds, none where exempt or left to the policy."""
    kinds = load_kinds(SHIPPED)
    half_lives = {"directive": None, "operational": 14, "task": 21, "gotcha": 30, "finding": 30, "reference": 45}
    half_lives |= {"decision": 60, "preference": 45, "fact": 30, "episode": 14, "task-context": 7}
    ttls = {"directive": None, "operational": 60, "task": 90, "gotcha": 120, "finding": 120, "reference": 180}
    ttls |= {"decision": 240} | dict.fromkeys(PERISHABLES)
    assert kinds.half_life_ms == {kind: days and days * DAY_MS for kind, days in half_lives.items()}
    assert kinds.ttl_ms == {kind: days and days * DAY_MS for kind, days in ttls.items()}
    assert list(kinds.half_life_ms) == list(kinds.ttl_ms) == list(REGIMES) == list(get_args(Kind))


@pytest.mark.parametrize("table", ["half_life_days", "ttl_days"])
@pytest.mark.parametrize("kind", list(REGIMES))
def test_a_kind_missing_from_either_table_is_named(tables: dict[str, dict[str, Any]], table: str, kind: str) -> None:
    """V11: a table without a row for a kind is refused, and the error names both."""
    del tables[table][kind]
    with pytest.raises(Invalid, match=f"{kind!r} has no row in the table {table}") as refusal:
        load_kinds(tables)
    assert refusal.value.field == f"{table}.{kind}"


@pytest.mark.parametrize("table", ["half_life_days", "ttl_days"])
def test_a_missing_or_misshapen_table_is_named(tables: dict[str, dict[str, Any]], table: str) -> None:
    """V11: a whole table may neither be left out nor be something else."""
    rows = tables.pop(table)
    with pytest.raises(Invalid, match=table):
        load_kinds(tables)
    misshapen: dict[str, Any] = {**tables, table: list(rows)}
    with pytest.raises(Invalid, match=f"{table} must be a table"):
        load_kinds(misshapen)


def test_unknown_kinds_and_tables_are_named(tables: dict[str, dict[str, Any]]) -> None:
    """V11: a misspelt kind or table is refused rather than ignored."""
    with pytest.raises(Invalid, match="unknown table 'ttl'"):
        load_kinds({**tables, "ttl": {}})
    tables["ttl_days"]["facts"] = 3
    with pytest.raises(Invalid, match=r"ttl_days has a row for an unknown kind 'facts'"):
        load_kinds(tables)


@pytest.mark.parametrize("table", ["half_life_days", "ttl_days"])
@pytest.mark.parametrize("kind", sorted(EXEMPT_KINDS))
@pytest.mark.parametrize("age", [1, 36_500, "default"])
def test_an_exempt_kind_cannot_be_given_an_age(
    tables: dict[str, dict[str, Any]], table: str, kind: str, age: object
) -> None:
    """Section 3: no operator's table reaches a kind that is exempt at any age."""
    tables[table][kind] = age
    with pytest.raises(Invalid, match=f"a {kind} is exempt at any age") as refusal:
        load_kinds(tables)
    assert refusal.value.field == f"{table}.{kind}"


@pytest.mark.parametrize(
    "days", [0, -1, math.nan, math.inf, -math.inf, 36_501, 10**18, 10**400, 1e-12, True, "30", "default", None]
)
def test_ages_that_are_no_ages_are_refused_by_name(tables: dict[str, dict[str, Any]], days: object) -> None:
    """V11: a half-life or TTL of 0, NaN, -1, 10^18 or of no whole millisecond is refused with the row's name."""
    for table, kind in (("half_life_days", "fact"), ("ttl_days", "task")):
        broken = copy.deepcopy(tables)
        broken[table][kind] = days
        with pytest.raises(Invalid, match=f"{table}.{kind} must") as refusal:
            load_kinds(broken)
        assert refusal.value.field == f"{table}.{kind}"


@pytest.mark.parametrize("kind", PERISHABLES)
def test_a_perishables_lease_is_the_policys(tables: dict[str, dict[str, Any]], kind: str) -> None:
    """Section 3: the table cannot give a perishable a TTL of its own beside default_ttl."""
    tables["ttl_days"][kind] = 3
    with pytest.raises(Invalid, match='must be "default"'):
        load_kinds(tables)


@pytest.mark.parametrize("kind", RECORDS)
def test_an_operator_may_exempt_a_record_and_use_fractions(tables: dict[str, dict[str, Any]], kind: str) -> None:
    """Section 3: rows are the operator's to change, within their bounds."""
    tables["ttl_days"][kind] = "none"
    tables["half_life_days"][kind] = 0.5
    kinds = load_kinds(tables)
    assert kinds.ttl_ms[kind] is None
    assert kinds.half_life_ms[kind] == DAY_MS // 2


def test_look_ups_subscript() -> None:
    """Section 3: an unknown kind is an error where it is looked up; there is no default row."""
    kinds = load_kinds(SHIPPED)
    for table in (kinds.half_life_ms, kinds.ttl_ms, REGIMES):
        with pytest.raises(KeyError):
            table["facts"]
