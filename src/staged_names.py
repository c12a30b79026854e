"""Names and time limits of staged commits, for clients and coordinators. Pure.

A write without a name gets the name `batch/<write id>`. A list of transactions has each task
attempt as `<name>#<producer id>`, a transactional id that no producer has.
"""

from typing import Final

STAGE_TIMEOUT_MS_DEFAULT: Final = 900_000
"""Default time from the last Begin, KeepAlive or Seal of a write to its commit."""
STAGE_TIMEOUT_MS_MAX: Final = 24 * 3_600_000
OPEN_TIMEOUT_MS: Final = 120_000
"""Time after Begin or the last KeepAlive at which an open attempt is aborted; the minimum of the
time to the commit."""

_UNNAMED: Final = "batch/"


def unnamed_write(write_id: int) -> str:
    """Return the name of a write without one."""
    return f"{_UNNAMED}{write_id}"


def has_unnamed_form(name: str) -> bool:
    """Return True if the name is reserved for a write without one."""
    prefix, number = name[: len(_UNNAMED)], name[len(_UNNAMED) :]
    return prefix == _UNNAMED and _is_number(number)


def attempt_id(name: str, producer_id: int) -> str:
    """Return the transactional id of a task attempt in lists."""
    return f"{name}#{producer_id}"


def split_attempt_id(transactional_id: str) -> tuple[str, int] | None:
    """Return name and producer id of a task attempt; None for the id of a producer."""
    name, _, number = transactional_id.rpartition("#")
    return (name, int(number)) if name and _is_number(number) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19  # digits of 2^63 - 1
