"""An append of a produce request that is awaited by a task."""

import asyncio
from typing import Any

from ...errors import (
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    QuorumlogError,
    TimedOut,
)
from ...ids import Epoch, Offset
from ...runtime import Clock
from ...storage.shell.append_queue import Appended
from ..partition import Acks, Partition
from ..requests import AppendResult
from .replica import Replica


class PendingAppend:
    """An append with assigned offsets; `settle` waits for the acknowledgement."""

    __slots__ = ("_acks", "_clock", "_future", "_leader_epoch", "_replica")

    def __init__(
        self,
        clock: Clock,
        replica: Replica,
        future: "asyncio.Future[Appended]",
        acks: Acks,
        *,
        leader_epoch: Epoch,
    ) -> None:
        self._clock = clock
        self._replica = replica
        self._future = future
        self._acks = acks
        self._leader_epoch = leader_epoch  # in which the offsets were assigned

    async def settle(self, deadline_ms: int) -> AppendResult:
        """Wait for the acknowledgement.

        Raises TimedOut at `deadline_ms` (Clock.now_ms()) or NotLeaderOrFollower at the end of the
        leadership: the outcome is then unknown. Raises NotEnoughReplicasAfterAppend, or the reason
        why nothing was stored.
        """
        if not self._future.done():  # often done, behind other appends of the stream
            await self._until(self._future, deadline_ms)
        appended = self._future.result()
        await self._acknowledged(appended.next_offset, deadline_ms)
        return AppendResult(
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=appended.log_start_offset,
            next_offset=appended.next_offset,
        )

    async def _acknowledged(self, next_offset: Offset, deadline_ms: int) -> None:
        if self._acks is Acks.NONE:
            return
        check_leadership(self._replica, self._leader_epoch)
        partition = self._replica.partition
        if partition.is_acknowledged(self._acks, next_offset):
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait = partition.wait_for(self._acks, next_offset, wake)
        try:
            await self._until(wake, deadline_ms)
        finally:
            partition.cancel(wait)

    async def _until(self, future: "asyncio.Future[Any]", deadline_ms: int) -> None:
        left_ms = max(0, deadline_ms - self._clock.now_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                await future
        except TimeoutError:
            raise timed_out(self._replica.partition) from None


def check_leadership(replica: Replica, leader_epoch: Epoch) -> None:
    """Raise NotLeaderOrFollower, or the reason why the replica does not serve, unless the
    leadership of the epoch continues. Records of an ended leadership may have been truncated, and
    another leader may have committed other records at their offsets."""
    replica.check()
    partition = replica.partition
    if partition.leader_epoch != leader_epoch:
        raise NotLeaderOrFollower(
            f"leader epoch {leader_epoch} ended before the acknowledgement; the outcome is"
            " unknown; retry",
            topic=partition.topic,
            partition=partition.index,
        )


def timed_out(partition: Partition) -> QuorumlogError:
    """Return the error of an append that was not acknowledged in time."""
    if partition.is_under_min_isr:
        return NotEnoughReplicasAfterAppend(
            "stored by the leader only: the ISR is smaller than min.insync.replicas now; not"
            " acknowledged until replicas catch up; retry",
            topic=partition.topic,
            partition=partition.index,
        )
    return TimedOut(
        "not acknowledged in time; the outcome is unknown; retry only if duplicates are harmless",
        topic=partition.topic,
        partition=partition.index,
    )
