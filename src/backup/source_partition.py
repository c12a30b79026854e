"""Reads of one source partition, in its captured topic: committed batches, ready to be stored."""

import asyncio
from dataclasses import replace
from typing import Final

from ..clients.admin.admin import AsyncAdmin
from ..clients.admin.descriptions import Topic
from ..clients.connection import Connection
from ..clients.mirror.batches import PreparedBatches, prepare
from ..clients.mirror.source import (
    PARTITION_BYTES_MAX,
    ClusterSource,
    PartitionFetch,
    source_name,
    topic_id_text,
)
from ..clients.retry import is_retriable
from ..errors import (
    BackupIncomplete,
    QuorumlogError,
    TimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from .bandwidth import Bandwidth

WAIT_MS: Final = 500  # of a read for records: the high watermark of a new leader lags


class SourcePartition:
    """Reads one partition of a topic id from its leaders."""

    def __init__(
        self,
        connection: Connection,
        topic: Topic,
        partition: int,
        *,
        cluster: str,
        bandwidth: Bandwidth,
    ) -> None:
        self._connection = connection
        self._source = ClusterSource(connection, fetch_bytes_max=PARTITION_BYTES_MAX)
        self._admin = AsyncAdmin(connection)
        self._topic = topic
        self._place = (topic.name, partition)
        self._name = source_name(cluster, topic_id_text(topic.topic_id))
        self._bandwidth = bandwidth

    async def read(self, offset: int, end: int) -> PreparedBatches:
        """Return the next batches of [offset, end), up to PARTITION_BYTES_MAX or one larger batch;
        `next_offset` is above `offset`.

        Raises OffsetOutOfRange if the log starts above the offset, BackupIncomplete if the topic
        was deleted, TimedOut if its end is below `end` for the call timeout.
        """
        deadline_ms = self._connection.deadline_ms()
        while True:
            found = await self._connection.repeat(
                lambda _: self._fetch(offset, end, PARTITION_BYTES_MAX),
                deadline_ms=deadline_ms,
                retry_on=is_retriable,
            )
            if found.next_offset > offset:
                await self._bandwidth.spend(found.size)
                return found
            if self._connection.runtime.clock.now_ms() >= deadline_ms:
                raise TimedOut(
                    f"the leader returns no records from offset {offset} on, below the end {end} at"
                    " the start of the backup; check its replicas with `quorumlog explain replica`",
                    topic=self._place[0],
                    partition=self._place[1],
                )

    async def batch_before(self, offset: int) -> bytes:
        """Return the batch that contains the offset before this one, as `read` returns it; no bytes
        if there is none."""
        found = await self._connection.repeat(
            lambda _: self._fetch(offset - 1, offset, 1, whole=True)
        )
        return found.records

    async def start(self) -> int:
        """Return the log start offset."""
        start, _ = await self._source.bounds(self._place)
        return start

    async def _fetch(
        self, offset: int, end: int, max_bytes: int, *, whole: bool = False
    ) -> PreparedBatches:
        """Read once. `whole`: do not cut a batch that begins before the offset."""
        try:
            address, epoch = await self._source.leadership(self._place)
            want = PartitionFetch(self._place, offset, epoch, max_bytes, self._name)
            (piece,) = await self._source.fetch(address, [want], max_wait_ms=WAIT_MS)
            if piece.error is not None:
                raise piece.error
        except (UnknownTopicId, UnknownTopicOrPartition) as error:
            self._source.leader_failed(self._place, error)
            await self._check_topic()
            raise
        except QuorumlogError as error:
            self._source.leader_failed(self._place, error)
            raise
        found = prepare(piece.records, 0 if whole else offset, end)
        reached = min(end, max(found.next_offset, piece.next_offset))
        if reached > found.next_offset:  # markers, aborted or compacted batches follow
            found = replace(found, next_offset=reached)
        await asyncio.sleep(0)  # the responses of other partitions
        return found

    async def _check_topic(self) -> None:
        """Raise BackupIncomplete if the topic was deleted."""
        name = self._place[0]
        try:
            now = await self._admin.describe_topic(name)
        except (UnknownTopicId, UnknownTopicOrPartition):
            raise BackupIncomplete("it was deleted during the backup", topic=name) from None
        if now.topic_id != self._topic.topic_id:
            raise BackupIncomplete("it was deleted and created again during the backup", topic=name)
