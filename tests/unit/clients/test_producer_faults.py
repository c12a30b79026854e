"""What becomes of every record when brokers answer nonsense, topics change, or rooms are full.

A broker of a few lines answers each request as the test says.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from quorumlog.clients import AsyncLog, Delivered
from quorumlog.errors import (
    InvalidRecord,
    MessageTooLarge,
    NotDelivered,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    Stopping,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import decode_all
from quorumlog.runtime import CallContext, Handler, Runtime, Stream
from quorumlog.runtime.error_detail import encode_error
from quorumlog.services import ADMIN_DESCRIBE_CLUSTER, ADMIN_DESCRIBE_TOPICS, LOG_PRODUCE
from quorumlog.simulation import run

ProduceStream: TypeAlias = Stream[log_pb2.ProduceResponse, log_pb2.ProduceRequest]
Spoil: TypeAlias = Callable[[log_pb2.ProduceResponse], None]


class Broker:
    """Stores what it gets, unless told otherwise."""

    def __init__(self, *, partitions: int = 1) -> None:
        self.partitions = partitions
        self.exists = True
        self.record_bytes_max = 1 << 30  # of a partition's part of a request
        self.refuse: dict[bytes, QuorumlogError] = {}  # a part with this value
        self.spoil: list[Spoil] = []  # what is done to the next answers
        self.hold: asyncio.Event | None = None  # requests wait for it
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.parts: list[log_pb2.PartitionRecords] = []
        self.lookups = 0
        self.address = ""

    def handlers(self) -> dict[str, Any]:
        table = [
            Handler(ADMIN_DESCRIBE_CLUSTER, self._describe_cluster),
            Handler(ADMIN_DESCRIBE_TOPICS, self._describe_topics),
            Handler(LOG_PRODUCE, self._produce),
        ]
        return {handler.method.path: handler for handler in table}

    def _brokers(self) -> list[admin_pb2.BrokerDescription]:
        return [admin_pb2.BrokerDescription(id=1, grpc_address=self.address)]

    async def _describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(cluster_id="c", brokers=self._brokers())

    async def _describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        self.lookups += 1
        response = admin_pb2.DescribeTopicsResponse(brokers=self._brokers())
        for name in request.names:
            result = response.results.add(name=name)
            if not self.exists and name == "t":
                result.error.CopyFrom(encode_error(UnknownTopicOrPartition("gone", topic=name)))
                continue
            result.topic.name = name
            for partition in range(self.partitions):
                result.topic.partitions.add(partition=partition, leader=1)
        return response

    async def _produce(self, stream: ProduceStream, context: CallContext) -> None:
        while (request := await stream.receive()) is not None:
            if self.hold is not None:
                await self.hold.wait()
            response = log_pb2.ProduceResponse(correlation_id=request.correlation_id)
            for part in request.partitions:
                self.parts.append(part)
                result = response.results.add(topic=part.topic, partition=part.partition)
                error = self._store(part, result)
                if error is not None:
                    result.base_offset = -1
                    result.error.CopyFrom(encode_error(error))
            if self.spoil:
                self.spoil.pop(0)(response)
            await stream.send(response)

    def _store(
        self, part: log_pb2.PartitionRecords, result: log_pb2.ProduceResult
    ) -> QuorumlogError | None:
        if not self.exists or part.partition >= self.partitions:
            return UnknownTopicOrPartition("not here")
        if len(part.records) > self.record_bytes_max:
            return MessageTooLarge("too large for this topic")
        values = [record.value or b"" for record in decode_all(part.records)]
        for value in values:
            if value in self.refuse:
                return self.refuse[value]
        result.base_offset = len(self.logs[part.partition])
        self.logs[part.partition].extend(values)
        return None


@asynccontextmanager
async def cluster(runtime: Runtime, broker: Broker, **settings: Any) -> AsyncIterator[AsyncLog]:
    """A client of a cluster of the one broker."""
    listener = await runtime.network.serve("127.0.0.1:0", broker.handlers())
    broker.address = listener.address
    async with AsyncLog.open(runtime, listener.address, **settings) as log:
        yield log
    await listener.close(0)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("what the test waited for did not happen")


# --- a broker that answers nonsense --------------------------------------------------------------


def negative_offset(response: log_pb2.ProduceResponse) -> None:
    response.results[0].base_offset = -7


def another_partition(response: log_pb2.ProduceResponse) -> None:
    response.results[0].partition = 5


def another_topic(response: log_pb2.ProduceResponse) -> None:
    response.results[0].topic = "u"


def too_few_results(response: log_pb2.ProduceResponse) -> None:
    del response.results[:]


def too_many_results(response: log_pb2.ProduceResponse) -> None:
    response.results.add(topic="t", partition=0)


def another_request(response: log_pb2.ProduceResponse) -> None:
    response.correlation_id += 1


def an_unknown_error(response: log_pb2.ProduceResponse) -> None:
    response.results[0].error.name = "WHAT_IS_THIS"


NONSENSE = [
    negative_offset,
    another_partition,
    another_topic,
    too_few_results,
    too_many_results,
    another_request,
]


@pytest.mark.parametrize("spoil", NONSENSE, ids=lambda spoil: spoil.__name__)
def test_an_answer_that_makes_no_sense_is_not_believed_and_the_batch_sent_again(
    spoil: Spoil,
) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.spoil = [spoil]
        async with cluster(runtime, broker) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"1")).offset == 1
            assert producer.statistics().retries == 1
        assert broker.logs[0] == [b"1", b"1"]  # its outcome was unknown

    run(main)


def test_a_broker_that_only_answers_nonsense_is_a_time_out_that_says_so() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.spoil = [negative_offset] * 10_000
        async with cluster(runtime, broker) as log:
            producer = log.producer(delivery_timeout_ms=2_000)
            await producer.send("t", b"1", key=b"k")
            with pytest.raises(NotDelivered) as caught:
                await producer.close()
        (record,) = caught.value.records
        assert (record.key, record.value, record.may_be_stored) == (b"k", b"1", True)
        assert isinstance(record.error, TimedOut)
        assert "stored at offset -7" in record.error.message

    run(main)


def test_an_error_of_a_newer_broker_fails_the_record_and_keeps_its_words() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.spoil = [an_unknown_error]
        async with cluster(runtime, broker) as log, log.producer() as producer:
            with pytest.raises(QuorumlogError, match="WHAT_IS_THIS"):
                await producer.send_and_wait("t", b"1")

    run(main)


def test_every_answer_of_another_leader_has_the_metadata_looked_up() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        refusals = 3

        def refuse(response: log_pb2.ProduceResponse) -> None:
            broker.logs.clear()
            response.results[0].base_offset = -1
            response.results[0].error.CopyFrom(encode_error(NotLeaderOrFollower("another")))

        broker.spoil = [refuse] * refusals
        async with cluster(runtime, broker) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"1")).offset == 0
        assert broker.lookups == 1 + refusals

    run(main)


def test_a_broker_that_restarts_gets_what_waited() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        listener = await runtime.network.serve("127.0.0.1:0", broker.handlers())
        broker.address = listener.address
        async with AsyncLog.open(runtime, listener.address) as log, log.producer() as producer:
            await producer.send_and_wait("t", b"before")
            await listener.close(0)
            deliveries = [await producer.send("t", b"%d" % number) for number in range(3)]
            await asyncio.sleep(20)  # simulated: many attempts
            assert not any(delivery.done() for delivery in deliveries)
            listener = await runtime.network.serve(listener.address, broker.handlers())
            assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]
        await listener.close(0)

    run(main)


def test_a_broker_that_never_comes_back_is_told_record_by_record() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        listener = await runtime.network.serve("127.0.0.1:0", broker.handlers())
        broker.address = listener.address
        log = await AsyncLog.open(runtime, listener.address)
        producer = log.producer(delivery_timeout_ms=10_000)
        await producer.send_and_wait("t", b"before")
        await listener.close(0)
        began_ms = runtime.clock.now_ms()
        for number in range(5):
            await producer.send("t", b"%d" % number, headers={"n": b"%d" % number})
        with pytest.raises(NotDelivered, match="5 records were not delivered") as caught:
            await producer.flush()
        assert runtime.clock.now_ms() - began_ms < 16_000
        assert caught.value.count == 5
        assert caught.value.left_out == 0
        assert [record.value for record in caught.value.records] == [b"%d" % n for n in range(5)]
        assert caught.value.records[3].headers == (("n", b"3"),)
        assert caught.value.__cause__ is caught.value.first
        await producer.close()
        await log.close()

    run(main)


# --- topics that change --------------------------------------------------------------------------


def test_a_deleted_topic_fails_each_of_its_records_and_no_others() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=2)
        async with cluster(runtime, broker) as log:
            producer = log.producer()
            await producer.send_and_wait("t", b"1", partition=0)
            broker.exists = False
            gone = [await producer.send("t", b"%d" % n, partition=n % 2) for n in range(4)]
            with pytest.raises(UnknownTopicOrPartition):
                await gone[0]
            for delivery in gone:
                assert isinstance(delivery.exception(), UnknownTopicOrPartition)
            broker.exists = True
            assert (await producer.send_and_wait("u", b"1", partition=1)).offset == 0
            await producer.close()

    run(main)


def test_a_topic_made_again_with_fewer_partitions_fails_what_waits_for_the_others_soon() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=3)
        async with cluster(runtime, broker) as log:
            producer = log.producer()
            await producer.send_and_wait("t", b"1", partition=2)
            broker.partitions = 1
            began_ms = runtime.clock.now_ms()
            gone = await producer.send("t", b"2", partition=2)
            with pytest.raises(UnknownTopicOrPartition, match="the topic has 1 partitions"):
                await gone
            assert runtime.clock.now_ms() - began_ms < 5_000
            for _ in range(20):
                await producer.send("t", b"3", key=b"any")  # only what is left is chosen
            await producer.close()
        assert broker.logs[0] == [b"3"] * 20

    run(main)


def test_a_partition_that_was_added_is_found_when_it_is_named() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=1)
        async with cluster(runtime, broker) as log, log.producer() as producer:
            await producer.send_and_wait("t", b"1")
            with pytest.raises(UnknownTopicOrPartition, match="1 partitions"):
                await producer.send("t", b"2", partition=1)
            broker.partitions = 2
            await asyncio.sleep(0.01)  # callers within a millisecond share an answer
            assert (await producer.send_and_wait("t", b"2", partition=1)).offset == 0

    run(main)


def test_partitions_that_were_added_are_used_once_the_metadata_is_old() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=1)
        settings = {"metadata_age_ms_max": 1_000}
        async with (
            cluster(runtime, broker, **settings) as log,
            log.producer(partitioner="round_robin") as producer,
        ):
            await producer.send_and_wait("t", b"1")
            broker.partitions = 4
            await asyncio.sleep(2)
            for _ in range(12):
                await producer.send_and_wait("t", b"2")
        assert set(broker.logs) == {0, 1, 2, 3}

    run(main)


# --- batches that are refused --------------------------------------------------------------------


def test_a_batch_that_is_too_large_is_halved_until_it_passes_in_order() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.record_bytes_max = 700
        told: list[int] = []

        def note(delivered: Delivered | None, error: QuorumlogError | None) -> None:
            assert delivered is not None
            told.append(delivered.offset)

        async with cluster(runtime, broker) as log, log.producer() as producer:
            deliveries = [
                await producer.send("t", b"%03d" % n * 30, on_delivery=note) for n in range(40)
            ]
            assert [(await delivery).offset for delivery in deliveries] == list(range(40))
            statistics = producer.statistics()
            assert statistics.splits >= 7
            assert (statistics.delivered_records, statistics.buffered_bytes) == (40, 0)
        assert broker.logs[0] == [b"%03d" % n * 30 for n in range(40)]
        assert told == list(range(40))

    run(main)


def test_a_single_record_that_is_too_large_fails_alone_and_names_sizes_and_config() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.record_bytes_max = 700
        async with cluster(runtime, broker) as log:
            producer = log.producer()
            deliveries = [
                await producer.send("t", b"x" * (1_000 if n == 5 else 100)) for n in range(12)
            ]
            with pytest.raises(MessageTooLarge, match=r"10\d\d bytes .* max\.message\.bytes"):
                await deliveries[5]
            offsets = [(await d).offset for n, d in enumerate(deliveries) if n != 5]
            assert offsets == list(range(11))
            assert [type(d.exception()) for d in deliveries].count(MessageTooLarge) == 1
            await producer.close()

    run(main)


def test_a_bad_batch_neither_holds_nor_fails_its_neighbours_of_a_request() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=3)
        broker.hold = asyncio.Event()
        broker.refuse[b"bad"] = InvalidRecord("a bad one")
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=20)
            values = [b"good", b"bad", b"fine"]
            deliveries = [
                await producer.send("t", value, partition=n) for n, value in enumerate(values)
            ]
            broker.hold.set()
            with pytest.raises(InvalidRecord):
                await deliveries[1]
            assert [(await deliveries[n]).offset for n in (0, 2)] == [0, 0]
            assert producer.statistics().retries == 0
            await producer.close()

    run(main)


def test_callbacks_come_in_the_order_of_offsets_with_one_of_two_arguments() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.refuse[b"7"] = InvalidRecord("seven")
        told: list[tuple[int, int | str]] = []
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=0, batch_size=1)

            def note(number: int) -> Callable[[Delivered | None, QuorumlogError | None], None]:
                def callback(delivered: Delivered | None, error: QuorumlogError | None) -> None:
                    assert (delivered is None) != (error is None)
                    outcome = delivered.offset if delivered is not None else type(error).__name__
                    told.append((number, outcome))

                return callback

            for number in range(20):
                await producer.send("t", b"%d" % number, on_delivery=note(number))
            await producer.close()  # the one failure was told to its callback
        offsets = [*range(7), "InvalidRecord", *range(7, 19)]
        assert told == list(enumerate(offsets))

    run(main)


# --- what was not delivered ----------------------------------------------------------------------


def test_flush_tells_of_those_records_that_nobody_looked_at() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.refuse[b"2"] = InvalidRecord("two")
        async with cluster(runtime, broker) as log:
            producer = log.producer()
            deliveries = [await producer.send("t", b"%d" % n) for n in range(4)]  # one batch
            with pytest.raises(InvalidRecord):
                await deliveries[1]
            with pytest.raises(NotDelivered, match="3 records were not delivered") as caught:
                await producer.flush()
            assert [record.value for record in caught.value.records] == [b"0", b"2", b"3"]
            assert not any(record.may_be_stored for record in caught.value.records)
            await producer.close()  # each is told once

    run(main)


def test_what_is_kept_of_many_failures_is_bounded_and_the_rest_counted() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        async with cluster(runtime, broker) as log:
            producer = log.producer(delivery_timeout_ms=1, linger_ms=60_000)
            await producer.know("t")
            for n in range(3_000):
                await producer.send("t", b"%d" % n)
            await asyncio.sleep(0.1)
            with pytest.raises(NotDelivered, match="2000 more were only counted") as caught:
                await producer.close()
        assert (caught.value.count, caught.value.left_out) == (3_000, 2_000)
        assert [r.value for r in caught.value.records] == [b"%d" % n for n in range(1_000)]

    run(main)


def test_closing_in_bounded_time_tells_what_was_left() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=0)
            await producer.send("t", b"sent")
            await until(lambda: producer.statistics().in_flight_records == 1)
            await producer.send("t", b"waiting")
            began_ms = runtime.clock.now_ms()
            with pytest.raises(NotDelivered, match="2 records") as caught:
                await producer.close(timeout_ms=500)
            assert 500 <= runtime.clock.now_ms() - began_ms < 1_500
            found = [(r.value, r.may_be_stored, type(r.error)) for r in caught.value.records]
            assert found == [(b"sent", True, Stopping), (b"waiting", False, Stopping)]
            await producer.close()
            broker.hold.set()

    run(main)


def test_closing_without_a_flush_raises_nothing() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=60_000)
            delivery = await producer.send("t", b"1")
            await producer.close(flush=False)
            await producer.close()
            assert isinstance(delivery.exception(), Stopping)

    run(main)


# --- a full buffer -------------------------------------------------------------------------------


def test_a_full_buffer_is_an_error_at_once_where_that_was_chosen() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log:
            producer = log.producer(buffer_size=1_000, on_full="raise", linger_ms=60_000)
            began_ms = runtime.clock.now_ms()
            await producer.send("t", b"1" * 700)
            with pytest.raises(Overloaded, match="buffer_size is 1000"):
                await producer.send("t", b"2" * 700)
            assert runtime.clock.now_ms() - began_ms < 1_000
            broker.hold.set()  # what lingered was sent: its room is needed
            await until(lambda: producer.statistics().buffered_bytes == 0)
            await producer.send("t", b"3" * 700)
            await producer.close()
        assert broker.logs[0] == [b"1" * 700, b"3" * 700]

    run(main)


def test_the_buffer_counts_what_records_hold_and_then_their_encoded_batch() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=60_000, compression="zstd")
            await producer.send("t", b"v" * 5_000, key=b"k" * 2_000, headers={"h": b"h" * 1_000})
            assert 8_000 < producer.statistics().buffered_bytes < 8_200
            producer.accumulator.close_all()
            await until(lambda: producer.statistics().in_flight_records == 1)
            assert 61 < producer.statistics().buffered_bytes < 400  # compressed
            broker.hold.set()
            await producer.close()
            assert producer.statistics().buffered_bytes == 0

    run(main)


def test_the_brokers_time_is_told_where_the_topic_has_it() -> None:
    async def main(runtime: Runtime) -> None:
        def stamp(response: log_pb2.ProduceResponse) -> None:
            response.results[0].log_append_time_ms = 77

        broker = Broker()
        broker.spoil = [stamp]
        async with cluster(runtime, broker) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"1", timestamp_ms=5)).timestamp_ms == 77
            assert (await producer.send_and_wait("t", b"1", timestamp_ms=5)).timestamp_ms == 5

    run(main)


# --- times and numbers ---------------------------------------------------------------------------


def test_statistics_are_a_snapshot_of_what_is_held_and_done() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.hold = asyncio.Event()
        broker.refuse[b"bad"] = InvalidRecord("bad")
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=0)
            await producer.send("t", b"1")
            await until(lambda: producer.statistics().in_flight_records == 1)
            second = await producer.send("t", b"bad", partition=0)
            before = producer.statistics()
            assert (before.buffered_records, before.delivered_records) == (2, 0)
            broker.hold.set()
            with pytest.raises(InvalidRecord):
                await second
            await producer.flush()
            after = producer.statistics()
            assert (after.buffered_records, after.in_flight_records) == (0, 0)
            assert (after.delivered_records, after.failed_records, after.requests) == (1, 1, 1)
            assert before.buffered_records == 2
            await producer.close()

    run(main)
