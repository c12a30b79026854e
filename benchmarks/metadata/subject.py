"""A cluster of any size as the records of a snapshot, and a controller that starts on it."""

import asyncio
import gc
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

from quorumlog.ids import ClusterId, Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import MetadataImage
from quorumlog.metadata.config import ControllerConfig
from quorumlog.metadata.decisions.placement import Placer
from quorumlog.metadata.shell import ControllerShell, MetadataPublisher, MetadataStateMachine
from quorumlog.metadata.snapshots import SLICE_RECORDS, image_of
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.raftlog import RaftConfig
from quorumlog.raftlog.log_view import SnapshotId
from quorumlog.raftlog.shell import RaftNode, RaftNodeConfig
from quorumlog.raftlog.snapshot_format import SnapshotEncoder, checkpoint_name
from quorumlog.raftlog.voters import VoterSet
from quorumlog.runtime import Runtime
from quorumlog.server.quorum import METADATA_BATCH_BYTES
from quorumlog.storage.shell.data_directory import DataDirectory

CLUSTER = ClusterId("c" * 22)
CONTROLLER = NodeId(1_000_000)
Clock: TypeAlias = Callable[[], float]
"""Seconds of wall or CPU time."""

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a cluster."""

    partitions: int
    partitions_a_topic: int = 10
    brokers: int = 20
    replication_factor: int = 3
    racks: int = 3

    @property
    def topics(self) -> int:
        """Return the number of topics."""
        return self.partitions // self.partitions_a_topic


def topic_id(number: int) -> TopicId:
    """Return the id of a topic, as if random."""
    return TopicId(hashlib.blake2b(number.to_bytes(8), digest_size=16).digest())


def values_of(shape: Shape, address: str) -> Iterator[bytes]:
    """Yield the record values of a snapshot of a cluster of this shape; all of its brokers have one
    address."""
    brokers = [_broker(number, shape, address) for number in range(shape.brokers)]
    for broker in brokers:
        yield pb.MetadataRecord(broker=broker).SerializeToString(deterministic=True)
    image = image_of(
        [pb.MetadataRecord(broker=broker).SerializeToString() for broker in brokers],
        end_offset=1,
        epoch=1,
    )
    for number in range(shape.topics):
        yield from _topic(number, shape, image)


def _broker(number: int, shape: Shape, address: str) -> pb.BrokerRecord:
    return pb.BrokerRecord(
        id=number,
        incarnation_id=number.to_bytes(16),
        directory_id=number.to_bytes(16),
        grpc_address=address,
        rack=f"rack-{number % shape.racks}",
        boot_id="boot",
        broker_epoch=number,
    )


def _topic(number: int, shape: Shape, image: MetadataImage) -> Iterator[bytes]:
    id_ = topic_id(number)
    topic = pb.TopicRecord(topic_id=id_, name=f"topic-{number:07}")
    yield pb.MetadataRecord(topic=topic).SerializeToString()
    placer = Placer(image.sorted_brokers(), seed=number)
    for index in range(shape.partitions_a_topic):
        replicas = placer.place(shape.replication_factor)
        partition = pb.PartitionRecord(
            topic_id=id_, partition=index, replicas=replicas, isr=replicas, leader=replicas[0]
        )
        yield pb.MetadataRecord(partition=partition).SerializeToString()


def slices(values: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield values in the slices of snapshots."""
    part: list[bytes] = []
    for value in values:
        part.append(value)
        if len(part) == SLICE_RECORDS:
            yield part
            part = []
    if part:
        yield part


def resident_bytes() -> int:
    """Return the resident memory of the process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Stalls:
    """The longest stall of the loop, sampled about every millisecond."""

    longest_s: float = 0.0
    looked_s: float = 0.0  # time of the last sample

    def reset(self) -> None:
        """Reset the result; time before this call does not count."""
        self.longest_s, self.looked_s = 0.0, perf_counter()

    async def watch(self) -> None:
        """Sample until cancelled."""
        self.reset()
        while True:
            await asyncio.sleep(0.001)
            now = perf_counter()
            self.longest_s = max(self.longest_s, now - self.looked_s - 0.001)
            self.looked_s = now


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An active controller on the state of a snapshot."""

    controller: ControllerShell
    metadata: MetadataStateMachine
    voters: VoterSet
    stalls: Stalls
    load_s: float  # from the first access of the disk to the first command
    load_stall_s: float


@asynccontextmanager
async def started(
    runtime: Runtime, folder: str, shape: Shape, clock: Clock
) -> AsyncIterator[Started]:
    """Run a single controller with a snapshot of a cluster of this shape."""
    await DataDirectory.format(runtime, folder, cluster_id=CLUSTER, node_id=CONTROLLER)
    async with _running(runtime, folder, clock) as empty:  # creates the folder of the log
        voters = empty.voters
    # Connections to a bound listener wait; without it they would fail at once.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        values = values_of(shape, address)
        _write_snapshot(Path(folder) / "__cluster_metadata-0", values, voters)
        gc.collect()
        async with _running(runtime, folder, clock) as running:
            yield running


def _write_snapshot(folder: Path, values: Iterator[bytes], voters: VoterSet) -> None:
    snapshot = SnapshotId(Offset(10_000_000), Epoch(1))
    encoder = SnapshotEncoder(snapshot, voters)
    with (folder / checkpoint_name(snapshot)).open("wb") as file:
        file.write(encoder.header())
        for part in slices(values):
            file.write(encoder.batches(part))
        file.write(encoder.footer())


@asynccontextmanager
async def _running(runtime: Runtime, folder: str, clock: Clock) -> AsyncIterator[Started]:
    stalls, begun = Stalls(), clock()
    config = ControllerConfig(session_timeout_ms=DAY_MS)
    async with runtime.tasks.scope("node") as scope:
        watching = scope.spawn(stalls.watch(), name="stalls")
        directory = await DataDirectory.open(runtime, scope, folder)
        metadata = MetadataStateMachine()
        publisher = MetadataPublisher(metadata)
        controller = ControllerShell(runtime, cluster_id=CLUSTER, metadata=metadata, config=config)
        node = await RaftNode.open(
            runtime,
            scope,
            directory,
            cluster_id=CLUSTER,
            config=RaftConfig(node_id=CONTROLLER, directory_id=directory.meta.directory_id),
            state_machine=metadata,
            node_config=RaftNodeConfig(batch_bytes_max=METADATA_BATCH_BYTES),
        )
        controller.attach(node)
        publishing = scope.spawn(publisher.run(), name="publisher")
        await node.start()
        deciding = scope.spawn(controller.run(), name="controller")
        while not controller.is_active:  # noqa: ASYNC110 (no event signals it)
            await asyncio.sleep(0.001)
        load_s, load_stall_s = clock() - begun, stalls.longest_s
        stalls.reset()
        yield Started(
            controller=controller,
            metadata=metadata,
            voters=node.voters,
            stalls=stalls,
            load_s=load_s,
            load_stall_s=load_stall_s,
        )
        watching.cancel()
        controller.close()
        await node.close()
        publisher.close()
        await asyncio.gather(publishing, deciding)
        await directory.close()
