"""Results of Publish calls when only some records, or none, can be stored.

The service runs with a replica manager on a simulated disk, without a node.
"""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quorumlog.api.authorizer import Authorizer
from quorumlog.broker.config import ReplicationConfig, RequestConfig
from quorumlog.broker.shell.replica_manager import ReplicaManager
from quorumlog.errors import (
    DiskFailed,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    Overloaded,
    PartlyStored,
    QuorumlogError,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.frontends.grpc import LogService
from quorumlog.ids import ClusterId, NodeId
from quorumlog.metadata import EMPTY_IMAGE, DeltaBuilder
from quorumlog.metadata.shell import MetadataPublisher, MetadataStateMachine
from quorumlog.proto import log_pb2
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.records import partition_for_key
from quorumlog.runtime import CallContext, Runtime, real
from quorumlog.runtime.ports import NO_DEADLINE_MS
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage.shell.data_directory import DataDirectory

ME, OTHER = 1, 2
OLD, NEW = b"o" * 16, b"n" * 16
KEYS = {partition_for_key(b"%d" % n, 2): b"%d" % n for n in range(20)}  # by partition of two
LIMITS = RequestConfig(
    produce_inflight_max=16,
    produce_inflight_bytes_max=1 << 24,
    fetch_bytes_max=1 << 24,
    subscribe_heartbeat_ms=1000,
    subscribe_streams_max=10,
)


class PublishService:
    """The service, with the metadata records that drive its partitions."""

    def __init__(self, runtime: Runtime, replicas: ReplicaManager) -> None:
        self.replicas = replicas
        publisher = MetadataPublisher(MetadataStateMachine())
        self.service = LogService(
            runtime, replicas, publisher, LIMITS, Authorizer(lambda: publisher.image)
        )
        self._builder = DeltaBuilder(EMPTY_IMAGE)
        self._offset = 0

    def apply(self, *records: pb.MetadataRecord) -> None:
        for record in records:
            self._builder.replay(record, offset=self._offset, epoch=1)
            self._offset += 1
        delta = self._builder.build()
        self._builder = DeltaBuilder(delta.after)
        self.replicas.apply(delta)

    async def publish(
        self, *partitions: int, size: int = 1, **fields: Any
    ) -> log_pb2.PublishResponse:
        """Publish one record to each partition by its key. The last has `size` bytes."""
        request = log_pb2.PublishRequest(topic="t", **fields)
        for partition in partitions:
            request.records.add(key=KEYS[partition], value=b"x")
        request.records[-1].value = bytes(size)
        return await self.service.publish(request, CallContext(NO_DEADLINE_MS, "peer"))

    async def ends(self) -> list[int]:
        """Return the log end offset of each partition that this node leads."""
        return [size.log_end_offset for size in await self.replicas.log_admin.log_sizes(())]


def topic(
    *partitions: Sequence[int], topic_id: bytes = OLD, leader: int = ME, **configs: str
) -> list[pb.MetadataRecord]:
    """Return a topic whose partitions have these replicas; `leader` leads the last partition."""
    records = [pb.MetadataRecord(topic=pb.TopicRecord(topic_id=topic_id, name="t"))]
    for index, replicas in enumerate(partitions):
        partition = pb.PartitionRecord(
            topic_id=topic_id, partition=index, replicas=replicas, isr=replicas, leader=ME
        )
        records.append(pb.MetadataRecord(partition=partition))
    records[-1].partition.leader = leader
    for name, value in configs.items():
        config = pb.TopicConfigRecord(topic_id=topic_id, name=name.replace("_", "."), value=value)
        records.append(pb.MetadataRecord(topic_config=config))
    return records


@asynccontextmanager
async def door(
    runtime: Runtime, folder: str = "/data", waits_max: int = 10
) -> AsyncIterator[PublishService]:
    await DataDirectory.format(runtime, folder, cluster_id=ClusterId("c" * 22), node_id=NodeId(ME))
    async with runtime.tasks.scope("test") as scope:
        directory = await DataDirectory.open(runtime, scope, folder)
        replicas = ReplicaManager(
            runtime,
            scope,
            directory,
            NodeId(ME),
            requests=RequestConfig(produce_waits_max=waits_max, fetch_waits_max=10),
            replication=ReplicationConfig(),
        )
        yield PublishService(runtime, replicas)
        await replicas.close()
        await directory.close()


def simulate(main: Callable[[Runtime, SimNode], Coroutine[Any, Any, None]]) -> None:
    with SimWorld(3) as world:
        node = world.node("n1")
        task = node.spawn(lambda runtime: main(runtime, node))
        world.run_until(task, virtual_ms=120_000)
        task.result()


# --- partial failures ----------------------------------------------------------------------------


def test_a_call_fails_when_not_all_of_its_records_are_stored() -> None:
    """A client that checks only the status must not assume that all records are stored."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with door(runtime) as d:
            d.apply(*topic([ME], [ME]))
            await d.publish(0, 1)
            node.device.fail("write", errno.EIO, path_part="/t-1/", times=10)
            with pytest.raises(PartlyStored, match=r"1 of 2 records .* STORAGE_ERROR") as caught:
                await d.publish(0, 1)
            assert (caught.value.topic, caught.value.partition) == ("t", 1)
            assert not caught.value.retriable, "a retry would store the first record twice"
            assert await d.ends() == [2, 0], "the second log failed"

    simulate(main)


def test_a_caller_that_reads_results_gets_each_partitions_own() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with door(runtime) as d:
            d.apply(*topic([ME], [ME]))
            await d.publish(0, 1)
            node.device.fail("write", errno.EIO, path_part="/t-1/", times=10)
            stored, failed = (await d.publish(0, 1, errors_in_results=True)).results
            assert (stored.base_offset, stored.HasField("error")) == (1, False)
            assert (failed.base_offset, list(failed.records)) == (-1, [1])
            assert (failed.error.name, failed.error.partition) == ("STORAGE_ERROR", 1)
            response = await d.publish(1, errors_in_results=True)
            assert (response.partition, response.base_offset) == (1, -1)
            assert response.results[0].error.name == "STORAGE_ERROR"

    simulate(main)


@pytest.mark.parametrize(
    ("records", "size", "kind"),
    [
        (topic([ME], [ME], max_message_bytes="500"), 1000, MessageTooLarge),
        (topic([ME], [ME, OTHER], leader=OTHER), 1, NotLeaderOrFollower),
        (topic([ME], [ME, OTHER], min_insync_replicas="2"), 1, NotEnoughReplicas),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_detectable_errors_are_returned_before_anything_is_stored(
    records: list[pb.MetadataRecord], size: int, kind: type[QuorumlogError]
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with door(runtime) as d:
            if kind is NotEnoughReplicas:
                records[-2].partition.ClearField("isr")
                records[-2].partition.isr.append(ME)
            d.apply(*records)
            with pytest.raises(kind):
                await d.publish(0, 1, size=size)
            assert (await d.ends())[0] == 0
            first, _ = (await d.publish(0, 1, size=size, errors_in_results=True)).results
            assert first.base_offset == 0, "a client that reads results gets partial success"

    simulate(main)


def test_error_of_a_failed_call_covers_records_that_may_be_stored() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with door(runtime) as d:
            d.apply(*topic([ME], [ME, OTHER]))
            await d.publish(0)
            node.device.fail("write", errno.EIO, path_part="/t-0/", times=10)
            with pytest.raises(TimedOut, match="the outcome is unknown"):
                await d.publish(0, 1, timeout_ms=100)

    simulate(main)


def test_failure_is_returned_with_acks_none_as_well() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with door(runtime) as d:
            d.apply(*topic([ME], [ME]))
            assert (await d.publish(0, acks=log_pb2.ACKS_NONE)).base_offset == -1
            node.device.fail("write", errno.EIO, path_part="/t-0/", times=10)
            with pytest.raises(DiskFailed):
                await d.publish(0, acks=log_pb2.ACKS_NONE)

    simulate(main)


def test_records_partitioned_for_a_topic_are_not_stored_in_a_recreated_one() -> None:
    """The recreated topic may have other partitions, where no consumer looks for these keys."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with door(runtime) as d:
            d.apply(*topic([ME], [ME]))
            for in_results in (False, True):
                first = asyncio.ensure_future(d.publish(0, 1, errors_in_results=in_results))
                await asyncio.sleep(0)  # it waits for the opening of the first log
                d.apply(pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=OLD)))
                d.apply(*topic([ME], [ME], topic_id=NEW))
                if in_results:
                    names = [result.error.name for result in (await first).results]
                    assert names == ["UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"]
                else:
                    with pytest.raises(UnknownTopicOrPartition):
                        await first
                assert await d.ends() == [0, 0]
                d.apply(pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=NEW)))
                await d.replicas.close()
                d.apply(*topic([ME], [ME]))

    simulate(main)


# --- waiting -------------------------------------------------------------------------------------


def test_cancelled_publish_releases_its_place() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with door(runtime, waits_max=1) as d:
            d.apply(*topic([ME, OTHER]))
            first = asyncio.ensure_future(d.publish(0, partition=0))
            while True:  # until it has the only place
                try:
                    await d.publish(0, partition=0, timeout_ms=1)
                except Overloaded:
                    break
                except TimedOut:
                    continue
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            assert first.cancelled()
            with pytest.raises(TimedOut):
                await d.publish(0, partition=0, timeout_ms=1)

    simulate(main)


def test_a_large_request_is_built_beside_the_loop(tmp_path: Path) -> None:
    """Compressing 64 MiB takes seconds, which would block the node."""
    free = threading.Event()

    async def main(runtime: Runtime) -> None:
        async with door(runtime, str(tmp_path / "data")) as d:
            d.apply(*topic([ME], [ME]))
            lane = asyncio.ensure_future(runtime.tasks.offload("cpu", free.wait))
            gzip = log_pb2.COMPRESSION_GZIP
            large = asyncio.ensure_future(d.publish(0, size=1 << 20, compression=gzip))
            try:
                for _ in range(5):  # small requests do not wait for the lane
                    await d.publish(1, compression=gzip)
                assert not large.done()
            finally:
                free.set()
            assert (await large).base_offset == 0
            await lane

    real.run(main)
