"""Times and places in a log, as people write them.

| text | means |
|---|---|
| earliest (beginning, start) | the first record that is left |
| latest (end, now) | the end of what is committed now |
| 42 | offset 42 |
| -5 | the five last records of each partition |
| -90s, -15m, -1h, -2d | so long before now |
| 2024-12-31, 2024-12-31T18:00+01:00 | a time (ISO 8601; UTC unless it says otherwise) |
| 1735689600000ms | milliseconds since 1970 (UTC) |
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from ..errors import InvalidRequest

FORMS = (
    "earliest, latest, an offset (42), the last records of each partition (-5), so long ago "
    "(-90s, -15m, -1h, -2d), a time (2024-12-31T18:00, UTC unless it says otherwise) or "
    "milliseconds since 1970 (1735689600000ms)"
)
OFFSET_MAX = 2**63 - 1

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class FromEnd:
    """So many records before the end of each partition."""

    records: int


Place: TypeAlias = Literal["earliest", "latest"] | int | datetime | FromEnd


def parse_place(text: str, *, now: datetime) -> Place:
    """Return the place that a text names (see the module); raises ValueError for anything else."""
    word = text.strip()
    if word in ("earliest", "beginning", "start"):
        return "earliest"
    if word in ("latest", "end", "now"):
        return "latest"
    if _is_digits(word):
        if int(word) > OFFSET_MAX:
            raise ValueError(f"{text!r} is larger than any offset")
        return int(word)
    if word.startswith("-") and _is_digits(word[1:]):
        return FromEnd(min(int(word[1:]), OFFSET_MAX))
    ago = _AGO.fullmatch(word)
    try:
        if ago is not None:
            return now - timedelta(milliseconds=float(ago[1]) * _UNITS_MS[ago[2]])
        return parse_time(word)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no place in a log: give {FORMS}") from None


def parse_time(text: str) -> datetime:
    """Return the time of ISO 8601, or of milliseconds since 1970 with "ms"; raises ValueError."""
    if text.endswith("ms") and _is_digits(text[:-2]):
        return datetime.fromtimestamp(int(text[:-2]) / 1000, UTC)
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def timestamp_of(value: Any) -> int | None:
    """Return a record's timestamp, milliseconds since 1970, from a number or a text in digits or
    ISO 8601; None for None and for -1, which stands for none. Raises InvalidRequest."""
    if isinstance(value, str):
        if _is_digits(value):
            return _bounded(int(value[:20]))
        try:
            return round(parse_time(value).timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    elif value is None or value == -1:
        return None
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return _bounded(value)
    raise InvalidRequest(
        f"timestamp is {value!r}: give milliseconds since 1970, or a time such as "
        "2024-12-31T18:00:00"
    )


def _bounded(timestamp_ms: int) -> int:
    if timestamp_ms > OFFSET_MAX:
        raise InvalidRequest(f"timestamp is {timestamp_ms}, which is beyond any time")
    return timestamp_ms


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()
