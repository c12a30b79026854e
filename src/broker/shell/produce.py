"""Appends of produce requests: admission, assigned offsets, acknowledgement.

Each partition has one writer: the data directory's owner task, in the order of `submit`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ...errors import NotEnoughReplicasAfterAppend, NotLeaderOrFollower, QuorumlogError, TimedOut
from ...ids import Epoch
from ...metadata import check_not_internal
from ...records import check_size
from ...runtime import Buffer, Clock
from ...storage import AppendOrigin
from ...storage.shell.append_queue import Appended as Appended  # front ends import it from here
from ...storage.shell.append_queue import AppendOutcome as AppendOutcome  # like Appended
from ...storage.shell.append_queue import CompletedAppends, PendingAppend
from ...storage.shell.data_directory import DataDirectory
from ..isr import LeaderAndIsr
from ..partition_leader import PartitionLeader
from ..purgatory import Acks, PurgatoryEntry
from ..requests import refuse_transactional
from .hosted_replicas import HostedReplicas
from .metrics import ProduceMetrics
from .replica import Replica


class DelayedProduce(PendingAppend):
    """An append that completes with the acknowledgement of its partition."""

    __slots__ = ("_acks", "_replica", "_wait", "is_acknowledged")

    def __init__(
        self,
        completed: CompletedAppends,
        replica: Replica,
        batches: Buffer,
        acks: Acks,
        leader_epoch: Epoch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        """`leader_epoch`: in which the offsets are assigned."""
        flush = acks is not Acks.NONE and replica.flushes
        super().__init__(completed, batches, leader_epoch, origin, flush)
        self._replica = replica
        self._acks = acks
        self._wait: PurgatoryEntry | None = None  # for the acknowledgement
        self.is_acknowledged = False  # the partition has acknowledged it

    def acknowledge(self) -> None:
        """Record the acknowledgement of the partition."""
        self.is_acknowledged = True
        self._wait = None  # it refers to this append: a cycle, which only a collection would free
        self._changed()

    def fail(self, error: QuorumlogError) -> None:
        """Record that the append, or the wait for its acknowledgement, has failed."""
        self._wait = None  # as above
        super().fail(error)

    def outcome(self) -> AppendOutcome | None:
        """Return the outcome, or None if it is not known yet."""
        error, appended = self.error, self.appended
        if error is not None:
            return error
        if appended is None:
            return None
        if self._acks is Acks.NONE or self.is_acknowledged:
            return appended
        try:
            leader = self._check_leadership()
        except QuorumlogError as lost:
            return lost
        return appended if leader.is_acknowledged(self._acks, appended.next_offset) else None

    def watch(self) -> None:
        """Wait for the acknowledgement if the log has stored the batches."""
        appended = self.appended
        if self._wait is None and appended is not None:
            leader = self._check_leadership()
            self._wait = leader.wait_for(self._acks, appended.next_offset, self)

    def cancel(self) -> None:
        """Stop waiting, without a callback."""
        super().cancel()
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None

    def expire(self) -> AppendOutcome:
        """Stop waiting, without a callback; return the outcome for the caller."""
        self.cancel()
        return self.outcome() or self._timed_out()

    async def wait_until(self, clock: Clock, deadline_ms: int) -> Appended:
        """Wait for the acknowledgement.

        Raises TimedOut at `deadline_ms` (Clock.now_ms()) or NotLeaderOrFollower at the end of the
        leadership: the outcome is then unknown. Raises NotEnoughReplicasAfterAppend, or the reason
        why nothing was stored.
        """
        if self.outcome() is not None:  # often done, behind other appends of the stream
            return await self.wait()
        left_ms = max(0, deadline_ms - clock.now_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await self.wait()
        except TimeoutError:
            raise self._timed_out() from None

    def _check_leadership(self) -> PartitionLeader:
        """Return the leadership in which the offsets were assigned.

        Raises NotLeaderOrFollower if it has ended, or the error of a failed replica. Records of an
        ended leadership may have been truncated, and another leader may have committed other
        records at their offsets.
        """
        leader = self._replica.check()
        partition = self._replica.partition
        if partition.leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollower(
                f"leader epoch {self.leader_epoch} ended before the acknowledgement; the outcome is"
                " unknown; retry",
                topic=partition.topic,
                partition=partition.index,
            )
        return leader

    def _timed_out(self) -> QuorumlogError:
        """Return the error of an append that was not acknowledged in time."""
        partition = self._replica.partition
        if partition.leader is not None and partition.leader.isr.is_under_min_isr:
            return NotEnoughReplicasAfterAppend(
                "stored by the leader only: the ISR is smaller than min.insync.replicas now; not"
                " acknowledged until replicas catch up; retry",
                topic=partition.topic,
                partition=partition.index,
            )
        return TimedOut(
            "not acknowledged in time; the outcome is unknown; retry only if duplicates are"
            " harmless",
            topic=partition.topic,
            partition=partition.index,
        )


class ReplicaWriter:
    """Appends of clients to the replicas of one node."""

    def __init__(
        self,
        directory: DataDirectory,
        hosted: HostedReplicas,
        *,
        has_lapsed: Callable[[], bool],
    ) -> None:
        """`has_lapsed` returns True if only appends that need all in-sync replicas are accepted."""
        self.figures = ProduceMetrics()
        self._directory = directory
        self._hosted = hosted
        self._has_lapsed = has_lapsed

    async def check_append(
        self, topic: str, partition: int, *, size: int, acks: Acks, topic_id: bytes = b""
    ) -> None:
        """Raise the error with which an append of one batch would be refused now, as far as that is
        known without its bytes. Waits only while the log opens."""
        check_not_internal(topic)
        replica = self._hosted.replica_of(topic, partition, topic_id)
        log = await replica.opened()
        self._admit(replica, acks, None)
        check_size(size, log.config.message_bytes_max)

    async def submit(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        *,
        acks: Acks,
        leader_epoch: int | None,
        topic_id: bytes = b"",
    ) -> DelayedProduce:
        """Assign offsets to whole batches in a partition's log, in the order of calls.

        Waits only while the log opens. After an error, nothing is stored; later errors come from
        `DelayedProduce.wait_until`.
        """
        check_not_internal(topic)
        replica = self._hosted.replica_of(topic, partition, topic_id)
        await replica.opened()
        return self._append(replica, records, acks, leader_epoch)

    def submit_nowait(
        self, topic: str, partition: int, records: Buffer, acks: Acks, topic_id: bytes = b""
    ) -> DelayedProduce:
        """Append as `submit` does to an open log; see `opening`. Raises the errors of `submit`, and
        the error with which the log failed to open."""
        replica = self._hosted.replica_of(topic, partition, topic_id)
        if replica.is_internal:
            check_not_internal(topic)
        if not replica.is_open:
            replica.check_open()
        return self._append(replica, records, acks, None)

    def opening(self, topic: str, partition: int) -> Coroutine[Any, Any, None] | None:
        """Return an awaitable for the open of the log before `submit_nowait`, or None. It raises
        nothing."""
        replica = self._hosted.find(topic, partition)
        if replica is None or replica.is_open:
            return None
        replica.begin_open()
        return _wait_open(replica)

    def _append(
        self, replica: Replica, records: Buffer, acks: Acks, leader_epoch: int | None
    ) -> DelayedProduce:
        """Queue batches for an open log."""
        refuse_transactional(records)
        state = self._admit(replica, acks, leader_epoch)
        append = DelayedProduce(
            self._directory.completed, replica, records, acks, state.leader_epoch
        )
        self._directory.submit(replica.log, append)
        return append

    def _admit(self, replica: Replica, acks: Acks, leader_epoch: int | None) -> LeaderAndIsr:
        leader = replica.partition.check_leader(leader_epoch)
        return leader.admit(acks, lapsed=acks is not Acks.ALL and self._has_lapsed())


async def _wait_open(replica: Replica) -> None:
    with suppress(QuorumlogError):  # the next request gets the error
        await replica.opened()
