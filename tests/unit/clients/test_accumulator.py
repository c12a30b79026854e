"""The accumulator: batches by size and linger time, in order, within the buffer limit."""

import itertools
from collections.abc import Callable

import pytest
from tests.unit.clients.record_buffer import RecordBuffer

from quorumlog.clients.config import ProducerConfig
from quorumlog.clients.producer.batches import OBJECT_OVERHEAD, RECORD_OVERHEAD, Batch
from quorumlog.clients.producer.bulk import accept_many
from quorumlog.clients.producer.partitioner import KeyPartitioner, Partitioner
from quorumlog.clients.producer.record_input import make_bulk
from quorumlog.errors import (
    MessageTooLarge,
    PartitionerFailed,
    StreamBroken,
    UnknownTopicOrPartition,
)
from quorumlog.records.batch import BATCHES_MAX
from quorumlog.runtime import Entropy
from quorumlog.simulation.entropy import SimEntropy

VALUE = b"v" * 88  # with the overhead: 100 bytes a record
RECORD = RECORD_OVERHEAD + len(VALUE)
HELD = RECORD + OBJECT_OVERHEAD  # bytes of a record in the buffer


class Bench:
    """An accumulator whose sender is the test, by default without sequence numbers."""

    def __init__(
        self,
        *,
        partitions: int = 3,
        partitioner: Partitioner | None = None,
        enable_idempotence: bool = False,
        **settings: int,
    ) -> None:
        self.wakes = 0
        self.buffer = RecordBuffer(
            ProducerConfig(enable_idempotence=enable_idempotence, **settings),  # type: ignore[arg-type]
            partitioner=partitioner or KeyPartitioner(),
            on_work=self._on_work,
        )
        self.accumulator = self.buffer.accumulator
        self.accumulator.admit("t", partitions)

    def send(self, partition: int | None = 0, key: bytes | None = None) -> Batch:
        batch = self.accumulator.accept("t", key, VALUE, 1, (), partition)
        assert batch is not None, "no space in the buffer"
        return batch

    def take(self) -> list[tuple[Batch, ...]]:
        """Take every queue that is ready, as the links do."""
        ready = list(self.buffer.queues.ready)
        self.buffer.queues.ready.clear()
        parts = [self.buffer.queues.take(queue, 1 << 30) for queue in ready]
        return [part.batches for part in parts if part is not None]

    def _on_work(self) -> None:
        self.wakes += 1


def entropy() -> Entropy:
    return SimEntropy("seed/0")


def offsets_of(batches: tuple[Batch, ...], base_offset: int) -> list[int]:
    """Complete batches as the sender does. Return the offset of each one's first record."""
    firsts = []
    for batch in batches:
        batch.complete(base_offset)
        firsts.append(batch.delivered(0).offset)
        base_offset += batch.count
    return firsts


def test_full_batch_is_sent() -> None:
    bench = Bench(batch_size=3 * RECORD, linger_ms=1_000)
    batches = [bench.send() for _ in range(7)]
    assert bench.accumulator.close_due(0) == 1_000
    assert [[batch.count for batch in taken] for taken in bench.take()] == [[3, 3]]
    assert batches[6].count == 1


def test_batch_is_sent_after_its_linger_time() -> None:
    bench = Bench(linger_ms=5)
    batch = bench.send()
    assert bench.wakes == 1  # its linger time must start
    assert bench.accumulator.close_due(100) == 105
    assert bench.take() == []
    assert bench.accumulator.close_due(105) is None
    assert bench.take() == [(batch,)]


def test_without_linger_a_batch_is_sent_at_once() -> None:
    bench = Bench(linger_ms=0)
    batch = bench.send()
    bench.accumulator.close_due(100)
    assert bench.take() == [(batch,)]


def test_a_partition_has_one_request_in_flight() -> None:
    bench = Bench(batch_size=RECORD)
    first, second = bench.send(), bench.send()
    queue = first.queue
    assert bench.take() == [(first, second)]
    third = bench.send()
    assert bench.take() == []  # listed only after the response
    offsets_of(bench.buffer.queues.stored(queue.parts[0]), 0)
    assert bench.take() == [(third,)]


def test_a_request_has_a_bounded_number_of_batches_of_a_partition() -> None:
    bench = Bench(batch_size=RECORD)
    for _ in range(BATCHES_MAX + 2):
        queue = bench.send().queue
    (first,) = bench.take()
    assert len(first) == BATCHES_MAX
    offsets_of(bench.buffer.queues.stored(queue.parts[0]), 0)
    assert [len(batches) for batches in bench.take()] == [2]


def test_retried_batch_precedes_younger_ones() -> None:
    bench = Bench(batch_size=RECORD)
    first, second = bench.send(), bench.send()
    bench.take()
    third = bench.send()
    bench.buffer.queues.put_back(first.queue.parts[0], StreamBroken("lost"))
    assert bench.take() == []  # parked
    bench.buffer.queues.unpark(first.queue)
    assert bench.take() == [(first, second, third)]


def test_offsets_follow_from_the_base_offset_of_the_group() -> None:
    bench = Bench(batch_size=2 * RECORD)
    batches = [bench.send() for _ in range(4)]
    ((first, second),) = bench.take()
    assert offsets_of((first, second), 40) == [40, 42]
    assert batches[3].delivered(1).offset == 43


def test_the_bad_batch_of_a_group_is_found_by_sending_each_alone() -> None:
    bench = Bench(batch_size=RECORD)
    good, bad = bench.send(), bench.send()
    bench.take()
    assert bench.buffer.queues.refused(good.queue.parts[0]) == ()  # the bad batch is not found yet
    assert bench.take() == [(good,)]
    offsets_of(bench.buffer.queues.stored(good.queue.parts[0]), 0)
    assert bench.take() == [(bad,)]
    assert bench.buffer.queues.refused(good.queue.parts[0]) == (bad,)


def test_full_buffer_refuses_records_until_a_batch_completes() -> None:
    bench = Bench(batch_size=RECORD, buffer_size=2 * HELD)
    first = bench.send()
    bench.send()
    assert bench.accumulator.accept("t", None, VALUE, 1, (), 0) is None
    assert bench.buffer.incomplete.buffered == 2 * HELD
    bench.take()
    bench.buffer.queues.stored(first.queue.parts[0])
    assert bench.buffer.incomplete.buffered == 0
    bench.send()


def test_one_record_larger_than_the_buffer_passes_alone() -> None:
    bench = Bench(buffer_size=10)
    assert bench.send().count == 1
    assert bench.accumulator.accept("t", None, b"", 1, (), 0) is None


def test_a_record_that_no_request_can_carry_is_refused() -> None:
    bench = Bench(max_request_size=1024)
    with pytest.raises(MessageTooLarge, match="max_request_size"):
        bench.accumulator.accept("t", None, b"v" * 1024, 1, (), 0)
    assert bench.buffer.incomplete.buffered == 0


def test_records_without_a_key_stay_in_a_partition_until_its_batch_is_full() -> None:
    bench = Bench(partitions=4, batch_size=5 * RECORD)
    partitions = [bench.send(None).queue.partition for _ in range(40)]
    runs = [partitions[start : start + 5] for start in range(0, 40, 5)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in itertools.pairwise(runs))


def test_keys_keep_their_partition_while_others_stick() -> None:
    bench = Bench(partitions=4, batch_size=2 * RECORD)
    keyed = []
    for _ in range(20):
        bench.send(None)
        keyed.append(bench.send(None, key=b"k").queue.partition)
    assert len(set(keyed)) == 1


def test_a_late_batch_is_taken_out_unless_it_is_in_flight() -> None:
    bench = Bench(batch_size=RECORD, delivery_timeout_ms=50)
    flying = bench.send(0)
    bench.accumulator.close_due(0)
    bench.take()
    waiting = bench.send(1)
    bench.accumulator.close_due(10)
    assert bench.buffer.incomplete.expired(59) == ([], 60)
    assert bench.buffer.incomplete.expired(60) == ([waiting], None)
    assert not flying.is_done
    assert bench.buffer.incomplete.buffered == HELD


def test_a_partition_that_does_not_exist_is_refused() -> None:
    bench = Bench(partitions=3)
    assert bench.accumulator.accept("t", None, VALUE, 1, (), 3) is None  # it may have grown
    for partition in (-1,):
        with pytest.raises(UnknownTopicOrPartition, match="3 partitions"):
            bench.send(partition)


def test_a_topic_may_grow() -> None:
    bench = Bench(partitions=1)
    bench.accumulator.admit("t", 3)
    assert bench.send(2).queue.partition == 2


def test_close_returns_all_incomplete_records() -> None:
    bench = Bench(batch_size=RECORD)
    flying = bench.send(0)
    bench.take()
    closed, opened = bench.send(1), bench.send(2, key=b"")
    assert bench.buffer.incomplete.take_all() == [flying, closed, opened]
    assert bench.buffer.incomplete.buffered == 0


def test_batch_in_flight_of_a_dropped_topic_blocks_nothing() -> None:
    bench = Bench(batch_size=RECORD)
    flying = bench.send(0)
    bench.take()
    assert bench.accumulator.forget_topic("t") == []
    bench.buffer.queues.put_back(flying.queue.parts[0], StreamBroken("cut"))
    assert bench.accumulator.forget_topic("t", [flying.queue]) == [flying]
    assert bench.buffer.incomplete.buffered == 0


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_waiter_runs_exactly_once(order: str) -> None:
    batch = Bench().send()
    calls: list[int] = []
    waiter: Callable[[], None] = lambda: calls.append(1)  # noqa: E731 -- named for its type
    if order == "before":
        batch.add_waiter(waiter)
    batch.complete(0)
    if order == "after":
        batch.add_waiter(waiter)
    assert calls == [1]


def test_lower_topic_limit_gives_smaller_batches() -> None:
    bench = Bench(batch_size=1 << 20)
    bench.accumulator.admit("t", 3, message_bytes_max=3 * RECORD + 150)
    batches = [bench.send() for _ in range(9)]
    assert {batch.count for batch in batches} == {3}
    assert bench.accumulator.topic_queues("t").batch_size < 3 * RECORD + 150


def test_bulk_append_equals_single_appends() -> None:
    values: list[bytes | None] = [b"v" * (number % 7) for number in range(500)]
    values[13] = None
    bulk = make_bulk("t", values, None, size_max=1 << 20)
    one, many = Bench(batch_size=600), Bench(batch_size=600)
    for value in values:
        assert one.accumulator.accept("t", None, value, 5, (), 1) is not None
    spans = accept_many(
        many.accumulator, many.buffer.failures, "t", bulk, first=0, partition=1, timestamp_ms=5
    )
    assert spans[0].first == 0
    assert spans[-1].end == 500
    batches = [one.accumulator.close_all(), many.accumulator.close_all()]
    assert [(b.values, b.keys, b.timestamps, b.count, b.size, b.held) for b in batches[0]] == [
        (b.values, b.keys, b.timestamps, b.count, b.size, b.held) for b in batches[1]
    ]
    assert one.buffer.incomplete.buffered == many.buffer.incomplete.buffered


def test_a_run_of_records_stops_where_the_buffer_is_full() -> None:
    bench = Bench(buffer_size=10 * HELD)
    bulk = make_bulk("t", [VALUE] * 50, None, size_max=1 << 20)
    spans = accept_many(
        bench.accumulator, bench.buffer.failures, "t", bulk, first=0, partition=0, timestamp_ms=5
    )
    assert spans[-1].end == 10
    assert (
        accept_many(
            bench.accumulator,
            bench.buffer.failures,
            "t",
            bulk,
            first=10,
            partition=0,
            timestamp_ms=5,
        )
        == []
    )


def test_shrunk_topic_returns_records_of_removed_partitions() -> None:
    bench = Bench(partitions=3, batch_size=RECORD)
    kept, gone = bench.send(0), bench.send(2)
    assert bench.accumulator.shrink("t", 2) == [gone]
    assert bench.accumulator.topic_queues("t").partition_count == 2
    assert kept in bench.accumulator.close_all()


def test_halves_of_a_batch_are_first_in_the_queue() -> None:
    bench = Bench(batch_size=4 * RECORD)
    batch, *_ = (bench.send() for _ in range(4))
    following = bench.send()
    bench.accumulator.close_all()
    flying = bench.buffer.queues.take(batch.queue, 1)
    assert flying is not None
    assert flying.batches == (batch,)
    assert bench.buffer.queues.split(batch.queue.parts[0])
    assert [each.count for each in batch.queue.closed] == [2, 2, 1]
    assert batch.queue.closed[2] is following
    assert bench.buffer.incomplete.buffered == 5 * HELD
    for part in list(batch.queue.closed)[:2]:
        assert not batch.is_done
        bench.buffer.queues.take(part.queue, 1)
        bench.buffer.queues.stored(part.queue.parts[0])
        part.complete(10 * part.count)
    assert batch.is_done
    assert [batch.delivered(index).offset for index in range(4)] == [20, 21, 20, 21]


def test_a_partitioner_that_fails_refuses_the_one_record() -> None:
    bench = Bench(partitioner=lambda topic, key, value, partitions: 1 // len(value or b""))
    assert bench.accumulator.accept("t", None, b"v", 1, (), None) is not None
    with pytest.raises(PartitionerFailed):
        bench.accumulator.accept("t", None, b"", 1, (), None)
    assert (
        bench.accumulator.accept("t", None, b"", 1, (), 2) is not None
    )  # a given partition: not called
    assert sum(batch.count for batch in bench.accumulator.close_all()) == 2
