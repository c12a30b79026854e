"""One partition's part of a produce request, between its place in the log and its answer."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from ...errors import (
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    QuorumlogError,
    TimedOut,
)
from ...ids import Epoch, Offset
from ...runtime import Clock
from ...storage.shell.channel import Appended
from ..partition import Acks, Wait
from ..requests import AppendResult
from .replica import Replica

Settled: TypeAlias = AppendResult | QuorumlogError
"""What became of an append."""


class PendingAppend:
    """Batches whose place in the log is fixed. `settle` waits for as much as `acks` demands; on the
    hot path `call_when_settled` does the same without a task."""

    __slots__ = ("_acks", "_clock", "_future", "_leader_epoch", "_replica", "_tell", "_wait")

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
        self._tell: Callable[[Settled], None] | None = None  # whoever was promised a call
        self._wait: Wait | None = None  # for the acknowledgement

    async def settle(self, deadline_ms: int) -> AppendResult:
        """Return once acknowledged. Raises TimedOut at `deadline_ms` (Clock.now_ms(); whether the
        records are stored is then unknown), NotLeaderOrFollower when the leadership went meanwhile
        (the same), NotEnoughReplicasAfterAppend, or why nothing was stored."""
        if not self._future.done():  # done is the usual case behind others of the same stream
            await self._until(self._future, deadline_ms)
        appended = self._future.result()
        await self._acknowledged(appended.next_offset, deadline_ms)
        return _result(appended)

    def settled(self) -> Settled | None:
        """Return what became of it, None: that is not known yet."""
        if not self._future.done():
            return None
        try:
            appended = self._future.result()
            if self._acks is not Acks.NONE:
                self._check_leadership()
                if not self._replica.partition.is_acknowledged(self._acks, appended.next_offset):
                    return None
        except QuorumlogError as error:
            return error
        return _result(appended)

    def call_when_settled(self, tell: Callable[[Settled], None]) -> None:
        """Have `tell` called once, on the loop and never from within this call, when it is known
        what became of it; `settled` said that it is not."""
        assert self._tell is None, "one is promised a call already"
        self._tell = tell
        if self._future.done():
            self._await_acknowledgement(self._future)
        else:
            self._future.add_done_callback(self._await_acknowledgement)

    def expire(self) -> Settled:
        """Wait no longer, and call nobody; returns what to tell whoever waited for it."""
        self._tell = None
        if self._wait is not None:
            self._replica.partition.forget(self._wait)
            self._wait = None
        return self.settled() or self._not_in_time()

    def _await_acknowledgement(self, future: "asyncio.Future[Appended]") -> None:
        if self._tell is None:
            return  # it has expired
        outcome = self.settled()
        if outcome is not None:
            self._settle(outcome)
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait = self._replica.partition.wait_for(self._acks, future.result().next_offset, wake)
        wake.add_done_callback(self._acknowledged_or_failed)

    def _acknowledged_or_failed(self, wake: "asyncio.Future[None]") -> None:
        self._wait = None
        error = wake.exception()
        if error is None:
            self._settle(_result(self._future.result()))
        else:
            assert isinstance(error, QuorumlogError), f"a wait ended with {error!r}"
            self._settle(error)

    def _settle(self, outcome: Settled) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(outcome)

    async def _acknowledged(self, next_offset: Offset, deadline_ms: int) -> None:
        if self._acks is Acks.NONE:
            return
        self._check_leadership()
        partition = self._replica.partition
        if partition.is_acknowledged(self._acks, next_offset):
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait = partition.wait_for(self._acks, next_offset, wake)
        try:
            await self._until(wake, deadline_ms)
        finally:
            partition.forget(wait)

    def _check_leadership(self) -> None:
        """What was stored in an earlier leadership may have been cut since, and what is committed
        at its offsets may be another leader's."""
        self._replica.check()
        partition = self._replica.partition
        if partition.leader_epoch != self._leader_epoch:
            raise NotLeaderOrFollower(
                f"leader epoch {self._leader_epoch} was over before this was acknowledged; the"
                " records may be stored or not: repeat",
                topic=partition.topic,
                partition=partition.index,
            )

    async def _until(self, future: "asyncio.Future[Any]", deadline_ms: int) -> None:
        left_ms = max(0, deadline_ms - self._clock.now_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                await future
        except TimeoutError:
            raise self._not_in_time() from None

    def _not_in_time(self) -> QuorumlogError:
        partition = self._replica.partition
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


def _result(appended: Appended) -> AppendResult:
    return AppendResult(
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
        next_offset=appended.next_offset,
    )
