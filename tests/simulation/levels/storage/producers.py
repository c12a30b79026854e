"""The expected producer state of a log, derived from its records: duplicates, open and aborted
transactions.

A model for the storage level: it walks over the whole content at every query.
"""

from dataclasses import dataclass, field
from typing import Final

from quorumlog.records import MarkerType, Record, encode_batch, encode_marker
from quorumlog.records.batch import NO_PRODUCER
from quorumlog.storage import Log

from .bounds import DIRECTORY
from .expected import Content, ExpectedRecord

IDEMPOTENT: Final = 1
TRANSACTIONAL: Final = (2, 3)
REMEMBERED: Final = 5
"""Batches of a producer that are recognised when repeated."""


@dataclass(slots=True)
class ProducerModel:
    """The state of one producer."""

    next_sequence: int = 0
    transaction_start: int = -1  # first offset of the open transaction
    batches: list[tuple[int, list[ExpectedRecord]]] = field(
        default_factory=list
    )  # first offset, records


@dataclass(slots=True)
class ProducerModels:
    """The producers of a log's content."""

    by_id: dict[int, ProducerModel] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # id, first, last offset
    producers_max: int = DIRECTORY.producers_max

    @staticmethod
    def of(content: Content, producers_max: int = DIRECTORY.producers_max) -> "ProducerModels":
        """Return the producers of a log's records that the log remembers."""
        senders = ProducerModels(producers_max=producers_max)
        for offset, kept in enumerate(content):
            if kept is not None and kept.producer != NO_PRODUCER:
                senders._take(offset, kept)
        return senders

    def _take(self, offset: int, kept: ExpectedRecord) -> None:
        sender = self.by_id.pop(kept.producer, None) or ProducerModel()
        self.by_id[kept.producer] = sender  # the last one is the least idle
        self._update(sender, offset, kept)
        idle = [known for known, one in self.by_id.items() if one.transaction_start < 0]
        for known in idle[: max(0, len(self.by_id) - self.producers_max)]:
            del self.by_id[known]

    def _update(self, sender: ProducerModel, offset: int, kept: ExpectedRecord) -> None:
        if kept.marker is not None:
            if kept.marker is MarkerType.ABORT and sender.transaction_start >= 0:
                self.aborted.append((kept.producer, sender.transaction_start, offset))
            sender.transaction_start = -1
            return
        if kept.is_transactional and sender.transaction_start < 0:
            sender.transaction_start = offset
        if sender.batches and sender.batches[-1][1][0].batch == kept.batch:
            sender.batches[-1][1].append(kept)
        else:
            sender.batches = [*sender.batches[1 - REMEMBERED :], (offset, [kept])]
        sender.next_sequence = kept.sequence + 1

    def drop_below(self, start_offset: int) -> None:
        """Drop the batches below an offset."""
        for one in self.by_id.values():
            one.batches = [batch for batch in one.batches if batch[0] >= start_offset]

    def sender(self, producer: int) -> ProducerModel:
        """Return a producer; a new one has sequence 0 next."""
        return self.by_id.get(producer, ProducerModel())

    def first_undecided(self, end_offset: int) -> int:
        """Return the first offset of the oldest open transaction, the end if none is open."""
        starts = [s.transaction_start for s in self.by_id.values() if s.transaction_start >= 0]
        return min(starts, default=end_offset)


def batch_of(records: list[ExpectedRecord], *, base_offset: int = 0) -> bytes:
    """Return the encoded records of one batch, as their producer sends them."""
    first = records[0]
    if first.marker is not None:
        return encode_marker(
            producer_id=first.producer,
            producer_epoch=0,
            kind=first.marker,
            coordinator_epoch=0,
            timestamp_ms=1_000,
            leader_epoch=first.epoch,
            base_offset=base_offset,
        )
    return encode_batch(
        [
            Record(offset=0, timestamp_ms=1_000 + first.batch, key=k.key, value=k.value, headers=())
            for k in records
        ],
        base_offset=base_offset,
        leader_epoch=first.epoch,
        producer_id=first.producer,
        producer_epoch=0 if first.producer != NO_PRODUCER else -1,
        base_sequence=first.sequence,
        is_transactional=first.is_transactional,
    )


def check_producers(
    log: Log, content: Content, *, producers_max: int, may_be_partial: bool
) -> ProducerModels:
    """Raise AssertionError unless a log's producer state equals that of its content.

    `may_be_partial`: the state may lack batches below the log start. Only the batches, and the
    transactions, above it are compared and returned then.
    """
    senders = ProducerModels.of(content, producers_max)
    start, end = log.log_start_offset, log.log_end_offset
    log.note_high_watermark(end)
    stable = max(senders.first_undecided(end), start)
    if stable > start or not may_be_partial:
        assert log.last_stable_offset == stable, (
            f"{log.name}: its last stable offset is {log.last_stable_offset}, not {stable}"
        )
    known = [tuple(one)[:3] for one in log.aborted_transactions(start, end)]
    expected = [one for one in senders.aborted if one[2] >= start]
    if may_be_partial:
        known = [one for one in known if one[1] >= start]
        expected = [one for one in expected if one[1] >= start]
        senders.drop_below(start)
    assert sorted(known) == sorted(expected), f"{log.name}: aborted {known}, not {expected}"
    return senders
