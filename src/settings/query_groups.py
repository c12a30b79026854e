"""What streaming queries, tools and brokers agree on about the groups of queries: the names of
groups that hold a start, and the text of the topic config `retention.holds`.

A hold is a lease: until its end, what a group has not read of a topic stays, even where retention
would let it go, while the log with it has no more than so many bytes. In text it is
GROUP@END/BYTES, the end in milliseconds since 1970 (UTC), several by commas. Pure.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

START_GROUP_PREFIX: Final = "__query_start."
"""Groups so called hold where a query starts until its first batch is committed; lists of groups
leave them out."""

RETENTION_HOLDS: Final = "retention.holds"
"""The topic config."""

HOLD_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""No lease is longer: a query that never comes again holds nothing for ever."""

HOLD_SKEW_MS: Final = 3600 * 1000
"""How far the clocks of whoever takes a lease and of a broker may be apart."""

HOLD_GROUPS_MAX: Final = 16
"""So many groups may hold what they have not read of a topic. Each may have two leases there: the
next one comes before the old one goes."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,120}\Z")
_HOLD: Final = re.compile(r"([A-Za-z0-9._-]{1,120})@([0-9]{1,15})/([0-9]{1,19})\Z")


class Hold(NamedTuple):
    """A group's lease on what it has not read of a topic."""

    group: str
    end_ms: int  # milliseconds since 1970 (UTC), exclusive
    bytes_max: int  # of each partition's log: above it, retention takes what is held too

    def counts(self, now_ms: int) -> bool:
        """Whether it holds now: not after its end, and not where that is further ahead than any
        lease may be."""
        return now_ms < self.end_ms <= now_ms + HOLD_MS_MAX + HOLD_SKEW_MS

    def __str__(self) -> str:
        return f"{self.group}@{self.end_ms}/{self.bytes_max}"


def can_hold(group: str) -> bool:
    """Whether a group of this name can be written in the text of a hold."""
    return _NAME.match(group) is not None


def parse_holds(text: str) -> tuple[Hold, ...]:
    """Return the holds of a config's value, in its order; raises ValueError with what is wrong as
    its text."""
    holds: list[Hold] = []
    for part in text.split(","):
        if not part.strip():
            continue
        found = _HOLD.match(part.strip())
        if found is None:
            raise ValueError(f"{part.strip()!r} is no hold: write GROUP@END/BYTES")
        holds.append(Hold(found[1], int(found[2]), int(found[3])))
    groups = len({hold.group for hold in holds})
    if groups > HOLD_GROUPS_MAX:
        raise ValueError(f"{groups} groups hold something, {HOLD_GROUPS_MAX} may at most")
    if len(holds) > 2 * HOLD_GROUPS_MAX:
        raise ValueError(f"{len(holds)} holds are more than two of each group")
    return tuple(holds)


def holds_text(holds: Iterable[Hold]) -> str:
    """Return what `parse_holds` takes."""
    return ",".join(map(str, holds))


def outdated(holds: Iterable[Hold], hold: Hold, now_ms: int) -> tuple[Hold, ...]:
    """Return which of a topic's holds go when this one comes: those of its group, and those that
    ended longer ago than a lease lasts, so that a clock that is wrong by days ends no lease of
    others; where there is no room for one more group, all that have ended."""
    present = tuple(holds)
    is_full = len({each.group for each in present} | {hold.group}) > HOLD_GROUPS_MAX
    ended_ms = now_ms if is_full else now_ms - HOLD_MS_MAX
    return tuple(each for each in present if each.group == hold.group or each.end_ms <= ended_ms)
