"""Markers of transaction coordinators, appended to partitions that this node leads.

A marker is answered once it is committed. The answer to a repeated or outdated marker stores
nothing, and depends on records that may be uncommitted and so truncated. It waits for them too:
otherwise a deposed leader could end a transaction that stays open under its successor.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from ...errors import InvalidProducerEpoch, InvalidRequest, QuorumlogError
from ...ids import Offset
from ...metadata import INTERNAL_TOPICS
from ...records.control import TransactionMarker, encode_marker
from ...runtime import Clock
from ...storage import AppendOrigin
from ...storage.shell.append_queue import NO_APPEND_TIME, Appended
from ...storage.shell.data_directory import DataDirectory
from ..purgatory import Acks
from ..verification import MarkerAppend
from .hosted_replicas import HostedReplicas
from .produce import DelayedProduce
from .replica import Replica

_LOG: Final = logging.getLogger("quorumlog.transactions")

CoordinatorMarkers: TypeAlias = Callable[
    [int, TransactionMarker, int], Awaitable[QuorumlogError | None]
]
"""Writes a marker to a partition of an internal topic: (partition, marker, deadline_ms)."""

ABORTED: Final = "abort"
COMMITTED: Final = "commit"
REPEATED: Final = "repeated"
OUTDATED: Final = "outdated"
FAILED: Final = "failed"


class PartitionMarkers:
    """The end of transactions in the partitions of one node."""

    def __init__(self, clock: Clock, directory: DataDirectory, hosted: HostedReplicas) -> None:
        self.torn_commits = 0
        self.counts = dict.fromkeys((ABORTED, COMMITTED, REPEATED, OUTDATED, FAILED), 0)
        # By internal topic. Group offsets are part of the group coordinator's state.
        self.coordinators: dict[str, CoordinatorMarkers] = {}
        self._clock = clock
        self._directory = directory
        self._hosted = hosted

    async def write(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        marker: TransactionMarker,
        *,
        deadline_ms: int,
        last_sequence: int = -1,
    ) -> QuorumlogError | None:
        """Append a marker and wait until it is committed, or until `deadline_ms` (Clock.now_ms()).

        With the `last_sequence` of a staged commit, a log without it is reported: an unclean
        election lost acknowledged records. The marker is appended nonetheless.

        None: committed now or earlier. InvalidProducerEpoch: a later transaction of the producer
        has begun or ended here. Both are final, as is MirrorTopic; after any other error the marker
        must be repeated until the topic is deleted. `topic_id`: empty: not checked.
        """
        try:
            outcome = await self._write(
                topic, partition, topic_id, marker, deadline_ms, last_sequence
            )
        except InvalidProducerEpoch as error:
            self.counts[OUTDATED] += 1
            return error
        except QuorumlogError as error:
            self.counts[FAILED] += 1
            return error
        self.counts[outcome] += 1
        return None

    async def _write(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        marker: TransactionMarker,
        deadline_ms: int,
        last_sequence: int,
    ) -> str:
        """Return the outcome as it is counted; raise the error."""
        kind = COMMITTED if marker.is_commit else ABORTED
        if topic in INTERNAL_TOPICS:
            write = self.coordinators.get(topic)
            if write is None:
                raise InvalidRequest("no transaction of a client writes to this topic", topic=topic)
            error = await write(partition, marker, deadline_ms)
            if error is not None:
                raise error
            return kind
        replica = self._hosted.replica_of(topic, partition, topic_id)
        log = await replica.opened()
        try:
            append = self._append(replica, marker, last_sequence)
            appended = await append.wait_until(self._clock, deadline_ms)
        except InvalidProducerEpoch:
            seen = self._end_of(replica, Offset(log.log_end_offset))
            await seen.wait_until(self._clock, deadline_ms)
            raise
        return kind if appended.next_offset > appended.base_offset else REPEATED

    def _append(
        self, replica: Replica, marker: TransactionMarker, last_sequence: int
    ) -> DelayedProduce:
        leader = replica.check()
        state = leader.admit(Acks.ALL)
        leader.marked(marker)
        batch = encode_marker(
            producer_id=marker.producer.producer_id,
            producer_epoch=marker.producer.producer_epoch,
            kind=marker.kind,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._clock.wall_ms(),
        )
        append = DelayedProduce(
            self._directory.completed,
            replica,
            batch,
            Acks.ALL,
            state.leader_epoch,
            AppendOrigin.INTERNAL,
        )
        append.precondition = MarkerAppend(
            marker, leader.marked, last_sequence, partial(self._torn, replica, marker)
        )
        self._directory.submit(replica.log, append)
        return append

    def _torn(self, replica: Replica, marker: TransactionMarker, last: int, held: int) -> None:
        """Report a staged commit of which this log lacks records."""
        self.torn_commits += 1
        _LOG.error(
            "transactions.torn_commit log=%s producer_id=%d last_sequence=%d held=%d",
            replica.partition.name,
            marker.producer.producer_id,
            last,
            held,
        )

    def _end_of(self, replica: Replica, end_offset: Offset) -> DelayedProduce:
        """Return an append without records at `end_offset`: acknowledged once everything below is
        committed."""
        epoch = replica.partition.leader_epoch
        append = DelayedProduce(
            self._directory.completed, replica, b"", Acks.ALL, epoch, AppendOrigin.INTERNAL
        )
        append.resolve(Appended(end_offset, end_offset, NO_APPEND_TIME, end_offset), None)
        return append
