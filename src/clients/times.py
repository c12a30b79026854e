"""Parser of offset specifications and timestamps that people enter.

| text | means |
|---|---|
| earliest (beginning, start) | the log start offset |
| latest (end, now) | the high watermark |
| 42 | offset 42 |
| -5 | the last five records of each partition |
| -90s, -15m, -1h, -2d | a duration before now |
| 2024-12-31, 2024-12-31T18:00+01:00 | a time (ISO 8601; UTC without a zone) |
| 1735689600000ms | milliseconds since 1970 (UTC) |
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from ..errors import InvalidRequest

FORMS = (
    "earliest, latest, an offset (42), a number of records before the end (-5), a duration ago "
    "(-90s, -15m, -1h, -2d), a time (2024-12-31T18:00, UTC without a zone) or milliseconds since "
    "1970 (1735689600000ms)"
)
OFFSET_MAX = 2**63 - 1

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class FromEnd:
    """A position a number of records before the end of each partition."""

    records: int


OffsetSpec: TypeAlias = Literal["earliest", "latest"] | int | datetime | FromEnd


def parse_offset_spec(text: str, *, now: datetime) -> OffsetSpec:
    """Return the position that a text names, see the module. Raise ValueError for other texts."""
    word = text.strip()
    if word in ("earliest", "beginning", "start"):
        return "earliest"
    if word in ("latest", "end", "now"):
        return "latest"
    if _is_digits(word):
        if int(word) > OFFSET_MAX:
            raise ValueError(f"{text!r} is too large for an offset; the largest is {OFFSET_MAX}")
        return int(word)
    if word.startswith("-") and _is_digits(word[1:]):
        return FromEnd(min(int(word[1:]), OFFSET_MAX))
    ago = _AGO.fullmatch(word)
    try:
        if ago is not None:
            return now - timedelta(milliseconds=float(ago[1]) * _UNITS_MS[ago[2]])
        return parse_time(word)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not an offset: give {FORMS}") from None


def parse_time(text: str) -> datetime:
    """Return the time of an ISO 8601 text, or of milliseconds since 1970 with the suffix ms. Raise
    ValueError for other texts."""
    if text.endswith("ms") and _is_digits(text[:-2]):
        return datetime.fromtimestamp(int(text[:-2]) / 1000, UTC)
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def timestamp_of(value: Any) -> int | None:
    """Return a record's timestamp in milliseconds since 1970. `value` is a number, digits or
    ISO 8601; None and -1 mean no timestamp. Raise InvalidRequest for other values."""
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
        f"timestamp is {value!r}; give milliseconds since 1970, or a time such as "
        "2024-12-31T18:00:00"
    )


def _bounded(timestamp_ms: int) -> int:
    if timestamp_ms > OFFSET_MAX:
        raise InvalidRequest(f"timestamp is {timestamp_ms}; the largest is {OFFSET_MAX}")
    return timestamp_ms


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()
