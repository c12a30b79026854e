"""How much of a stream's backlog the next micro-batch takes, and whether it waits.

Spark takes one limit from a Python source, and none that waits for records; so all limits are
applied where the source says up to where the next micro-batch goes. Pure: the time comes in.
"""

from collections.abc import Mapping
from typing import NamedTuple

from quorumlog.spark.offsets import Offsets, TopicPartition
from quorumlog.spark.options import Limits
from quorumlog.spark.planning import limit_rows

RECORD_BYTES: int = 1_000
"""What a record is taken for where nothing is known of its partition."""

PAUSE_MS_MIN: int = 2
PAUSE_MS_MAX: int = 50
"""The first rest between looks in vain, and the longest; each is twice the one before."""


class Density(NamedTuple):
    """What a log takes on disk: so many bytes for so many offsets."""

    size_bytes: int
    offsets: int

    def bytes_of(self, offsets: int) -> int:
        """About how many bytes so many offsets take, rounded up."""
        if self.offsets <= 0 or self.size_bytes <= 0:
            return offsets * RECORD_BYTES
        return -(-offsets * self.size_bytes // self.offsets)


UNKNOWN = Density(0, 0)


class Admission:
    """The limits of one query, and since when records wait."""

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
        """Return where the next micro-batch ends; None: it waits for more records.

        Every partition of `latest` must be in `starts`. The first micro-batch never waits; the next
        ones do, for `offsets_min` records and no longer than `delay_ms_max` since the first that
        waits was seen. `now_ms` is monotonic. With `waits` false nothing waits: no more records are
        to come.
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
    """How long a query rests between looks for new records that found none: Spark alone would look
    a hundred times a second, which costs driver and brokers a tenth of a core for an idle query."""

    def __init__(self) -> None:
        self._looked_ms = 0
        self._pause_ms = 0

    def rest_ms(self, now_ms: int) -> int:
        """Return how long to wait before the next look; `now_ms` is monotonic."""
        return max(self._looked_ms + self._pause_ms - now_ms, 0)

    def looked(self, now_ms: int, *, found: bool) -> None:
        """The look is over. The first one in vain is followed by the next at once."""
        self._looked_ms = now_ms
        longer_ms = min(max(2 * self._pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
        self._pause_ms = 0 if found else longer_ms


def limit_bytes(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    densities: Mapping[TopicPartition, Density],
    bytes_max: int,
) -> Offsets:
    """Return ends that take about `bytes_max`, each partition by its share of the backlog's bytes,
    and at least one offset where there is any.

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
