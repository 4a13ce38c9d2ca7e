"""The policy of a workspace: every setting that may be changed live, validated, as one frozen value.

It travels as an argument beside ``now``. Where its values come from (defaults, file, environment, a workspace's own
overrides) is the business of ``amnesiad.settings`` and the store; what they mean is the business of the clocks,
decisions and selection. All durations are milliseconds.

The rule in each field's annotation is the only statement of its range: the settings of the process and live overrides
are both read through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

import msgspec

from amnesiad.core.errors import Invalid
from amnesiad.core.kinds import DAY_MS, Curve, Kind, KindTable
from amnesiad.core.rules import KIB, TIB, Choice, Count, Duration, Flag, Number, Rule, Size, rules_of, suggestion
from amnesiad.core.times import quoted

RenewingInjection = Literal["always", "matched", "never"]
ChildView = Literal["directives", "own"]
ContinuableEnd = Literal["unplug", "keep"]
SecretGuard = Literal["warn", "refuse", "off"]
TokenCounter = Literal["o200k", "bytes"]

_FRACTION: Final = Number(at_least=0, at_most=1)


def _one_of(literal: object) -> Choice:
    """The rule of a field whose type is a ``Literal``: its names, stated once."""
    return Choice(names=get_args(literal))


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Effective values for one workspace. Defaults are those of the specification, section 12."""

    kinds: KindTable
    default_ttl: Annotated[int | None, Duration(words=("none",))] = 30 * DAY_MS
    default_kind: Annotated[Kind, _one_of(Kind)] = "fact"
    default_curve: Annotated[Curve, _one_of(Curve)] = "ebbinghaus"
    ebbinghaus_k: Annotated[float, Number(above=0, at_most=100)] = 3.0
    stale_strength: Annotated[float, Number(above=0, below=1)] = 0.3
    forgotten_strength: Annotated[float, Number(at_least=0, below=1)] = 0.05
    renewal_gain: Annotated[float, Number(at_least=0, at_most=10)] = 1.5
    renewal_bonus: Annotated[float, _FRACTION] = 0.1
    max_injected_tokens: Annotated[int, Count(at_least=1, at_most=1_000_000)] = 2000
    max_deterrents: Annotated[int, Count(at_most=100)] = 3
    max_store_bytes: Annotated[int, Size(at_most=TIB)] = 256 * KIB
    max_record_bytes: Annotated[int, Size(at_most=TIB)] = 64 * 1024 * KIB
    # Half of the largest request, so that the longest note still fits beside its tags, anchors and escapes.
    max_item_bytes: Annotated[int, Size(at_most=512 * KIB)] = 2048
    auto_expire: Annotated[bool, Flag()] = True
    record_ttl: Annotated[Literal["off", "by-kind"] | int, Duration(words=("off", "by-kind"))] = "off"
    audit_retention: Annotated[int, Duration()] = 90 * DAY_MS
    ended_retention: Annotated[int | None, Duration(words=("none",))] = None
    restorable: Annotated[bool, Flag()] = False
    promote_after_accesses: Annotated[int, Count(at_most=1_000_000)] = 0
    promoted_ttl: Annotated[int, Duration()] = 365 * DAY_MS
    injection_enabled: Annotated[bool, Flag()] = True
    injection_renews: Annotated[RenewingInjection, _one_of(RenewingInjection)] = "matched"
    child_sees: Annotated[ChildView, _one_of(ChildView)] = "directives"
    continuable_end: Annotated[ContinuableEnd, _one_of(ContinuableEnd)] = "unplug"
    secret_guard: Annotated[SecretGuard, _one_of(SecretGuard)] = "warn"  # noqa: S105
    tie_width: Annotated[float, Number(above=0, at_most=1)] = 0.1
    token_counter: Annotated[TokenCounter, _one_of(TokenCounter)] = "o200k"  # noqa: S105
    token_margin: Annotated[float, Number(at_least=1, at_most=10)] = 1.6
    trust_human: Annotated[float, _FRACTION] = 1.0
    trust_user_stated: Annotated[float, _FRACTION] = 0.9
    trust_agent: Annotated[float, _FRACTION] = 0.7
    trust_auto: Annotated[float, _FRACTION] = 0.4


LIVE_RULES: Final[Mapping[str, Rule]] = rules_of(Policy)
"""Each setting that may be changed live, with the rule that reads and bounds it, in the order of the specification."""

LIVE_SETTINGS: Final[frozenset[str]] = frozenset(LIVE_RULES)


def parse_setting(name: str, value: object) -> object:
    """The canonical, JSON-able value of one live setting given as JSON or as text.

    Durations become milliseconds, sizes bytes, ``none`` becomes ``None``. A canonical value reads as itself. Raises
    ``Invalid`` with ``field`` = name for an unknown setting or a value out of range.
    """
    if name not in LIVE_RULES:
        raise Invalid(
            f"{quoted(name)} is not a setting that can be changed live",
            field=name,
            hint=suggestion(name, LIVE_RULES) or "see amnesia policy for those that can",
        )
    return LIVE_RULES[name].parse(value, field=name)


def apply_overrides(policy: Policy, overrides: Mapping[str, object]) -> Policy:
    """The policy with some settings replaced, validated one by one and together.

    Raises ``Invalid`` naming the setting; the policy given is never changed.
    """
    values = {name: parse_setting(name, value) for name, value in overrides.items()}
    return validate(msgspec.structs.replace(policy, **values))


def validate(policy: Policy) -> Policy:
    """The same policy, if its settings agree with each other; raises ``Invalid`` naming one that does not."""
    if policy.forgotten_strength >= policy.stale_strength:
        raise Invalid(
            f"forgotten_strength must be below stale_strength ({policy.stale_strength:g}), "
            f"not {policy.forgotten_strength:g}",
            field="forgotten_strength",
            hint="a note goes stale before it is forgotten",
        )
    # min(1, s * gain + bonus) >= s for every strength s from 0 to 1 exactly when it holds at s = 1.
    if policy.renewal_gain + policy.renewal_bonus < 1:
        raise Invalid(
            f"renewal_gain and renewal_bonus must add up to at least 1, "
            f"not {policy.renewal_gain:g} and {policy.renewal_bonus:g}",
            field="renewal_gain",
            hint="below that a renewal would weaken the note it renews",
        )
    return policy
