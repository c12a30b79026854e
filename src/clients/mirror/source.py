"""The source cluster of a mirror: its topics, and batches of its partitions."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ...errors import InvalidRequest, QuorumlogError
from ...proto import log_pb2
from ...runtime import Buffer
from ...runtime.error_detail import decode_error
from ..admin.admin import AsyncAdmin
from ..connection import Connection
from ..offsets import PartitionLike, look_up
from ..topology import invalid_response
from .messages import FETCH, FetchedBatches

FETCH_BYTES_MAX: Final = 8 << 20  # of one response, for all partitions
PARTITION_BYTES_MAX: Final = 4 << 20
ANSWER_MS: Final = 10_000  # time limit of a response, beyond the broker's wait for records


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic of the source."""

    name: str
    topic_id: str  # empty if the source has none
    partitions: int
    configs: Mapping[str, str]  # configs set for it


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """A fetch of one partition."""

    place: PartitionLike
    offset: int
    epoch: int  # expected leader epoch
    max_bytes: int = PARTITION_BYTES_MAX  # one larger batch is returned nevertheless
    source: str = ""  # the copy's mirror.source; its topic id is checked; empty: any


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    """A fetch result of one partition."""

    place: PartitionLike
    records: Buffer = b""  # whole batches; the first may begin before the requested offset
    start: int = -1  # log start offset, -1: unknown
    end: int = -1  # end of the committed records, -1: unknown
    next_offset: int = -1  # of the next fetch, -1: after the last batch
    error: QuorumlogError | None = None


class MirrorSource(Protocol):
    """A cluster with topics to mirror. Every call ends within seconds."""

    async def cluster_id(self) -> str:
        """Return the cluster's id."""

    async def topics(self) -> Sequence[SourceTopic]:
        """Return its topics by name, without internal ones."""

    async def leadership(self, place: PartitionLike) -> tuple[str, int]:
        """Return a partition's leader address and leader epoch."""

    async def fetch(
        self, address: str, wants: Sequence[PartitionFetch], *, max_wait_ms: int
    ) -> list[PartitionData]:
        """Fetch partitions led at an address; raise only errors that concern all of them."""

    async def bounds(self, place: PartitionLike) -> tuple[int, int]:
        """Return a partition's log start offset and the end of its committed records."""

    def leader_failed(self, place: PartitionLike, error: QuorumlogError | None = None) -> None:
        """Update the leader of a partition after its error; None: look up the leader again."""


class ClusterSource:
    """A quorumlog cluster as a source, over gRPC."""

    def __init__(self, connection: Connection, *, fetch_bytes_max: int = FETCH_BYTES_MAX) -> None:
        """`fetch_bytes_max` limits one response for all partitions; one larger batch is returned
        nevertheless."""
        self._connection = connection
        self._fetch_bytes_max = fetch_bytes_max
        self._admin = AsyncAdmin(connection)

    async def cluster_id(self) -> str:
        """See `MirrorSource`."""
        return (await self._admin.describe_cluster()).cluster_id

    async def topics(self) -> Sequence[SourceTopic]:
        """See `MirrorSource`."""
        return [
            SourceTopic(
                name=topic.name,
                topic_id=topic_id_text(topic.topic_id),
                partitions=len(topic.partitions),
                configs=topic.configs,
            )
            for topic in await self._admin.describe_topics()
            if not topic.name.startswith("__")
        ]

    async def leadership(self, place: PartitionLike) -> tuple[str, int]:
        """See `MirrorSource`."""
        leader = await self._connection.leader(*place)
        return leader.address, leader.epoch

    async def fetch(
        self, address: str, wants: Sequence[PartitionFetch], *, max_wait_ms: int
    ) -> list[PartitionData]:
        """See `MirrorSource`."""
        request = log_pb2.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._fetch_bytes_max,
            isolation=log_pb2.ISOLATION_READ_COMMITTED,
        )
        for want in wants:
            topic, partition = want.place
            leader = self._connection.topology.leader(topic, partition)
            topic_id = parse_topic_id(want.source) or (b"" if leader is None else leader.topic_id)
            request.partitions.add(
                topic=topic,
                partition=partition,
                offset=want.offset,
                max_bytes=want.max_bytes,
                leader_epoch=want.epoch,
                topic_id=topic_id,
            )
        channel = self._connection.channel(address)
        answer: FetchedBatches = await channel.call(
            FETCH, request, timeout_ms=max_wait_ms + ANSWER_MS
        )
        found = answer.results
        if [(each.topic, each.partition) for each, _ in found] != [w.place for w in wants]:
            raise invalid_response("returned other partitions than requested")
        return [_piece(result, records) for result, records in found]

    async def bounds(self, place: PartitionLike) -> tuple[int, int]:
        """See `MirrorSource`."""
        first = await look_up(self._connection, {place: "earliest"})
        end = await look_up(self._connection, {place: "latest"}, isolation_level="read_committed")
        return first[place], end[place]

    def leader_failed(self, place: PartitionLike, error: QuorumlogError | None = None) -> None:
        """See `MirrorSource`."""
        if error is None:
            self._connection.topology.mark_stale(place[0])
        else:
            self._connection.update_leader(*place, error)


def source_name(cluster_id: str, topic_id: str) -> str:
    """Return the mirror.source of a topic's copies."""
    if not cluster_id:
        raise InvalidRequest("the source has no cluster id, which mirror.source needs")
    return f"{cluster_id}/{topic_id}" if topic_id else cluster_id


def topic_id_text(topic_id: bytes) -> str:
    """Return the topic id as written in a mirror.source."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_topic_id(source: str) -> bytes:
    """Return the topic id in a mirror.source; empty if it has none."""
    text = source.partition("/")[2]
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _piece(result: log_pb2.FetchResult, records: Buffer) -> PartitionData:
    place = (result.topic, result.partition)
    if result.HasField("error"):
        return PartitionData(place=place, error=decode_error(result.error))
    return PartitionData(
        place=place,
        records=records,
        start=result.log_start_offset,
        end=result.last_stable_offset,
        next_offset=result.next_offset,
    )
