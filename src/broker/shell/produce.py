"""Appends of produce requests, from the assigned offsets to the acknowledgement.

`DelayedProduce` is awaited by a task. `DirectAppend` calls back instead: no future, task or timer
is created for it. The direct appends that the log has written in one iteration of the event loop
are settled together in the next one, when the high watermark has moved as well. Callers of direct
appends measure time, and call `expire`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...errors import NotEnoughReplicasAfterAppend, NotLeaderOrFollower, QuorumlogError, TimedOut
from ...ids import Epoch, Offset
from ...runtime import Clock
from ...storage.shell.append_queue import Appended
from ..partition import Acks, Partition
from ..requests import AppendResult
from ..waits import Wait
from .replica import Replica


class DelayedProduce:
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


_LOG: Final = logging.getLogger("quorumlog.broker")

Settled: TypeAlias = Appended | QuorumlogError
"""The outcome of an append."""

SettledCallback: TypeAlias = Callable[[Settled], None]


class Settling:
    """Appends to settle in the next iteration of the event loop."""

    __slots__ = ("_news",)

    def __init__(self) -> None:
        self._news: list[DirectAppend] = []

    def add(self, append: "DirectAppend") -> None:
        """Settle an append in the next iteration."""
        if not self._news:
            asyncio.get_running_loop().call_soon(self._settle_all)
        self._news.append(append)

    def _settle_all(self) -> None:
        news, self._news = self._news, []
        for append in news:
            try:
                append.settle()
            except Exception:  # a bug; the other appends are settled nonetheless
                _LOG.exception("broker.append_not_told")


class DirectAppend:
    """An append with assigned offsets. The log resolves it as it would a future."""

    __slots__ = (
        "_acks",
        "_appended",
        "_callback",
        "_error",
        "_leader_epoch",
        "_replica",
        "_settling",
        "_wait",
        "is_acknowledged",
    )

    def __init__(
        self, settling: Settling, replica: Replica, acks: Acks, leader_epoch: Epoch
    ) -> None:
        self._settling = settling
        self._replica = replica
        self._acks = acks
        self._leader_epoch = leader_epoch  # in which the offsets are assigned
        self._appended: Appended | None = None
        self._error: Exception | None = None
        self._callback: SettledCallback | None = None  # the callback that awaits the outcome
        self._wait: Wait | None = None  # for the acknowledgement
        self.is_acknowledged = False  # the partition has acknowledged it

    # --- for the log ---------------------------------------------------------------------------

    def done(self) -> bool:
        """Return True if the log has stored the append or failed."""
        return self._appended is not None or self._error is not None

    def set_result(self, appended: Appended) -> None:
        """Record that the log has stored the batches."""
        self._appended = appended
        if self._callback is not None:
            self._settling.add(self)

    def set_exception(self, error: Exception) -> None:
        """Record that the log or the acknowledgement has failed."""
        self._error = error
        if self._callback is not None:
            self._settling.add(self)

    def acknowledge(self) -> None:
        """Record the acknowledgement of the partition."""
        self.is_acknowledged = True
        if self._callback is not None:
            self._settling.add(self)

    # --- producers --------------------------------------------------------------------------------

    def settled(self) -> Settled | None:
        """Return the outcome, or None if it is not known yet."""
        error, appended = self._error, self._appended
        if error is not None:
            if isinstance(error, QuorumlogError):
                return error
            raise error
        if appended is None:
            return None
        if self._acks is Acks.NONE or self.is_acknowledged:
            return appended
        try:
            check_leadership(self._replica, self._leader_epoch)
        except QuorumlogError as lost:
            return lost
        partition = self._replica.partition
        return appended if partition.is_acknowledged(self._acks, appended.next_offset) else None

    def call_when_settled(self, callback: SettledCallback) -> None:
        """Call `callback` once with the outcome, on the loop and never within this call. Only after
        `settled` has returned None."""
        assert self._callback is None, "a callback is set already"
        self._callback = callback
        if self._appended is not None:
            self._await_acknowledgement(self._appended)

    def expire(self) -> Settled:
        """Stop waiting, without a callback; return the outcome for the caller."""
        self._callback = None
        if self._wait is not None:
            self._replica.partition.cancel(self._wait)
            self._wait = None
        return self.settled() or timed_out(self._replica.partition)

    def settle(self) -> None:
        """Handle news: settle, or wait for the acknowledgement."""
        callback = self._callback
        if callback is None:
            return  # expired
        outcome = self.settled()
        if outcome is not None:
            self._callback = self._wait = None
            callback(outcome)
        elif self._wait is None and self._appended is not None:
            self._await_acknowledgement(self._appended)

    def _await_acknowledgement(self, appended: Appended) -> None:
        self._wait = self._replica.partition.wait_for(
            self._acks, appended.next_offset, _Acknowledgement(self)
        )


class _Acknowledgement:
    """The token of an acknowledgement wait; the partition resolves it as it would a future."""

    __slots__ = ("_append", "_is_done")

    def __init__(self, append: DirectAppend) -> None:
        self._append = append
        self._is_done = False

    def done(self) -> bool:
        """Return True if the partition has resolved the wait."""
        return self._is_done

    def set_result(self, _: None) -> None:
        """Acknowledge the append."""
        self._is_done = True
        self._append.acknowledge()

    def set_exception(self, error: Exception) -> None:
        """Fail the append."""
        self._is_done = True
        self._append.set_exception(error)
