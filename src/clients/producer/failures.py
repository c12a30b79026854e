"""Failed batches, kept until `flush` or `close` raises their errors. Pure.

Bounded: at most `BATCHES_KEPT` failed batches, with the content of the first `RECORDS_KEPT`
records up to `CONTENT_BYTES_KEPT`; beyond that only the count is kept.
"""

from collections.abc import Sequence
from typing import Final

from ...errors import NotDelivered, QuorumlogError, UndeliveredRecord
from .batch_encoder import batch_columns
from .batches import Batch

BATCHES_KEPT: Final = 1_000
RECORDS_KEPT: Final = 1_000
CONTENT_BYTES_KEPT: Final = 4 << 20


class Failures:
    """The failed batches of one producer. The caller holds the producer's lock, if there is one."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []  # oldest first
        self._content_bytes = 0  # of the batches that keep their content
        self._count_beyond = 0  # records of failed batches beyond the limit

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
