"""The queues of partitions with something to send, and their batches in flight. Pure.

States of a batch: *open* (accepts records) -> *closed* (full, or lingered) -> *in flight* (one part
per partition, or several numbered ones) -> done. After a retriable failure it returns from flight
to its place in *closed*.

Invariant: a queue is in `ready` exactly if `is_listed`; then it has something to send, and its
turn.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ...errors import QuorumlogError
from ...ids import ProducerIdentity
from . import partition_queue
from .batch_encoder import split
from .batches import Batch
from .incomplete_batches import IncompleteBatches
from .partition_queue import Part, PartitionQueue
from .sequences import NO_ID


class ReadyQueues:
    """The queues of one producer that have something to send; see the module."""

    __slots__ = (
        "_incomplete",
        "_on_work",
        "has_taken",
        "identity",
        "is_halted",
        "producer_id",
        "ready",
    )

    def __init__(self, incomplete: IncompleteBatches, on_work: Callable[[], object]) -> None:
        """`on_work` notifies the sender of a listed queue."""
        self.ready: deque[PartitionQueue] = deque()
        self.producer_id = NO_ID  # for partitions that need one, see `lacks_id`
        self.identity: ProducerIdentity | None = None  # of the transaction; None: not transactional
        self.has_taken = False  # a batch of the transaction was taken for sending
        self.is_halted = False  # nothing is taken: the transaction can only be aborted
        self._incomplete = incomplete
        self._on_work = on_work

    # --- listing -----------------------------------------------------------------------------

    def update(self, queue: PartitionQueue) -> None:
        """List a queue if it has something to send, and its turn."""
        has_work = queue.closed or (queue.is_due and queue.open is not None)
        if has_work and queue.has_turn and not (queue.is_listed or queue.is_parked):
            self.ready.append(queue)
            queue.is_listed = True
            self._on_work()

    def close_open(self, queue: PartitionQueue) -> None:
        """Close the open batch of a queue: it accepts no more records."""
        assert queue.open is not None, f"{queue.topic}-{queue.partition} has no open batch"
        queue.closed.append(queue.open)
        self._incomplete.stop_lingering(queue.open)
        queue.open = None
        queue.is_due = False
        self.update(queue)

    def hold(self, queue: PartitionQueue) -> None:
        """Remove a listed queue from `ready` until its batches in flight are answered."""
        assert queue.parts, f"{queue.topic}-{queue.partition} has no batch in flight"
        queue.is_listed = False

    def park(self, queue: PartitionQueue) -> None:
        """Keep a listed queue out of `ready` until `unpark`."""
        queue.is_listed = False
        queue.is_parked = True

    def unpark(self, queue: PartitionQueue) -> None:
        """List a parked queue again, if it has anything to send."""
        queue.is_parked = False
        self.update(queue)

    def restore(self, queues: Iterable[PartitionQueue]) -> None:
        """Restore the invariant after an interruption between two steps."""
        for queue in self.ready:
            queue.is_listed = True
        for queue in queues:
            self.update(queue)
        self._on_work()

    # --- producer ids ------------------------------------------------------------------------

    def lacks_id(self, queue: PartitionQueue) -> bool:
        """Return True if the queue needs another `producer_id` before it is taken."""
        numbering = queue.numbering
        if numbering is None or self.identity is not None or not numbering.needs_id:
            return False
        return self.producer_id in (NO_ID, numbering.producer_id)

    def retire(self, queues: Sequence[PartitionQueue]) -> None:
        """Discard the producer id if queues with numbers are removed.

        If their partitions are created again, old numbers would be taken for duplicates.
        """
        if any(
            queue.numbering is not None and queue.numbering.producer_id >= 0 for queue in queues
        ):
            # sometimes: a producer id is retired with its partitions
            self.producer_id = NO_ID

    # --- batches in flight -------------------------------------------------------------------

    def take(self, queue: PartitionQueue, size_max: int, now_ms: int = 0) -> Part | None:
        """Put the oldest batches of a listed queue in flight, see `partition_queue.take`.

        Returns None if it has none, or must wait for the batches in flight.
        """
        assert queue.is_listed, f"{queue.topic}-{queue.partition} is taken without being listed"
        if self.is_halted:
            queue.is_listed = False
            return None
        if not queue.has_turn or self.lacks_id(queue):  # since it was listed
            queue.is_listed = False
            self.update(queue)
            return None
        if self.identity is not None and queue.numbering is not None:
            queue.numbering.adopt(self.identity)
        if queue.is_due and queue.open is not None and not queue.closed:
            self.close_open(queue)
        queue.is_listed = False
        part = partition_queue.take(queue, size_max, fresh_id=self.producer_id, now_ms=now_ms)
        self.has_taken = self.has_taken or part is not None
        self.update(queue)
        return part

    def stored(self, part: Part, now_ms: int = 0) -> tuple[Batch, ...]:
        """Remove an acknowledged part and return its batches, for the caller to complete."""
        queue = part.queue
        is_trusted = queue.numbering is not None and not queue.is_recovering
        if not partition_queue.remove_from_flight(part, has_failed=False):
            return ()
        queue.failures = 0
        queue.last_error = None
        for batch in part.batches:
            if queue.numbering is not None and is_trusted:
                queue.numbering.acknowledged(batch.number, now_ms)
            self._incomplete.remove(batch)
        self.update(queue)
        return part.batches

    def refused(self, part: Part) -> tuple[Batch, ...]:
        """Remove a part that was refused for good and return its batches, for the caller to fail.

        Returns () if several batches were refused together: each is sent alone to find the bad
        one.
        """
        queue, batches = part.queue, part.batches
        if not partition_queue.remove_from_flight(part, has_failed=True):
            return ()
        if len(batches) > 1:
            for batch in batches:
                batch.goes_alone = True
            partition_queue.bring_back(part)
            batches = ()
        self._incomplete.drop(batches)
        self.update(queue)
        return batches

    def sequence_refused(
        self, part: Part, error: QuorumlogError, *, is_fenced: bool
    ) -> tuple[bool, tuple[Batch, ...]]:
        """Handle the refusal of a sequence number, see `partition_queue.renumber`.

        Returns the result of `put_back`, and the batches to fail because nothing can determine
        whether they are stored.
        """
        is_transactional = self.identity is not None
        if partition_queue.renumber(part, is_fenced=is_fenced, is_transactional=is_transactional):
            return self.put_back(part, error), ()
        return False, self.refused(part)

    def split(self, part: Part) -> bool:
        """Replace the batch in flight, which was too large, by its halves; return False for one
        record."""
        (batch,), queue = part.batches, part.queue
        if batch.count == 1:
            return False
        halves = split(batch)
        partition_queue.remove_from_flight(part, has_failed=True)
        self._incomplete.divide(batch, halves)
        partition_queue.divide(batch.number, halves)
        partition_queue.bring_back(Part(queue, tuple(half for _, half in halves)))
        self.update(queue)
        return True

    def put_back(self, part: Part, error: QuorumlogError | None) -> bool:
        """Put a part in flight back in its old place, for a retry.

        `error` None: it was not sent, because an earlier part failed. Returns True if the queue is
        parked until `unpark`; False if the part had ended before, or an earlier one has failed,
        too.
        """
        queue = part.queue
        was_recovering = queue.is_recovering
        if not partition_queue.remove_from_flight(part, has_failed=True):
            return False
        # sometimes if was_recovering: a batch fails behind a failed one
        partition_queue.bring_back(part)
        queue.last_error = error or queue.last_error
        if not was_recovering:
            queue.failures += 1
            queue.is_parked = True
        self.update(queue)
        return not was_recovering
