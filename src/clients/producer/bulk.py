"""Many records in one call: appended in runs, with one handle for all of them."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ...errors import PartitionerFailed, QuorumlogError
from .accumulator import Accumulator
from .batches import Batch, DeliveredRange, Delivery, ranges_of, settled
from .outcomes import Failures, not_delivered, undelivered
from .partition_queue import PartitionQueue
from .record_input import Bulk

DeliveryT = TypeVar("DeliveryT")


class Span(NamedTuple):
    """Records [first, end) of a bulk are in `batch`, starting at its record `begin`."""

    first: int
    end: int
    batch: Batch
    begin: int


class BulkOutcome(Generic[DeliveryT]):
    """The outcomes of records that were sent together, by index or all at once.

    `sent[i]` is the handle of record `i`, as `send` would have returned it; handles are created on
    access.
    """

    def __init__(
        self, spans: Sequence[Span], count: int, make: Callable[[Batch, int], DeliveryT]
    ) -> None:
        self._spans = tuple(spans)
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> DeliveryT:
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(f"record {index} of {self._count}")
        low, high = 0, len(self._spans)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._spans[middle].first <= index else (low, middle)
        span = self._spans[low]
        return self._make(span.batch, span.begin + index - span.first)

    def done(self) -> bool:
        """Return True if every outcome is known."""
        return all(span.batch.is_done for span in self._spans)

    def observe(self) -> None:
        """Mark every outcome as retrieved."""
        for span in self._spans:
            span.batch.observe_run(span.begin, span.begin + span.end - span.first)

    def batches(self) -> list[Batch]:
        """Return the batches that contain the records."""
        return [span.batch for span in self._spans]

    def ranges(self) -> list[DeliveredRange]:
        """Return the offset ranges of the records, in sending order; all outcomes must be known.

        Raises NotDelivered with the records that are not stored.
        """
        count, first = 0, None
        records = []
        for span in self._spans:
            if not span.batch.has_failed():
                continue
            indices = range(span.begin, span.begin + span.end - span.first)
            failed = [i for i in indices if span.batch.error_of(i) is not None]
            count += len(failed)
            if failed:
                first = first or span.batch.error_of(failed[0])
                records.extend(undelivered(span.batch, failed))
        if count:
            raise not_delivered(count, first, records)
        return ranges_of(
            (span.batch, span.begin, span.begin + span.end - span.first) for span in self._spans
        )


class AsyncBulkDelivery(BulkOutcome[Delivery]):
    """The outcomes of records of `AsyncProducer.send_many`: await it for their offset ranges."""

    def __await__(self) -> Generator[Any, None, list[DeliveredRange]]:
        self.observe()
        for batch in self.batches():
            if not batch.is_done:
                yield from settled(batch)
        return self.ranges()


def accept_many(
    accumulator: Accumulator,
    failures: Failures,
    topic: str,
    bulk: Bulk,
    *,
    first: int,
    partition: int | None,
    timestamp_ms: int,
) -> list[Span]:
    """Append records of `bulk` from `first`, as many as fit; return their spans in order.

    Returns [] if nothing fits, or if the topic or partition is unknown, as `accept`. Records that
    all go to one partition are appended in runs, at a fraction of the cost. If the partitioner
    fails for a record, only that record fails.
    """
    spans: list[Span] = []
    index = begin = first
    last = len(bulk.values)
    current: Batch | None = None  # contains [begin, index), starting at its record `place`
    place = 0
    in_runs = partition is not None or (accumulator.takes_runs and bulk.keys is None)
    while index < last:
        taken = 1
        batch: Batch | None
        try:
            if in_runs:
                batch, taken = accumulator.accept_run(topic, bulk, index, partition, timestamp_ms)
            else:
                key = None if bulk.keys is None else bulk.keys[index]
                batch = accumulator.accept(
                    topic, key, bulk.values[index], timestamp_ms, (), partition
                )
        except PartitionerFailed as error:
            batch = refused(topic, bulk, index, index + 1, timestamp_ms, error).batch
            failures.add_refused(batch)
        if batch is not current:
            if current is not None:
                spans.append(Span(begin, index, current, place))
            if batch is not None:
                begin, place = index, batch.count - taken
            current = batch
        if batch is None:
            return spans
        index += taken
    if current is not None:
        spans.append(Span(begin, index, current, place))
    return spans


def refused(
    topic: str, bulk: Bulk, first: int, end: int, timestamp_ms: int, error: QuorumlogError
) -> Span:
    """Return the records of [first, end) as a failed batch: they were not appended."""
    batch = Batch(PartitionQueue(topic, -1))
    batch.values = list(bulk.values[first:end])
    batch.count = len(batch.values)
    batch.keys = [None] * batch.count if bulk.keys is None else list(bulk.keys[first:end])
    batch.timestamps.extend([timestamp_ms] * batch.count)
    batch.size = sum(len(value or b"") for value in batch.values)
    batch.fail(error)
    return Span(first, end, batch, 0)
