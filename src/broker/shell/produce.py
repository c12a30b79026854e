"""Appends of produce requests, from the assigned offsets to the acknowledgement."""

import asyncio

from ...errors import NotEnoughReplicasAfterAppend, NotLeaderOrFollower, QuorumlogError, TimedOut
from ...ids import Epoch
from ...runtime import Buffer, Clock
from ...storage import AppendOrigin
from ...storage.shell.append_queue import Appended as Appended  # front ends import it from here
from ...storage.shell.append_queue import AppendOutcome as AppendOutcome  # like Appended
from ...storage.shell.append_queue import CompletedAppends, PendingAppend
from ..partition_leader import PartitionLeader
from ..purgatory import Acks, PurgatoryEntry
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
        self._changed()

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
