"""Outcomes of records after invalid responses, restarts and topic changes."""

import asyncio
from collections.abc import Callable

import pytest

from quorumlog.clients.log import make_log
from quorumlog.clients.producer.batches import Delivered
from quorumlog.errors import (
    InvalidRecord,
    MessageTooLarge,
    NotDelivered,
    NotLeaderOrFollower,
    QuorumlogError,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.proto import log_pb2
from quorumlog.runtime import Runtime
from quorumlog.runtime.error_detail import encode_error
from quorumlog.simulation import run

from .storing_broker import Broker, Spoil, cluster

# --- invalid responses ---------------------------------------------------------------------------


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
def test_an_invalid_response_is_rejected_and_the_batch_retried(
    spoil: Spoil,
) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.spoil = [spoil]
        async with cluster(runtime, broker) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"1")).offset == 0
            assert producer.statistics().retries == 1
        assert broker.logs[0] == [b"1"]
        assert len(broker.parts) == 2

    run(main)


def test_a_broker_with_only_invalid_responses_is_named_in_the_timeout() -> None:
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
        assert "base offset -7" in record.error.message

    run(main)


def test_unknown_error_of_a_newer_broker_fails_the_record_with_its_message() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.spoil = [an_unknown_error]
        async with cluster(runtime, broker) as log, log.producer() as producer:
            with pytest.raises(QuorumlogError, match="WHAT_IS_THIS"):
                await producer.send_and_wait("t", b"1")

    run(main)


def test_every_not_leader_error_triggers_a_metadata_lookup() -> None:
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


def test_restarted_broker_gets_the_waiting_records() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        listener = await runtime.network.serve("127.0.0.1:0", broker.handlers())
        broker.address = listener.address
        async with make_log(runtime, listener.address) as log, log.producer() as producer:
            await producer.send_and_wait("t", b"before")
            await listener.close(0)
            deliveries = [await producer.send("t", b"%d" % number) for number in range(3)]
            await asyncio.sleep(20)  # simulated: many attempts
            assert not any(delivery.done() for delivery in deliveries)
            listener = await runtime.network.serve(listener.address, broker.handlers())
            assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]
        await listener.close(0)

    run(main)


def test_a_broker_that_never_returns_fails_each_record() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        listener = await runtime.network.serve("127.0.0.1:0", broker.handlers())
        broker.address = listener.address
        log = await make_log(runtime, listener.address)
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


def test_topic_recreated_with_fewer_partitions_fails_records_of_the_others_soon() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=3)
        async with cluster(runtime, broker) as log:
            producer = log.producer()
            await producer.send_and_wait("t", b"1", partition=2)
            broker.partitions = 1
            began_ms = runtime.clock.now_ms()
            gone = await producer.send("t", b"2", partition=2)
            with pytest.raises(UnknownTopicOrPartition, match="has 1 partition, number 0"):
                await gone
            assert runtime.clock.now_ms() - began_ms < 5_000
            for _ in range(20):
                await producer.send(
                    "t", b"3", key=b"any"
                )  # only the remaining partitions are chosen
            await producer.close()
        assert broker.logs[0] == [b"3"] * 20

    run(main)


def test_added_partition_is_found_when_a_record_uses_it() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=1)
        async with cluster(runtime, broker) as log, log.producer() as producer:
            await producer.send_and_wait("t", b"1")
            with pytest.raises(UnknownTopicOrPartition, match="1 partition, number 0"):
                await producer.send("t", b"2", partition=1)
            broker.partitions = 2
            await asyncio.sleep(0.01)  # callers within a millisecond share a response
            assert (await producer.send_and_wait("t", b"2", partition=1)).offset == 0

    run(main)


def test_partitions_that_were_added_are_used_once_the_metadata_is_old() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(partitions=1)
        settings = {"metadata_max_age_ms": 1_000}
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
        reported: list[int] = []

        def note(delivered: Delivered | None, error: QuorumlogError | None) -> None:
            assert delivered is not None
            reported.append(delivered.offset)

        async with cluster(runtime, broker) as log, log.producer() as producer:
            deliveries = [
                await producer.send("t", b"%03d" % n * 30, on_delivery=note) for n in range(40)
            ]
            assert [(await delivery).offset for delivery in deliveries] == list(range(40))
            statistics = producer.statistics()
            assert statistics.splits >= 7
            assert (statistics.delivered_records, statistics.buffered_bytes) == (40, 0)
        assert broker.logs[0] == [b"%03d" % n * 30 for n in range(40)]
        assert reported == list(range(40))

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


def test_callbacks_run_in_offset_order_with_a_result_or_an_error() -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.refuse[b"7"] = InvalidRecord("seven")
        reported: list[tuple[int, int | str]] = []
        async with cluster(runtime, broker) as log:
            producer = log.producer(linger_ms=0, batch_size=1)

            def note(number: int) -> Callable[[Delivered | None, QuorumlogError | None], None]:
                def callback(delivered: Delivered | None, error: QuorumlogError | None) -> None:
                    assert (delivered is None) != (error is None)
                    outcome = delivered.offset if delivered is not None else type(error).__name__
                    reported.append((number, outcome))

                return callback

            for number in range(20):
                await producer.send("t", b"%d" % number, on_delivery=note(number))
            await producer.close()  # the failure was passed to its callback
        offsets = [*range(7), "InvalidRecord", *range(7, 19)]
        assert reported == list(enumerate(offsets))

    run(main)
