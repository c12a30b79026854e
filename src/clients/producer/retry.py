"""Retries of a producer's batches: the decision after each failure of a part.

A failed part is put back in its old place and sent again after a backoff, or at once if the error
names a newer leader. A batch that is too large is split; of several refused batches each is sent
alone; a batch without a usable sequence number is renumbered or given up. Calls have their own
retries, see `clients.retry`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import copy

from ...errors import (
    DiskFailed,
    DuplicateSequence,
    InvalidProducerEpoch,
    MessageTooLarge,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutcomeUnknown,
    OutOfOrderSequence,
    QuorumlogError,
    Stopping,
    StreamBroken,
    TimedOut,
    UnknownProducerId,
    UnknownServerError,
)
from ..connection import Connection
from .batches import Batch
from .outcomes import BatchOutcomes
from .partition_queue import Part, PartitionQueue
from .ready_queues import ReadyQueues

SEQUENCE_ERRORS = (OutOfOrderSequence, UnknownProducerId, InvalidProducerEpoch)
"""Errors for an unexpected sequence number of a batch."""

UNKNOWN_OUTCOMES = (
    OutcomeUnknown,
    StreamBroken,
    TimedOut,
    NotLeaderOrFollower,  # it may have led when the batch arrived
    NotEnoughReplicasAfterAppend,
    DiskFailed,
    Stopping,
    UnknownServerError,
)
"""Errors after which a batch may be in the log."""


class BatchRetries:
    """Retries, splits or fails the batches of failed parts. Not thread-safe: one loop."""

    def __init__(
        self,
        connection: Connection,
        ready: ReadyQueues,
        outcomes: BatchOutcomes,
        *,
        lock: AbstractContextManager[object],
        on_park: Callable[[], None],
    ) -> None:
        """`lock` guards `ready`; `on_park` is called after a change of the next backoff's end."""
        self._connection = connection
        self._clock = connection.runtime.clock
        self._ready = ready
        self._outcomes = outcomes
        self._lock = lock
        self._on_park = on_park
        self._parked: dict[PartitionQueue, int] = {}  # with the end of the backoff, on now_ms()

    def refused(self, part: Part, error: QuorumlogError) -> None:
        """Handle a failed part, or one of unknown outcome; retry it if possible."""
        if part.batches[0].number is not None:
            if isinstance(error, DuplicateSequence):
                self._outcomes.stored(part, -1)
                return
            if isinstance(error, SEQUENCE_ERRORS):
                self._renumber(part, error)
                return
        if not error.retriable:
            self._refuse(part, error)
            return
        self._put_back(part, error, reason=error)

    def late(self, part: Part, error: QuorumlogError) -> None:
        """Handle a part that was not sent before its deadline; report the error of its last
        attempt, if any."""
        self._put_back(part, error, reason=part.queue.last_error or error)

    def unsent(self, part: Part) -> None:
        """Put back a part that was not sent because an earlier one of its partition failed."""
        with self._lock:
            self._ready.put_back(part, None)

    def park(self, queue: PartitionQueue) -> None:
        """Keep a queue out of `ready` for a backoff."""
        wait_ms = self._connection.backoff.wait_ms(max(1, queue.failures))
        self._parked[queue] = self._clock.now_ms() + wait_ms
        self._on_park()

    def unpark_due(self, now_ms: int) -> int | None:
        """List the queues at the end of their backoff; return the next such time, if any."""
        for queue in [queue for queue, until_ms in self._parked.items() if until_ms <= now_ms]:
            del self._parked[queue]
            with self._lock:
                self._ready.unpark(queue)
        return min(self._parked.values(), default=None)

    def _put_back(self, part: Part, error: QuorumlogError, *, reason: QuorumlogError) -> None:
        """Retry a part after a retriable error; `reason` is reported if it expires."""
        with self._lock:
            is_parked = self._ready.put_back(part, reason)
        is_news = self._connection.update_leader(part.queue.topic, part.queue.partition, error)
        # sometimes if is_news and part.queue.failures > 1: a producer resumes on a third leader
        self._repeat(part, is_parked=is_parked, is_soon=is_news)

    def _repeat(self, part: Part, *, is_parked: bool, is_soon: bool = False) -> None:
        """Schedule the retry of a part: after a backoff, or at once if the new leader is known."""
        queue = part.queue
        self._outcomes.retries += len(part.batches)
        if is_parked and not is_soon:
            self.park(queue)
        elif is_soon:
            self._parked.pop(queue, None)
            with self._lock:
                self._ready.unpark(queue)

    def _renumber(self, part: Part, error: QuorumlogError) -> None:
        """Handle the refusal of a batch's sequence number."""
        is_fenced = isinstance(error, InvalidProducerEpoch)
        with self._lock:
            is_parked, batches = self._ready.sequence_refused(part, error, is_fenced=is_fenced)
        if batches and self._ready.identity is not None:
            self._outcomes.fail(batches, _of_partition(error, part.queue))
        elif batches:
            self._outcomes.fail(batches, _unresolved(part.queue, error))
        else:
            self._repeat(part, is_parked=is_parked)

    def _refuse(self, part: Part, error: QuorumlogError) -> None:
        """Handle a permanent error of a part.

        Of several batches the bad one is found by sending each alone; one that is too large is
        split.
        """
        queue = part.queue
        error = _of_partition(error, queue)
        if isinstance(error, MessageTooLarge) and len(part.batches) == 1:
            (batch,) = part.batches
            self._connection.topology.mark_stale(queue.topic)  # its max.message.bytes has changed
            # The leader would not recognise halves as duplicates of a stored whole batch.
            may_come_twice = batch.number is not None and batch.may_be_stored
            with self._lock:
                is_split = not may_come_twice and self._ready.split(part)
            if is_split:
                self._outcomes.splits += 1
                return
            error = _record_too_large(batch, error)
        with self._lock:
            batches = self._ready.refused(part)
        self._outcomes.fail(batches, error)


def _of_partition(error: QuorumlogError, queue: PartitionQueue) -> QuorumlogError:
    """Return the error with the partition that it concerns; other parts may share it."""
    if not error.topic:
        error = copy(error)
        error.topic, error.partition = queue.topic, queue.partition
    return error


def as_retriable(error: QuorumlogError) -> QuorumlogError:
    """Return the error for batches of a broken stream, which are always retried."""
    if error.retriable:
        return error
    broken = StreamBroken(f"the stream ended: {error.message}")
    broken.__cause__ = error
    return broken


def record_attempt(part: Part, *, is_unknown: bool) -> None:
    """Record that an attempt ended without an acknowledgement."""
    for batch in part.batches:
        batch.is_sent = False
        batch.may_be_stored = batch.may_be_stored or is_unknown


def _unresolved(queue: PartitionQueue, refusal: QuorumlogError) -> OutcomeUnknown:
    error = OutcomeUnknown(
        "an attempt got no response, and an earlier batch was given up, so it is unknown whether "
        f"the record is stored ({refusal.message}): check before you send it again",
        topic=queue.topic,
        partition=queue.partition,
    )
    error.__cause__ = refusal
    return error


def _record_too_large(batch: Batch, refusal: QuorumlogError) -> MessageTooLarge:
    error = MessageTooLarge(
        f"a single record of {batch.size} bytes as a batch is refused ({refusal.message}): send a "
        "smaller one, compress it, or raise the topic's max.message.bytes",
        topic=batch.queue.topic,
        partition=batch.queue.partition,
    )
    error.__cause__ = refusal
    return error
