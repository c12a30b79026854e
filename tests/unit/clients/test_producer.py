"""The producer with a real node: timestamps, partitioners, bulk and Arrow sources.

The tests run on both runtimes.
"""

import asyncio
from array import array
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import repeat
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.batches import DeliveredRange
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    MessageTooLarge,
    NotDelivered,
    Overloaded,
    PartitionerFailed,
    RowsNotDelivered,
    UnknownTopicOrPartition,
)
from quorumlog.records.murmur2 import partition_for_key

Body: TypeAlias = Callable[[AsyncLog], Coroutine[Any, Any, None]]
With: TypeAlias = Callable[[Body], None]


async def read(log: AsyncLog, topic: str = "t") -> list[ConsumerRecord]:
    async with log.consumer(topic, until_end=True) as consumer:
        return [record async for record in consumer]


# --- one record ----------------------------------------------------------------------------------


def test_a_time_is_milliseconds_or_an_aware_datetime(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", configs={"message.timestamp.after.max.ms": 2**63 - 1})
        east = datetime(1970, 1, 1, 2, 0, 1, 2_999, tzinfo=timezone(timedelta(hours=2)))
        async with log.producer() as producer:
            placed = [
                await producer.send_and_wait("t", b"v", timestamp_ms=time)
                for time in (0, 1_234, east, datetime(9999, 12, 31, tzinfo=UTC))
            ]
        expected = [0, 1_234, 1_002, 253_402_214_400_000]
        assert [place.timestamp_ms for place in placed] == expected
        assert [record.timestamp_ms for record in await read(log)] == expected

    with_log(body)


@pytest.mark.parametrize(
    ("time", "sentence"),
    [
        (-1, "timestamp_ms is -1: it is milliseconds since 1970"),
        (1_700_000_000_000_000, "the year 9999"),  # microseconds
        (1 << 70, "the year 9999"),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "timestamp_ms is -1"),
        (datetime(2024, 1, 1), "no time zone"),
    ],
)
def test_timestamp_out_of_range_is_refused_at_once(
    with_log: With, time: int | datetime, sentence: str
) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer() as producer:
            with pytest.raises(InvalidTimestamp, match=sentence):
                await producer.send("t", b"v", timestamp_ms=time)
            assert (await producer.send_and_wait("t", b"w")).offset == 0

    with_log(body)


def test_text_that_utf8_cannot_encode_affects_no_other_record(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer() as producer:
            await producer.send("t", b"v")
            with pytest.raises(InvalidRecord, match="header's name is text that UTF-8"):
                await producer.send("t", b"w", headers={"\ud800": b""})
            with pytest.raises(InvalidRecord, match="a value is text that UTF-8"):
                await producer.send("t", "\udfff")
        assert [record.value for record in await read(log)] == [b"v"]

    with_log(body)


@pytest.mark.parametrize("name", ["murmur2", "sticky", "round_robin", "crc32"])
def test_every_partitioner_by_name_delivers_everything(with_log: With, name: str) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=3)
        async with log.producer(partitioner=name, batch_size=200) as producer:
            for number in range(60):
                key = b"%d" % number if number % 2 else None
                await producer.send("t", b"%d" % number, key=key)
        records = await read(log)
        assert sorted(int(record.value or b"") for record in records) == list(range(60))
        used = {record.partition for record in records}
        if name == "sticky":  # moves to a random one of the other partitions
            assert len(used) > 1
        else:
            assert used == {0, 1, 2}

    with_log(body)


def test_callable_partitioner_gets_the_record_unless_a_partition_is_given(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=3)
        seen: list[object] = []

        def by_value(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
            seen.append((topic, key, value, partitions))
            return int(value or b"")

        async with log.producer(partitioner=by_value) as producer:
            assert (await producer.send_and_wait("t", b"2", key=b"k")).partition == 2
            assert (await producer.send_and_wait("t", b"2", partition=1)).partition == 1
            with pytest.raises(PartitionerFailed, match="returned 7"):
                await producer.send("t", b"7")
            with pytest.raises(PartitionerFailed, match="raised ValueError"):
                await producer.send("t", b"x")
        assert seen[0] == ("t", b"k", b"2", 3)
        assert len(seen) == 3

    with_log(body)


@pytest.mark.parametrize(("codec", "level"), [("gzip", 9), ("lz4", 12), ("zstd", 19)])
def test_compression_levels_round_trip(with_log: With, codec: str, level: int) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(compression=codec, compression_level=level) as producer:
            await producer.send("t", b"value " * 500, headers={"h": b"1"})
            await producer.send_arrow("t", pa.table({"v": [b"row " * 500]}), value="v")
        assert [record.value for record in await read(log)] == [b"value " * 500, b"row " * 500]

    with_log(body)


# --- many records --------------------------------------------------------------------------------


def test_many_records_are_one_call_with_a_handle_for_each(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        values = [b"%d" % number for number in range(1_000)]
        async with log.producer(batch_size=2_000) as producer:
            sent = await producer.send_many("t", values, timestamp_ms=9)
            assert len(sent) == 1_000
            assert await sent == [DeliveredRange("t", 0, 0, 1_000)]
            assert sent[-1].result() == ("t", 0, 999, 9)
            assert [(await sent[n]).offset for n in (0, 17, 400)] == [0, 17, 400]
            with pytest.raises(IndexError):
                sent[1_000]
            assert await (await producer.send_many("t", [])) == []
        assert [record.value for record in await read(log)] == values

    with_log(body)


def test_bulk_records_with_keys_use_the_partitions_of_single_ones(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=4)
        keys: list[bytes | str | None] = [f"key {number % 9}" for number in range(200)]
        values = [f"{number}" for number in range(200)]
        async with log.producer(batch_size=300) as producer:
            sent = await producer.send_many("t", values, keys=keys)
            await sent
        for record in await read(log):
            assert record.key is not None
            assert record.partition == partition_for_key(record.key, 4)
            assert sent[int(record.value or b"")].result()[1:3] == (record.partition, record.offset)

    with_log(body)


def test_bulk_records_wait_for_buffer_space_like_single_ones(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(buffer_size=20_000, linger_ms=60_000) as producer:
            sent = await producer.send_many("t", [b"v" * 100] * 2_000)
            assert producer._incomplete.buffered <= 20_000
            await producer.flush()
            (place,) = await sent
        assert (place.first, place.end) == (0, 2_000)

    with_log(body)


def test_wrong_bulk_input_is_refused_as_a_whole(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(max_request_size=2_000) as producer:
            with pytest.raises(InvalidRequest, match="2 values have 1 keys"):
                await producer.send_many("t", [b"a", b"b"], keys=[b"k"])
            with pytest.raises(TypeError, match="bytes or str, not int"):
                await producer.send_many("t", [b"a", 5])  # type: ignore[list-item]
            with pytest.raises(TypeError, match="not one value"):
                await producer.send_many("t", "abc")
            with pytest.raises(MessageTooLarge, match="record 1 of 2 has 3012 bytes"):
                await producer.send_many("t", [b"a", b"b" * 3_000])
            with pytest.raises(UnknownTopicOrPartition):
                await producer.send_many("t", [b"a"], partition=4)
        assert await read(log) == []

    with_log(body)


def test_bulk_records_without_buffer_space_have_that_outcome(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        producer = log.producer(buffer_size=2_000, on_full="raise", linger_ms=60_000)
        await producer.ensure_topic("t")
        sent = await producer.send_many("t", [b"%03d" % n * 30 for n in range(50)])
        with pytest.raises(NotDelivered) as caught:
            await sent
        taken = 50 - caught.value.count
        assert 0 < taken < 50
        assert isinstance(caught.value.first, Overloaded)
        assert caught.value.records[0].value == b"%03d" % taken * 30
        assert (await sent[taken - 1]).offset == taken - 1
        with pytest.raises(Overloaded):
            await sent[taken]
        await producer.close()  # every record was tried
        assert len(await read(log)) == taken

    with_log(body)


def test_a_partitioner_that_fails_for_one_of_many_refuses_that_one(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=2)
        by_value = lambda topic, key, value, partitions: int(value)  # noqa: E731 -- short
        producer = log.producer(partitioner=by_value)
        sent = await producer.send_many("t", [b"0", b"1", b"x", b"1"])
        with pytest.raises(NotDelivered, match="1 record was not delivered") as caught:
            await sent
        assert [record.value for record in caught.value.records] == [b"x"]
        assert isinstance(caught.value.first, PartitionerFailed)
        assert [sent[n].result()[1:3] for n in (0, 1, 3)] == [(0, 0), (1, 0), (1, 1)]
        await producer.close()

    with_log(body)


# --- Arrow ---------------------------------------------------------------------------------------


class ForeignFrame:
    """The Arrow interface of a frame of another library."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


TABLE = pa.table({"v": [b"%d" % number for number in range(30)]})
SOURCES: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "reader": lambda: TABLE.to_reader(max_chunksize=7),
    "list": lambda: TABLE.to_batches(max_chunksize=7),
    "generator": lambda: (batch for batch in TABLE.to_batches(max_chunksize=7)),
    "frame": lambda: ForeignFrame(TABLE),
}


@pytest.mark.long
@pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))
def test_any_arrow_source_is_sent(with_log: With, source: Callable[[], Any]) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer() as producer:
            ranges = await producer.send_arrow("t", source(), value="v")
        assert ranges == [DeliveredRange("t", 0, 0, 30)]
        assert [record.value for record in await read(log)] == TABLE["v"].to_pylist()

    with_log(body)


def test_column_sets_the_partitions_of_the_rows(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=3)
        table = pa.table({"p": [2, 0, 2, 0, 2], "k": ["a", "b", "a", None, "c"]})
        async with log.producer() as producer:
            ranges = await producer.send_arrow("t", table, key="k", partition="p")
            assert ranges == [DeliveredRange("t", 0, 0, 2), DeliveredRange("t", 2, 0, 3)]
            with pytest.raises(UnknownTopicOrPartition, match="partition column has 3"):
                await producer.send_arrow("t", pa.table({"p": [1, 3]}), partition="p")
            with pytest.raises(InvalidRequest, match="holds no partitions"):
                await producer.send_arrow("t", pa.table({"p": ["1"]}), partition="p")
        found = [(record.partition, record.key, record.value) for record in await read(log)]
        assert sorted(found, key=lambda row: row[0]) == [
            (0, b"b", b"{}"),
            (0, None, b"{}"),
            (2, b"a", b"{}"),
            (2, b"a", b"{}"),
            (2, b"c", b"{}"),
        ]

    with_log(body)


def test_nulls_of_a_table_are_records_without_key_value_or_time_of_their_own(
    with_log: With,
) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        table = pa.table(
            {
                "k": pa.array([None, "k"]),
                "v": pa.array(["v", None]),
                "at": pa.array([5, None], pa.timestamp("ms", tz="UTC")),
            }
        )
        async with log.producer() as producer:
            await producer.send_arrow("t", table, key="k", value="v", timestamp="at")
        first, second = await read(log)
        assert (first.key, first.value, first.timestamp_ms) == (None, b"v", 5)
        assert (second.key, second.value) == (b"k", None)
        assert second.timestamp_ms > 1_000_000_000_000

    with_log(body)


def test_the_producers_partitioner_decides_for_rows_too(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=3)
        table = pa.table({"v": [b"2", b"0", b"1", b"2"]})
        by_value = lambda topic, key, value, partitions: int(value)  # noqa: E731 -- short
        async with log.producer(partitioner=by_value) as producer:
            await producer.send_arrow("t", table, value="v")
        assert sorted((record.partition, record.value) for record in await read(log)) == [
            (0, b"0"),
            (1, b"1"),
            (2, b"2"),
            (2, b"2"),
        ]

    with_log(body)


def test_a_source_that_fails_reports_the_stored_rows(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")

        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"v": [b"0", b"1", b"2"]})
            raise OSError("the file is cut")

        async with log.producer() as producer:
            with pytest.raises(RowsNotDelivered, match="OSError: the file is cut") as caught:
                await producer.send_arrow("t", batches(), value="v")
        assert caught.value.ranges == [DeliveredRange("t", 0, 0, 3)]
        assert (caught.value.stored_count, caught.value.unsent_from) == (3, 3)
        assert len(caught.value.failed) == len(caught.value.unknown) == 0
        assert len(await read(log)) == 3

    with_log(body)


def test_rows_that_the_topic_refuses_are_named(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=2, configs={"max.message.bytes": "2000"})
        values = [b"x" * (5_000 if number == 4 else 100) for number in range(10)]
        table = pa.table({"p": [number % 2 for number in range(10)], "v": values})
        async with log.producer(linger_ms=0) as producer:
            with pytest.raises(RowsNotDelivered, match="9 rows are stored, 1 are not") as caught:
                await producer.send_arrow("t", table, value="v", partition="p")
        assert caught.value.failed == array("q", [4])
        assert isinstance(caught.value.first, MessageTooLarge)
        assert caught.value.stored_count == 9
        assert sum(place.end - place.first for place in caught.value.ranges) == 9
        stored = await read(log)
        assert len(stored) == 9

    with_log(body)


def test_full_buffer_ends_an_arrow_source_if_configured(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        batch = pa.record_batch({"v": [b"v" * 1_000] * 80})
        settings: Any = {"buffer_size": 20_000, "batch_size": 4_000, "on_full": "raise"}
        async with log.producer(**settings) as producer:
            await producer.ensure_topic("t")
            with pytest.raises(RowsNotDelivered) as caught:
                await producer.send_arrow("t", repeat(batch), value="v")
        assert isinstance(caught.value.first, Overloaded)
        read_rows = caught.value.unsent_from
        assert read_rows is not None
        assert caught.value.stored_count + len(caught.value.failed) == read_rows
        assert len(await read(log)) == caught.value.stored_count > 0

    with_log(body)


def test_arrow_reader_is_read_only_as_far_as_the_buffer_has_space(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        most = 0

        def batches(producer: AsyncProducer) -> Iterator[pa.RecordBatch]:
            nonlocal most
            for _ in range(40):
                most = max(most, producer._incomplete.buffered)
                yield pa.record_batch({"v": [b"v" * 1_000] * 10})

        async with log.producer(buffer_size=30_000, linger_ms=0) as producer:
            (place,) = await producer.send_arrow("t", batches(producer), value="v")
        assert (place.first, place.end) == (0, 400)
        assert 0 < most <= 30_000

    with_log(body)


def test_an_arrow_source_that_is_cancelled_leaves_the_producer_usable(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer() as producer:
            batch = pa.record_batch({"v": [b"v"] * 10})
            endless = producer.send_arrow("t", repeat(batch), value="v")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(endless, 0.05)
            assert (await producer.send_and_wait("t", b"w")).offset >= 0

    with_log(body)
