"""Effects of a topic's configs on produced records: timestamps, limits, codec."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import InvalidTimestamp

Body: TypeAlias = Callable[[AsyncLog], Coroutine[Any, Any, None]]
With: TypeAlias = Callable[[Body], None]
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


async def read(log: AsyncLog) -> list[ConsumerRecord]:
    async with log.consumer("t", until_end=True) as consumer:
        return [record async for record in consumer]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_producer_gets_the_append_time_of_its_records(with_log: With, compression: str) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", configs=APPEND_TIME)
        async with log.producer(compression=compression) as producer:
            placed = [
                await producer.send_and_wait("t", b"v", timestamp_ms=time) for time in (0, 1_234)
            ]
        records = await read(log)
        assert [place.timestamp_ms for place in placed] == [r.timestamp_ms for r in records]
        assert min(record.timestamp_ms for record in records) > 1_700_000_000_000, (
            "a time of the clock"
        )
        table = await log.read_arrow("t", columns=("timestamp", "timestamp_type"))
        assert table.column("timestamp_type").to_pylist() == [1, 1]
        assert [time.timestamp() * 1000 for time in table.column("timestamp").to_pylist()] == [
            record.timestamp_ms for record in records
        ]

    with_log(body)


def test_change_to_log_append_time_keeps_earlier_timestamps(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer() as producer:
            await producer.send_and_wait("t", b"v", timestamp_ms=7)
            await log.admin.alter_configs("t", APPEND_TIME)
            placed = await producer.send_and_wait("t", b"v", timestamp_ms=7)
        assert [r.timestamp_ms for r in await read(log)] == [7, placed.timestamp_ms]
        assert placed.timestamp_ms > 7

    with_log(body)


def test_timestamp_too_far_ahead_is_rejected_with_a_remedy(with_log: With) -> None:
    """For example by two hours: the producer's clock is wrong, and retention would wait for it."""

    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer() as producer:
            with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.after\.max\.ms"):
                await producer.send_and_wait("t", b"v", timestamp_ms=9_999_999_999_999)
        assert await read(log) == []

    with_log(body)


@pytest.mark.parametrize("kept", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_reader_gets_the_same_records_under_every_topic_config(with_log: With, kept: str) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", configs={"compression.type": kept})
        for compression in ("none", "zstd"):
            async with log.producer(compression=compression) as producer:
                await producer.send_and_wait("t", b"v" * 1000, key=b"k", headers=[("h", None)])
        records = await read(log)
        assert [(r.offset, r.key, r.value, tuple(r.headers)) for r in records] == [
            (offset, b"k", b"v" * 1000, (("h", None),)) for offset in (0, 1)
        ]

    with_log(body)
