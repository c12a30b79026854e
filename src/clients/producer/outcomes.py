"""The outcomes of a producer's batches: stored, or failed for good."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ...errors import QuorumlogError
from ...runtime import Clock
from ..coordination import Changes
from .batches import Batch
from .partition_queue import Part
from .ready_queues import ReadyQueues


class BatchOutcomes:
    """Gives the batches of one producer their outcome and counts them. Not thread-safe: one
    loop."""

    def __init__(
        self, ready: ReadyQueues, clock: Clock, lock: AbstractContextManager[object]
    ) -> None:
        self._ready = ready
        self._clock = clock
        self._lock = lock  # guards the queues
        self._changes = Changes()
        self.requests = 0  # acknowledged parts of requests
        self.delivered = 0  # records
        self.failed = 0  # records
        self.retries = 0  # batches put back for a retry
        self.splits = 0  # batches split in halves

    def stored(self, part: Part, base_offset: int, append_time_ms: int = -1) -> None:
        """Complete a part stored at `base_offset` (-1: unknown), with the broker's time if the
        topic uses it."""
        with self._lock:
            batches = self._ready.stored(part, self._clock.now_ms())
        self.requests += 1
        for batch in batches:
            self.delivered += batch.count
            batch.complete(base_offset, append_time_ms)
            if base_offset >= 0:
                base_offset += batch.count
        self._changes.announce()

    def fail(self, batches: Sequence[Batch], error: QuorumlogError) -> None:
        """Fail batches that were removed from the buffer."""
        for batch in batches:
            self.failed += batch.count
            batch.fail(error)
        self._changes.announce()

    async def wait_change(self) -> None:
        """Wait until batches get their outcome, which frees buffer space."""
        await self._changes.wait()
