"""A recreated topic is never confused with the deleted topic of its name."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import NotDelivered, OffsetOutOfRange, QuorumlogError, UnknownTopicId
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory

from .memory_brokers import Brokers, offsets

Body = Callable[[AsyncLog, AsyncLog], Coroutine[Any, Any, None]]


def play(main: Callable[[Brokers], Coroutine[Any, Any, None]]) -> None:
    simulation.run(lambda runtime: main(Brokers(runtime)))


def with_node(body: Body) -> None:
    """Return a function that runs a test's body with two independent clients of a node."""

    async def main(runtime: Runtime) -> None:
        async with (
            node(runtime) as address,
            make_log(runtime, address) as log,
            make_log(runtime, address) as other,
        ):
            await body(log, other)

    simulation.run(main)


@asynccontextmanager
async def node(runtime: Runtime) -> AsyncIterator[str]:
    config = NodeConfig(
        data_dir="/data", grpc_listener="127.0.0.1:0", controller_listener="127.0.0.1:0"
    )
    await format_directory(runtime, config)
    async with Node(runtime, config) as served:
        yield served.addresses.grpc or ""


async def make_anew(log: AsyncLog, name: str, partitions: int = 1) -> None:
    await log.admin.delete_topic(name)
    await log.admin.create_topic(name, partitions=partitions)


async def stored(log: AsyncLog, name: str) -> list[bytes]:
    """Return the values of a topic, read by a client that has not read it before."""
    async with log.consumer(name, until_end=True) as consumer:
        return [record.value or b"" async for record in consumer]


async def raised_error(consumer: AsyncConsumer, kind: type[QuorumlogError]) -> QuorumlogError:
    """Return the next error. Fail if records arrive before it."""
    with pytest.raises(kind) as raised:
        assert not await consumer.poll(timeout_ms=20_000)
    return raised.value


async def drain(consumer: AsyncConsumer, read: list[int]) -> None:
    """Poll to the end. The offsets are in `read`, also those before an error."""
    while records := await consumer.poll(timeout_ms=20_000):
        read += offsets(records)


# --- consumers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 5, 9])
def test_a_position_reads_nothing_of_the_recreated_topic(length: int) -> None:
    """For any length of the new topic, and without a failed request in between."""

    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 5)
        async with brokers.client() as log, log.consumer("t") as consumer:
            assert len(await consumer.poll()) == 5
            brokers.delete("t")
            brokers.create("t")
            brokers.append(("t", 0), length)
            for _ in range(2):
                error = await raised_error(consumer, OffsetOutOfRange)
                assert "offset 5 was in the deleted topic" in error.message
            await consumer.seek_to_beginning()
            assert offsets(await consumer.poll()) == list(range(length))

    play(main)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_reset_policy_continues_in_the_new_topic_after_one_error(policy: str) -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 3)
        places = [("t", partition) for partition in range(3)]
        for place in places:
            brokers.append(place, 5)
        async with brokers.client() as log, log.consumer("t", on_out_of_range=policy) as consumer:
            assert sum([len(await consumer.poll()) for _ in range(3)]) == 15
            brokers.delete("t")
            brokers.create("t", 3)
            for place in places:
                brokers.append(place, 9)
            error = await raised_error(consumer, UnknownTopicId)
            assert f"continues from the {policy} offset" in error.message
            await asyncio.sleep(1)
            for place in places:
                brokers.append(place, 1)
            first = 0 if policy == "earliest" else 9
            read: dict[tuple[str, int], list[int]] = {place: [] for place in places}
            async for record in consumer.records(idle_ms=2_000):
                read[record.topic, record.partition].append(record.offset)
            assert read == {place: list(range(first, 10)) for place in places}

    play(main)


def test_prefetched_records_of_the_old_topic_are_delivered_before_the_error() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 5)
        async with (
            brokers.client() as log,
            log.consumer("t", on_out_of_range="earliest", max_poll_records=2) as consumer,
        ):
            assert offsets(await consumer.poll()) == [0, 1]
            brokers.delete("t")
            brokers.create("t")
            brokers.append(("t", 0), 9)
            await asyncio.sleep(2)
            assert offsets(await consumer.poll()) == [2, 3]
            assert offsets(await consumer.poll()) == [4]
            await raised_error(consumer, UnknownTopicId)
            assert offsets(await consumer.poll(max_records=20)) == list(range(9))

    play(main)


def test_unresolved_beginning_is_that_of_the_new_topic() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 5)
        async with brokers.client() as log:
            assert await log.partition_count("t") == 1, (
                "the client has the old topic in its metadata"
            )
            brokers.delete("t")
            brokers.create("t")
            brokers.append(("t", 0), 3)
            async with log.consumer("t") as consumer:
                assert offsets(await consumer.poll()) == [0, 1, 2]
            assert await log.list_offsets("t") == {0: 3}

    play(main)


def test_reading_to_the_end_ends_at_the_end_of_the_new_topic() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 9, batches=4, size=1_000)
        async with (
            brokers.client() as log,
            log.consumer(
                "t",
                until_end=True,
                on_out_of_range="earliest",
                max_partition_fetch_bytes=1_024,
                max_partition_prefetch_bytes=1,
            ) as consumer,
        ):
            assert len(await consumer.poll(max_records=9)) == 9
            brokers.delete("t")
            brokers.create("t")
            brokers.append(("t", 0), 3)
            read: list[int] = []
            with pytest.raises(UnknownTopicId):
                await drain(consumer, read)
            assert read == list(range(9, 9 + len(read))), "some records were prefetched"
            assert [record.offset async for record in consumer] == [0, 1, 2]

    play(main)


def test_a_scan_does_not_go_on_in_the_new_topic() -> None:
    pytest.importorskip("pyarrow")

    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 2, batches=3)
        brokers.break_subscribe_after = 1
        async with brokers.client() as log, log.scan_arrow("t") as scan:
            batch = await scan.next_batch()
            assert batch is not None
            assert batch.num_rows == 2
            brokers.delete("t")
            brokers.create("t")
            brokers.append(("t", 0), 9)
            with pytest.raises(
                OffsetOutOfRange, match="created again while it was read, up to offset 2"
            ):
                await scan.next_batch()

    play(main)


# --- producers -----------------------------------------------------------------------------------


def test_records_for_the_old_topic_fail_and_later_ones_go_to_the_new_one() -> None:
    async def body(log: AsyncLog, other: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=1)
        async with log.producer(linger_ms=0) as producer:
            await (await producer.send("t", b"before"))
            await make_anew(other, "t")
            late = [await producer.send("t", b"late%d" % index) for index in range(3)]
            for delivery in late:
                with pytest.raises(UnknownTopicId, match="created again") as raised:
                    await delivery
                assert (raised.value.topic, raised.value.partition) == ("t", 0)
            assert (await (await producer.send("t", b"after"))).offset == 0
        assert await stored(other, "t") == [b"after"]

    with_node(body)


def test_lingering_records_for_the_old_topic_are_not_stored() -> None:
    """In several partitions; the new topic has fewer."""

    async def body(log: AsyncLog, other: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=4)
        async with log.producer(linger_ms=500) as producer:
            late = [await producer.send("t", b"late", partition=index) for index in range(4)]
            await make_anew(other, "t", partitions=2)
            for delivery in late:
                with pytest.raises(UnknownTopicId):
                    await delivery
            after = [await producer.send("t", b"after", partition=index) for index in range(2)]
            assert [(await delivery).offset for delivery in after] == [0, 0]
        assert await stored(other, "t") == [b"after"] * 2

    with_node(body)


def test_producer_detects_the_new_topic_by_other_calls_of_its_client() -> None:
    async def body(log: AsyncLog, other: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=1)
        async with log.producer(linger_ms=200) as producer:
            late = await producer.send("t", b"late")
            await make_anew(other, "t")
            await log._connection.refresh("t")
            with pytest.raises(UnknownTopicId):
                await late
            assert (await (await producer.send("t", b"after"))).offset == 0
        assert await stored(other, "t") == [b"after"]

    with_node(body)


def test_flush_reports_the_records_of_the_old_topic() -> None:
    async def body(log: AsyncLog, other: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=1)
        producer = log.producer(linger_ms=200)
        await producer.send("t", b"late")
        await make_anew(other, "t")
        with pytest.raises(NotDelivered, match="created again") as raised:
            await producer.flush()
        assert [record.value for record in raised.value.records] == [b"late"]
        await producer.close()

    with_node(body)
