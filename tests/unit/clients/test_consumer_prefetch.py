"""Prefetching: few requests, bounded bytes, no partition starves another."""

import asyncio
from collections import Counter, defaultdict

import pytest

from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.records import Codec, Record, encode_batch

from .memory_brokers import Brokers, offsets, run_with_brokers

KIB = 1024


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    """Poll until there are `count` records."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        found = await consumer.poll(timeout_ms=10_000)
        assert found, f"{len(records)} of {count} records arrived"
        records += found
    return records


def by_partition(records: list[ConsumerRecord]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record.offset)
    return dict(found)


def test_one_long_poll_watches_many_partitions() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 100)
        async with brokers.client() as log, log.consumer("t") as consumer:
            assert await consumer.poll(timeout_ms=10_000) == []
        assert max(len(asked.offsets) for asked in brokers.asked) == 100
        assert len(brokers.asked) < 30  # 10 s of polls of half a second, and the first one
        assert len(brokers.look_ups) == 1

    run_with_brokers(main)


def test_total_prefetched_bytes_are_bounded() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 40)
        for partition in range(40):
            brokers.append(("t", partition), 10, size=100, batches=50)
        batch_size = len(brokers.logs["t", 0][-1].bytes)
        total = 256 * KIB
        async with (
            brokers.client() as log,
            log.consumer(
                "t", prefetch_max_bytes=total, max_partition_prefetch_bytes=64 * KIB
            ) as consumer,
        ):
            await asyncio.sleep(5)
            held = consumer.statistics().buffered_bytes
            assert total // 2 <= held <= total + batch_size
            assert held < sum(len(s.bytes) for log in brokers.logs.values() for s in log) // 2
            records: list[ConsumerRecord] = []
            while len(records) < 40 * 500:
                records += await consumer.poll(max_records=100, timeout_ms=10_000)
                assert consumer.statistics().buffered_bytes <= total + batch_size
        assert by_partition(records) == {p: list(range(500)) for p in range(40)}
        assert all(asked.max_bytes <= total for asked in brokers.asked)

    run_with_brokers(main)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_of_very_many_records_is_decoded_a_part_at_a_time(codec: Codec) -> None:
    """A decoded record takes a hundred times its bytes: a small batch may have millions."""
    count = 45_000
    packed = encode_batch([Record(offset, 0, None, b"") for offset in range(count)], codec=codec)

    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.put(("t", 0), packed, count)
        brokers.append(("t", 0), 3, batches=4)
        async with brokers.client() as log, log.consumer("t") as consumer:
            reader = consumer._fetcher.readers["t", 0]
            expected = 0
            while expected < count + 12:
                for offset in offsets(await consumer.poll(max_records=4_999)):
                    assert offset == expected
                    expected += 1
                assert len(reader.records) <= 10_000
                if expected == 4_999 * 3:
                    await consumer.pause()  # the next poll continues within the batch
                    reader.drop_chunks()
                    await consumer.resume()
            assert reader.position == count + 12

    run_with_brokers(main)


def test_batch_above_every_bound_is_delivered() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 3)
        for partition in range(3):
            brokers.append(("t", partition), size=30 * KIB, batches=3)
        async with (
            brokers.client() as log,
            log.consumer(
                "t",
                prefetch_max_bytes=4 * KIB,
                max_partition_prefetch_bytes=1,
                fetch_max_bytes=KIB,
                max_partition_fetch_bytes=KIB,
            ) as consumer,
        ):
            assert by_partition(await read(consumer, 9)) == {p: [0, 1, 2] for p in range(3)}

    run_with_brokers(main)


def test_no_partition_waits_for_the_long_poll_of_another() -> None:
    """Each partition reaches its end at another time while the others are polled."""

    async def main(brokers: Brokers) -> None:
        brokers.create("t", 12)
        clock = brokers.runtime.clock
        async with (
            brokers.client() as log,
            log.consumer("t", fetch_max_wait_ms=60_000) as consumer,
        ):
            await asyncio.sleep(1)
            for turn in range(60):
                partition = turn * 5 % 12
                brokers.append(("t", partition), 3)
                began_ms = clock.now_ms()
                assert {r.partition for r in await read(consumer, 3)} == {partition}
                assert clock.now_ms() - began_ms < 50
                await asyncio.sleep(turn % 4 / 100)
        assert brokers.waiting_max <= 4

    run_with_brokers(main)


def test_silent_leader_delays_no_other() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 8)
        for partition in range(8):
            brokers.append(("t", partition), 10, size=100, batches=40)
            brokers.lead(("t", partition), 1 + partition % 2)
        silence = brokers.silences[2] = asyncio.Event()
        async with (
            brokers.client() as log,
            log.consumer("t", prefetch_max_bytes=64 * KIB) as consumer,
        ):
            records = await read(consumer, 4 * 400)
            assert by_partition(records) == {p: list(range(400)) for p in (0, 2, 4, 6)}
            silence.set()
            records = await read(consumer, 4 * 400)
            assert by_partition(records) == {p: list(range(400)) for p in (1, 3, 5, 7)}

    run_with_brokers(main, brokers=2)


def test_paused_partitions_yield_their_buffer_and_lose_nothing() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 9)
        for partition in range(8):
            brokers.append(("t", partition), 10, size=100, batches=30)
        async with (
            brokers.client() as log,
            log.consumer("t", prefetch_max_bytes=64 * KIB) as consumer,
        ):
            first = await consumer.poll(max_records=7)
            await asyncio.sleep(1)
            for partition in range(8):
                await consumer.pause(("t", partition))
            brokers.append(("t", 8), 10, size=1_000, batches=20)
            assert by_partition(await read(consumer, 200)) == {8: list(range(200))}
            assert await consumer.poll(timeout_ms=100) == []
            assert consumer.paused() == [("t", partition) for partition in range(8)]
            await consumer.resume()
            rest = await read(consumer, 8 * 300 - 7)
        assert by_partition(first + rest) == {p: list(range(300)) for p in range(8)}

    run_with_brokers(main)


def test_partitions_get_equal_shares_of_small_responses() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 6)
        for partition in range(6):
            brokers.append(("t", partition), 10, size=100, batches=100)
        async with (
            brokers.client() as log,
            log.consumer(
                "t",
                fetch_max_bytes=8 * KIB,
                max_partition_fetch_bytes=8 * KIB,
                max_partition_prefetch_bytes=KIB,
            ) as consumer,
        ):
            counts = Counter(record.partition for record in await read(consumer, 3_000))
        assert len(counts) == 6
        assert max(counts.values()) - min(counts.values()) <= 100

    run_with_brokers(main)


def test_fetch_in_flight_at_a_seek_is_dropped() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 10, batches=10)
        brokers.fetch_s = 1.0
        async with brokers.client() as log, log.consumer("t") as consumer:
            assert await consumer.poll(timeout_ms=500) == []
            await consumer.seek(("t", 0), 95)
            assert offsets(await consumer.poll(timeout_ms=10_000)) == [95, 96, 97, 98, 99]
            assert await consumer.poll(timeout_ms=5_000) == []

    run_with_brokers(main)


def test_reading_buffered_records_lets_other_tasks_run() -> None:
    """With any amount prefetched, neither an iteration nor polls block the loop."""

    async def main(brokers: Brokers) -> None:
        brokers.create("t", 40)
        for partition in range(40):
            brokers.append(("t", partition), 20)
        async with brokers.client() as log, log.consumer("t") as consumer:
            await asyncio.sleep(5)
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            other = asyncio.ensure_future(others())
            for _ in range(400):
                await anext(consumer)
            assert turns >= 20
            for _ in range(100):
                assert len(await consumer.poll(max_records=4)) == 4
            assert turns >= 120
            other.cancel()

    run_with_brokers(main)


def test_fetches_to_a_broker_with_empty_responses_are_paced() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 2)
        async with (
            brokers.client() as log,
            log.consumer("t", fetch_max_wait_ms=0) as consumer,
        ):
            assert await consumer.poll(timeout_ms=1_000) == []
        assert len(brokers.asked) < 120

    run_with_brokers(main)


def test_consumer_with_min_bytes_still_gets_the_last_records() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 5)
        async with (
            brokers.client() as log,
            log.consumer("t", fetch_min_bytes=KIB, fetch_max_wait_ms=200) as consumer,
        ):
            assert offsets(await consumer.poll(timeout_ms=1_000)) == [0, 1, 2, 3, 4]
        assert all(asked.wait_ms <= 200 for asked in brokers.asked)

    run_with_brokers(main)
