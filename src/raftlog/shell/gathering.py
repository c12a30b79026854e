"""Proposals on their way into the log: those made while a write is in flight share one batch.

So a thousand proposals cost one encoding, one entry, one request a follower and one fsync. A
proposal's records are never spread over two batches. Its offset is known at once: nothing else is
appended between it and the gathered ones before it.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from ...errors import Overloaded, QuorumlogError
from ...ids import Epoch, Offset
from ...records.codec import encode_batch
from ...records.record import Record
from ..core.log_view import Entry

VALUE_OVERHEAD: Final = 96
"""Bytes that a value counts for beside its own: at least its share of any batch and its header."""


class Proposal:
    """Values on their way to being committed."""

    __slots__ = ("_error", "_waiters", "base_offset", "epoch", "is_done", "size", "values")

    def __init__(
        self, values: list[bytes], *, base_offset: Offset, epoch: Epoch, size: int
    ) -> None:
        self.values = values
        self.base_offset = base_offset
        self.epoch = epoch
        self.size = size  # bytes that it counts for in the bound
        self.is_done = False  # committed and delivered, or given up
        self._error: QuorumlogError | None = None
        self._waiters: asyncio.Future[None] | list[asyncio.Future[None]] | None = None

    @property
    def next_offset(self) -> Offset:
        """Offset after its last record."""
        return Offset(self.base_offset + len(self.values))

    @property
    def last_offset(self) -> Offset:
        """Offset of its last record."""
        return Offset(self.base_offset + len(self.values) - 1)

    @property
    def error(self) -> QuorumlogError | None:
        """Why it was given up, once it is done."""
        return self._error

    async def wait_committed(self) -> None:
        """Return once the values are committed and were delivered here.

        Raises NotController: certainly not appended; Lost: the leadership or the node ended before
        the outcome was known; StorageError. Any number may wait; a cancelled one takes nothing
        along.
        """
        if not self.is_done:
            await self.done_future()
        if self._error is not None:
            raise self._error

    def done_future(self) -> "asyncio.Future[None]":
        """Return a future that is done when this is; its result says nothing, `error` does."""
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
        """Let those who wait go on; a second call does nothing."""
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
class GatheredBatch:
    """Proposals that share one batch."""

    base_offset: Offset
    epoch: Epoch
    proposals: list[Proposal]
    values: list[bytes]  # of all of them, in order

    @property
    def next_offset(self) -> Offset:
        """Offset after its last record."""
        return Offset(self.base_offset + len(self.values))

    def encode(self, timestamp_ms: int) -> bytes:
        """Return the batch as it is stored."""
        records = [Record(0, timestamp_ms, None, value) for value in self.values]
        return encode_batch(records, base_offset=self.base_offset, leader_epoch=self.epoch)


class Gathering:
    """What was proposed and is not committed yet: first gathered, then in the log."""

    __slots__ = ("_batch_bytes_max", "_bytes_max", "_gathered", "_in_log", "_size")

    def __init__(self, *, bytes_max: int, batch_bytes_max: int) -> None:
        """Hold at most `bytes_max`, or one larger proposal; make batches of `batch_bytes_max`, or
        of one larger proposal."""
        self._bytes_max = bytes_max
        self._batch_bytes_max = batch_bytes_max
        self._size = 0
        self._gathered: deque[Proposal] = deque()
        self._in_log: deque[GatheredBatch] = deque()

    @property
    def has_gathered(self) -> bool:
        """Whether proposals wait to be appended."""
        return bool(self._gathered)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be appended or committed."""
        return not self._gathered and not self._in_log

    def next_offset(self, log_end_offset: Offset) -> Offset:
        """Where the next proposal will stand, behind a log that ends here."""
        return self._gathered[-1].next_offset if self._gathered else log_end_offset

    def add(self, values: list[bytes], *, log_end_offset: Offset, epoch: Epoch) -> Proposal:
        """Take a proposal behind those gathered; raises Overloaded when that is too much."""
        assert values, "a proposal without values"
        size = sum(map(len, values)) + VALUE_OVERHEAD * len(values)
        if self._size and self._size + size > self._bytes_max:
            raise Overloaded(
                f"{self._size} bytes of proposals are uncommitted, the bound is"
                f" {self._bytes_max}: wait and repeat"
            )
        base_offset = self.next_offset(log_end_offset)
        proposal = Proposal(values, base_offset=base_offset, epoch=epoch, size=size)
        self._gathered.append(proposal)
        self._size += size
        return proposal

    def next_batch(self) -> GatheredBatch:
        """Return the oldest proposals gathered as one batch; `appended` says that it is in the
        log. Until then the same ones are returned again."""
        proposals: list[Proposal] = []
        values: list[bytes] = []
        size = 0
        for proposal in self._gathered:
            size += proposal.size
            if size > self._batch_bytes_max and proposals:
                break
            proposals.append(proposal)
            values += proposal.values
        first = proposals[0]
        return GatheredBatch(
            base_offset=first.base_offset, epoch=first.epoch, proposals=proposals, values=values
        )

    def appended(self, batch: GatheredBatch) -> None:
        """The batch is in the log."""
        for _ in batch.proposals:
            self._gathered.popleft()
        self._in_log.append(batch)

    def delivering(self, base_offset: Offset, epoch: Epoch) -> list[bytes] | None:
        """The values of the batch at an offset when it was gathered here, None otherwise."""
        if self._in_log and self._in_log[0].base_offset == base_offset:
            batch = self._in_log[0]
            return batch.values if batch.epoch == epoch else None
        return None

    def delivered(self, end_offset: Offset) -> None:
        """Everything below was committed and delivered."""
        while self._in_log and self._in_log[0].next_offset <= end_offset:
            for proposal in self._in_log.popleft().proposals:
                self._size -= proposal.size
                proposal.finish()

    def watch(self, entry: Entry) -> Proposal:
        """Follow an entry that somebody else has just appended; it weighs nothing here."""
        assert not self._gathered, "it would take the place of what was gathered"
        values = [b""] * entry.count
        proposal = Proposal(values, base_offset=entry.base_offset, epoch=entry.epoch, size=0)
        self._in_log.append(
            GatheredBatch(
                base_offset=entry.base_offset,
                epoch=entry.epoch,
                proposals=[proposal],
                values=values,
            )
        )
        return proposal

    def fail(
        self, committed_end: Offset, *, appended: QuorumlogError, gathered: QuorumlogError
    ) -> None:
        """Give up: what is in the log from `committed_end` on may yet be committed, what was
        gathered is not in the log at all. What is below was committed, and is to be delivered."""
        while self._in_log and self._in_log[-1].base_offset >= committed_end:
            for proposal in self._in_log.pop().proposals:
                self._size -= proposal.size
                proposal.finish(appended)
        while self._gathered:
            proposal = self._gathered.popleft()
            self._size -= proposal.size
            proposal.finish(gathered)
