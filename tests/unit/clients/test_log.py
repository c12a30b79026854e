"""The asyncio client with a whole node, on the real and on the simulated runtime."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS, with_time

from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.offsets import Position
from quorumlog.clients.producer.batches import Delivered
from quorumlog.errors import (
    ClientClosed,
    ConnectionFailed,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    MessageTooLarge,
    NotDelivered,
    OffsetOutOfRange,
    Overloaded,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from quorumlog.ids import TopicPartition
from quorumlog.records.murmur2 import partition_for_key
from quorumlog.runtime import Runtime

Run: TypeAlias = Callable[[Callable[[Runtime], Coroutine[Any, Any, None]]], None]
Body: TypeAlias = Callable[[AsyncLog], Coroutine[Any, Any, None]]
With: TypeAlias = Callable[[Body], None]


async def read_all(consumer: AsyncConsumer) -> list[ConsumerRecord]:
    async with consumer:
        return [record async for record in consumer]


# --- producing -----------------------------------------------------------------------------------


def test_each_record_is_at_the_offset_of_its_delivery(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=3)
        async with log.producer(linger_ms=1, batch_size=500) as producer:
            deliveries = [
                await producer.send("t", b"v%d" % number, key=b"k%d" % (number % 10))
                for number in range(500)
            ]
            delivered = [await delivery for delivery in deliveries]
        records = {
            (record.topic, record.partition, record.offset): record.value
            for record in await read_all(log.consumer("t", until_end=True))
        }
        assert len(records) == 500
        assert [records[place[:3]] for place in delivered] == [b"v%d" % n for n in range(500)]

    with_log(body)


def test_a_partitions_records_keep_the_order_of_sending(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=4)
        sent: dict[int, list[bytes]] = defaultdict(list)
        async with log.producer(linger_ms=0, batch_size=200) as producer:
            for number in range(1_000):
                key = b"key-%d" % (number % 13)
                await producer.send("t", b"%d" % number, key=key)
                sent[partition_for_key(key, 4)].append(b"%d" % number)
                if number % 50 == 0:
                    await asyncio.sleep(0)
        read: dict[int, list[bytes | None]] = defaultdict(list)
        for record in await read_all(log.consumer("t", until_end=True)):
            read[record.partition].append(record.value)
        assert read == sent

    with_log(body)


def test_record_round_trip(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        headers = [("a", b"1"), ("a", None), ("ü", "text")]
        async with log.producer() as producer:
            await producer.send("t", "välue", key=bytearray(b"k"), headers=headers, timestamp_ms=77)
            await producer.send("t", None, key=None, timestamp_ms=78)
        first, second = await read_all(log.consumer("t", until_end=True))
        assert first == ConsumerRecord(
            "t", 0, 0, 77, b"k", "välue".encode(), (("a", b"1"), ("a", None), ("ü", b"text"))
        )
        assert second == ConsumerRecord("t", 0, 1, 78, None, None, ())

    with_log(body)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_round_trip(with_log: With, compression: str) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        values = [b"value %d " % number * 20 for number in range(2_000)]
        async with log.producer(compression=compression, batch_size=100_000) as producer:
            for value in values:
                await producer.send("t", value)
        records = await read_all(log.consumer("t", until_end=True))
        assert [record.value for record in records] == values

    with_log(body)


def test_acks_none_returns_no_offsets(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(acks="none") as producer:
            assert await producer.send_and_wait("t", b"v", timestamp_ms=7) == Delivered(
                "t", 0, -1, 7
            )
        async with log.consumer("t") as consumer:
            record = await consumer.next(timeout_ms=AMPLE_MS)
        assert record is not None
        assert record.value == b"v"

    with_log(body)


def test_acks_leader_returns_the_offset(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(acks="leader") as producer:
            assert await producer.send_and_wait("t", b"v", timestamp_ms=7) == Delivered(
                "t", 0, 0, 7
            )

    with_log(body)


def test_a_full_buffer_makes_send_wait(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(buffer_size=10_000, linger_ms=60_000) as producer:
            for number in range(100):
                await producer.send("t", b"%03d" % number * 100)
                assert producer._incomplete.buffered <= 10_000
        records = await read_all(log.consumer("t", until_end=True))
        assert [record.value for record in records] == [b"%03d" % n * 100 for n in range(100)]

    with_log(body)


def test_send_nowait_raises_if_the_buffer_is_full(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(buffer_size=1_000, linger_ms=60_000) as producer:
            with pytest.raises(Overloaded, match="not known yet"):
                producer.send_nowait("t", b"v")
            await producer.wait_acceptable("t")
            producer.send_nowait("t", b"v" * 800)
            with pytest.raises(Overloaded, match="buffer_size is 1000"):
                producer.send_nowait("t", b"v" * 800)

    with_log(body)


def test_send_raises_for_an_unknown_topic_or_partition(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=2)
        async with log.producer() as producer:
            with pytest.raises(UnknownTopicOrPartition) as caught:
                await producer.send("nope", b"v")
            assert caught.value.topic == "nope"
            with pytest.raises(UnknownTopicOrPartition, match="2 partitions"):
                await producer.send("t", b"v", partition=2)

    with_log(body)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"timestamp_ms": 1.5}, "milliseconds since 1970, an int, not float"),
        ({"headers": [(b"name", b"v")]}, "pairs of a str and its value"),
        ({"headers": {1: b"v"}}, "pairs of a str and its value"),
        ({"headers": "ab"}, "pairs of a str and its value"),
        ({"partition": "0"}, "a partition is an int, not str"),
        ({"key": 5}, "bytes or str, not int"),
        ({"topic": b"t"}, "a topic's name is a str, not bytes"),
    ],
)
def test_send_raises_for_a_value_of_a_wrong_type_and_affects_no_other_record(
    with_log: With, mistake: dict[str, Any], sentence: str
) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer() as producer:
            await producer.send("t", b"before")
            with pytest.raises(TypeError, match=sentence):
                await producer.send(**{"topic": "t", "value": b"v"} | mistake)
            assert (await producer.send_and_wait("t", b"after")).offset == 1

    with_log(body)


def test_a_batch_above_the_topics_limit_fails_alone(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", configs={"max.message.bytes": "2000"})
        producer = log.producer(batch_size=100)
        deliveries = [await producer.send("t", b"x" * size) for size in (50, 5_000, 60)]
        assert (await deliveries[0]).offset == 0
        with pytest.raises(MessageTooLarge):
            await deliveries[1]
        assert (await deliveries[2]).offset == 1
        await producer.close()

    with_log(body)


def test_flush_raises_a_failure_that_was_not_retrieved_once(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", configs={"max.message.bytes": "2000"})
        async with log.producer() as producer:
            await producer.send("t", b"x" * 5_000)
            with pytest.raises(NotDelivered, match="1 record was not delivered: t-0") as caught:
                await producer.flush()
            assert isinstance(caught.value.first, MessageTooLarge)
            await producer.flush()

    with_log(body)


def test_topic_deleted_during_production_fails_waiting_records(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        producer = log.producer()
        await producer.send_and_wait("t", b"v")
        await log.admin.delete_topic("t")
        delivery = await producer.send("t", b"w")
        with pytest.raises(UnknownTopicOrPartition):
            await delivery
        await producer.close()

    with_log(body)


def test_closed_producer_refuses_records(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        producer = log.producer(linger_ms=60_000)
        delivery = await producer.send("t", b"v")
        await producer.close(flush=False)
        with pytest.raises(ClientClosed):
            await delivery
        with pytest.raises(ClientClosed):
            await producer.send("t", b"v")
        await producer.close()

    with_log(body)


def test_leaving_the_client_flushes_its_producers(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        producer = log.producer(linger_ms=60_000)
        delivery = await producer.send("t", b"v")
        await log.close()
        assert (await delivery)[:3] == ("t", 0, 0)
        with pytest.raises(ClientClosed):
            log.producer()

    with_log(body)


# --- consuming -----------------------------------------------------------------------------------


async def fill(log: AsyncLog, count: int, *, partitions: int = 1) -> None:
    await log.admin.create_topic("t", partitions=partitions)
    async with log.producer(batch_size=300) as producer:
        for number in range(count):
            await producer.send(
                "t",
                b"%d" % number,
                partition=number % partitions,
                timestamp_ms=1_000_000 + 1_000 * number,
            )


def values(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def test_reading_begins_at_the_start_position(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 100)
        time = datetime.fromtimestamp(1_000 + 60.5, UTC)
        starts: list[tuple[Position, int]] = [
            ("earliest", 0),
            (40, 40),
            (time, 61),
            (time.replace(tzinfo=None), 61),
        ]
        for start, first in starts:
            got = values(await read_all(log.consumer("t", start=start, until_end=True)))
            assert got == list(range(first, 100))
        assert await read_all(log.consumer("t", start="latest", until_end=True)) == []
        late = datetime(2100, 1, 1, tzinfo=UTC)
        assert await read_all(log.consumer("t", start=late, until_end=True)) == []

    with_log(body)


def test_many_partitions_are_read_each_in_order(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 700, partitions=7)
        read: dict[int, list[int]] = defaultdict(list)
        for record in await read_all(log.consumer("t", until_end=True)):
            read[record.partition].append(int(record.value or b"-1"))
        assert read == {p: list(range(p, 700, 7)) for p in range(7)}

    with_log(body)


def test_a_client_is_opened_once(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        with pytest.raises(InvalidRequest, match="open already"):
            await log

    with_log(body)


def test_only_assigned_partitions_are_read(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 40, partitions=4)
        for partitions in (
            {"t": [1, 3]},
            [TopicPartition("t", 1), ("t", 3)],
            (("t", partition) for partition in (3, 1, 3)),
        ):
            records = await read_all(log.consumer(partitions, until_end=True))
            assert {record.partition for record in records} == {1, 3}
            assert len(records) == 20
        records = await read_all(log.consumer(("t", 2), until_end=True))
        assert [record.partition for record in records] == [2] * 10

    with_log(body)


def test_seek_moves_the_position_and_drops_prefetched_records(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 100)
        async with log.consumer("t") as consumer:
            assert values(await consumer.poll(max_records=10, timeout_ms=AMPLE_MS)) == list(
                range(10)
            )
            assert await consumer.position(("t", 0)) == 10
            await consumer.seek(("t", 0), 90)
            assert await consumer.position(("t", 0)) == 90
            assert values(await consumer.poll(max_records=3, timeout_ms=AMPLE_MS)) == [90, 91, 92]
            await consumer.seek(("t", 0), "earliest")
            record = await anext(consumer)
            assert record.offset == 0
            assert await consumer.high_watermark(("t", 0)) == 100
            with pytest.raises(InvalidRequest, match="not assigned"):
                await consumer.seek(("t", 1), 0)

    with_log(body)


def test_paused_partition_keeps_its_position(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 100, partitions=2)
        async with log.consumer("t") as consumer:
            assert len(await consumer.poll(max_records=5, timeout_ms=AMPLE_MS)) == 5
            await consumer.pause(("t", 0))
            position = await consumer.position(("t", 0))
            rest: list[ConsumerRecord] = []
            while await consumer.position(("t", 1)) < 50:
                rest += await consumer.poll()
            assert {record.partition for record in rest} == {1}
            assert await consumer.position(("t", 0)) == position
            await consumer.resume(("t", 0))
            record = await anext(consumer)
            assert (record.partition, record.offset) == (0, position)

    with_log(body)


def test_a_waiting_reader_gets_what_is_produced_later(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 1)
        async with log.consumer("t", start="latest") as consumer, log.producer() as producer:
            assert await consumer.poll(timeout_ms=20) == []
            waiting = asyncio.gather(consumer.next(), producer.send("t", b"later"))
            record, _ = await waiting
            assert record is not None
            assert (record.offset, record.value) == (1, b"later")

    with_log(body)


def test_an_offset_out_of_range_is_raised_or_reset(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 10)
        async with log.consumer("t", start=50) as consumer:
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange) as caught:
                    await consumer.poll(timeout_ms=AMPLE_MS)
                assert str(caught.value) == (
                    "t-0: offset 50 is out of range; the log has [0, 10]; seek to an existing "
                    "offset, 'earliest' or 'latest', or set on_out_of_range"
                )
            await consumer.seek(("t", 0), 9)
            assert values(await consumer.poll(timeout_ms=AMPLE_MS)) == [9]
        async with log.consumer("t", start=50, on_out_of_range="earliest") as consumer:
            assert values(await consumer.poll(timeout_ms=AMPLE_MS)) == list(range(10))

    with_log(body)


def test_an_unknown_topic_is_raised_by_the_consumer(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        with pytest.raises(UnknownTopicOrPartition):
            await log.consumer("nope").poll(timeout_ms=AMPLE_MS)
        with pytest.raises(InvalidRequest, match="topics or partitions"):
            log.consumer([])
        with pytest.raises(InvalidRequest, match="not a position"):
            log.consumer("t", start=-3)

    with_log(body)


def test_a_topic_deleted_while_reading_is_raised(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 1)
        async with log.consumer("t") as consumer:
            await consumer.next()
            await log.admin.delete_topic("t")
            with pytest.raises(UnknownTopicOrPartition):
                await consumer.next(timeout_ms=AMPLE_MS)

    with_log(body)


def test_offsets_of_all_partitions(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 10, partitions=3)
        assert await log.list_offsets("t") == {0: 4, 1: 3, 2: 3}
        assert await log.list_offsets("t", at="earliest", partitions=[2]) == {2: 0}
        with pytest.raises(UnknownTopicOrPartition):
            await log.list_offsets("t", partitions=[3])

    with_log(body)


# --- admin ---------------------------------------------------------------------------------------


def test_topics_are_created_listed_described_and_deleted(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        configs = {"retention.ms": "1000"}
        created = await log.admin.create_topic("b", partitions=2, configs=configs)
        await log.admin.create_topic("a")
        assert await log.admin.describe_topic("b") == created
        assert created.configs == configs
        assert [partition.leader for partition in created.partitions] == [1, 1]
        listed = await log.admin.list_topics()
        assert [(t.name, t.partitions, t.replication_factor) for t in listed] == [
            ("a", 1, 1),
            ("b", 2, 1),
        ]
        await log.admin.delete_topic("b")
        assert [topic.name for topic in await log.admin.list_topics()] == ["a"]
        with pytest.raises(UnknownTopicOrPartition):
            await log.admin.delete_topic("b")

    with_log(body)


def test_topic_errors_are_typed(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        first = await log.admin.create_topic("t")
        with pytest.raises(TopicAlreadyExists):
            await log.admin.create_topic("t")
        assert await log.admin.create_topic("t", if_not_exists=True) == first
        with pytest.raises(InvalidTopic):
            await log.admin.create_topic("with space")
        with pytest.raises(InvalidConfig, match=r"retention\.ms"):
            await log.admin.create_topic("u", configs={"retention.msx": "1"})
        await log.admin.create_topic("v", validate_only=True)
        assert [topic.name for topic in await log.admin.list_topics()] == ["t"]

    with_log(body)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"topics": ()}, "needs topics or partitions"),
        ({"topics": b"t"}, "give names as str"),
        ({"topics": [("t", -1)]}, "is not a partition"),
        ({"topics": [b"t"]}, "is not a topic"),
        ({"topics": {"t": 0}}, "give partitions by topic"),
        ({"topics": "t", "start": "end"}, "'earliest', 'latest', an offset, a datetime"),
    ],
)
def test_consumer_without_topics_is_refused_at_construction(
    with_log: With, mistake: dict[str, Any], sentence: str
) -> None:
    async def body(log: AsyncLog) -> None:
        with pytest.raises(InvalidRequest, match=sentence):
            log.consumer(**mistake)

    with_log(body)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"group": "g"}, r"no argument 'group': use group_consumer\(\)"),
        ({"pattern": "t.*"}, r"use group_consumer\(\)"),
        ({"instance_id": "one"}, r"use group_consumer\(\)"),
        ({"assign": [("t", 0)]}, "pass partitions as topics"),
    ],
)
def test_an_argument_of_a_group_consumer_is_a_type_error_with_a_hint(
    with_log: With, mistake: dict[str, Any], sentence: str
) -> None:
    async def body(log: AsyncLog) -> None:
        with pytest.raises(TypeError, match=sentence):
            log.consumer("t", **mistake)

    with_log(body)


def test_a_topic_without_partitions_is_refused(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        for partitions in (0, -1):
            with pytest.raises(InvalidPartitions, match="give 1 or more"):
                await log.admin.create_topic("t", partitions=partitions)

    with_log(body)


def test_the_cluster_names_its_broker_and_controller(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        cluster = await log.admin.describe_cluster()
        assert cluster.controller_id == 1
        assert [(broker.id, broker.fenced) for broker in cluster.brokers] == [(1, False)]
        assert len(cluster.cluster_id) == 22

    with_log(body)


def test_no_broker_at_the_address_raises_lost_soon_with_a_remedy(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async def check(connect_timeout_ms: int) -> None:
            with pytest.raises(ConnectionFailed, match="quorumlog dev"):
                await make_log(runtime, "127.0.0.1:1", connect_timeout_ms=connect_timeout_ms)

        await with_time(200, check)

    run(main)


def test_an_error_in_the_block_is_not_hidden_by_undelivered_records(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", configs={"max.message.bytes": "2000"})

        async def failing() -> None:
            async with log.producer() as producer:
                await producer.send("t", b"x" * 5_000)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            await failing()
        assert "not delivered" in str(caught.value.__notes__)

    with_log(body)
