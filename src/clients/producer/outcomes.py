"""The outcomes of a producer's batches: stored, or failed for good.

Failed batches are kept until `flush` or `close` raises their errors: at most `BATCHES_KEPT`, with
the content of the first `RECORDS_KEPT` records up to `CONTENT_BYTES_KEPT`; beyond that only the
count is kept.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from ...errors import NotDelivered, QuorumlogError, UndeliveredRecord
from ...runtime import Clock
from ..coordination import Changes
from .batch_encoder import batch_columns
from .batches import Batch

if TYPE_CHECKING:
    from .partition_queue import Part
    from .ready_queues import ReadyQueues

BATCHES_KEPT: Final = 1_000
RECORDS_KEPT: Final = 1_000
CONTENT_BYTES_KEPT: Final = 4 << 20


class Failures:
    """The failed batches of one producer. The caller holds the producer's lock, if there is one."""

    def __init__(self, on_refusal: Callable[[], object] = lambda: None) -> None:
        """`on_refusal` is called, with the lock held, when `refusal` is set."""
        self.refusal: QuorumlogError | None = None  # of the first record that was not appended
        self._on_refusal = on_refusal
        self._batches: list[Batch] = []  # oldest first
        self._content_bytes = 0  # of the batches that keep their content
        self._count_beyond = 0  # records of failed batches beyond the limit

    def add_refused(self, batch: Batch) -> None:
        """Add a failed batch of records that `send_many` did not append."""
        self.add([batch])
        assert batch.error is not None, "a refused batch without its error"
        self.refuse(batch.error)

    def refuse(self, error: QuorumlogError) -> None:
        """Record that a record was not appended."""
        if self.refusal is None:
            self.refusal = error
            self._on_refusal()

    def add(self, batches: Sequence[Batch]) -> None:
        """Add failed batches, or batches about to fail."""
        for batch in batches:
            if len(self._batches) >= BATCHES_KEPT:
                self._forget_seen()
            if len(self._batches) >= BATCHES_KEPT:
                called = batch.callbacks  # they are about to get the error
                self._count_beyond += sum(index not in called for index in batch.unobserved())
                batch.drop_content()
                continue
            self._batches.append(batch)
            if self._content_bytes + batch.held > CONTENT_BYTES_KEPT and self._content_bytes:
                batch.drop_content()
            else:
                self._content_bytes += batch.held

    def take(self) -> NotDelivered | None:
        """Return the failures that the application did not retrieve, once; None if there are
        none."""
        failed, self._batches = (
            [batch for batch in self._batches if batch.is_done],
            [batch for batch in self._batches if not batch.is_done],
        )
        count, self._count_beyond = self._count_beyond, 0
        self._content_bytes = sum(batch.held for batch in self._batches)
        first: QuorumlogError | None = None
        records: list[UndeliveredRecord] = []
        for batch in failed:
            unseen = batch.unobserved()
            count += len(unseen)
            if unseen:
                first = first or batch.error
                records.extend(undelivered(batch, unseen[: RECORDS_KEPT - len(records)]))
            batch.drop_content()
        if not count:
            return None
        return not_delivered(count, first, records)

    def _forget_seen(self) -> None:
        kept = [batch for batch in self._batches if not batch.is_done or batch.unobserved()]
        for batch in self._batches:
            if batch.is_done and not batch.unobserved():
                batch.drop_content()
        self._batches = kept
        self._content_bytes = sum(batch.held for batch in kept)


def undelivered(batch: Batch, indices: Sequence[int]) -> list[UndeliveredRecord]:
    """Return the kept records of a failed batch; [] if they were dropped."""
    if batch.parts:
        ends = [*(first for first, _ in batch.parts[1:]), batch.count]
        return [
            record
            for (first, part), end in zip(batch.parts, ends, strict=True)
            for record in undelivered(part, [i - first for i in indices if first <= i < end])
        ]
    columns = batch_columns(batch)
    if columns is None or not indices:
        return []
    assert batch.error is not None, "a failed batch without its error"
    return [
        UndeliveredRecord(
            topic=batch.queue.topic,
            partition=batch.queue.partition,
            key=columns.keys[index],
            value=columns.values[index],
            headers=columns.headers.get(index, ()),
            timestamp_ms=columns.timestamps[index],
            error=batch.error,
            may_be_stored=batch.may_be_stored,
        )
        for index in indices
    ]


def not_delivered(
    count: int, first: QuorumlogError | None, records: Sequence[UndeliveredRecord]
) -> NotDelivered:
    """Return the error for `count` records, of which `records` are kept."""
    what = "1 record was" if count == 1 else f"{count} records were"
    reason = f": {first}" if first is not None else ""
    beyond = count - len(records)
    kept = "`records` has them"
    if beyond:
        kept = f"`records` has the first {len(records)}; {beyond} more were only counted"
    return NotDelivered(
        f"{what} not delivered{reason} ({kept})",
        topic=first.topic if first is not None else "",
        partition=first.partition if first is not None else None,
        count=count,
        first=first,
        records=records,
    )


class BatchOutcomes:
    """Gives the batches of one producer their outcome and counts them. Not thread-safe: one
    loop."""

    def __init__(
        self, ready: "ReadyQueues", clock: Clock, lock: AbstractContextManager[object]
    ) -> None:
        self._ready = ready
        self._clock = clock
        self._lock = lock  # guards the queues
        self._changes = Changes()
        self.on_failure: Callable[[QuorumlogError], None] = lambda _: None  # of a batch
        self.requests = 0  # acknowledged parts of requests
        self.delivered = 0  # records
        self.failed = 0  # records
        self.retries = 0  # batches put back for a retry
        self.splits = 0  # batches split in halves

    def stored(self, part: "Part", base_offset: int, append_time_ms: int = -1) -> None:
        """Complete a part stored at `base_offset` (-1: unknown), with the broker's time if the
        topic uses it."""
        with self._lock:
            batches = self._ready.stored(part, self._clock.now_ms())
        self.requests += 1
        for batch in batches:
            self.delivered += batch.count
            batch.complete(base_offset, append_time_ms)
            if base_offset >= 0:
                base_offset += batch.count
        self._changes.announce()

    def fail(self, batches: Sequence[Batch], error: QuorumlogError) -> None:
        """Fail batches that were removed from the buffer."""
        for batch in batches:
            self.failed += batch.count
            batch.fail(error)
        if batches:
            self.on_failure(error)
        self._changes.announce()

    async def wait_change(self) -> None:
        """Wait until batches get their outcome, which frees buffer space."""
        await self._changes.wait()
