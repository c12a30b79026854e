"""Arrow polls and scans return the same records as other reads, in bounded batches."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from quorumlog.clients.consumer.arrow_reader import read_table
from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.offsets import Position, TimestampMs
from quorumlog.errors import ClientClosed, CorruptionError, InvalidRequest, OffsetOutOfRange
from quorumlog.records import Record, encode_batch

from .memory_brokers import Brokers, batch, offsets, run_with_brokers

Main: TypeAlias = Callable[[Brokers], Coroutine[Any, Any, None]]


def filled(brokers: Brokers, *, partitions: int = 3, batches: int = 5) -> None:
    brokers.create("t", partitions)
    for partition in range(partitions):
        brokers.append(("t", partition), 10, size=20, batches=batches)


async def tables_until(consumer: AsyncConsumer, rows: int, **limits: Any) -> list[pa.Table]:
    """Poll tables until there are so many rows."""
    tables: list[pa.Table] = []
    while sum(table.num_rows for table in tables) < rows:
        tables.append(await consumer.poll_arrow(timeout_ms=10_000, **limits))
        assert tables[-1].num_rows
    return tables


def offsets_by_partition(table: pa.Table) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for partition, offset in zip(
        table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True
    ):
        found.setdefault(partition, []).append(offset)
    return found


# --- polls ---------------------------------------------------------------------------------------


def test_arrow_polls_give_the_records_that_polls_give() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        records = [
            Record(0, 7, b"k", b"v", (("h", b"1"), ("i", None))),
            Record(1, 8, None, b"w", ()),
            Record(2, 9, b"", None, ()),
        ]
        brokers.put(("t", 0), encode_batch(records), 3)
        columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        async with brokers.client() as log, log.consumer("t") as consumer:
            rows = (await consumer.poll_arrow(columns=columns)).to_pylist()
            await consumer.seek(("t", 0), 0)
            polled = await consumer.poll()
        assert [row["key"] for row in rows] == [r.key for r in polled] == [b"k", None, b""]
        assert [row["value"] for row in rows] == [r.value for r in polled] == [b"v", b"w", None]
        assert [row["timestamp"] for row in rows] == [r.timestamp for r in polled]
        assert rows[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "i", "value": None}]
        assert {(row["topic"], row["partition"]) for row in rows} == {("t", 0)}

    run_with_brokers(main)


@pytest.mark.parametrize("max_records", [1, 7, 10, 33, 1_000])
def test_rows_are_bounded_without_loss_or_duplicates(max_records: int) -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers)
        async with brokers.client() as log, log.consumer("t") as consumer:
            tables = await tables_until(consumer, 150, max_records=max_records)
            assert max(table.num_rows for table in tables) <= max_records
            read = offsets_by_partition(pa.concat_tables(tables))
            assert read == {partition: list(range(50)) for partition in range(3)}
            assert (await consumer.poll_arrow(timeout_ms=10)).num_rows == 0

    run_with_brokers(main)


def test_bytes_are_bounded_except_for_one_batch() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers)
        size = len(brokers.logs["t", 0][-1].bytes)
        async with brokers.client() as log, log.consumer("t") as consumer:
            tables = await tables_until(consumer, 150, max_bytes=1)
            assert {table.num_rows for table in tables} == {10}
            await consumer.seek_to_beginning()
            tables = await tables_until(consumer, 150, max_bytes=2 * size)
            assert max(table.num_rows for table in tables) == 20
            read = offsets_by_partition(pa.concat_tables(tables))
            assert read == {partition: list(range(50)) for partition in range(3)}

    run_with_brokers(main)


def test_a_batch_is_decoded_once_for_many_small_polls() -> None:
    """Also if the columns change, and with any calls between two polls."""

    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 1_000)
        async with brokers.client() as log, log.consumer("t") as consumer:
            reader = consumer._fetcher.readers["t", 0]
            read, kept = [], [reader.chunks.rows]
            for number in range(90):
                columns = ["offset"] if number < 50 else ["value", "offset"]
                table = await consumer.poll_arrow(max_records=10, columns=columns)
                assert table.column_names == columns
                if reader.chunks.rows is not kept[-1]:
                    kept.append(reader.chunks.rows)
                read += table["offset"].to_pylist()
            assert read == list(range(900))
            assert len(kept) == 3, "no decoding, and one for each choice of columns"
            await consumer.seek(("t", 0), 5)
            read = (await consumer.poll_arrow(max_records=10))["offset"].to_pylist()
            assert read == list(range(5, 15))
            assert offsets(await consumer.poll(max_records=3)) == [15, 16, 17]
            read = (await consumer.poll_arrow(max_records=10))["offset"].to_pylist()
            assert read == list(range(18, 28))

    run_with_brokers(main)


@pytest.mark.parametrize("max_records", [3, 7, 100])
def test_small_polls_return_all_records_before_a_corrupt_batch(max_records: int) -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 10, batches=2)
        brokers.put(("t", 0), batch(20)[:-1] + b"?", 1)
        async with brokers.client() as log, log.consumer("t") as consumer:
            read: list[int] = []
            while len(read) < 20:
                table = await consumer.poll_arrow(max_records=max_records)
                read += table["offset"].to_pylist()
            assert read == list(range(20))
            with pytest.raises(CorruptionError):
                await consumer.poll_arrow(max_records=max_records)

    run_with_brokers(main)


def test_gaps_in_the_offsets_cost_no_row() -> None:
    """Compaction leaves records far apart, within one batch and between batches."""

    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        apart = [Record(offset, 1, None, b"v", ()) for offset in (0, 500, 900)]
        brokers.put(("t", 0), encode_batch(apart, base_offset=0, keep_offsets=True), 901)
        brokers.put(("t", 0), batch(2_000_000_000, 2), 2_000_000_002 - 901)
        async with brokers.client() as log, log.consumer("t", until_end=True) as consumer:
            tables = await tables_until(consumer, 5, max_records=2)
            found = pa.concat_tables(tables)["offset"].to_pylist()
            assert found == [0, 500, 900, 2_000_000_000, 2_000_000_001]
            assert (await consumer.poll_arrow(timeout_ms=None)).num_rows == 0

    run_with_brokers(main)


def test_polls_of_both_kinds_take_turns_on_one_position() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers, partitions=1)
        async with brokers.client() as log, log.consumer("t") as consumer:
            read = offsets(await consumer.poll(max_records=4))
            read += (await consumer.poll_arrow(max_records=13))["offset"].to_pylist()
            assert await consumer.position(("t", 0)) == 17
            read += offsets(await consumer.poll(max_records=6))
            read += (await consumer.poll_arrow(timeout_ms=5_000))["offset"].to_pylist()
            read += offsets(await consumer.poll(timeout_ms=50))
        assert read == list(range(50))

    run_with_brokers(main)


def test_arrow_poll_ends_before_a_corrupt_batch_and_raises_next() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers, partitions=1, batches=2)
        data = batch(20, 3)
        brokers.put(("t", 0), data[:-1] + bytes([data[-1] ^ 1]), 3)
        async with brokers.client() as log, log.consumer("t") as consumer:
            table = await consumer.poll_arrow()
            assert table["offset"].to_pylist() == list(range(20))
            for _ in range(2):
                with pytest.raises(CorruptionError, match="t-0: offsets 20 to 22"):
                    await consumer.poll_arrow(timeout_ms=5_000)
            assert await consumer.position(("t", 0)) == 20

    run_with_brokers(main)


def test_an_arrow_poll_without_records_is_an_empty_table_with_its_columns() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        async with brokers.client() as log, log.consumer("t") as consumer:
            table = await consumer.poll_arrow(timeout_ms=10)
            assert table.column_names == [
                "topic",
                "partition",
                "offset",
                "timestamp",
                "key",
                "value",
            ]
            with pytest.raises(InvalidRequest, match="no column 'colour'"):
                await consumer.poll_arrow(columns=["colour"])

    run_with_brokers(main)


# --- scans ---------------------------------------------------------------------------------------


def test_a_topic_is_read_whole_or_by_partitions() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers)
        everything = {partition: list(range(50)) for partition in range(3)}
        async with brokers.client() as log:
            assert offsets_by_partition(await log.read_arrow("t")) == everything
            some = await log.read_arrow("t", partitions=[2, 0])
            assert list(offsets_by_partition(some)) == [2, 0]
            one = await log.read_arrow("t", partitions=1)
            assert offsets_by_partition(one) == {1: list(range(50))}
            with pytest.raises(InvalidRequest, match="is not a partition"):
                await log.read_arrow("t", partitions=["1"])  # type: ignore[list-item]

    run_with_brokers(main)


def test_bounds_are_positions_in_all_partitions_or_by_partition() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers)
        async with brokers.client() as log:
            read = await log.read_arrow("t", start=TimestampMs(1_044), end=48)
            assert offsets_by_partition(read) == {p: [44, 45, 46, 47] for p in range(3)}
            starts: dict[int, Position] = {0: 48, 1: "latest", 2: 49}
            read = await log.read_arrow("t", start=starts, end={0: 49})
            assert offsets_by_partition(read) == {0: [48], 2: [49]}
            with pytest.raises(OffsetOutOfRange, match="t-1: start is 51"):
                await log.read_arrow("t", start={1: 51})

    run_with_brokers(main)


def test_a_read_is_bounded_by_rows_or_bytes() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers)
        async with brokers.client() as log:
            read = await log.read_arrow("t", max_records=63)
            assert offsets_by_partition(read) == {0: list(range(50)), 1: list(range(13))}
            read = await log.read_arrow("t", max_bytes=1)
            assert read.num_rows == 10
            assert (await log.read_arrow("t", max_records=0)).num_rows == 0

    run_with_brokers(main)


def test_a_scan_continues_after_its_stream_breaks() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers)
        brokers.break_subscribe_after = 2
        async with brokers.client() as log, log.scan_arrow("t") as scan:
            assert scan.schema.names == ["key", "value", "partition", "offset", "timestamp"]
            batches = [rows async for rows in scan]
        assert len(batches) == 15
        read = offsets_by_partition(pa.Table.from_batches(batches))
        assert read == {partition: list(range(50)) for partition in range(3)}
        assert brokers.subscriptions == 3 * 3

    run_with_brokers(main)


def test_scan_raises_a_corrupt_batch_after_the_records_before_it() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers, partitions=1, batches=2)
        data = batch(20, 3)
        brokers.put(("t", 0), batch(20, 3)[:-1] + bytes([data[-1] ^ 1]), 3)
        async with brokers.client() as log:
            scan = log.scan_arrow("t")
            assert [(await anext(scan)).num_rows for _ in range(2)] == [10, 10]
            for _ in range(2):
                with pytest.raises(CorruptionError, match="t-0: offsets 20 to 22"):
                    await anext(scan)
            read = await log.read_arrow("t", end=20)
            assert read.num_rows == 20

    run_with_brokers(main)


def test_abandoned_scan_and_scan_of_a_closed_client_end() -> None:
    async def main(brokers: Brokers) -> None:
        filled(brokers)
        kept: list[AsyncLog] = []
        async with brokers.client() as log:
            async with log.scan_arrow("t") as scan:
                await anext(scan)
            assert await scan.next_batch() is None
            open_scan = log.scan_arrow("t")
            await anext(open_scan)
            kept.append(log)
        with pytest.raises(ClientClosed):
            kept[0].scan_arrow("t")
        with pytest.raises(ClientClosed):
            await read_table(open_scan)

    run_with_brokers(main)
