"""Sequence numbers of a partition's batches: assignment, retention, reassignment."""

from tests.unit.clients.record_buffer import RecordBuffer

from quorumlog.clients.config import ProducerConfig
from quorumlog.clients.producer.batch_encoder import encode_records, renumbered
from quorumlog.clients.producer.batches import Batch
from quorumlog.clients.producer.partition_queue import Part
from quorumlog.clients.producer.partitioner import KeyPartitioner
from quorumlog.clients.producer.sequences import (
    EPOCH_MAX,
    SEQUENCE_MASK,
    TRUST_MS,
    ProducerSequence,
    SequenceNumbers,
)
from quorumlog.errors import InvalidProducerEpoch, OutOfOrderSequence, QuorumlogError, StreamBroken
from quorumlog.ids import ProducerIdentity
from quorumlog.records import decode_all, parse_header
from quorumlog.records.batch import check_crc
from quorumlog.records.compression import Codec


class Bench:
    """One partition of an idempotent producer whose sender is the test, one record to a batch."""

    def __init__(self) -> None:
        self.buffer = RecordBuffer(
            ProducerConfig(batch_size=1, delivery_timeout_ms=100, linger_ms=0),
            partitioner=KeyPartitioner(),
        )
        self.accumulator = self.buffer.accumulator
        self.accumulator.admit("t", 1)
        self.buffer.queues.producer_id = 7
        self.queue = self.accumulator.queue("t", 0)

    def send(self, count: int) -> None:
        for _ in range(count):
            assert self.accumulator.accept("t", None, b"v", 1, (), 0) is not None

    def take(self, now_ms: int = 0) -> list[Part]:
        """Take all batches that may be sent."""
        parts = []
        while self.buffer.queues.ready and not self.buffer.queues.lacks_id(self.queue):
            part = self.buffer.queues.take(self.buffer.queues.ready.popleft(), 1 << 20, now_ms)
            if part is not None:
                parts.append(part)
        return parts

    def store(self, parts: list[Part], now_ms: int = 0) -> None:
        for part in parts:
            self.buffer.queues.stored(part, now_ms)

    def fail(self, parts: list[Part], *, is_unknown: bool = True) -> None:
        """Fail the batches with a broken stream or a retriable error, then resume the queue."""
        for part in parts:
            part.batches[0].may_be_stored |= is_unknown
            self.buffer.queues.put_back(part, StreamBroken("cut"))
        self.buffer.queues.unpark(self.queue)

    def misplace(self, part: Part, error: QuorumlogError) -> tuple[Batch, ...]:
        is_fenced = isinstance(error, InvalidProducerEpoch)
        _, lost = self.buffer.queues.sequence_refused(part, error, is_fenced=is_fenced)
        self.buffer.queues.unpark(self.queue)
        return lost


def numbers(parts: list[Part]) -> list[ProducerSequence | None]:
    return [part.batches[0].number for part in parts]


def sequences(parts: list[Part]) -> list[int]:
    return [number.sequence for number in numbers(parts) if number is not None]


def test_the_first_goes_alone_and_five_go_once_it_is_acknowledged() -> None:
    bench = Bench()
    bench.send(8)
    first = bench.take()
    assert numbers(first) == [(7, 0, 0)]
    bench.store(first)
    several = bench.take()
    assert sequences(several) == [1, 2, 3, 4, 5]
    bench.store(several[:2])
    assert sequences(bench.take()) == [6, 7]


def test_failed_batches_keep_their_numbers_and_the_oldest_is_sent_alone() -> None:
    bench = Bench()
    bench.send(6)
    bench.store(bench.take())
    several = bench.take()
    bench.fail(several[:1])
    assert bench.take() == []  # the other batches are in flight
    bench.fail(several[1:])
    again = bench.take()
    assert sequences(again) == [1]
    bench.store(again)
    assert sequences(bench.take()) == [2, 3, 4, 5]


def test_after_a_long_pause_the_producer_state_may_have_expired() -> None:
    bench = Bench()
    bench.send(1)
    bench.store(bench.take(1_000), 1_000)
    bench.send(3)
    assert sequences(bench.take(1_000 + TRUST_MS + 1)) == [1]
    assert len(bench.queue.parts) == 1


def test_expired_batch_is_followed_by_the_next_epoch() -> None:
    bench = Bench()
    bench.send(1)
    bench.store(bench.take())
    bench.send(1)
    bench.accumulator.close_due(0)
    bench.fail(bench.take())
    late, _ = bench.buffer.incomplete.expired(100)
    assert [batch.number for batch in late] == [(7, 0, 1)]
    bench.send(2)
    assert numbers(bench.take()) == [(7, 1, 0)]


def test_batch_possibly_stored_behind_a_gap_keeps_its_number() -> None:
    bench = Bench()
    bench.send(1)
    bench.store(bench.take())
    bench.send(4)
    several = bench.take()
    bench.fail(several)
    first = bench.queue.closed[0]
    bench.buffer.queues.refused(bench.take()[0])  # it expired
    assert first.number == (7, 0, 1)
    second = bench.take()
    assert numbers(second) == [(7, 0, 2)]
    bench.store(second)
    third = bench.take()
    (lost,) = bench.misplace(third[0], OutOfOrderSequence("1 is next"))
    assert lost.number == (7, 0, 3)  # a late request may still bring it
    fourth = bench.take()
    assert numbers(fourth) == [(7, 0, 4)]
    bench.misplace(fourth[0], OutOfOrderSequence("1 is next"))
    bench.send(1)
    assert numbers(bench.take()) == [(7, 1, 0)]


def test_batches_certainly_not_stored_after_a_gap_are_renumbered() -> None:
    bench = Bench()
    bench.send(1)
    bench.store(bench.take())
    bench.send(3)
    bad, second, third = bench.take()
    bench.buffer.queues.refused(bad)
    for part in (second, third):
        assert bench.misplace(part, OutOfOrderSequence("1 is next")) == ()
    again = bench.take()
    assert numbers(again) == [(7, 1, 0)]
    bench.store(again)
    assert numbers(bench.take()) == [(7, 1, 1)]


def test_producer_uses_the_next_epoch_after_the_leader_lost_its_log() -> None:
    bench = Bench()
    bench.send(1)
    bench.store(bench.take())
    bench.send(1)
    bench.fail(bench.take())
    (part,) = bench.take()
    assert bench.misplace(part, OutOfOrderSequence("0 is next")) == ()
    assert numbers(bench.take()) == [(7, 1, 0)]


def test_a_fenced_producer_takes_a_new_id() -> None:
    bench = Bench()
    bench.send(1)
    (part,) = bench.take()
    assert bench.misplace(part, InvalidProducerEpoch("epoch 9 has written")) == ()
    assert bench.buffer.queues.lacks_id(bench.queue)
    bench.buffer.queues.producer_id = 8
    assert numbers(bench.take()) == [(8, 0, 0)]


def test_exhausted_epochs_are_followed_by_another_id() -> None:
    numbering = SequenceNumbers(producer_id=7, epoch=EPOCH_MAX - 1, has_gap=True)
    numbering.begin(-1)
    assert numbering.give(1) == (7, EPOCH_MAX, 0)
    numbering.give_up(ProducerSequence(7, EPOCH_MAX, 0))
    numbering.begin(9)
    assert numbering.give(1) == (9, 0, 0)


def test_records_are_counted_within_an_identity_beyond_the_last_sequence() -> None:
    numbering = SequenceNumbers()
    for epoch in range(2):
        numbering.adopt(ProducerIdentity(7, epoch))
        for _ in range(3):
            numbering.give(2**30)
        assert numbering.record_count == 3 * 2**30
        assert numbering.next_sequence == 2**30
    numbering.has_gap = True
    numbering.begin(8)
    assert numbering.record_count == 0


def test_sequences_begin_again_behind_the_largest() -> None:
    numbering = SequenceNumbers(producer_id=7, next_sequence=SEQUENCE_MASK - 1)
    assert numbering.give(5).sequence == SEQUENCE_MASK - 1
    assert numbering.give(1).sequence == 3


def test_partition_that_returns_gets_another_id() -> None:
    """With its former numbers, batches would count as duplicates."""
    bench = Bench()
    bench.send(1)
    bench.store(bench.take())
    bench.accumulator.forget_topic("t")
    bench.accumulator.admit("t", 1)
    assert bench.buffer.queues.lacks_id(bench.accumulator.queue("t", 0))


def test_the_halves_of_a_batch_share_its_range() -> None:
    bench = Bench()
    bench.buffer = RecordBuffer(
        ProducerConfig(linger_ms=0),
        partitioner=KeyPartitioner(),
    )
    bench.accumulator = bench.buffer.accumulator
    bench.accumulator.admit("t", 1)
    bench.buffer.queues.producer_id = 7
    bench.queue = bench.accumulator.queue("t", 0)
    bench.send(5)
    bench.accumulator.close_all()
    (whole,) = bench.take()
    assert bench.buffer.queues.split(whole)
    first = bench.take()
    assert numbers(first) == [(7, 0, 0)]
    bench.store(first)
    assert numbers(bench.take()) == [(7, 0, 2)]


def test_an_encoded_batch_can_get_another_number() -> None:
    bench = Bench()
    bench.send(1)
    (part,) = bench.take()
    encoded = encode_records(part.batches[0], Codec.GZIP)
    changed = renumbered(encoded, ProducerSequence(9, 3, 41))
    header = parse_header(changed)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 41)
    check_crc(changed, 0, header)
    assert decode_all(changed) == decode_all(encoded)
    assert renumbered(changed, part.batches[0].number) == encoded
