"""Rules of the transactions in stored logs. Pure.

A log holds a producer's batches and markers in the order of their offsets. Where the producer has
an epoch for each transaction (KIP-890 part 2), a marker has the epoch behind that of its batches.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quorumlog.records.batch import iterate_batches, whole_batches_end
from quorumlog.records.codec import decode_batch
from quorumlog.records.control import MarkerType, parse_marker
from quorumlog.testing.checkers import Place, TransactionHistory, TransactionOutcome

from .violation import Violation

INFLATE_LIMIT: Final = 1 << 24


class LogBatch(NamedTuple):
    """A batch as it is stored; `marker` is None for data."""

    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    marker: MarkerType | None
    coordinator_epoch: int
    records: tuple[tuple[int, bytes | None, bytes], ...]  # offset, key, value


def batches_of(raw: bytes) -> Iterator[LogBatch]:
    """Yield the whole batches of a response; the last one may be cut."""
    view = memoryview(raw)
    for position, header in iterate_batches(view[: whole_batches_end(view)]):
        marker, coordinator_epoch = None, -1
        records: tuple[tuple[int, bytes | None, bytes], ...] = ()
        if header.is_control:
            parsed = parse_marker(view, position, header)
            if parsed is None:
                continue
            marker, coordinator_epoch = parsed.kind, parsed.coordinator_epoch
        elif header.record_count:
            body = view[position : position + header.size]
            records = tuple(
                (one.offset, None if one.key is None else bytes(one.key), bytes(one.value or b""))
                for one in decode_batch(body, inflate_limit=INFLATE_LIMIT)
            )
        yield LogBatch(
            header.base_offset,
            header.last_offset,
            header.producer_id,
            header.producer_epoch,
            header.is_transactional,
            marker,
            coordinator_epoch,
            records,
        )


@dataclass(slots=True)
class _ProducerLog:
    """The state of one producer at a position of a log."""

    epoch: int = -1  # of its last batch or marker
    open_epoch: int = -1  # of the batches of the open transaction, -1: none is open
    coordinator_epoch: int = -1
    transactions: set[str] = field(default_factory=set)  # senders of the open records


@dataclass(slots=True)
class TransactionLogs:
    """The rules, over all partitions of a run. `check` raises Violation."""

    history: TransactionHistory
    epoch_each: Collection[int]  # ids of producers with an epoch for each transaction
    compacted: Collection[Place] = ()
    # decisions by producer id and epoch: outcome, partition
    _decided: dict[tuple[int, int], tuple[MarkerType, Place]] = field(default_factory=dict)

    def check(self, logs: Mapping[Place, Sequence[LogBatch]]) -> int:
        """Check all logs; return the number of markers."""
        return sum(self._check_log(place, batches) for place, batches in logs.items())

    def _check_log(self, place: Place, batches: Sequence[LogBatch]) -> int:
        producers: dict[int, _ProducerLog] = {}
        markers = 0
        for batch in batches:
            if not batch.is_transactional:
                continue
            producer = producers.setdefault(batch.producer_id, _ProducerLog())
            if batch.marker is None:
                self._take_data(place, batch, producer)
            else:
                markers += 1
                self._take_marker(place, batch, batch.marker, producer)
            producer.epoch = max(producer.epoch, batch.producer_epoch)
        for producer_id, producer in producers.items():
            if producer.open_epoch >= 0:
                raise Violation("Undecided", f"producer {producer_id} has no marker in {place}")
        return markers

    def _take_data(self, place: Place, batch: LogBatch, producer: _ProducerLog) -> None:
        if batch.producer_epoch < producer.epoch:
            raise Violation(
                "OldEpochAppended",
                f"{_shown(place, batch)} follows epoch {producer.epoch} of its producer",
            )
        producer.open_epoch = batch.producer_epoch
        for _, _, value in batch.records:
            transaction = self.history.transaction_of(value)
            if transaction is not None:
                producer.transactions.add(transaction.name)
        if len(producer.transactions) > 1 and place not in self.compacted:
            raise Violation(
                "MixedTransactions",
                f"{_shown(place, batch)}: one marker decides {sorted(producer.transactions)}",
            )

    def _take_marker(
        self, place: Place, batch: LogBatch, marker: MarkerType, producer: _ProducerLog
    ) -> None:
        shown = _shown(place, batch)
        if batch.coordinator_epoch < producer.coordinator_epoch:
            raise Violation(
                "OldCoordinator", f"{shown} of coordinator epoch {batch.coordinator_epoch}"
            )
        if batch.producer_epoch < producer.epoch:
            raise Violation("OldEpochAppended", f"{shown} follows epoch {producer.epoch}")
        if batch.producer_id in self.epoch_each:
            self._take_marker_of_epoch(place, batch, marker, producer)
        for name in producer.transactions:
            transaction = self.history.transactions[name]
            is_commit = marker is MarkerType.COMMIT
            if is_commit and transaction.is_aborted:
                raise Violation("WrongMarker", f"{shown} commits {name}, which was aborted")
            if not is_commit and transaction.outcome is TransactionOutcome.COMMITTED:
                raise Violation("WrongMarker", f"{shown} aborts {name}, which was committed")
        producer.coordinator_epoch = batch.coordinator_epoch
        producer.open_epoch = -1
        producer.transactions.clear()

    def _take_marker_of_epoch(
        self, place: Place, batch: LogBatch, marker: MarkerType, producer: _ProducerLog
    ) -> None:
        shown = _shown(place, batch)
        if batch.producer_epoch == producer.open_epoch:
            raise Violation("LateMarker", f"{shown} ends a transaction of its own epoch")
        if batch.producer_epoch == producer.epoch:
            raise Violation("RepeatedMarker", f"{shown} repeats one")
        key = (batch.producer_id, batch.producer_epoch)
        known, first = self._decided.setdefault(key, (marker, place))
        if known is not marker:
            raise Violation("TornDecision", f"{shown} has {marker.name}, {first} has {known.name}")


def ids_with_an_epoch_each(
    logs: Mapping[Place, Iterable[LogBatch]], shared: Collection[int]
) -> set[int]:
    """Return the producer ids of these logs with an epoch for each transaction: all but those in
    `shared`."""
    return {
        batch.producer_id
        for batches in logs.values()
        for batch in batches
        if batch.is_transactional and batch.producer_id not in shared
    }


def _shown(place: Place, batch: LogBatch) -> str:
    what = "the batch" if batch.marker is None else f"the {batch.marker.name} marker"
    return (
        f"{what} at {place[0]}-{place[1]} offset {batch.first_offset} of producer"
        f" {batch.producer_id} epoch {batch.producer_epoch}"
    )
