"""One partition's part of a produce request, between its place in the log and its answer."""

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
    """Batches whose place in the log is fixed; `settle` waits for as much as `acks` demands."""

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
        self._leader_epoch = leader_epoch  # in which the batches were given their place

    async def settle(self, deadline_ms: int) -> AppendResult:
        """Return once acknowledged. Raises TimedOut at `deadline_ms` (Clock.now_ms(); whether the
        records are stored is then unknown), NotLeaderOrFollower when the leadership went meanwhile
        (the same), NotEnoughReplicasAfterAppend, or why nothing was stored."""
        if not self._future.done():  # done is the usual case behind others of the same stream
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
            raise not_in_time(self._replica.partition) from None


def check_leadership(replica: Replica, leader_epoch: Epoch) -> None:
    """Raise NotLeaderOrFollower, or why nothing is served here, unless the leadership of an epoch
    goes on. What was stored in an earlier one may have been cut since, and what is committed at its
    offsets may be another leader's."""
    replica.check()
    partition = replica.partition
    if partition.leader_epoch != leader_epoch:
        raise NotLeaderOrFollower(
            f"leader epoch {leader_epoch} was over before this was acknowledged; the records may be"
            " stored or not: repeat",
            topic=partition.topic,
            partition=partition.index,
        )


def not_in_time(partition: Partition) -> QuorumlogError:
    """Return what to tell of an append that nobody waits for any longer."""
    if partition.is_under_min_isr:
        return NotEnoughReplicasAfterAppend(
            "stored by the leader, and fewer replicas are in sync now than "
            "min.insync.replicas: acknowledged by none until they are back; repeat",
            topic=partition.topic,
            partition=partition.index,
        )
    return TimedOut(
        "not acknowledged in time; the records may be stored or not, so repeat only if "
        "duplicates are harmless",
        topic=partition.topic,
        partition=partition.index,
    )
