"""A metadata change of many partitions is applied in steps that yield the loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from quorumlog.broker.shell.replica_manager import SKIPS_A_STEP, UPDATES_A_STEP
from quorumlog.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode
from quorumlog.storage import AppendOrigin

from .lone_broker import ME, OTHER, LoneBroker, T, U, broker, simulate, topic

STEPS = 5
HELD = STEPS * UPDATES_A_STEP + 1


def wide(count: int, *, replicas: Sequence[int] = (ME,)) -> list[pb.MetadataRecord]:
    """Return the records of topic "t" with so many partitions, led by the first replica."""
    partitions = (
        pb.PartitionRecord(
            topic_id=T, partition=index, replicas=replicas, isr=replicas, leader=replicas[0]
        )
        for index in range(count)
    )
    return [
        pb.MetadataRecord(topic=pb.TopicRecord(topic_id=T, name="t")),
        *(pb.MetadataRecord(partition=each) for each in partitions),
    ]


def held(b: LoneBroker, count: int) -> int:
    """Return the number of topic t's partitions on this node."""
    found = 0
    for index in range(count):
        try:
            b.replicas.hosted.local_replica("t", index)
        except UnknownTopicOrPartition:
            continue
        found += 1
    return found


async def looks(applying: Awaitable[None] | None, look: Callable[[], int]) -> list[int]:
    """Return the partition counts that other tasks see in each turn of the loop until the end."""
    assert applying is not None, "the change was applied in one step"
    rest = asyncio.ensure_future(applying)
    seen = [look()]
    while not rest.done():
        await asyncio.sleep(0)
        seen.append(look())
    await rest
    return seen


@pytest.mark.parametrize("at_start", [True, False])
def test_many_partitions_are_added_in_steps(at_start: bool) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            if not at_start:
                b.apply(*topic("u", U))
            seen = await looks(b.apply(*wide(HELD)), lambda: held(b, HELD))
            steps = [now - before for before, now in zip([0, *seen], seen, strict=False)]
            assert max(steps) == UPDATES_A_STEP
            assert seen[-1] == HELD

    simulate(main)


def test_many_partitions_are_dropped_in_steps_without_a_sweep_between() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await looks(b.apply(*wide(HELD)), lambda: 0)
            last = b.replicas.hosted.replica_of("t", HELD - 1)
            log = await last.opened()
            batch = encode_batch([Record(0, 1, None, b"v")])
            await b.directory.append(
                log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
            )
            removed = pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=T))
            applying = b.apply(removed)
            await b.replicas.sweep()
            assert not last.is_given_up
            assert log.name in b.directory.folders.names(), "its replica still has it open"
            seen = await looks(applying, lambda: held(b, HELD))
            assert seen[0] >= HELD - UPDATES_A_STEP
            assert seen[-1] == 0
            await b.replicas.close()
            assert log.name not in b.directory.folders.names()

    simulate(main)


def test_request_for_a_pending_partition_gets_a_retriable_error() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            applying = b.apply(*wide(HELD))
            with pytest.raises(NotLeaderOrFollower, match="about to lead") as refused:
                b.replicas.hosted.replica_of("t", HELD - 1)
            assert refused.value.leader_address == ""
            await looks(applying, lambda: 0)
            b.replicas.hosted.replica_of("t", HELD - 1)

    simulate(main)


def test_partitions_of_other_nodes_are_skipped_in_longer_steps() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("u", U))  # first a whole image, of which it takes its own partitions
            count = 2 * SKIPS_A_STEP + 1
            seen = await looks(b.apply(*wide(count, replicas=(OTHER,))), lambda: 0)
            assert len(seen) <= 5

    simulate(main)


def test_small_change_is_applied_at_once() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            assert b.apply(*wide(UPDATES_A_STEP - 1)) is None
            b.replicas.hosted.replica_of("t", UPDATES_A_STEP - 2)

    simulate(main)


def test_closing_manager_applies_nothing_more() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            applying = b.apply(*wide(HELD))
            assert applying is not None
            await b.replicas.close()
            await applying
            assert held(b, HELD) == UPDATES_A_STEP

    simulate(main)
