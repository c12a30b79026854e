"""Arrow tables sent and read, on the real and on the simulated runtime."""

from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.batches import DeliveredRange
from quorumlog.errors import (
    InvalidRequest,
    MessageTooLarge,
    OffsetOutOfRange,
    RowsNotDelivered,
    UnknownTopicOrPartition,
)
from quorumlog.records.murmur2 import partition_for_key

Body: TypeAlias = Callable[[AsyncLog], Coroutine[Any, Any, None]]
With: TypeAlias = Callable[[Body], None]


async def fill(log: AsyncLog, count: int) -> None:
    await log.admin.create_topic("t")
    async with log.producer() as producer:
        for number in range(count):
            at_ms = 1_000_000 + 1_000 * number
            await producer.send("t", b"%d" % number, timestamp_ms=at_ms)


def test_read_arrow_equals_what_was_sent(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        table = pa.table(
            {
                "k": pa.array([b"a", None, b"c"] * 1_000, pa.binary()),
                "v": pa.array([f"value {n}" for n in range(3_000)]),
                "at": pa.array(range(3_000), pa.timestamp("ms", tz="UTC")),
            }
        )
        async with log.producer(batch_size=4_000) as producer:
            ranges = await producer.send_arrow("t", table, key="k", value="v", timestamp="at")
        assert ranges == [DeliveredRange("t", 0, 0, 3_000)]
        read = await log.read_arrow("t")
        assert read.column_names == ["key", "value", "partition", "offset", "timestamp"]
        assert read["key"].combine_chunks() == table["k"].combine_chunks()
        assert read["value"].cast(pa.string()).combine_chunks() == table["v"].combine_chunks()
        assert read["offset"].to_pylist() == list(range(3_000))
        sent_us = table["at"].cast(pa.timestamp("us", tz="UTC"))
        assert read["timestamp"].combine_chunks() == sent_us.combine_chunks()

    with_log(body)


def test_arrow_rows_go_where_records_with_their_keys_go(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=5)
        keys = [b"key-%d" % (number % 31) for number in range(2_000)]
        table = pa.table({"k": keys, "v": [b"%d" % number for number in range(2_000)]})
        async with log.producer(compression="lz4") as producer:
            ranges = await producer.send_arrow("t", table, key="k", value="v")
        assert sum(part.end - part.first for part in ranges) == 2_000
        for partition in range(5):
            read = await log.read_arrow("t", partitions=partition, columns=["value", "key"])
            rows = [n for n, key in enumerate(keys) if partition_for_key(key, 5) == partition]
            assert read["value"].to_pylist() == [b"%d" % n for n in rows]
            assert read["key"].to_pylist() == [keys[n] for n in rows]

    with_log(body)


def test_arrow_rows_without_a_key_are_spread(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=3)
        table = pa.table({"v": [b"x" * 100] * 600})
        async with log.producer(batch_size=2_000) as producer:
            ranges = await producer.send_arrow("t", table.to_batches()[0], value="v")
            assert {part.partition for part in ranges} == {0, 1, 2}
            (only,) = await producer.send_arrow("t", table, value="v", partition=1)
            assert only.partition == 1
            assert only.end - only.first == 600

    with_log(body)


def test_a_reader_of_batches_is_sent_in_order(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        batches = [pa.record_batch({"v": [b"%d" % n]}) for n in range(50)]
        reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
        async with log.producer(buffer_size=200) as producer:
            assert await producer.send_arrow("t", reader, value="v") == [
                DeliveredRange("t", 0, 0, 50)
            ]
        assert (await log.read_arrow("t"))["value"].to_pylist() == [b"%d" % n for n in range(50)]

    with_log(body)


def test_rows_without_a_value_column_become_json(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        table = pa.table(
            {"k": ["UA"], "delay": [2.5], "dest": ['a"b'], "n": pa.array([None], "int8")}
        )
        async with log.producer() as producer:
            await producer.send_arrow("t", table, key="k")
        read = await log.read_arrow("t")
        assert read["key"].to_pylist() == [b"UA"]
        assert read["value"].to_pylist() == [b'{"delay":2.5,"dest":"a\\"b","n":null}']

    with_log(body)


def test_read_arrow_takes_bounds_and_columns(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 100)
        read = await log.read_arrow("t", start=10, end=20, columns=["offset", "topic", "value"])
        assert read["offset"].to_pylist() == list(range(10, 20))
        assert set(read["topic"].to_pylist()) == {"t"}
        assert (await log.read_arrow("t", start=90, end=1_000)).num_rows == 10
        assert (await log.read_arrow("t", start=100)).num_rows == 0
        assert (await log.read_arrow("t", end=datetime.fromtimestamp(1_005, UTC))).num_rows == 5
        with pytest.raises(OffsetOutOfRange, match="ends at 100"):
            await log.read_arrow("t", start=101)
        with pytest.raises(InvalidRequest, match="no column 'colour'"):
            await log.read_arrow("t", columns=["colour"])
        with pytest.raises(UnknownTopicOrPartition):
            await log.read_arrow("t", partitions=1)

    with_log(body)


def test_acks_none_returns_no_offsets_of_rows(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(acks="none", batch_size=100) as producer:
            ranges = await producer.send_arrow("t", pa.table({"v": [b"x" * 60] * 9}), value="v")
        assert ranges == [DeliveredRange("t", 0, -1, -1)]

    with_log(body)


def test_a_row_that_no_request_can_carry_is_refused_at_once(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(max_request_size=2_000) as producer:
            with pytest.raises(MessageTooLarge, match="max_request_size"):
                await producer.send_arrow("t", pa.table({"v": [b"x" * 3_000]}), value="v")

    with_log(body)


def test_topic_dropped_between_slices_is_looked_up_again(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        rows = pa.record_batch({"v": [b"v"]})

        def batches() -> Iterator[pa.RecordBatch]:
            yield rows
            gone = UnknownTopicOrPartition("gone")
            for batch in producer.accumulator.forget_topic("t"):  # as the sender does
                batch.fail(gone)
            yield rows

        producer = log.producer(linger_ms=60_000)
        await producer.ensure_topic("t")
        await log.admin.delete_topic("t")
        reader = pa.RecordBatchReader.from_batches(rows.schema, batches())
        with pytest.raises(RowsNotDelivered, match="the topic does not exist") as caught:
            await producer.send_arrow("t", reader, value="v")
        assert (list(caught.value.failed), caught.value.unsent_from) == ([0], 1)
        await producer.close(flush=False)

    with_log(body)


def test_wrong_arrow_input_is_refused_by_name(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer() as producer:
            with pytest.raises(InvalidRequest, match="no column 'x': v"):
                await producer.send_arrow("t", pa.table({"v": [b"a"]}), key="x", value="v")
            with pytest.raises(InvalidRequest, match="not of int"):
                await producer.send_arrow("t", [1, 2], value="v")
            with pytest.raises(InvalidRequest, match="C stream, not dict"):
                await producer.send_arrow("t", {"v": [b"a"]}, value="v")
            assert await producer.send_arrow("t", pa.table({"v": [b"a"]})[:0], value="v") == []

    with_log(body)
