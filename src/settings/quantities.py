"""Whole numbers with a unit: "7d" is 604800000 ms, "1GiB" is 1073741824 bytes.

Each unit is a whole multiple of the setting's own unit, so nothing is rounded. An ambiguous unit
(MB, m) is rejected with both readings.
"""

from typing import Final

FACTORS: Final = {
    "ms": {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
    "bytes": {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40},
}
"""By a setting's unit: the accepted suffixes and their factors."""

_TWO_READINGS: Final = {
    "ms": {"m": "min for minutes, ms for milliseconds"},
    "bytes": {
        letter + end: f"{letter.upper()}iB for powers of 1024, or the number of bytes"
        for letter in "kKmMgGtT"
        for end in ("", "b", "B")
    },
}


def parse_quantity(text: str, unit: str) -> int:
    """Return a whole number of `unit`; raise ValueError with the remedy as its text."""
    text = text.strip()
    try:
        return _whole(text)
    except ValueError:
        pass
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    suffix = text[len(number) :]
    factors = FACTORS.get(unit, {})
    if suffix in factors:
        try:
            return _whole(number.rstrip(" ")) * factors[suffix]
        except ValueError:
            pass
    readings = _TWO_READINGS.get(unit, {}).get(suffix)
    if readings is not None and number.strip():
        raise ValueError(f"{suffix} is ambiguous: write {readings}")
    if not factors:
        raise ValueError("give a whole number")
    raise ValueError(f"give a whole number of {unit}, or one with {', '.join(factors)}")


def quantity_text(number: int, unit: str) -> str:
    """Return a number with the largest unit that divides it; `parse_quantity` accepts it."""
    if number > 0:
        for suffix, factor in reversed(FACTORS.get(unit, {}).items()):
            if number % factor == 0 and factor > 1:
                return f"{number // factor}{suffix}"
    return str(number)


def _whole(text: str) -> int:
    """Convert to int, but accept only digits and a sign: not "1_000", " 1" or "\u0661"."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 30:
        raise ValueError
    return int(text)
