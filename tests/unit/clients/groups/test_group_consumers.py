"""Group consumers with a whole simulated node."""

import asyncio
from typing import Any

import pytest

from quorumlog.clients.groups.coordinator import CommittedOffset
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import (
    InvalidRequest,
    NoCommittedOffset,
    OffsetNoteTooLarge,
    PollTooLate,
    UnknownMember,
    UnreleasedInstance,
)
from quorumlog.ids import TopicPartition

from .group_topic import HEARTBEAT_MS, SESSION_MS, Callbacks, Place, play, produce, read_all

ALL: list[Place] = [("t", number) for number in range(4)]


def test_one_member_reads_everything_once_and_the_next_continues() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t") as consumer:
            (got,) = await read_all(consumer, for_ms=2_000)
        assert sorted(got) == [(place, offset) for place in ALL for offset in range(5)]
        await produce(log, 4, 1)
        async with log.group_consumer("g", "t") as consumer:
            assert await read_all(consumer, for_ms=2_000) == [[(place, 5) for place in ALL]]

    play(main)


def test_member_keeps_its_id_and_its_epoch() -> None:
    """A member that sent its id only at times would join as another member each time."""

    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t") as consumer:
            await read_all(consumer, for_ms=1_000)
            before = await log.admin.describe_group("g")
            await read_all(consumer, for_ms=5 * HEARTBEAT_MS)
            after = await log.admin.describe_group("g")
        assert [member.client_id for member in after.members] == ["quorumlog"]
        assert after.epoch == before.epoch == 1

    play(main)


def test_second_member_gets_half_and_the_first_reads_on_without_a_pause() -> None:
    async def main(log: AsyncLog) -> None:
        calls, other = Callbacks(), Callbacks()
        async with log.group_consumer("g", "t", **calls.callbacks()) as first:
            await read_all(first, for_ms=1_000)
            async with log.group_consumer("g", "t", **other.callbacks()) as second:
                fetched = first.statistics().partitions[TopicPartition("t", 0)]
                await read_all(first, second, for_ms=3 * HEARTBEAT_MS)
                kept, given = await first.assignment(), await second.assignment()
                assert (len(kept), len(given)) == (2, 2)
                assert sorted(kept + given) == ALL
                await produce(log, 4, 1)
                got = await read_all(first, second, for_ms=1_000)
                assert [{place for place, _ in some} for some in got] == [set(kept), set(given)]
                assert fetched.position == 5
            await read_all(first, for_ms=4 * HEARTBEAT_MS)
            assert sorted(await first.assignment()) == ALL
        assert calls.events == [
            ("assigned", ALL),
            ("revoked", sorted(given)),  # no record of the kept partitions
            ("assigned", sorted(given)),
            ("revoked", ALL),
        ]
        assert other.events == [("assigned", sorted(given)), ("revoked", sorted(given))]

    play(main)


def test_partition_is_revoked_after_the_application_processed_its_records() -> None:
    async def main(log: AsyncLog) -> None:
        calls = Callbacks()
        async with log.group_consumer("g", "t", **calls.callbacks()) as first:
            held = await first.poll(timeout_ms=1_000)
            while len(held) < 20:
                await asyncio.sleep(0.1)
                held = [*held, *await first.poll(timeout_ms=100)]
            await produce(log, 4, 1)
            last = await first.poll(timeout_ms=1_000)
            async with log.group_consumer("g", "t") as second:
                (got,) = await read_all(second, for_ms=5 * HEARTBEAT_MS)
                mine = {(record.topic, record.partition) for record in last}
                assert mine
                assert not mine & {place for place, _ in got}  # it processes the records
                assert not mine & set(await second.assignment())
                got = (await read_all(first, second, for_ms=4 * HEARTBEAT_MS))[1]
                assert len(await second.assignment()) == 2
                assert all(offset >= 6 for _, offset in got)  # committed before the revocation

    play(main)


def test_a_failed_member_is_replaced_after_its_session_and_its_unfinished_records_redelivered() -> (
    None
):
    async def main(log: AsyncLog) -> None:
        dead = log.group_consumer("g", "t", auto_commit_interval_ms=100)
        await read_all(dead, for_ms=1_000)
        await produce(log, 4, 1)
        await asyncio.sleep(1)
        last = await dead.poll(timeout_ms=1_000)
        await asyncio.sleep(1)
        dead.membership._cancel()  # no further message, as from a killed process
        async with log.group_consumer("g", "t") as heir:
            (got,) = await read_all(heir, for_ms=SESSION_MS + 5 * HEARTBEAT_MS)
        again = [(("t", record.partition), record.offset) for record in last]
        assert set(again) <= set(got)
        assert {offset for _, offset in got} <= {5}  # processed records were committed

    play(main)


def test_a_member_that_does_not_poll_leaves_raises_and_rejoins() -> None:
    async def main(log: AsyncLog) -> None:
        calls = Callbacks()
        settings: dict[str, Any] = {"max_poll_interval_ms": 3_000, **calls.callbacks()}
        async with log.group_consumer("g", "t", **settings) as idle:
            await idle.poll(timeout_ms=1_000)
            async with log.group_consumer("g", "t") as other:
                (got,) = await read_all(other, for_ms=8_000)
                assert sorted(await other.assignment()) == ALL
                assert {place for place, _ in got} == set(ALL)
                with pytest.raises(PollTooLate, match="max_poll_interval_ms"):
                    await idle.poll(timeout_ms=1_000)
                assert await idle.assignment() == []
                await read_all(idle, other, for_ms=4 * HEARTBEAT_MS)
                assert len(await idle.assignment()) == 2
        assert [what for what, _ in calls.events][:2] == ["assigned", "lost"]

    play(main)


def test_slow_iteration_over_buffered_records_counts_as_polling() -> None:
    async def main(log: AsyncLog) -> None:
        count = 0
        consumer = log.group_consumer("g", "t", max_poll_interval_ms=3_000)
        async with consumer:
            async for _ in consumer.records(max_records=10):
                count += 1
                await asyncio.sleep(2)
            assert len(await consumer.assignment()) == 4
        assert count == 10

    play(main)


def test_error_leaves_the_current_record_to_be_read_again() -> None:
    async def main(log: AsyncLog) -> None:
        seen = []

        async def fail_at_the_third() -> None:
            async with log.group_consumer("g", "t") as consumer:
                async for record in consumer:
                    seen.append(record)
                    if len(seen) == 3:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_at_the_third()
        async with log.group_consumer("g", "t") as consumer:
            (got,) = await read_all(consumer, for_ms=1_000)
        failed = (("t", seen[-1].partition), seen[-1].offset)
        done = [(("t", record.partition), record.offset) for record in seen[:-1]]
        assert failed in got
        assert not set(done) & set(got)

    play(main)


def test_a_close_without_a_commit_leaves_the_last_records_to_be_read_again() -> None:
    async def main(log: AsyncLog) -> None:
        consumer = log.group_consumer("g", "t", max_poll_records=1)
        first = await consumer.poll(timeout_ms=10_000)
        last = await consumer.poll(timeout_ms=10_000)
        await consumer.close(commit=False)
        async with log.group_consumer("g", "t") as consumer:
            (got,) = await read_all(consumer, for_ms=1_000)
        (done,), (undone,) = first, last
        assert ((undone.topic, undone.partition), undone.offset) in got
        assert ((done.topic, done.partition), done.offset) not in got

    play(main)


def test_a_commit_stores_the_positions_after_the_last_poll() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", auto_commit=False) as consumer:
            records = await consumer.poll(timeout_ms=10_000, max_records=7)
            await consumer.commit()
            stored = await consumer.committed()
            for partition, position in consumer.positions().items():
                found = stored[partition]
                read = [each for each in records if each.partition == partition.partition]
                assert position == len(read)
                assert (0 if found is None else found.offset) == position

    play(main)


def test_explicit_commit_stores_metadata_and_automatic_commits_are_off() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", auto_commit=False) as consumer:
            await read_all(consumer, for_ms=1_000)
            assert set((await consumer.committed()).values()) == {None}
            offsets: dict[tuple[str, int], int | CommittedOffset] = {
                ("t", 1): CommittedOffset(3, note="run 7"),
                ("t", 0): 2,
            }
            await consumer.commit(offsets)
            stored = await consumer.committed([("t", 0), ("t", 1)])
            first, second = stored[TopicPartition("t", 0)], stored[TopicPartition("t", 1)]
            assert first is not None
            assert second is not None
            assert (first.offset, second.offset, second.note) == (2, 3, "run 7")
            with pytest.raises(OffsetNoteTooLarge):
                await consumer.commit({("t", 1): CommittedOffset(3, note="n" * 5_000)})
            outcomes: list[Any] = []
            consumer.commit_nowait(on_done=outcomes.append)
            await asyncio.sleep(1)
            assert outcomes == [None]
            assert {each.offset for each in (await consumer.committed()).values() if each} == {5}

    play(main)


def test_a_commit_of_a_fenced_member_raises_with_a_remedy() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", max_poll_interval_ms=2_000) as consumer:
            await consumer.poll(timeout_ms=1_000)
            await asyncio.sleep(5)
            with pytest.raises(UnknownMember, match="poll to join again"):
                await consumer.commit({("t", 0): 1})

    play(main)


def test_a_commit_before_joining_raises_with_a_remedy() -> None:
    async def main(log: AsyncLog) -> None:
        consumer = log.group_consumer("g", "t")
        with pytest.raises(UnknownMember, match="has not joined group g yet: poll") as raised:
            await consumer.commit({("t", 0): 1})
        assert "others" not in raised.value.message
        await consumer.close()

    play(main)


def test_a_start_of_none_raises_until_a_seek() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", start="error") as consumer:
            for _ in range(2):
                with pytest.raises(NoCommittedOffset, match="seek"):
                    await consumer.poll(timeout_ms=1_000)
            for _, partition in ALL:
                await consumer.seek(("t", partition), 4)
            (got,) = await read_all(consumer, for_ms=1_000)
            assert sorted(got) == [(place, 4) for place in ALL]

    play(main)


def test_a_callback_may_seek_before_the_first_record() -> None:
    async def main(log: AsyncLog) -> None:
        async def on_assigned(places: list[TopicPartition]) -> None:
            for topic, partition in places:
                await consumer.seek((topic, partition), 3)

        consumer = log.group_consumer("g", "t", on_assigned=on_assigned)
        async with consumer:
            (got,) = await read_all(consumer, for_ms=1_000)
        assert sorted(got) == [(place, offset) for place in ALL for offset in (3, 4)]

    play(main)


def test_error_of_a_callback_is_raised_by_the_next_poll() -> None:
    async def main(log: AsyncLog) -> None:
        def on_assigned(places: list[TopicPartition]) -> None:
            raise ZeroDivisionError

        consumer = log.group_consumer("g", "t", on_assigned=on_assigned)
        with pytest.raises(ZeroDivisionError):
            await consumer.poll(timeout_ms=5_000)
        assert len(await consumer.poll(timeout_ms=5_000)) > 0
        await consumer.close()

    play(main)


def test_pattern_subscribes_to_topics_created_later() -> None:
    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", pattern="new-.*") as consumer:
            assert await consumer.assignment() == []
            await log.admin.create_topic("new-one", partitions=1)
            await read_all(consumer, for_ms=3 * HEARTBEAT_MS)
            assert await consumer.assignment() == [("new-one", 0)]
            await consumer.subscribe("t")
            await read_all(consumer, for_ms=3 * HEARTBEAT_MS)
            assert sorted(await consumer.assignment()) == ALL

    play(main)


def test_a_restarted_static_member_keeps_its_partitions() -> None:
    async def main(log: AsyncLog) -> None:
        calls = Callbacks()
        async with log.group_consumer("g", "t", **calls.callbacks()) as other:
            first = log.group_consumer("g", "t", instance_id="one")
            await read_all(other, first, for_ms=4 * HEARTBEAT_MS)
            had = await first.assignment()
            await first.close()
            before = list(calls.events)
            await read_all(other, for_ms=3 * HEARTBEAT_MS)
            async with log.group_consumer("g", "t", instance_id="one") as again:
                assert sorted(await again.assignment()) == sorted(had)
            assert calls.events == before

    play(main)


def test_two_static_members_of_one_instance_id_get_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Committed positions are rejected at once, a poll fails if the other member does not leave in
    time."""

    async def main(log: AsyncLog) -> None:
        async with log.group_consumer("g", "t", instance_id="one") as first:
            second = log.group_consumer("g", "t", instance_id="one")
            with pytest.raises(UnreleasedInstance):
                await read_all(first, second, for_ms=100_000)
            assert sorted(await first.assignment()) == ALL
        await second.close()

    play(main)
    logged = [each for each in caplog.records if "group.name_taken" in each.getMessage()]
    assert len(logged) == 1
    assert logged[0].levelname == "WARNING"


@pytest.mark.parametrize(
    "options",
    [
        {"group": ""},
        {"topics": {"t": [0]}},
        {"topics": ()},
        {"pattern": ""},
        {"instance_id": ""},
        {"on_assigned": 3},
        {"on_lost": "print"},
        {"start": "none"},
    ],
)
def test_invalid_options_of_a_group_consumer_are_refused(options: dict[str, Any]) -> None:
    async def main(log: AsyncLog) -> None:
        make: Any = log.group_consumer
        with pytest.raises(InvalidRequest):
            make(**({"group": "g", "topics": "t"} | options))

    play(main)


def test_a_consumer_without_a_group_needs_a_start() -> None:
    async def main(log: AsyncLog) -> None:
        make: Any = log.consumer
        with pytest.raises(InvalidRequest, match="'error' is not a position"):
            make("t", start="error")

    play(main)
