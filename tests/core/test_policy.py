"""Live settings: each value held to the one rule beside its field, and the result checked as a whole."""

from __future__ import annotations

import json
import math
import tomllib
from importlib import resources
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amnesiad.core.errors import Invalid
from amnesiad.core.kinds import DAY_MS, load_kinds
from amnesiad.core.policy import LIVE_RULES, LIVE_SETTINGS, Policy, apply_overrides, parse_setting, validate
from amnesiad.core.rules import Choice, Count, Duration, Flag, Number, Size

DEFAULTS = Policy(kinds=load_kinds(tomllib.loads((resources.files("amnesiad") / "kinds.toml").read_text())))
NAMES = sorted(LIVE_SETTINGS)

_WRONG: dict[type, list[object]] = {
    Choice: ["", "sometimes", 3, None, True],
    Flag: ["perhaps", 2, None, 1],
    Duration: [0, -1, math.nan, "nan", "0d", 10**18, "7 days", True, [7]],
    Size: [0, -1, math.nan, 10**18, "10**18", "1PiB", "256 KB", True, None, 1.5],
    Count: [-1, math.nan, "nan", 10**18, "10**18", 1.5, True, None, [1]],
    Number: [-1, math.nan, "nan", math.inf, "inf", 10**18, 10**400, "1e999", True, None, "half"],
}


@pytest.mark.parametrize("name", NAMES)
def test_every_wrong_value_is_refused_by_the_settings_name(name: str) -> None:
    """V11: -1, NaN, 0 where meaningless, absurd sizes and wrong types are refused with the name and what is
    accepted."""
    for value in _WRONG[type(LIVE_RULES[name])]:
        with pytest.raises(Invalid, match=f"^{name} must be .*, not ") as refusal:
            parse_setting(name, value)
        assert refusal.value.field == name


@pytest.mark.parametrize("name", ["ebbinghaus_k", "stale_strength", "tie_width", "max_injected_tokens", "token_margin"])
def test_zero_is_refused_where_it_means_nothing(name: str) -> None:
    """V11: a curve without slope, a band without width and a budget of nothing are refused."""
    for zero in (0, 0.0, "0"):
        with pytest.raises(Invalid, match=name):
            parse_setting(name, zero)


@pytest.mark.parametrize("name", ["kinds", "redis_url", "defualt_ttl", "", "__class__"])
def test_only_live_settings_can_be_set_live(name: str) -> None:
    """V11: an unknown setting, or one of the whole process, is refused by name."""
    with pytest.raises(Invalid, match="is not a setting that can be changed live") as refusal:
        parse_setting(name, "30d")
    assert refusal.value.field == name


def test_a_misspelt_name_is_answered_with_the_likely_one() -> None:
    """V11: the refusal of an unknown setting suggests the one that was meant."""
    with pytest.raises(Invalid) as refusal:
        parse_setting("defualt_ttl", "30d")
    assert refusal.value.hint == "did you mean default_ttl?"


@pytest.mark.parametrize(
    ("name", "value", "canonical"),
    [
        ("default_ttl", "7d", 7 * DAY_MS),
        ("default_ttl", 7 * DAY_MS, 7 * DAY_MS),
        ("default_ttl", "none", None),
        ("default_ttl", None, None),
        ("record_ttl", "off", "off"),
        ("record_ttl", "By-Kind", "by-kind"),
        ("record_ttl", "90d", 90 * DAY_MS),
        ("max_store_bytes", "256KiB", 256 * 1024),
        ("max_store_bytes", "1 mib", 1024 * 1024),
        ("max_store_bytes", "500", 500),
        ("max_store_bytes", 500, 500),
        ("auto_expire", "off", False),
        ("auto_expire", True, True),
        ("max_deterrents", "0", 0),
        ("stale_strength", ".5", 0.5),
        ("trust_auto", 0, 0.0),
        ("child_sees", " own ", "own"),
    ],
)
def test_json_and_text_read_alike(name: str, value: object, canonical: object) -> None:
    """V11: a value means the same as JSON and as text, and its canonical form is plain JSON."""
    parsed = parse_setting(name, value)
    assert parsed == canonical
    assert type(parsed) is type(canonical)
    assert json.loads(json.dumps(parsed)) == canonical


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_within_their_own_rules_and_survive_being_shown(name: str) -> None:
    """V11: each default reads as itself, and so does its human form."""
    default = getattr(DEFAULTS, name)
    assert parse_setting(name, default) == default
    assert parse_setting(name, LIVE_RULES[name].show(default)) == default


def test_every_field_but_the_tables_has_a_rule() -> None:
    """V11: no setting can be added without stating its range."""
    assert {field.name for field in msgspec.structs.fields(Policy)} == LIVE_SETTINGS | {"kinds"}


@given(st.sampled_from([name for name in NAMES if isinstance(LIVE_RULES[name], Size)]), st.integers(1, 512 * 1024))
def test_sizes_survive_being_shown(name: str, size: int) -> None:
    """V11: a size is shown in the largest unit that loses nothing."""
    assert parse_setting(name, LIVE_RULES[name].show(size)) == size


def test_overrides_replace_values_and_leave_the_given_policy_alone() -> None:
    """Section 12: overrides apply in canonical or human form, to a new policy."""
    changed = apply_overrides(DEFAULTS, {"default_ttl": "7d", "restorable": True})
    assert (changed.default_ttl, changed.restorable) == (7 * DAY_MS, True)
    assert DEFAULTS.default_ttl == 30 * DAY_MS
    assert apply_overrides(DEFAULTS, {}) == DEFAULTS


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"forgotten_strength": 0.3}, "forgotten_strength"),
        ({"stale_strength": 0.05}, "forgotten_strength"),
        ({"renewal_gain": 0.5}, "renewal_gain"),
        ({"renewal_gain": 0.95, "renewal_bonus": 0.04}, "renewal_gain"),
        ({"nope": 1}, "nope"),
    ],
)
def test_settings_at_odds_with_each_other_are_refused(overrides: dict[str, Any], field: str) -> None:
    """V11: a floor above the threshold for stale, or a renewal that weakens, is refused by name."""
    with pytest.raises(Invalid) as refusal:
        apply_overrides(DEFAULTS, overrides)
    assert refusal.value.field == field


@given(st.floats(0, 1), st.floats(0, 10), st.floats(0, 1).filter(lambda bonus: bonus == 0 or bonus > 1e-9))
def test_an_accepted_renewal_never_weakens(strength: float, gain: float, bonus: float) -> None:
    """Section 6: whatever gain and bonus are accepted, a renewal leaves a strength at least where it was."""
    try:
        validate(msgspec.structs.replace(DEFAULTS, renewal_gain=gain, renewal_bonus=bonus))
    except Invalid:
        return
    assert min(1.0, strength * gain + bonus) >= strength - 1e-12
