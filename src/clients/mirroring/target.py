"""The side that is copied to: mirror topics, and appends at the offsets of their source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import InvalidConfig, QuorumlogError
from ...proto import mirror_pb2 as pb
from ...runtime import Buffer
from ...runtime.error_detail import decode_error
from ...settings.query_groups import RETENTION_HOLDS
from ..administration.admin import AsyncAdmin
from ..administration.descriptions import Topic
from ..answers import senseless
from ..connection import Connection
from ..offsets import Place
from .envelopes import APPEND, encode_append
from .source import Piece, QuorumlogSource, SourceTopic, Want

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
"""Configs of a copy that are not its source's: they are about the copies of one cluster."""

APPEND_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """Batches for one partition's copy."""

    place: Place
    source: str
    copy_end: int  # where they are to be appended
    parts: Sequence[Buffer] = ()  # of whole batches; none: only ask how far the copy is


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """How far a copy is, -1 where that is unknown; and why nothing was appended."""

    place: Place
    start: int
    end: int
    high_watermark: int
    error: QuorumlogError | None = None


class Target:
    """A quorumlog cluster with mirror topics."""

    def __init__(self, connection: Connection, *, replication: int | None = None) -> None:
        """`replication`: of topics that are made; None: the cluster's default."""
        self._connection = connection
        self._admin = AsyncAdmin(connection)
        self._replication = replication
        self._reader = QuorumlogSource(connection)

    async def topics(self) -> Mapping[str, Topic]:
        """Return its topics by name."""
        return {topic.name: topic for topic in await self._admin.describe_topics()}

    async def create(self, topic: SourceTopic, source: str) -> None:
        """Make a mirror of a topic."""
        configs = {name: value for name, value in topic.configs.items() if name not in OWN}
        await self._admin.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication=self._replication,
            configs={**configs, SOURCE: source},
        )

    async def follow(self, mirror: Topic, topic: SourceTopic) -> list[str]:
        """Give a mirror the partitions and configs of its source; returns what was changed, and
        what could not be."""
        said = []
        if len(mirror.partitions) < topic.partitions:
            await self._admin.create_partitions(mirror.name, topic.partitions)
            said.append(f"{mirror.name} has {topic.partitions} partitions now, as its source")
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

    async def leader(self, place: Place) -> str:
        """Return where a partition is written now; raises why nowhere."""
        return (await self._connection.leader(*place)).address

    async def append(self, address: str, chunks: Sequence[Chunk]) -> list[Copied]:
        """Append to copies that are led there, and say how far each is; raises only what concerns
        all of them."""
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
            raise senseless("answers other partitions than it was sent")
        return [_copied(each) for each in answer.results]

    async def read(self, place: Place, offset: int) -> Piece:
        """Read the batch of a copy that holds an offset."""
        address, epoch = await self._reader.leadership(place)
        wants = [Want(place, offset, epoch, 1)]
        (piece,) = await self._reader.fetch(address, wants, max_wait_ms=0)
        return piece

    async def delete_before(self, topic: str, starts: Mapping[int, int]) -> None:
        """Let copies of a topic start no lower than their sources do."""
        await self._admin.delete_records(topic, starts)

    def learn(self, place: Place, error: QuorumlogError) -> None:
        """A partition was refused: look anew who leads it."""
        self._connection.learn(*place, error)

    def doubt(self, place: Place) -> None:
        """What is known of who leads a partition may be old."""
        self._connection.doubt(place[0])


def _copied(result: pb.MirrorResult) -> Copied:
    return Copied(
        place=(result.topic, result.partition),
        start=result.log_start_offset,
        end=result.log_end_offset,
        high_watermark=result.high_watermark,
        error=decode_error(result.error) if result.HasField("error") else None,
    )
