"""Instants and durations as people and programs write them, and as they are shown.

Inside amnesiad an instant is whole milliseconds since 1970 in UTC and a duration is whole milliseconds. Here is the
one place where text becomes either, and back. Nothing here reads a clock or the machine's time zone: a bare date or a
naive time means UTC wherever the process runs, so two producers never disagree about a day. A number has one meaning,
milliseconds; one that only makes sense as seconds is refused by its range, never guessed at.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Final

from amnesiad.core.errors import Invalid
from amnesiad.core.kinds import DAY_MS, MAX_TABLE_DAYS

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
MONTH_MS: Final = 30 * DAY_MS
"""A month of remaining life; only ``format_coarse`` counts in months."""
YEAR_MS: Final = 365 * DAY_MS

MAX_DURATION_MS: Final = MAX_TABLE_DAYS * DAY_MS
"""A hundred years of 365 days, the longest TTL of a note and so the longest duration anywhere."""

MAX_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the end of ISO 8601's four-digit years."""

MIN_NUMERIC_TIME_MS: Final = 100_000_000_000
"""Numbers below this (3 March 1973, but the year 5138 if they were seconds) are epoch seconds by mistake."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_UNITS_MS: Final = {"w": 7 * DAY_MS, "d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": SECOND_MS, "ms": 1}
# Each unit at most once, from large to small; 18 digits keep int() cheap and still exceed every limit.
_DURATION: Final = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,18}}){unit}(?![a-z]))?" for unit in _UNITS_MS))
DURATION_PATTERN: Final = re.sub(r"\?P<\w+>", "", _DURATION.pattern)
"""The same for those who have no names for groups: an expression any language reads. It also takes empty text and
0s."""
_ISO: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2}|[+-][0-9]{2})?)?"
)
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
TIME_PATTERN: Final = f"{_DIGITS.pattern}|{_ISO.pattern}"
"""Every text that may be an instant. It also takes impossible dates and numbers out of range."""
_QUOTE_LENGTH: Final = 60
"""How much of a wrong value an error repeats: enough to recognize it, too little to flood a log."""
_QUOTE_DEPTH: Final = 3
"""How many lists and objects within one another an error repeats; deeper ones would not fit the line."""

DURATION_ACCEPTS: Final = "a duration such as 15s, 12h, 7d or 1d12h (whole numbers of w d h m s ms)"
TIME_ACCEPTS: Final = (
    "epoch milliseconds or ISO 8601 such as 2030-01-31, 2030-01-31T09:00:00Z or 2030-01-31T09:00:00+08:00, "
    "from 1970 to the year 9999"
)


def quoted(value: object) -> str:
    """The value as an error message shows it: as whoever sent it wrote it, cut to a length that fits a line."""
    try:
        text = _literal(value, _QUOTE_DEPTH)
    except ValueError:  # an integer of more digits than Python agrees to print
        return "a number of thousands of digits"
    return text if len(text) <= _QUOTE_LENGTH else text[: _QUOTE_LENGTH - 1] + "…"


def _literal(value: object, depth: int) -> str:
    """The words of JSON for what it has words for, ISO 8601 for the dates and times of a TOML file. Texts stay as
    Python writes them, which escapes whatever does not print."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        items = (_literal(item, depth - 1) for item in value[:_QUOTE_LENGTH])
        return f"[{', '.join(items) if depth else '…'}]"
    if isinstance(value, dict):
        pairs = islice(value.items(), _QUOTE_LENGTH)
        rows = (f"{_literal(name, depth - 1)}: {_literal(item, depth - 1)}" for name, item in pairs)
        return f"{{{', '.join(rows) if depth else '…'}}}"
    return repr(value)


def parse_duration(value: object, *, field: str) -> int:
    """Milliseconds from ``15s``, ``1d12h`` or a whole number of milliseconds.

    Units are ``w d h m s ms``, each at most once and from large to small. Raises ``Invalid`` naming ``field`` unless
    the result lies above 0 and at most a hundred years.
    """
    duration_ms = _read_duration(value)
    if duration_ms is None or not 0 < duration_ms <= MAX_DURATION_MS:
        accepts = f"{DURATION_ACCEPTS} or a whole number of milliseconds, above 0 and at most 100 years"
        raise Invalid(f"{field} must be {accepts}, not {quoted(value)}", field=field, hint="write 30d for thirty days")
    return duration_ms


def _read_duration(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):  # JSON from some languages writes every number with a fraction
        return int(value) if value.is_integer() else None
    if not isinstance(value, str) or not value.strip():
        return None
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        return None
    return sum(int(count) * _UNITS_MS[unit] for unit, count in match.groupdict().items() if count)


def parse_time(value: object, *, field: str) -> int:
    """Epoch milliseconds from a number of epoch milliseconds or an ISO 8601 text.

    A time without a zone and a bare date are UTC; a date is its first instant. Fractions finer than a millisecond are
    cut off. Of the numbers below ``MIN_NUMERIC_TIME_MS`` only 0 is taken, which is the same instant in every unit.
    Raises ``Invalid`` naming ``field`` for anything else, for impossible dates and outside 1970 to 9999.
    """
    text = value.strip() if isinstance(value, str) else None
    if text is not None and not _DIGITS.fullmatch(text):
        time_ms = _read_iso(text)
    else:
        number = value if text is None else int(text)
        time_ms = _read_number(number)
        if time_ms is not None and 0 < time_ms < MIN_NUMERIC_TIME_MS:
            raise Invalid(
                f"{field} must be {TIME_ACCEPTS}; {quoted(value)} looks like epoch seconds",
                field=field,
                hint="multiply epoch seconds by 1000",
            )
    if time_ms is None or not 0 <= time_ms <= MAX_TIME_MS:
        raise Invalid(f"{field} must be {TIME_ACCEPTS}, not {quoted(value)}", field=field)
    return time_ms


def _read_number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        return math.floor(value) if math.isfinite(value) else None
    return value


def _read_iso(text: str) -> int | None:
    if not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:  # the thirteenth month, the thirtieth of February
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def format_time(time_ms: int) -> str:
    """ISO 8601 in UTC with ``Z``; milliseconds appear only where they are not zero."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    spec = "milliseconds" if time_ms % SECOND_MS else "seconds"
    return moment.replace(tzinfo=None).isoformat(timespec=spec) + "Z"


def format_date(time_ms: int) -> str:
    """The UTC day of an instant, ``2030-01-31``."""
    return (_EPOCH + timedelta(milliseconds=time_ms)).date().isoformat()


def format_duration(duration_ms: int) -> str:
    """Short and exact: ``7d``, ``1d12h``, ``1500ms``. ``parse_duration`` reads every positive one back."""
    if duration_ms <= 0:
        return "0s" if duration_ms == 0 else "-" + format_duration(-duration_ms)
    # A duration that is no whole number of seconds ends in milliseconds alone: 1500ms, not 1s500ms.
    smallest = (("s", SECOND_MS),) if duration_ms % SECOND_MS == 0 else (("ms", 1),)
    parts: list[str] = []
    rest = duration_ms
    for unit, unit_ms in (("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), *smallest):
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_coarse(duration_ms: int) -> str:
    """Remaining life in its largest whole unit, rounded down: ``<1m 12m 5h 12d 3mo 2y``.

    Shown to agents, so it must seldom change: a text that changes with every step defeats the model's prompt cache.
    """
    for unit, unit_ms in (("y", YEAR_MS), ("mo", MONTH_MS), ("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS)):
        if duration_ms >= unit_ms:
            return f"{duration_ms // unit_ms}{unit}"
    return "<1m"
