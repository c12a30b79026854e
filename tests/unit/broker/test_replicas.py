"""The replica manager on a simulated disk, driven by metadata records, without a network."""

import asyncio
import errno
import gc
import traceback
from typing import Any

import pytest

from quorumlog.broker import LATEST, Acks, OffsetSpec
from quorumlog.broker.shell.produce import DelayedProduce
from quorumlog.errors import (
    DiskFailed,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.simulation import Faults, SimNode

from .lone_broker import FOLDER, ME, OTHER, T, U, broker, simulate, topic, values

# --- storage failures --------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_failed_disk_fails_its_partition_only(operation: str) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T), *topic("u", U))
            assert await b.append(b"before") == 0
            async with runtime.tasks.scope("poll") as scope:
                poll = scope.spawn(b.fetch(offset=1, max_wait_ms=60_000), name="poll")
                await asyncio.sleep(0.01)
                node.device.fail(operation, errno.EIO, path_part="/t-0/", times=10)
                with pytest.raises(DiskFailed):
                    await b.append(b"lost")
                (outcome,) = await poll
                assert isinstance(outcome.error, DiskFailed), "the poll gets the error at once"
            with pytest.raises(DiskFailed):
                await b.append(b"more")
            (listed,) = await b.replicas.reader.list_offsets([OffsetSpec("t", 0, LATEST)])
            assert isinstance(listed.error, DiskFailed)
            assert await b.append(b"well", topic="u") == 0

    simulate(main)


def test_a_failed_read_is_an_error_of_its_partition_alone() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T), *topic("u", U))
            await b.append(b"of t")
            await b.append(b"of u", topic="u")
            node.device.fail("read", errno.EIO, path_part="/t-0/", times=10)
            bad, good = await b.fetch("t", "u")
            assert isinstance(bad.error, DiskFailed)
            assert values(good) == [b"of u"]

    simulate(main, faults=Faults(cache_miss=1.0))


# --- waiting -----------------------------------------------------------------------------------


def test_acks_all_waits_for_the_isr_and_times_out_with_the_outcome_unknown() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, replicas=(ME, OTHER)))
            assert await b.append(b"a", acks=Acks.LEADER) == 0
            with pytest.raises(TimedOut, match="the outcome is unknown"):
                await b.append(b"b", timeout_ms=50)
            (outcome,) = await b.fetch()
            assert (outcome.records, outcome.high_watermark) == (b"", 0), "nothing is committed"

    simulate(main)


def test_an_acknowledged_append_is_freed_without_a_collection() -> None:
    """The broker freezes objects that survive collections, so a cycle would be a leak."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, replicas=(ME, OTHER)))
            async with runtime.tasks.scope("appends") as scope:
                for _ in range(3):
                    scope.spawn(b.append(b"a"), name="append")
                await asyncio.sleep(0.01)
                change = pb.PartitionChangeRecord(topic_id=T, partition=0)
                change.isr.ids.append(ME)
                gc.collect()
                gc.disable()
                b.apply(pb.MetadataRecord(partition_change=change))
            assert not [each for each in gc.get_objects() if isinstance(each, DelayedProduce)]

    try:
        simulate(main)
    finally:
        gc.enable()


def test_below_min_isr_nothing_is_stored() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            records = topic("t", T, replicas=(ME, OTHER), isr=(ME,), min_insync_replicas="2")
            b.apply(*records)
            with pytest.raises(NotEnoughReplicas):
                await b.append(b"a")
            assert await b.append(b"b", acks=Acks.LEADER) == 0

    simulate(main)


def test_waiting_requests_are_bounded() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime, waits_max=2, fetch_waits_max=1) as b:
            b.apply(*topic("t", T, replicas=(ME, OTHER)), *topic("u", U))
            async with runtime.tasks.scope("waiting") as scope:
                for number in range(2):
                    scope.spawn(b.append(b"w"), name=f"append {number}")
                await asyncio.sleep(0.5)
                with pytest.raises(Overloaded, match="the limit is 2"):
                    await b.append(b"one too many")
                scope.spawn(b.fetch("u", max_wait_ms=60_000), name="fetch")
                await asyncio.sleep(0.5)
                with pytest.raises(Overloaded, match=r"fetch\.waits\.max=1"):
                    await b.fetch("u", max_wait_ms=60_000)
                assert (await b.fetch("u"))[0].records == b"", (
                    "a request without a wait is accepted"
                )
                scope.cancel()
            assert b.replicas.hosted.replica_of("t", 0).partition.purgatory.count == 0, (
                "cancelled waits are removed"
            )

    simulate(main)


def test_oldest_wait_of_the_principal_with_the_most_ends_for_another_one() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime, fetch_waits_max=3) as b:
            b.apply(*topic("t", T))
            async with runtime.tasks.scope("waiting") as scope:

                def waits(principal: str) -> asyncio.Task[Any]:
                    fetch = b.fetch(max_wait_ms=60_000, principal=principal)
                    return scope.spawn(fetch, name=principal)

                many = [waits("User:mallory") for _ in range(3)]
                await asyncio.sleep(0.5)
                with pytest.raises(Overloaded, match=r"fetch\.waits\.max=3"):
                    await b.fetch(max_wait_ms=60_000, principal="User:mallory")
                other = waits("User:alice")
                await asyncio.sleep(0.5)
                assert [each.done() for each in (*many, other)] == [True, False, False, False]
                assert many[0].result()[0].records == b""
                assert b.replicas.reader.waiting == 3
                scope.cancel()

    simulate(main)


# --- the image ---------------------------------------------------------------------------------


def test_lost_leadership_refuses_requests_and_returns_with_the_same_log() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, replicas=(ME, OTHER), isr=(ME,)))
            assert await b.append(b"first") == 0
            async with runtime.tasks.scope("poll") as scope:
                poll = scope.spawn(b.fetch(offset=1, max_wait_ms=60_000), name="poll")
                await asyncio.sleep(0.01)
                isr = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=OTHER)
                isr.isr.ids.extend([ME, OTHER])
                b.apply(pb.MetadataRecord(partition_change=isr))
                (outcome,) = await poll
                assert isinstance(outcome.error, NotLeaderOrFollower)
            with pytest.raises(NotLeaderOrFollower):
                await b.append(b"refused")
            (outcome,) = await b.fetch(epoch=0)
            assert isinstance(outcome.error, FencedLeaderEpoch)
            change = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=ME)
            change.isr.ids.append(ME)
            b.apply(pb.MetadataRecord(partition_change=change))
            assert await b.append(b"second") == 1
            (outcome,) = await b.fetch(epoch=2)
            assert values(outcome) == [b"first", b"second"]

    simulate(main)


def test_late_response_does_not_use_a_later_leadership() -> None:
    """Responses of a stream are sent in order. While one waits behind others, the leadership may
    change and the batch be truncated; another leader's records at its offset are not this batch."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, replicas=(ME, OTHER)))
            pending = await b.replicas.writer.submit(
                "t", 0, encode_batch([Record(0, 1, None, b"a")]), acks=Acks.ALL, leader_epoch=None
            )
            await asyncio.sleep(0.1)
            change = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=OTHER)
            b.apply(pb.MetadataRecord(partition_change=change))
            partition = b.replicas.hosted.local_replica("t", 0).partition
            partition.replicated(leader_epoch=1, leader_high_watermark=1, log_end_offset=1)
            assert partition.high_watermark == 1
            with pytest.raises(NotLeaderOrFollower):
                await pending.wait_until(runtime.clock, runtime.clock.now_ms() + 1_000)
            again = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=ME)
            b.apply(pb.MetadataRecord(partition_change=again))
            await asyncio.sleep(0.1)
            assert partition.is_leader
            with pytest.raises(NotLeaderOrFollower, match="the outcome is unknown"):
                await pending.wait_until(runtime.clock, runtime.clock.now_ms() + 1_000)

    simulate(main)


def test_a_partition_led_elsewhere_names_its_leader() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, replicas=(OTHER,), leader=OTHER))
            with pytest.raises(NotLeaderOrFollower, match="broker 2 leads") as caught:
                await b.append(b"a")
            assert (caught.value.leader_id, caught.value.leader_address) == (OTHER, "")
            registered = pb.BrokerRecord(
                id=OTHER, incarnation_id=b"i" * 16, grpc_address="127.0.0.1:4"
            )
            b.apply(pb.MetadataRecord(broker=registered))
            with pytest.raises(
                NotLeaderOrFollower, match=r"broker 2 at 127\.0\.0\.1:4 leads"
            ) as caught:
                await b.append(b"a")
            assert (caught.value.leader_address, caught.value.leader_epoch) == ("127.0.0.1:4", 0)

    simulate(main)


def test_partition_without_a_leader_returns_that_error() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, leader=-1))
            with pytest.raises(NotLeaderOrFollower, match="has no leader") as caught:
                await b.append(b"a")
            assert caught.value.leader_id == -1

    simulate(main)


def test_stored_error_collects_no_traceback_frames() -> None:
    """Each raise of one exception would add the frames of its caller with their requests."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, replicas=(ME, OTHER), isr=(ME,)))
            await b.append(b"a")
            change = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=OTHER)
            change.isr.ids.extend([ME, OTHER])
            b.apply(pb.MetadataRecord(partition_change=change))
            depths = []
            for _ in range(20):
                with pytest.raises(NotLeaderOrFollower) as caught:
                    await b.append(b"refused")
                assert caught.value.leader_id == OTHER
                depths.append(sum(1 for _ in traceback.walk_tb(caught.value.__traceback__)))
            assert depths[-1] == depths[0]

    simulate(main)


def test_a_deleted_topic_wakes_its_polls_and_frees_its_name() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T))
            await b.append(b"old")
            async with runtime.tasks.scope("poll") as scope:
                poll = scope.spawn(b.fetch(offset=1, max_wait_ms=60_000), name="poll")
                await asyncio.sleep(0.01)
                remove = pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=T))
                b.apply(remove, *topic("t", U))
                (outcome,) = await poll
                assert isinstance(outcome.error, QuorumlogError)
            assert await b.append(b"new") == 0
            assert values((await b.fetch())[0]) == [b"new"]

    simulate(main)


def test_a_topic_that_was_never_used_is_deleted_without_a_folder() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T))
            b.apply(pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=T)))
            with pytest.raises(UnknownTopicOrPartition):
                await b.append(b"a")
            await b.replicas.close()
            assert b.directory.folders.names() == []

    simulate(main)


def test_a_changed_config_takes_effect_on_the_open_log() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T))
            await b.append(bytes(500))
            config = pb.TopicConfigRecord(topic_id=T, name="max.message.bytes", value="300")
            b.apply(pb.MetadataRecord(topic_config=config))
            with pytest.raises(QuorumlogError, match=r"max\.message\.bytes is 300"):
                await b.append(bytes(500))

    simulate(main)


def test_config_changed_during_the_opening_applies() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            for step in range(30):  # at every step of the opening
                name, topic_id = f"t{step}", bytes([1 + step]) * 16
                b.apply(*topic(name, topic_id))
                first = asyncio.create_task(b.append(b"x", topic=name))  # this opens the log
                await asyncio.sleep(step * 0.0001)
                config = pb.TopicConfigRecord(
                    topic_id=topic_id, name="max.message.bytes", value="300"
                )
                b.apply(pb.MetadataRecord(topic_config=config))
                await first
                with pytest.raises(QuorumlogError, match=r"max\.message\.bytes is 300"):
                    await b.append(bytes(500), topic=name)

    simulate(main)


def test_append_before_a_change_to_fsync_is_acknowledged_once_durable() -> None:
    """The high watermark may be above the flushed end; new acknowledgements must not be."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, flush_policy="replicated"))
            for _ in range(5):
                await b.append(b"fast")
            log = await b.replicas.hosted.replica_of("t", 0).opened()
            assert log.flushed_end_offset < 5
            config = pb.TopicConfigRecord(topic_id=T, name="flush.policy", value="fsync")
            b.apply(pb.MetadataRecord(topic_config=config))
            assert await b.append(b"sure") == 5
            assert log.flushed_end_offset == 6

    simulate(main)


def test_a_stray_that_cannot_be_deleted_does_not_keep_the_node_from_starting() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T))
            await b.append(b"old")
        async with broker(runtime) as b:
            node.device.fail("rename", errno.EIO, path_part="/t-0")
            await b.replicas.sweep()
            b.apply(*topic("u", U))
            assert await b.append(b"well", topic="u") == 0

    simulate(main)


def test_log_that_failed_to_open_serves_the_next_request() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as first:
            first.apply(*topic("t", T))
            await first.append(b"before")
        async with broker(runtime) as again:
            again.apply(*topic("t", T))
            node.device.fail("open", errno.EMFILE, path_part="t-0", times=2)
            for _ in range(2):
                with pytest.raises(Overloaded, match="open files"):
                    await again.append(b"refused")
            assert await again.append(b"after") == 1

    simulate(main)


def test_log_sizes_are_returned_in_time_with_errors_for_the_rest() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as running:
            running.apply(*topic("t", T), *topic("u", U))
            await running.append(b"v")
            t, u = await running.replicas.log_admin.log_sizes((), timeout_ms=0)
            assert (t.log_end_offset, t.error) == (1, None)
            assert isinstance(u.error, TimedOut)
            t, u = await running.replicas.log_admin.log_sizes((), timeout_ms=1_000)
            assert (u.log_end_offset, u.error) == (0, None)

    simulate(main)


def test_retention_deletes_records_of_an_idle_partition() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, retention_ms="60000"), *topic("u", U, retention_ms="-1"))
            for name in ("t", "u"):
                await b.append(b"old", topic=name)  # from 1970, by its timestamp
        async with broker(runtime) as b:
            b.apply(*topic("t", T, retention_ms="60000"), *topic("u", U, retention_ms="-1"))
            await asyncio.sleep(61)
            names = runtime.files.names(f"{FOLDER}/t-0")
            assert "00000000000000000001.log" in names, "before any request"
            assert "00000000000000000000.log" not in names
            old, kept = await b.fetch("t", offset=1), await b.fetch("u")
            assert (values(old[0]), old[0].log_start_offset) == ([], 1)
            assert values(kept[0]) == [b"old"]

    simulate(main)
