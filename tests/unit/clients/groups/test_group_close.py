"""Group consumers with failing or slow callbacks, closes during a rebalance, deleted topics."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from quorumlog.clients.groups.coordinator import CommittedOffset
from quorumlog.clients.groups.group_consumer import AsyncGroupConsumer
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import (
    ClientClosed,
    InvalidRequest,
    PollTooLate,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.ids import TopicPartition

from .group_topic import HEARTBEAT_MS, Callbacks, Place, play, produce, read_all

ALL: list[Place] = [("t", number) for number in range(4)]


def test_callback_may_use_a_topic_whose_partitions_were_just_assigned() -> None:
    async def main(log: AsyncLog) -> None:
        async def on_assigned(places: list[TopicPartition]) -> None:
            await consumer.seek_to_end("t")
            await consumer.pause("t")

        consumer = log.group_consumer("g", "t", on_assigned=on_assigned)
        async with consumer:
            assert await read_all(consumer, for_ms=500) == [[]]
            assert sorted(consumer.paused()) == ALL
            await consumer.resume("t")
            await produce(log, 4, 1)
            assert await read_all(consumer, for_ms=500) == [[(place, 5) for place in ALL]]

    play(main)


def test_close_commits_nothing_of_partitions_revoked_during_it() -> None:
    async def main(log: AsyncLog) -> None:
        given: list[Place] = []
        is_asked = asyncio.Event()

        async def on_revoked(places: list[TopicPartition]) -> None:
            if not given:
                given.extend(places)
                await first.commit({place: CommittedOffset(2, "mine") for place in places})
                is_asked.set()
                await asyncio.sleep(1)

        first = log.group_consumer("g", "t", on_revoked=on_revoked)
        async with first:
            await read_all(first, for_ms=1_000)
            async with log.group_consumer("g", "t", auto_commit=False) as second:
                async with asyncio.timeout(5):
                    await is_asked.wait()
                await first.close()
                assert len(given) == 2
                found = await second.committed(ALL)
                for place, stored in found.items():
                    assert stored is not None
                    is_given = place in given
                    assert (stored.offset, stored.note) == ((2, "mine") if is_given else (5, ""))

    play(main)


def test_a_slow_callback_during_close_affects_no_other_consumer() -> None:
    async def main(log: AsyncLog) -> None:
        is_asked = asyncio.Event()

        async def on_revoked(places: list[TopicPartition]) -> None:
            is_asked.set()
            await asyncio.sleep(12)

        first = log.group_consumer("g", "t", on_revoked=on_revoked)
        async with first:
            await read_all(first, for_ms=1_000)
            async with log.group_consumer("g", "t") as second:
                async with asyncio.timeout(5):
                    await is_asked.wait()
                await first.close()
                await read_all(second, for_ms=3 * HEARTBEAT_MS)
                assert sorted(await second.assignment()) == ALL

    play(main)


def test_callback_that_awaits_a_cancelled_task_stops_no_rebalance() -> None:
    async def main(log: AsyncLog) -> None:
        async def on_assigned(places: list[TopicPartition]) -> None:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.cancel()
            await waiting

        consumer = log.group_consumer("g", "t", on_assigned=on_assigned)
        async with asyncio.timeout(5):
            with pytest.raises(InvalidRequest, match="a task that was cancelled"):
                await consumer.poll(timeout_ms=1_000)
            records = await consumer.poll(timeout_ms=1_000)
        assert records
        await consumer.close()

    play(main)


async def _position(consumer: AsyncGroupConsumer, places: list[Place]) -> set[int]:
    return {await consumer.position(place) for place in places}


def test_a_position_in_a_topic_that_was_deleted_is_not_committed_in_its_successor() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", auto_commit_interval_ms=60_000) as consumer:
            await read_all(consumer, for_ms=1_000)
            assert await _position(consumer, ALL) == {5}
            await log.admin.delete_topic("t")
            await log.admin.create_topic("t", partitions=4)
            await produce(log, 4, 7)
        async with log.group_consumer("g", "t") as heir:
            (got,) = await read_all(heir, for_ms=2_000)
        assert sorted(got) == [(place, offset) for place in ALL for offset in range(7)]

    play(main)


def test_an_offset_of_a_topic_that_was_deleted_is_refused() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", auto_commit=False) as consumer:
            await read_all(consumer, for_ms=1_000)
            await log.admin.delete_topic("t")
            await log.admin.create_topic("t", partitions=4)
            with pytest.raises(UnknownTopicId):
                await consumer.commit(dict.fromkeys(ALL, 5))
            assert await consumer.committed(ALL) == dict.fromkeys(ALL)

    play(main)


def test_joining_waits_for_a_callback_that_takes_longer_than_a_call_may() -> None:
    async def main(log: AsyncLog) -> None:
        async def on_assigned(places: list[TopicPartition]) -> None:
            await asyncio.sleep(70)

        async with log.group_consumer("g", "t", on_assigned=on_assigned) as consumer:
            assert len((await read_all(consumer, for_ms=1_000))[0]) == 20

    play(main)


def test_automatic_commits_do_not_lower_the_offsets_committed_by_close() -> None:
    """An automatic commit only covers the records before the last poll."""

    async def main(log: AsyncLog) -> None:
        async def on_revoked(places: list[TopicPartition]) -> None:
            await asyncio.sleep(1)

        async with log.group_consumer(
            "g", "t", auto_commit_interval_ms=100, on_revoked=on_revoked
        ) as consumer:
            count = 0
            while count < 20:
                count += len(await consumer.poll())
        offsets = (await log.admin.describe_group("g")).offsets
        assert [each.committed for each in offsets] == [5, 5, 5, 5]

    play(main)


def test_close_raises_the_error_of_a_callback_and_leaves_the_group() -> None:
    async def main(log: AsyncLog) -> None:
        def on_revoked(places: list[TopicPartition]) -> None:
            raise ZeroDivisionError

        consumer = log.group_consumer("g", "t", on_revoked=on_revoked)
        with pytest.raises(ZeroDivisionError):
            async with consumer:
                await read_all(consumer, for_ms=500)
        assert (await log.admin.describe_group("g")).members == ()

    play(main)


def test_position_before_a_loss_does_not_count_when_the_partition_returns() -> None:
    async def main(log: AsyncLog) -> None:
        settings: dict[str, Any] = {"auto_commit_interval_ms": 500, "max_poll_interval_ms": 2_000}
        async with log.group_consumer("g", "t", **settings) as consumer:
            (got,) = await read_all(consumer, for_ms=1_000)
            assert len(got) == 20
            await asyncio.sleep(3)  # it has left
            await log.admin.reset_offsets("g", dict.fromkeys(ALL, 1))
            with pytest.raises(PollTooLate):
                await consumer.poll(timeout_ms=0)
            membership = consumer.membership
            membership.delivered.record(dict.fromkeys(ALL, 0))
            membership.member.poll_started(consumer._clock.now_ms())
            membership._changed()
            await asyncio.sleep(1.5)
            stored = await consumer.committed()
            assert {at.offset for at in stored.values() if at is not None} == {1}

    play(main)


def test_close_does_not_wait_for_partitions_assigned_during_it() -> None:
    async def main(log: AsyncLog) -> None:
        is_asked = asyncio.Event()

        async def on_revoked(places: list[TopicPartition]) -> None:
            if not is_asked.is_set():
                is_asked.set()
                await asyncio.sleep(4)

        first = log.group_consumer("g", "t", on_revoked=on_revoked)
        async with first:
            await read_all(first, for_ms=1_000)
            async with log.group_consumer("g", "t"):
                async with asyncio.timeout(5):
                    await is_asked.wait()
            await asyncio.sleep(
                2 * HEARTBEAT_MS / 1000
            )  # the first member owns all partitions again
            began = asyncio.get_running_loop().time()
            await first.close()
            assert asyncio.get_running_loop().time() - began < 4

    play(main)


@pytest.mark.parametrize("asked_by", ["on_assigned", "on_revoked"])
def test_a_callback_may_close_its_consumer(asked_by: str) -> None:
    async def main(log: AsyncLog) -> None:
        took_ms: list[float] = []

        async def close(places: list[TopicPartition]) -> None:
            loop = asyncio.get_running_loop()
            began = loop.time()
            if not took_ms:
                took_ms.append(0)
                await first.close()
                took_ms[0] = 1_000 * (loop.time() - began)

        callbacks: dict[str, Any] = {asked_by: close}

        async def read() -> None:
            with suppress(ClientClosed):
                await read_all(first, for_ms=10 * HEARTBEAT_MS)

        first = log.group_consumer("g", "t", **callbacks)
        reading = asyncio.create_task(read())
        await asyncio.sleep(1)
        async with log.group_consumer("g", "t") as second:
            await read_all(second, for_ms=5 * HEARTBEAT_MS)
            assert reading.done()
            assert took_ms[0] < 1_000
            assert sorted(await second.assignment()) == ALL
            assert len((await log.admin.describe_group("g")).members) == 1

    play(main)


def test_callback_during_close_may_close_and_the_group_is_left() -> None:
    async def main(log: AsyncLog) -> None:
        async def on_revoked(places: list[TopicPartition]) -> None:
            await consumer.close()

        consumer = log.group_consumer("g", "t", on_revoked=on_revoked)
        async with consumer:
            await produce(log, 4, 1)
            await read_all(consumer, for_ms=1_000)
        described = await log.admin.describe_group("g")
        assert described.members == ()
        assert {each.committed for each in described.offsets} == {6}

    play(main)


def test_concurrent_closes_return_after_the_group_was_left() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t") as consumer:
            await produce(log, 4, 1)
            await read_all(consumer, for_ms=1_000)
            await asyncio.gather(consumer.close(), consumer.close())
            described = await log.admin.describe_group("g")
            assert described.members == ()
            assert {each.committed for each in described.offsets} == {6}

    play(main)


def test_a_cancelled_close_leaves_no_task_running() -> None:
    async def main(log: AsyncLog) -> None:
        async def on_revoked(places: list[TopicPartition]) -> None:
            await asyncio.sleep(5)

        consumer = log.group_consumer("g", "t", on_revoked=on_revoked)
        await consumer.__aenter__()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.close(), 1)
        with pytest.raises(ClientClosed):
            await consumer.poll(timeout_ms=0)

    play(main)


def test_close_reports_partitions_lost_just_before() -> None:
    async def main(log: AsyncLog) -> None:
        calls = Callbacks()
        async with log.group_consumer("g", "t", **calls.callbacks()) as consumer:
            await read_all(consumer, for_ms=1_000)
            consumer.membership.member._fenced("it was")  # immediately before
            await consumer.close()
        assert calls.events == [("assigned", ALL), ("lost", ALL)]

    play(main)


@pytest.mark.parametrize("meanwhile_ms", [0, 3 * HEARTBEAT_MS])
def test_a_recreated_topic_is_read_from_its_beginning(meanwhile_ms: int) -> None:
    """With and without a heartbeat in between that reports the new topic."""

    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", auto_commit_interval_ms=100) as consumer:
            await read_all(consumer, for_ms=1_000)
            await log.admin.delete_topic("t")
            got: list[tuple[Place, int]] = []
            if meanwhile_ms:
                await read_on(consumer, got, meanwhile_ms)
            await log.admin.create_topic("t", partitions=4)
            await produce(log, 4, 7)
            await read_on(consumer, got, 8 * HEARTBEAT_MS)
            await asyncio.sleep(1)
            stored = await consumer.committed(ALL)
        assert sorted(got) == [(place, offset) for place in ALL for offset in range(7)]
        assert {each.offset for each in stored.values() if each} == {7}

    async def read_on(
        consumer: AsyncGroupConsumer, got: list[tuple[Place, int]], for_ms: int
    ) -> None:
        """Read for `for_ms`. Record the errors of absent topics."""
        clock = asyncio.get_running_loop()
        end = clock.time() + for_ms / 1000
        while clock.time() < end:
            try:
                records = await consumer.poll(timeout_ms=200)
            except (UnknownTopicId, UnknownTopicOrPartition) as error:
                raised.append(error)
                continue
            got += [((record.topic, record.partition), record.offset) for record in records]

    raised: list[QuorumlogError] = []
    play(main)


def test_the_rows_of_a_table_are_committed_once_the_next_is_asked_for() -> None:
    async def main(log: AsyncLog) -> None:
        async def committed() -> dict[Place, int]:
            stored = await consumer.committed(ALL)
            return {place: at.offset for place, at in stored.items() if at is not None}

        async with log.group_consumer("g", "t", auto_commit_interval_ms=100) as consumer:
            rows = 0
            while rows < 20:
                table = await consumer.poll_arrow(timeout_ms=5_000)
                rows += table.num_rows
            await asyncio.sleep(1)
            begins: dict[Place, int] = {}
            for row in table.to_pylist():
                begins.setdefault((row["topic"], row["partition"]), row["offset"])
            assert await committed() == dict.fromkeys(ALL, 5) | begins
            assert (await consumer.poll_arrow(timeout_ms=0)).num_rows == 0
            await asyncio.sleep(1)
            assert await committed() == dict.fromkeys(ALL, 5)

    play(main)


def test_an_absent_topic_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", ["t", "flihgts"]) as consumer:
            assert len((await read_all(consumer, for_ms=3_000))[0]) == 20

    play(main)
    logged = [each.getMessage() for each in caplog.records if "topic_absent" in each.getMessage()]
    assert logged == ["group.topic_absent group=g topic=flihgts"]
