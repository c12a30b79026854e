"""A replica manager on a simulated disk, driven by metadata records: no quorum, no connections."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from quorumlog.broker import Acks, FetchOutcome, FetchSpec
from quorumlog.broker.config import ReplicationConfig, RequestConfig
from quorumlog.broker.shell.replica_manager import ReplicaManager
from quorumlog.ids import ClusterId, NodeId
from quorumlog.metadata import EMPTY_IMAGE, DeltaBuilder
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.records import Record, decode_all, encode_batch
from quorumlog.runtime import Runtime, Scope
from quorumlog.simulation import Faults, SimNode, SimWorld
from quorumlog.storage import DirectoryConfig
from quorumlog.storage.shell.data_directory import DataDirectory

ME, OTHER = 1, 2
FOLDER = "/data"
T, U = b"t" * 16, b"u" * 16


class LoneBroker:
    """A replica manager with its directory and the metadata log that drives it."""

    def __init__(
        self, runtime: Runtime, directory: DataDirectory, replicas: ReplicaManager
    ) -> None:
        self.runtime = runtime
        self.directory = directory
        self.replicas = replicas
        self._builder = DeltaBuilder(EMPTY_IMAGE)
        self._offset = 0

    def apply(self, *records: pb.MetadataRecord) -> Awaitable[None] | None:
        """Apply one batch of metadata records. Return the result for the replicas."""
        for record in records:
            self._builder.replay(record, offset=self._offset, epoch=1)
            self._offset += 1
        delta = self._builder.build()
        self._builder = DeltaBuilder(delta.after)
        return self.replicas.apply(delta)

    async def append(
        self, value: bytes, *, topic: str = "t", acks: Acks = Acks.ALL, timeout_ms: int = 10_000
    ) -> int:
        clock = self.runtime.clock
        deadline_ms = clock.now_ms() + timeout_ms
        batch = encode_batch([Record(0, 1, None, value)])
        append = await self.replicas.writer.submit(topic, 0, batch, acks=acks, leader_epoch=None)
        return (await append.wait_until(clock, deadline_ms)).base_offset

    async def fetch(
        self,
        *topics: str,
        offset: int = 0,
        max_wait_ms: int = 0,
        epoch: int | None = None,
        principal: str = "",
    ) -> list[FetchOutcome]:
        specs = [FetchSpec(topic, 0, offset, 1 << 20, epoch) for topic in topics or ("t",)]
        return await self.replicas.reader.fetch(
            specs,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            principal=principal,
        )


def topic(
    name: str,
    topic_id: bytes,
    *,
    leader: int = ME,
    replicas: Sequence[int] = (ME,),
    isr: Sequence[int] = (),
    **configs: str,
) -> list[pb.MetadataRecord]:
    """Return the records that create a topic of one partition."""
    partition = pb.PartitionRecord(
        topic_id=topic_id, partition=0, replicas=replicas, isr=isr or replicas, leader=leader
    )
    return [
        pb.MetadataRecord(topic=pb.TopicRecord(topic_id=topic_id, name=name)),
        pb.MetadataRecord(partition=partition),
        *(
            pb.MetadataRecord(
                topic_config=pb.TopicConfigRecord(
                    topic_id=topic_id, name=key.replace("_", "."), value=value
                )
            )
            for key, value in configs.items()
        ),
    ]


@asynccontextmanager
async def broker(
    runtime: Runtime,
    *,
    waits_max: int = 100,
    fetch_waits_max: int = 100,
    config: DirectoryConfig | None = None,
) -> AsyncIterator[LoneBroker]:
    await DataDirectory.format(runtime, FOLDER, cluster_id=ClusterId("c" * 22), node_id=NodeId(ME))
    async with runtime.tasks.scope("test") as scope:
        directory = await DataDirectory.open(runtime, scope, FOLDER, config=config)
        replicas = manager(runtime, scope, directory, waits_max, fetch_waits_max)
        yield LoneBroker(runtime, directory, replicas)
        await replicas.close()
        await directory.close()


def manager(
    runtime: Runtime, scope: Scope, directory: DataDirectory, waits_max: int, fetch_waits_max: int
) -> ReplicaManager:
    return ReplicaManager(
        runtime,
        scope,
        directory,
        NodeId(ME),
        requests=RequestConfig(produce_waits_max=waits_max, fetch_waits_max=fetch_waits_max),
        replication=ReplicationConfig(),
    )


def simulate(
    main: Callable[[Runtime, SimNode], Coroutine[Any, Any, None]], *, faults: Faults | None = None
) -> None:
    with SimWorld(3, faults=faults) as world:
        node = world.node("n1")
        task = node.spawn(lambda runtime: main(runtime, node))
        world.run_until(task, virtual_ms=120_000)
        task.result()


def values(outcome: FetchOutcome) -> list[bytes | None]:
    assert outcome.error is None, outcome
    return [record.value for record in decode_all(outcome.records)]
