"""Instants and durations: one meaning for every spelling, in every zone, or a refusal that names the field."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amnesiad.core.errors import Invalid
from amnesiad.core.kinds import DAY_MS
from amnesiad.core.times import (
    HOUR_MS,
    MAX_DURATION_MS,
    MAX_TIME_MS,
    MIN_NUMERIC_TIME_MS,
    MINUTE_MS,
    MONTH_MS,
    YEAR_MS,
    format_coarse,
    format_date,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
    quoted,
)

ZONES = {
    "UTC": "UTC0",
    "Asia/Shanghai": "CST-8",
    "America/Los_Angeles": "PST8PDT,M3.2.0,M11.1.0",
    "Pacific/Kiritimati": "KIT-14",
    "Asia/Kathmandu": "NPT-5:45",
}
"""Zones by their POSIX rules, which take effect on a machine without zone files too."""
NEW_YEAR_MS = 1_893_456_000_000
"""2030-01-01T00:00:00Z."""


@pytest.fixture(params=list(ZONES.values()), ids=list(ZONES))
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        assert (time.timezone == 0) == (request.param == "UTC0")
        yield request.param
    time.tzset()


def test_a_date_means_its_first_instant_in_utc_in_every_zone(zone: str) -> None:
    """C05: an expiry given as a date is one instant wherever it is read, and the day is over one millisecond before."""
    parsed = parse_time("2030-01-01", field="expires_at")
    assert parsed == NEW_YEAR_MS, zone
    assert format_date(parsed) == "2030-01-01"
    assert format_date(parsed - 1) == "2029-12-31"


def test_a_note_written_at_two_in_the_morning_is_found_since_that_utc_day(zone: str) -> None:
    """C06: a filter by UTC day finds a note written at 02:00Z in every zone, and its time is shown with its zone."""
    written_at = parse_time("2030-01-01T02:00:00Z", field="at")
    assert parse_time("2030-01-01", field="since") <= written_at < parse_time("2030-01-02", field="until"), zone
    assert format_time(written_at) == "2030-01-01T02:00:00Z"


@pytest.mark.parametrize(
    "spelling",
    [
        "2030-01-01",
        "2030-01-01T00:00",
        "2030-01-01T00:00:00",
        "2030-01-01 00:00:00",
        "2030-01-01T00:00:00Z",
        "2030-01-01t00:00:00z",
        "2030-01-01T00:00:00.000Z",
        "2030-01-01T08:00:00+08:00",
        "2030-01-01T08:00:00+0800",
        "2029-12-31T16:00:00-08",
        "2030-01-01T05:45:00,000+05:45",
        " 2030-01-01 ",
        NEW_YEAR_MS,
        float(NEW_YEAR_MS),
        NEW_YEAR_MS + 0.9,
        str(NEW_YEAR_MS),
    ],
)
def test_every_accepted_spelling_of_an_instant_has_one_meaning(zone: str, spelling: object) -> None:
    """C07: naive ISO, Z, offsets, epoch integers and epoch floats all mean the same instant in every zone."""
    assert parse_time(spelling, field="at") == NEW_YEAR_MS, zone


@pytest.mark.parametrize(
    "spelling",
    [
        True,
        None,
        math.nan,
        math.inf,
        -math.inf,
        -1,
        -0.5,
        1_893_456_000,
        1_893_456_000.5,
        "1893456000",
        MIN_NUMERIC_TIME_MS - 1,
        MAX_TIME_MS + 1,
        10**18,
        10**400,
        1e300,
        "",
        "tomorrow",
        "20300101",
        "2030-13-01",
        "2030-02-30",
        "2030-01-01T25:00:00Z",
        "2030-01-01T00:00:60Z",
        "2030-01-01T00:00:00+99:99",
        "2030-01-01T00:00:00[UTC]",
        "2030-W01-1",
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "0001-01-01T00:00:00+14:00",
        "２０３０-01-01",
        b"2030-01-01",
        ["2030-01-01"],
        datetime(2030, 1, 1, tzinfo=UTC),
    ],
)
def test_anything_else_is_refused_by_name(spelling: object) -> None:
    """C07: seconds, booleans, NaN, impossible dates and years outside 1970 to 9999 are refused, naming the field."""
    with pytest.raises(Invalid, match=r"^since must be epoch milliseconds or ISO 8601") as refusal:
        parse_time(spelling, field="since")
    assert refusal.value.field == "since"


def test_zero_is_the_epoch_because_it_is_so_in_every_unit() -> None:
    """C07: the one small number that is taken is 0, and the limits themselves are inside."""
    assert parse_time(0, field="since") == 0
    assert parse_time("1970-01-01", field="since") == 0
    assert parse_time(MIN_NUMERIC_TIME_MS, field="since") == MIN_NUMERIC_TIME_MS
    assert parse_time(MAX_TIME_MS, field="since") == MAX_TIME_MS
    assert parse_time("9999-12-31T23:59:59.999Z", field="since") == MAX_TIME_MS


def test_seconds_are_told_apart_in_the_refusal() -> None:
    """C07: the refusal of epoch seconds says what they look like and how to mend it."""
    with pytest.raises(Invalid, match="looks like epoch seconds") as refusal:
        parse_time(1_893_456_000, field="since")
    assert "1000" in refusal.value.hint


@given(st.integers(0, MAX_TIME_MS))
def test_a_formatted_time_reads_back_exactly(time_ms: int) -> None:
    """C07: what is shown is ISO 8601 with Z and reads back as the same millisecond."""
    shown = format_time(time_ms)
    assert shown.endswith("Z")
    assert parse_time(shown, field="at") == time_ms
    assert shown.startswith(format_date(time_ms))
    assert ("." in shown) == (time_ms % 1000 != 0)


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(9998, 12, 31)),
    st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_an_offset_shifts_and_fractions_are_cut(moment: datetime, offset: timezone) -> None:
    """C07: any offset is honoured and fractions finer than a millisecond are cut off, never rounded up."""
    aware = moment.replace(tzinfo=offset)
    since_epoch = aware - datetime(1970, 1, 1, tzinfo=UTC)
    assert parse_time(aware.isoformat(), field="at") == since_epoch // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("spelling", "duration_ms"),
    [
        ("15s", 15_000),
        ("12h", 12 * HOUR_MS),
        ("7d", 7 * DAY_MS),
        ("2w", 14 * DAY_MS),
        ("5m", 5 * MINUTE_MS),
        ("5ms", 5),
        ("1d12h", 36 * HOUR_MS),
        ("1w1d1h1m1s1ms", 8 * DAY_MS + HOUR_MS + MINUTE_MS + 1001),
        ("1m1500ms", 61_500),
        (" 7d ", 7 * DAY_MS),
        (1, 1),
        (1500.0, 1500),
        (MAX_DURATION_MS, MAX_DURATION_MS),
        ("36500d", MAX_DURATION_MS),
    ],
)
def test_durations_read_as_people_write_them(spelling: object, duration_ms: int) -> None:
    """C07: units combine from large to small; a bare number, as on the wire, is milliseconds."""
    assert parse_duration(spelling, field="ttl_ms") == duration_ms


@pytest.mark.parametrize(
    "spelling",
    [
        0, -1, 0.5, math.nan, math.inf, True, None, 10**18, 10**400, MAX_DURATION_MS + 1, "0s", "", " ", "d", "7", "-7d",
        "+7d", "1.5h", "1h1d", "1d1d", "1d 12h", "7D", "7 days", "36501d", "9" * 30 + "d", "9" * 5000 + "s", "1y", "nan",
        "７d", [7],
    ],
)  # fmt: skip
def test_other_durations_are_refused_by_name(spelling: object) -> None:
    """V11: zero, negatives, NaN, unknown units and a TTL of 10^18 are refused with the field and what is accepted."""
    with pytest.raises(Invalid, match=r"^ttl_ms must be a duration such as 15s, 12h, 7d") as refusal:
        parse_duration(spelling, field="ttl_ms")
    assert refusal.value.field == "ttl_ms"
    assert len(refusal.value.message) < 300


@given(st.integers(1, MAX_DURATION_MS))
def test_a_formatted_duration_reads_back_exactly(duration_ms: int) -> None:
    """C07: the short form of a duration loses nothing."""
    assert parse_duration(format_duration(duration_ms), field="ttl_ms") == duration_ms


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [(7 * DAY_MS, "7d"), (36 * HOUR_MS, "1d12h"), (1500, "1500ms"), (61_500, "1m1500ms"), (0, "0s"), (-60_000, "-1m")],
)
def test_durations_are_shown_short(duration_ms: int, shown: str) -> None:
    """C07: the short form names days, hours, minutes and seconds, or milliseconds alone at the end."""
    assert format_duration(duration_ms) == shown


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        (-1, "<1m"),
        (MINUTE_MS - 1, "<1m"),
        (12 * MINUTE_MS + 59_999, "12m"),
        (HOUR_MS, "1h"),
        (6 * HOUR_MS - 1, "5h"),
        (12 * DAY_MS, "12d"),
        (MONTH_MS - 1, "29d"),
        (MONTH_MS, "1mo"),
        (3 * MONTH_MS + 5, "3mo"),
        (YEAR_MS, "1y"),
        (MAX_DURATION_MS, "100y"),
    ],
)
def test_remaining_life_is_coarse(duration_ms: int, shown: str) -> None:
    """C07: agents see the largest whole unit, which seldom changes."""
    assert format_coarse(duration_ms) == shown


@given(st.integers(1, MAX_DURATION_MS))
def test_a_coarse_life_never_promises_more_than_is_left(duration_ms: int) -> None:
    """C07: rounding is always down."""
    units = {"m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS, "mo": MONTH_MS, "y": YEAR_MS}
    shown = format_coarse(duration_ms)
    digits = shown.rstrip("mohdy")
    promised = 0 if shown == "<1m" else int(digits) * units[shown.removeprefix(digits)]
    assert promised <= duration_ms


def test_a_quoted_value_never_floods_the_message() -> None:
    """V11: a refused value is repeated only as far as it takes to recognise it."""
    assert quoted("x") == "'x'"
    assert len(quoted("x" * 10_000)) == 60
    assert quoted(10**5000) == "a number of thousands of digits"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (None, "null"),
        ([False, {"a": None}, 1.5], "[false, {'a': null}, 1.5]"),
        (date(2030, 1, 31), "2030-01-31"),
        (datetime(2030, 1, 31, 9, 30, tzinfo=UTC), "2030-01-31T09:30:00+00:00"),
        (clock_time(9, 30), "09:30:00"),
        ("a\u202eb", "'a\\u202eb'"),
        ([[[["deep"]]]], "[[[[…]]]]"),
    ],
)
def test_a_refused_value_is_shown_in_the_words_it_came_in(value: object, shown: str) -> None:
    """Whoever sent JSON or wrote TOML is not answered in Python, and no text can reorder the line."""
    with pytest.raises(Invalid) as refusal:
        parse_duration(value, field="ttl_ms")
    assert f"not {shown}" in refusal.value.message


def test_what_is_nested_without_end_is_refused_as_anything_else() -> None:
    """A thousand lists within one another are shown as far as the line goes."""
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(Invalid):
        parse_duration(deep, field="ttl_ms")
