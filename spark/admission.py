"""Limits of micro-batches: how much of the backlog the next one reads, and whether it waits.

Spark accepts one limit from a Python source, and none that waits for records. So the source applies
all limits when it returns the end of the next micro-batch. The rate limit is that of Spark's Kafka
connector, in integer arithmetic. Pure: time is an argument.
"""

from collections.abc import Mapping
from typing import NamedTuple

from quorumlog.ids import TopicPartition
from quorumlog.spark.offsets import Offsets
from quorumlog.spark.options import Limits

RECORD_BYTES: int = 1_000
"""Assumed size of a record of a partition without statistics."""

PAUSE_MS_MIN: int = 2
PAUSE_MS_MAX: int = 50
"""Bounds of the pause after a poll without new records; it doubles each time."""


class Density(NamedTuple):
    """The size of a log on disk, and the number of its offsets."""

    size_bytes: int
    offsets: int

    def bytes_of(self, offsets: int) -> int:
        """Return the approximate size of a number of offsets, rounded up."""
        if self.offsets <= 0 or self.size_bytes <= 0:
            return offsets * RECORD_BYTES
        return -(-offsets * self.size_bytes // self.offsets)


UNKNOWN = Density(0, 0)


class Admission:
    """The limits of one query, and the time since when records wait."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._is_first = True
        self._waiting_since_ms: int | None = None

    def end_of(
        self,
        starts: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        densities: Mapping[TopicPartition, Density],
        *,
        now_ms: int,
        waits: bool = True,
    ) -> Offsets | None:
        """Return the end of the next micro-batch, None to wait for more records.

        Every partition of `latest` must be in `starts`. The first micro-batch never waits. Later
        ones wait for `offsets_min` records, at most `delay_ms_max` after the first waiting record
        was found. `now_ms` is monotonic. Without `waits` no micro-batch waits.
        """
        backlog = sum(max(end - starts[place], 0) for place, end in latest.items())
        if backlog and waits and self._has_to_wait(backlog, now_ms):
            return None
        if backlog:
            self._waiting_since_ms = None
        self._is_first = False
        ends = dict(latest)
        if self._limits.offsets_max is not None:
            ends = limit_rows(starts, latest, self._limits.offsets_max)
        if self._limits.bytes_max is not None:
            by_bytes = limit_bytes(starts, latest, densities, self._limits.bytes_max)
            ends = {place: min(end, by_bytes[place]) for place, end in ends.items()}
        return ends

    def _has_to_wait(self, backlog: int, now_ms: int) -> bool:
        least = self._limits.offsets_min
        if least is None or backlog >= least or self._is_first:
            return False
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        return now_ms - self._waiting_since_ms < self._limits.delay_ms_max


class Pace:
    """The pause between polls without new records. Spark polls a hundred times a second, which
    costs a tenth of a core on driver and brokers for an idle query."""

    def __init__(self) -> None:
        self._polled_ms = 0
        self._pause_ms = 0

    def pause_ms(self, now_ms: int) -> int:
        """Return the time until the next poll; `now_ms` is monotonic."""
        return max(self._polled_ms + self._pause_ms - now_ms, 0)

    def polled(self, now_ms: int, *, found: bool) -> None:
        """Record a poll. The first one without records is followed by the next at once."""
        self._polled_ms = now_ms
        longer_ms = min(max(2 * self._pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
        self._pause_ms = 0 if found else longer_ms


def limit_rows(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], rows_max: int
) -> Offsets:
    """Return ends that read about `rows_max` offsets, in proportion to each partition's backlog.

    A share below one is rounded up, so that small partitions make progress; others are rounded
    down. Every partition of `ends` must be in `starts`.
    """
    backlog = {place: max(end - starts[place], 0) for place, end in ends.items()}
    total = sum(backlog.values())
    if total <= rows_max:
        return dict(ends)
    limited: Offsets = {}
    for place, size in backlog.items():
        share = rows_max * size // total
        if share == 0 and size > 0:
            share = 1
        limited[place] = min(starts[place] + share, ends[place])
    return limited


def limit_bytes(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    densities: Mapping[TopicPartition, Density],
    bytes_max: int,
) -> Offsets:
    """Return ends that read about `bytes_max`, in proportion to each partition's backlog in bytes,
    and at least one offset of each partition with a backlog.

    Every partition of `ends` must be in `starts`.
    """
    backlog = {place: max(end - starts[place], 0) for place, end in ends.items()}
    total = sum(
        densities.get(place, UNKNOWN).bytes_of(offsets) for place, offsets in backlog.items()
    )
    if total <= bytes_max:
        return dict(ends)
    return {
        place: min(starts[place] + max(offsets * bytes_max // total, 1), ends[place])
        if offsets
        else ends[place]
        for place, offsets in backlog.items()
    }
