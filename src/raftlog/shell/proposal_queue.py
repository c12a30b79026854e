"""Group commit of proposals: those made during a write share the next batch.

A thousand proposals then cost one encoding, one entry, one request per follower and one fsync. One
proposal's records are in one batch. Its offset is known at once, since nothing else is appended
between it and the queued proposals before it.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from ...errors import Overloaded, QuorumlogError
from ...ids import Epoch, Offset
from ...records.codec import encode_batch
from ...records.record import Record
from ..log_view import Entry

VALUE_OVERHEAD: Final = 96
"""Bytes that a value counts beside its own: at least its share of a batch and header."""


class Proposal:
    """Values that are proposed to the log."""

    __slots__ = ("_error", "_waiters", "base_offset", "epoch", "is_done", "size", "values")

    def __init__(
        self, values: list[bytes], *, base_offset: Offset, epoch: Epoch, size: int
    ) -> None:
        self.values = values
        self.base_offset = base_offset
        self.epoch = epoch
        self.size = size  # bytes that count against the limit
        self.is_done = False  # committed and delivered, or failed
        self._error: QuorumlogError | None = None
        self._waiters: asyncio.Future[None] | list[asyncio.Future[None]] | None = None

    @property
    def next_offset(self) -> Offset:
        """The offset after its last record."""
        return Offset(self.base_offset + len(self.values))

    @property
    def last_offset(self) -> Offset:
        """The offset of its last record."""
        return Offset(self.base_offset + len(self.values) - 1)

    @property
    def error(self) -> QuorumlogError | None:
        """The error, if the proposal has failed."""
        return self._error

    async def wait_committed(self) -> None:
        """Return after the values are committed and were delivered on this node.

        Raise NotController if they were not appended, OutcomeUnknown if the leadership or the node
        ended before the outcome was known, or DiskFailed. Any number of calls may wait;
        cancelling one does not affect the others.
        """
        if not self.is_done:
            await self.done_future()
        if self._error is not None:
            raise self._error

    def done_future(self) -> "asyncio.Future[None]":
        """Return a future that completes with the proposal. Its result is None; see `error`."""
        waiter = asyncio.get_running_loop().create_future()
        if self.is_done:
            waiter.set_result(None)
        elif self._waiters is None:
            self._waiters = waiter
        elif isinstance(self._waiters, list):
            self._waiters.append(waiter)
        else:
            self._waiters = [self._waiters, waiter]
        return waiter

    def finish(self, error: QuorumlogError | None = None) -> None:
        """Complete the proposal. A second call has no effect."""
        if self.is_done:
            return
        self.is_done, self._error = True, error
        waiters, self._waiters = self._waiters, None
        if waiters is None:
            return
        for waiter in waiters if isinstance(waiters, list) else (waiters,):
            if not waiter.done():
                waiter.set_result(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalBatch:
    """The proposals that share one batch."""

    base_offset: Offset
    epoch: Epoch
    proposals: list[Proposal]
    values: list[bytes]  # of all proposals, in order

    @property
    def next_offset(self) -> Offset:
        """The offset after its last record."""
        return Offset(self.base_offset + len(self.values))

    def encode(self, timestamp_ms: int) -> bytes:
        """Return the stored form of the batch."""
        records = [Record(0, timestamp_ms, None, value) for value in self.values]
        return encode_batch(records, base_offset=self.base_offset, leader_epoch=self.epoch)


class ProposalQueue:
    """The uncommitted proposals: first queued, then in the log."""

    __slots__ = ("_batch_bytes_max", "_bytes_max", "_in_log", "_queued", "_size")

    def __init__(self, *, bytes_max: int, batch_bytes_max: int) -> None:
        """Limit the uncommitted bytes to `bytes_max` and a batch to `batch_bytes_max`, or one
        larger proposal each."""
        self._bytes_max = bytes_max
        self._batch_bytes_max = batch_bytes_max
        self._size = 0
        self._queued: deque[Proposal] = deque()
        self._in_log: deque[ProposalBatch] = deque()

    @property
    def has_queued(self) -> bool:
        """Return True if proposals wait to be appended."""
        return bool(self._queued)

    @property
    def is_empty(self) -> bool:
        """Return True if no proposal is queued or uncommitted."""
        return not self._queued and not self._in_log

    def next_offset(self, log_end_offset: Offset) -> Offset:
        """Return the offset of the next proposal, given the log's end."""
        return self._queued[-1].next_offset if self._queued else log_end_offset

    def add(self, values: list[bytes], *, log_end_offset: Offset, epoch: Epoch) -> Proposal:
        """Queue a proposal. Raise Overloaded if the limit is reached."""
        assert values, "a proposal without values"
        size = sum(map(len, values)) + VALUE_OVERHEAD * len(values)
        if self._size and self._size + size > self._bytes_max:
            raise Overloaded(
                f"metadata log: {self._size} bytes of proposals are uncommitted, the limit is"
                f" {self._bytes_max}; retry later"
            )
        base_offset = self.next_offset(log_end_offset)
        proposal = Proposal(values, base_offset=base_offset, epoch=epoch, size=size)
        self._queued.append(proposal)
        self._size += size
        return proposal

    def next_batch(self) -> ProposalBatch:
        """Return the oldest queued proposals as one batch. They stay queued until appended()."""
        proposals: list[Proposal] = []
        values: list[bytes] = []
        size = 0
        for proposal in self._queued:
            size += proposal.size
            if size > self._batch_bytes_max and proposals:
                break
            proposals.append(proposal)
            values += proposal.values
        first = proposals[0]
        return ProposalBatch(
            base_offset=first.base_offset, epoch=first.epoch, proposals=proposals, values=values
        )

    def appended(self, batch: ProposalBatch) -> None:
        """Move the batch from the queue to the log."""
        for _ in batch.proposals:
            self._queued.popleft()
        self._in_log.append(batch)

    def values_at(self, base_offset: Offset, epoch: Epoch) -> list[bytes] | None:
        """Return the values of the batch at an offset if it was proposed here, else None."""
        if self._in_log and self._in_log[0].base_offset == base_offset:
            batch = self._in_log[0]
            return batch.values if batch.epoch == epoch else None
        return None

    def complete_to(self, end_offset: Offset) -> None:
        """Complete the proposals below the offset, which are committed and delivered."""
        while self._in_log and self._in_log[0].next_offset <= end_offset:
            for proposal in self._in_log.popleft().proposals:
                self._size -= proposal.size
                proposal.finish()

    def watch(self, entry: Entry) -> Proposal:
        """Return a proposal for an entry that the core appended. It does not count against the
        limit."""
        assert not self._queued, "it would take the place of what was gathered"
        values = [b""] * entry.count
        proposal = Proposal(values, base_offset=entry.base_offset, epoch=entry.epoch, size=0)
        self._in_log.append(
            ProposalBatch(
                base_offset=entry.base_offset,
                epoch=entry.epoch,
                proposals=[proposal],
                values=values,
            )
        )
        return proposal

    def fail(
        self, committed_end: Offset, *, appended: QuorumlogError, queued: QuorumlogError
    ) -> None:
        """Fail proposals at the end of a leadership.

        Entries in the log at or above `committed_end` may still be committed and fail with
        `appended`. Queued ones are not in the log and fail with `queued`. Entries below will be
        delivered.
        """
        while self._in_log and self._in_log[-1].base_offset >= committed_end:
            for proposal in self._in_log.pop().proposals:
                self._size -= proposal.size
                proposal.finish(appended)
        while self._queued:
            proposal = self._queued.popleft()
            self._size -= proposal.size
            proposal.finish(queued)
