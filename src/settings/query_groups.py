"""Names of the groups of streaming queries, and the format of the topic config `retention.holds`.

A hold is a lease of a group on a topic. Until its end, retention keeps the records that the group
has not read, unless a partition's log exceeds a size. As text it is GROUP@END/BYTES, with the end
in milliseconds since 1970 (UTC); several are separated by commas. Pure.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

START_GROUP_PREFIX: Final = "__query_start."
"""The prefix of groups that hold the start of a query until its first batch is committed; lists of
groups omit them."""

RETENTION_HOLDS: Final = "retention.holds"
"""The name of the topic config."""

HOLD_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""The maximum length of a lease, so that an abandoned query does not hold records forever."""

HOLD_SKEW_MS: Final = 3600 * 1000
"""The maximum difference between the clocks of a lease's holder and a broker."""

HOLD_GROUPS_MAX: Final = 16
"""Limit of the groups with holds on a topic. Each may have two: a new lease is added before the old
one is removed."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,120}\Z")
_HOLD: Final = re.compile(r"([A-Za-z0-9._-]{1,120})@([0-9]{1,15})/([0-9]{1,19})\Z")


class Hold(NamedTuple):
    """The lease of a group on the records of a topic that it has not read."""

    group: str
    end_ms: int  # milliseconds since 1970 (UTC), exclusive
    bytes_max: int  # of each partition's log; above it, retention ignores the hold

    def counts(self, now_ms: int) -> bool:
        """Return True if the hold is in force: not expired, and not longer than the maximum."""
        return now_ms < self.end_ms <= now_ms + HOLD_MS_MAX + HOLD_SKEW_MS

    def __str__(self) -> str:
        return f"{self.group}@{self.end_ms}/{self.bytes_max}"


def can_hold(group: str) -> bool:
    """Return True if the group's name is valid in a hold."""
    return _NAME.match(group) is not None


def parse_holds(text: str) -> tuple[Hold, ...]:
    """Parse a config's value, in its order; raise ValueError with the problem as its text."""
    holds: list[Hold] = []
    for part in text.split(","):
        if not part.strip():
            continue
        found = _HOLD.match(part.strip())
        if found is None:
            raise ValueError(f"{part.strip()!r} is not a hold; write GROUP@END/BYTES")
        holds.append(Hold(found[1], int(found[2]), int(found[3])))
    groups = len({hold.group for hold in holds})
    if groups > HOLD_GROUPS_MAX:
        raise ValueError(f"{groups} groups have holds, the limit is {HOLD_GROUPS_MAX}")
    if len(holds) > 2 * HOLD_GROUPS_MAX:
        raise ValueError(f"{len(holds)} holds exceed two for each group")
    return tuple(holds)


def holds_text(holds: Iterable[Hold]) -> str:
    """Return the config's value; `parse_holds` parses it."""
    return ",".join(map(str, holds))


def outdated(holds: Iterable[Hold], hold: Hold, now_ms: int) -> tuple[Hold, ...]:
    """Return the holds to remove when `hold` is added: those of its group, and those that expired
    longer than a lease ago. That margin protects the leases of others from a clock that is wrong by
    days. If the limit of groups is reached, all expired holds are removed."""
    present = tuple(holds)
    is_full = len({each.group for each in present} | {hold.group}) > HOLD_GROUPS_MAX
    ended_ms = now_ms if is_full else now_ms - HOLD_MS_MAX
    return tuple(each for each in present if each.group == hold.group or each.end_ms <= ended_ms)
