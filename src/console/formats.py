"""Numbers, sizes, durations and times as text of pages."""

from datetime import UTC, datetime
from typing import Final

from ..visible_text import count_text, duration_text

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
NO_LIMIT: Final = 2**62  # numbers from here on mean that there is none
DASH: Final = "\N{EN DASH}"  # an unknown value
GROUP_STATES: Final = {"Empty": "no members"}
TRANSACTION_STATES: Final = {
    "Empty": "none yet",
    "Ongoing": "open",
    "PrepareCommit": "committing",
    "PrepareAbort": "aborting",
    "CompleteCommit": "committed",
    "CompleteAbort": "aborted",
}
"""The texts of states by the names of the protocol; others are shown by their names."""

count = count_text


def number(value: int | None) -> str:
    """Return a whole number with thousands separated."""
    return DASH if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """Return a rate with three significant digits."""
    if value is None:
        return DASH
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(value: float | None) -> str:
    """Return bytes in the largest unit in which they are at least 1."""
    if value is None:
        return DASH
    for unit in _SIZES:
        if abs(value) < 1024 or unit == _SIZES[-1]:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def duration(ms: float | None) -> str:
    """Return a duration in its largest two units."""
    return DASH if ms is None or ms < 0 else duration_text(ms)


def milliseconds(ms: float) -> str:
    """Return a short duration with fractions of a millisecond."""
    if ms < 0.01:
        return "< 0.01 ms"
    return f"{ms:.2f} ms" if ms < 10 else duration(ms)


def time(ms: int | None) -> str:
    """Return a time in milliseconds since 1970 as UTC text, its number if no calendar has it."""
    if ms is None or ms < 0:
        return DASH
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def recent_time(ms: int, now_ms: int) -> str:
    """Return a time as UTC text, without the date if it is that of now."""
    text, date = time(ms), time(now_ms).partition(" ")[0]
    return text.removeprefix(f"{date} ")


def config_value(value: str, unit: str) -> str:
    """Return a config's value with a readable form of bytes and milliseconds in parentheses."""
    if not value.lstrip("-").isdigit():
        return value
    amount = int(value)
    if amount >= NO_LIMIT:
        return f"{value} (no limit)"
    if unit == "bytes" and amount >= 1024:
        return f"{value} ({size(amount)})"
    if unit == "ms" and amount >= 1000:
        return f"{value} ({duration(amount)})"
    return value
