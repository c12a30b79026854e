"""The target cluster of a mirror: mirror topics, and appends at the offsets of their source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import InvalidConfig, QuorumlogError
from ...proto import mirror_pb2 as pb
from ...runtime import Buffer
from ...runtime.error_detail import decode_error
from ...settings.query_groups import RETENTION_HOLDS
from ..admin.admin import AsyncAdmin
from ..admin.descriptions import Topic
from ..connection import Connection
from ..offsets import PartitionLike
from ..topology import invalid_response
from .messages import APPEND, encode_append
from .source import ClusterSource, PartitionData, PartitionFetch, SourceTopic

SOURCE: Final = "mirror.source"
OWN: Final = frozenset(
    {
        SOURCE,
        RETENTION_HOLDS,
        "flush.policy",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Configs that a copy does not take from its source: they concern replication in its cluster."""

APPEND_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """Batches to append to one partition's copy."""

    place: PartitionLike
    source: str
    copy_end: int  # the offset to append at
    parts: Sequence[Buffer] = ()  # of whole batches; empty: only query the copy's bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBounds:
    """The bounds of a copy, -1 if unknown, and the error if nothing was appended."""

    place: PartitionLike
    start: int
    end: int
    high_watermark: int
    error: QuorumlogError | None = None


class Target:
    """A quorumlog cluster with mirror topics."""

    def __init__(self, connection: Connection, *, replication: int | None = None) -> None:
        """`replication` is the factor of created topics; None: the cluster's default."""
        self._connection = connection
        self._admin = AsyncAdmin(connection)
        self._replication = replication
        self._reader = ClusterSource(connection)

    async def topics(self) -> Mapping[str, Topic]:
        """Return its topics by name."""
        return {topic.name: topic for topic in await self._admin.describe_topics()}

    async def create(self, topic: SourceTopic, source: str) -> None:
        """Create a mirror of a topic."""
        configs = {name: value for name, value in topic.configs.items() if name not in OWN}
        await self._admin.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication=self._replication,
            configs={**configs, SOURCE: source},
        )

    async def follow(self, mirror: Topic, topic: SourceTopic) -> list[str]:
        """Apply the source's partitions and configs to a mirror; return the changes as
        sentences."""
        said = []
        if len(mirror.partitions) < topic.partitions:
            await self._admin.create_partitions(mirror.name, topic.partitions)
            said.append(f"{mirror.name} has {topic.partitions} partitions now, like its source")
        wanted = {name: value for name, value in topic.configs.items() if name not in OWN}
        present = {name: value for name, value in mirror.configs.items() if name not in OWN}
        if wanted == present:
            return said
        try:
            await self._admin.alter_configs(
                mirror.name,
                {name: value for name, value in wanted.items() if present.get(name) != value},
                delete=[name for name in present if name not in wanted],
            )
        except InvalidConfig as error:
            said.append(f"{mirror.name} cannot have its source's configs: {error}")
        else:
            said.append(f"{mirror.name} has its source's configs")
        return said

    async def leader(self, place: PartitionLike) -> str:
        """Return the address of a partition's leader."""
        return (await self._connection.leader(*place)).address

    async def append(self, address: str, chunks: Sequence[CopyChunk]) -> list[CopyBounds]:
        """Append to copies led at an address and return their bounds.

        Raises only errors that concern all of them.
        """
        partitions = []
        for chunk in chunks:
            topic, partition = chunk.place
            leader = self._connection.topology.leader(topic, partition)
            part = pb.MirrorPartition(
                topic=topic,
                partition=partition,
                topic_id=b"" if leader is None else leader.topic_id,
                source=chunk.source,
                log_end_offset=chunk.copy_end,
            )
            partitions.append((part, chunk.parts))
        request = encode_append(APPEND_MS, partitions)
        channel = self._connection.channel(address)
        answer = await channel.call(APPEND, request, timeout_ms=APPEND_MS + 5_000)
        if [(each.topic, each.partition) for each in answer.results] != [c.place for c in chunks]:
            raise invalid_response("returned other partitions than requested")
        return [_copied(each) for each in answer.results]

    async def read(self, place: PartitionLike, offset: int) -> PartitionData:
        """Read the batch of a copy that contains an offset."""
        address, epoch = await self._reader.leadership(place)
        wants = [PartitionFetch(place, offset, epoch, 1)]
        (piece,) = await self._reader.fetch(address, wants, max_wait_ms=0)
        return piece

    async def delete_before(self, topic: str, starts: Mapping[int, int]) -> None:
        """Advance the log start offsets of a topic's copies."""
        await self._admin.delete_records(topic, starts)

    def leader_failed(self, place: PartitionLike, error: QuorumlogError | None = None) -> None:
        """Update the leader of a partition after its error; None: look up the leader again."""
        if error is None:
            self._connection.topology.mark_stale(place[0])
        else:
            self._connection.update_leader(*place, error)


def _copied(result: pb.MirrorResult) -> CopyBounds:
    return CopyBounds(
        place=(result.topic, result.partition),
        start=result.log_start_offset,
        end=result.log_end_offset,
        high_watermark=result.high_watermark,
        error=decode_error(result.error) if result.HasField("error") else None,
    )
