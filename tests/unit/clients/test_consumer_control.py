"""Calls on a consumer while it reads: assign, seek, pause, queries, timeouts."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest

from quorumlog.clients.consumer.consumer import AsyncConsumer, PartitionLag
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.offsets import Position, TimestampMs
from quorumlog.errors import (
    ClientClosed,
    InvalidRequest,
    NotLeaderOrFollower,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.ids import TopicPartition

from .memory_brokers import Brokers, offsets, run_with_brokers

Main: TypeAlias = Callable[[Brokers], Coroutine[Any, Any, None]]


async def places_of(consumer: AsyncConsumer, polls: int = 4) -> set[tuple[str, int]]:
    """Return the partitions of the records of some polls."""
    records = [r for _ in range(polls) for r in await consumer.poll(timeout_ms=100)]
    return {(record.topic, record.partition) for record in records}


def stored(brokers: Brokers, *topics: str, partitions: int = 2, count: int = 10) -> None:
    for topic in topics:
        brokers.create(topic, partitions)
        for partition in range(partitions):
            if count:
                brokers.append((topic, partition), count)


# --- assignment ----------------------------------------------------------------------------------


def test_a_replaced_assignment_keeps_the_positions_of_common_partitions() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", "b")
        async with brokers.client() as log, log.consumer({"a": [0, 1]}) as consumer:
            await consumer.pause(("a", 1))
            assert offsets(await consumer.poll(max_records=4)) == [0, 1, 2, 3]
            await consumer.assign({"a": [0], "b": [1]}, start="latest")
            assert await consumer.assignment() == [("a", 0), ("b", 1)]
            assert consumer.positions() == {("a", 0): 4, ("b", 1): 10}
            assert offsets(await consumer.poll()) == [4, 5, 6, 7, 8, 9]
            brokers.append(("b", 1))
            assert offsets(await consumer.poll()) == [10]

    run_with_brokers(main)


def test_partitions_can_be_added_and_removed() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", "b", "c")
        async with brokers.client() as log, log.consumer("a") as consumer:
            await consumer.assign_more(["b"])
            await consumer.assign_more({"c": [1]}, start=8)
            assert len(await consumer.assignment()) == 5
            await consumer.unassign({"a": [1]})
            await consumer.unassign("b")
            assert await places_of(consumer) == {("a", 0), ("c", 1)}
            assert await consumer.position(("c", 1)) == 10
            await consumer.assign_more("a", start=7)
            assert consumer.positions()[TopicPartition("a", 0)] == 10
            assert [(r.partition, r.offset) for r in await consumer.poll()] == [
                (1, 7),
                (1, 8),
                (1, 9),
            ]

    run_with_brokers(main)


def test_prefetched_records_of_an_unassigned_partition_are_dropped() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", "b", partitions=1)
        async with brokers.client() as log, log.consumer(["a", "b"]) as consumer:
            (first,) = await consumer.poll(max_records=1)
            await asyncio.sleep(1)
            await consumer.unassign(first.topic)
            assert first.topic not in {topic for topic, _ in await places_of(consumer)}
            await consumer.assign(first.topic)
            assert offsets(await consumer.poll()) == list(range(10))

    run_with_brokers(main)


def test_a_consumer_without_assignment_raises() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a")
        async with brokers.client() as log, log.consumer("a") as consumer:
            await consumer.assign({})
            assert await consumer.assignment() == []
            with pytest.raises(InvalidRequest, match="nothing is assigned"):
                await consumer.poll()
            with pytest.raises(InvalidRequest, match="nothing is assigned"):
                await anext(consumer)

    run_with_brokers(main)


def test_assignment_of_an_unknown_partition_changes_nothing() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a")
        async with brokers.client() as log, log.consumer("a") as consumer:
            for change in (consumer.assign, consumer.assign_more):
                with pytest.raises(UnknownTopicOrPartition):
                    await change(["nope"])
            with pytest.raises(InvalidRequest, match="not assigned"):
                await consumer.unassign({"a": [0, 5]})
            with pytest.raises(InvalidRequest, match="is not a partition"):
                await consumer.assign({"a": ["0"]})
            assert await consumer.assignment() == [("a", 0), ("a", 1)]

    run_with_brokers(main)


def test_a_partition_that_does_not_exist_is_raised_on_entering() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a")
        async with brokers.client() as log:
            with pytest.raises(UnknownTopicOrPartition, match="2 partitions"):
                await log.consumer({"a": [0, 2]}).__aenter__()
            with pytest.raises(UnknownTopicOrPartition, match="nope"):
                await log.consumer("nope").__aenter__()

    run_with_brokers(main)


def test_partition_assigned_later_ends_too() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", "b", partitions=1)
        async with brokers.client() as log, log.consumer("a", until_end=True) as consumer:
            assert [record.offset async for record in consumer] == list(range(10))
            await consumer.assign_more("b", start=7)
            brokers.append(("b", 0), 5)
            assert [record.offset async for record in consumer] == [7, 8, 9]

    run_with_brokers(main)


# --- positions -----------------------------------------------------------------------------------


def grow(brokers: Brokers, name: str, partitions: int) -> None:
    """Add partitions to a topic, with two records each."""
    topic = brokers.topics[name]
    for partition in range(topic.partitions, partitions):
        brokers.logs[name, partition] = []
        brokers.append((name, partition), 2)
    topic.partitions = partitions


def test_partitions_added_later_are_read_from_their_beginning() -> None:
    async def main(brokers: Brokers) -> None:
        for name in ("whole", "part", "left"):
            brokers.create(name, 2)
        async with (
            brokers.client(metadata_max_age_ms=1_000) as log,
            log.consumer({"whole": None, "part": [0, 1], "left": None}, start="latest") as consumer,
        ):
            await consumer.unassign({"left": [1]})
            for name in ("whole", "part", "left"):
                grow(brokers, name, 4)
            read = [(r.topic, r.partition, r.offset) async for r in consumer.records(idle_ms=3_000)]
            assert sorted(read) == [("whole", p, offset) for p in (2, 3) for offset in (0, 1)]
            assert ("whole", 3) in await consumer.assignment()

    run_with_brokers(main)


def test_reading_to_the_end_excludes_partitions_added_later() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 2)
        async with (
            brokers.client(metadata_max_age_ms=1) as log,
            log.consumer("t", until_end=True) as consumer,
        ):
            grow(brokers, "t", 3)
            assert [record async for record in consumer] == []

    run_with_brokers(main)


def test_unassigning_a_partition_ends_the_wait_for_it_with_an_error() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.create("u")
        clock = brokers.runtime.clock
        async with brokers.client() as log, log.consumer("t") as consumer:
            assert await log.partition_count("u") == 1
            brokers.lookup_s = 20.0
            adding = asyncio.ensure_future(consumer.assign_more("u", start="latest"))
            await asyncio.sleep(1)
            asking = asyncio.ensure_future(consumer.position(("u", 0)))
            await asyncio.sleep(1)
            began_ms = clock.now_ms()
            await consumer.unassign("u")
            with pytest.raises(InvalidRequest, match="not assigned"):
                await asking
            await adding
            assert clock.now_ms() - began_ms < 1_000

    run_with_brokers(main)


def test_a_seek_goes_to_an_offset_a_time_the_beginning_or_the_end() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        moment = datetime.fromtimestamp(1.006, UTC)
        async with brokers.client() as log, log.consumer("a") as consumer:
            positions: list[tuple[Position, int]] = [
                (3, 3),
                (moment, 6),
                (TimestampMs(1_004), 4),
                ("earliest", 0),
                (TimestampMs(5_000_000), 10),
                ("latest", 10),
            ]
            for position, first in positions:
                await consumer.seek(("a", 0), position)
                assert await consumer.position(("a", 0)) == first
                assert offsets(await consumer.poll(timeout_ms=50)) == list(range(first, 10))

    run_with_brokers(main)


def test_seek_by_time_finds_a_record_appended_between_its_calls() -> None:
    """The first call finds no record of that time; the end that the second one returns is above
    it."""

    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        async with brokers.client() as log:
            await log.partition_count("a")
            brokers.lookup_s = 0.1
            seeking = asyncio.ensure_future(log.list_offsets("a", at=TimestampMs(1_010)))
            await asyncio.sleep(0.15)
            assert len(brokers.look_ups) == 1
            brokers.append(("a", 0), 2)
            assert await seeking == {0: 10}

    run_with_brokers(main)


def test_all_partitions_seek_at_once_by_one_call_to_a_leader() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", "b", partitions=30)
        async with brokers.client() as log, log.consumer(["a", "b"]) as consumer:
            brokers.look_ups.clear()
            await consumer.seek_to_end()
            assert set(consumer.positions().values()) == {10}
            await consumer.seek_to_beginning("b")
            await consumer.seek_to_beginning(("a", 7))
            at_start = {place for place, offset in consumer.positions().items() if offset == 0}
            assert at_start == {("a", 7)} | {("b", partition) for partition in range(30)}
            assert [len(asked) for asked in brokers.look_ups] == [60, 30, 1]
            await consumer.seek_to_end([TopicPartition("a", 7), ("b", 0), ("b", 0)])
            await consumer.seek_to_end([])
            assert consumer.positions()[TopicPartition("b", 0)] == 10
            assert [len(asked) for asked in brokers.look_ups] == [60, 30, 1, 2]
            for wrong in (3, ("a", -1), ("a", "b", 3), [("a",)]):
                with pytest.raises(InvalidRequest, match="is not a"):
                    await consumer.seek_to_end(wrong)  # type: ignore[arg-type]

    run_with_brokers(main)


@pytest.mark.parametrize("position", [-1, 2**63, True, "first", 1.5, None, TimestampMs(-1)])
def test_invalid_position_is_refused_and_changes_nothing(position: Any) -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        async with brokers.client() as log, log.consumer("a", start=4) as consumer:
            with pytest.raises(InvalidRequest, match="is not a position"):
                await consumer.seek(("a", 0), position)
            assert await consumer.position(("a", 0)) == 4

    run_with_brokers(main)


def test_paused_partition_keeps_decoded_and_prefetched_records() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        async with brokers.client() as log, log.consumer("a") as consumer:
            assert offsets(await consumer.poll(max_records=3)) == [0, 1, 2]
            fetches = consumer.statistics().fetches
            await consumer.pause(("a", 0))
            assert await consumer.poll(timeout_ms=0) == []
            await consumer.resume(("a", 0))
            assert offsets(await consumer.poll(timeout_ms=0)) == [3, 4, 5, 6, 7, 8, 9]
            assert consumer.statistics().fetches == fetches

    run_with_brokers(main)


def test_resuming_wakes_a_poll_that_waits() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        async with brokers.client() as log, log.consumer("a") as consumer:
            assert len(await consumer.poll(max_records=3)) == 3
            await consumer.pause()
            waiting = asyncio.create_task(consumer.poll(timeout_ms=60_000))
            await asyncio.sleep(0.01)
            began_ms = brokers.runtime.clock.now_ms()
            await consumer.resume("a")
            assert offsets(await waiting) == [3, 4, 5, 6, 7, 8, 9]
            assert brokers.runtime.clock.now_ms() - began_ms < 10

    run_with_brokers(main)


def test_lag_and_ends_are_queried_and_statistics_are_not() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a")
        async with brokers.client() as log, log.consumer({"a": [0, 1]}) as consumer:
            await consumer.pause(("a", 1))
            await consumer.poll(max_records=4)
            brokers.append(("a", 1), 90)
            assert await consumer.lag() == {
                ("a", 0): PartitionLag(position=4, high_watermark=10),
                ("a", 1): PartitionLag(position=0, high_watermark=100),
            }
            assert [lag.lag for lag in (await consumer.lag()).values()] == [6, 100]
            assert await consumer.end_offsets() == {("a", 0): 10, ("a", 1): 100}
            assert await consumer.beginning_offsets() == {("a", 0): 0, ("a", 1): 0}
            asked = len(brokers.look_ups)
            statistics = consumer.statistics()
            assert (statistics.records, statistics.partitions[TopicPartition("a", 0)].lag) == (4, 6)
            assert statistics.partitions[TopicPartition("a", 1)].is_paused
            assert statistics.fetched_bytes > 0
            assert len(brokers.look_ups) == asked

    run_with_brokers(main)


def test_statistics_have_the_error_of_a_stalled_partition() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a")
        brokers.errors["a", 1] = NotLeaderOrFollower("being elected")
        async with brokers.client() as log, log.consumer("a") as consumer:
            assert {record.partition for record in await consumer.poll()} == {0}
            assert await consumer.poll(timeout_ms=1_000) == []
            bad = consumer.statistics().partitions[TopicPartition("a", 1)]
            assert (bad.failure, bad.position) == ("being elected", 0)
            assert 5 < bad.failures < 100
            brokers.errors.clear()
            assert len(await consumer.poll()) == 10
            assert consumer.statistics().partitions[TopicPartition("a", 1)].failure == ""

    run_with_brokers(main)


# --- waiting -------------------------------------------------------------------------------------


def test_a_poll_returns_in_time_though_look_ups_take_longer() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        clock = brokers.runtime.clock
        async with brokers.client() as log:
            brokers.lookup_s = 3.0
            consumer = log.consumer("a")
            for timeout_ms in (0, 1, 100, 700):
                began_ms = clock.now_ms()
                assert await consumer.poll(timeout_ms=timeout_ms) == []
                assert clock.now_ms() - began_ms <= timeout_ms + 1
            records: list[ConsumerRecord] = []
            for _ in range(60):
                records += await consumer.poll(timeout_ms=100)
            assert offsets(records) == list(range(10))
            assert len(brokers.look_ups) == 1  # the lookups continued from poll to poll

    run_with_brokers(main)


def test_an_unknown_topic_is_raised_by_one_of_several_short_polls() -> None:
    async def main(brokers: Brokers) -> None:
        async with brokers.client() as log:
            consumer = log.consumer("nope")

            async def poll_often() -> None:
                for _ in range(100):
                    assert await consumer.poll(timeout_ms=20) == []

            with pytest.raises(UnknownTopicOrPartition, match="nope"):
                await poll_often()

    run_with_brokers(main)


def test_a_failing_position_lookup_is_raised_in_time() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        async with brokers.client(call_timeout_ms=2_000) as log:
            consumer = log.consumer("a", start="latest")
            await consumer.assignment()
            brokers.lookup_s = 60.0
            began_ms = brokers.runtime.clock.now_ms()
            with pytest.raises(TimedOut, match="position lookup: no broker answered in time"):
                await consumer.position(("a", 0))
            assert brokers.runtime.clock.now_ms() - began_ms < 2_100

    run_with_brokers(main)


def test_a_second_poll_at_a_time_is_refused() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1, count=0)
        async with brokers.client() as log, log.consumer("a") as consumer:
            first = asyncio.create_task(consumer.poll(timeout_ms=60_000))
            await asyncio.sleep(0.01)
            for second in (consumer.poll, consumer.poll_arrow, consumer.next):
                with pytest.raises(InvalidRequest, match="another poll"):
                    await second(timeout_ms=1_000)
            assert await consumer.position(("a", 0)) == 0  # the other methods may be called
            brokers.append(("a", 0), 2)
            assert offsets(await first) == [0, 1]
            brokers.append(("a", 0), 1)
            assert offsets(await consumer.poll()) == [2]

    run_with_brokers(main)


def test_a_cancelled_poll_loses_nothing() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1, count=0)
        async with brokers.client() as log, log.consumer("a") as consumer:
            seen: list[int] = []
            for turn in range(40):
                poll = asyncio.create_task(consumer.poll(timeout_ms=60_000))
                await asyncio.sleep(turn / 4_000)
                brokers.append(("a", 0), 1)
                await asyncio.sleep(turn % 5 / 1_000)
                poll.cancel()
                (found,) = await asyncio.gather(poll, return_exceptions=True)
                seen += offsets(found) if isinstance(found, list) else []
            while len(seen) < 40:
                seen += offsets(await consumer.poll())
        assert seen == list(range(40))

    run_with_brokers(main)


def test_iteration_ends_at_its_deadline_idle_timeout_or_count() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        clock = brokers.runtime.clock
        async with brokers.client() as log, log.consumer("a") as consumer:
            assert [r.offset async for r in consumer.records(max_records=3)] == [0, 1, 2]
            began_ms = clock.now_ms()
            assert [r.offset async for r in consumer.records(idle_ms=300)] == list(range(3, 10))
            assert 300 <= clock.now_ms() - began_ms < 350

            async def produce() -> None:
                while True:
                    brokers.append(("a", 0), 1)
                    await asyncio.sleep(0.1)

            producing = asyncio.create_task(produce())
            began_ms = clock.now_ms()
            found = [r.offset async for r in consumer.records(timeout_ms=2_050, idle_ms=500)]
            assert found == list(range(10, 31))
            assert 2_000 <= clock.now_ms() - began_ms <= 2_051
            producing.cancel()
            with pytest.raises(InvalidRequest, match="idle_ms is -1"):
                consumer.records(idle_ms=-1)

    run_with_brokers(main)


def test_break_out_of_an_iteration_loses_nothing() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        async with brokers.client() as log, log.consumer("a") as consumer:
            async for record in consumer.records():
                if record.offset == 4:
                    break
            assert offsets(await consumer.poll()) == [5, 6, 7, 8, 9]

    run_with_brokers(main)


def test_a_closed_consumer_delivers_nothing_and_keeps_its_statistics() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        async with brokers.client() as log:
            consumer = log.consumer("a")
            assert len(await consumer.poll(max_records=4)) == 4
            await consumer.close()
            await consumer.close()
            for use in (
                consumer.poll,
                consumer.poll_arrow,
                consumer.next,
                consumer.assignment,
                consumer.lag,
                consumer.seek_to_end,
            ):
                with pytest.raises(ClientClosed, match="closed"):
                    await use()
            assert consumer.statistics().records == 4

    run_with_brokers(main)


def test_limits_of_a_poll_are_checked() -> None:
    async def main(brokers: Brokers) -> None:
        stored(brokers, "a", partitions=1)
        async with brokers.client() as log, log.consumer("a") as consumer:
            for limit in (0, -1, 1.5, True):
                with pytest.raises(InvalidRequest, match="1 or more"):
                    await consumer.poll(max_records=limit)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="1 or more"):
                await consumer.poll_arrow(max_bytes=0)

    run_with_brokers(main)


# --- records -------------------------------------------------------------------------------------


def test_a_record_is_read_as_text_json_and_time() -> None:
    record = ConsumerRecord("t", 2, 7, 1_700_000_000_123, None, b'{"a": "\xc3\xbc"}', ())
    assert record.text == '{"a": "ü"}'
    assert record.json() == {"a": "ü"}
    assert record.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    bad = ConsumerRecord("t", 2, 7, -1, None, b"\xff", ())
    assert bad.timestamp is None
    with pytest.raises(ValueError, match="t-2 offset 7: the value is not JSON"):
        bad.json()
    with pytest.raises(ValueError, match="t-2 offset 7: the value is not UTF-8 text"):
        _ = bad.text
    null = ConsumerRecord("t", 2, 7, 2**62, None, None, ())
    assert (null.text, null.json(), null.timestamp) == (None, None, None)
