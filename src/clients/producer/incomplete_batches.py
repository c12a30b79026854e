"""The batches without an outcome: their memory, linger times and delivery deadlines. Pure.

Invariant: `buffered` is the sum of what these batches hold.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from ..config import ProducerConfig
from .batch_encoder import content_size
from .batches import Batch
from .outcomes import Failures
from .partition_queue import PartitionQueue


class IncompleteBatches:
    """The batches of one producer without an outcome; see the module."""

    __slots__ = (
        "_buffer_size",
        "_delivery_timeout_ms",
        "_failures",
        "_linger_ms",
        "_lingering",
        "_new",
        "_on_work",
        "_opened",
        "_unfinished",
        "buffered",
    )

    def __init__(
        self, config: ProducerConfig, failures: Failures, on_work: Callable[[], object]
    ) -> None:
        """`failures` gets the dropped batches; `on_work` notifies the sender of a new batch."""
        self.buffered = 0  # bytes held by the batches
        self._buffer_size = config.buffer_size
        self._linger_ms = config.linger_ms
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._failures = failures
        self._on_work = on_work
        self._opened = 0  # number of batches so far: the order of those of a partition
        self._new: list[Batch] = []  # without linger end and deadline yet
        self._lingering: OrderedDict[Batch, None] = OrderedDict()  # open ones, by linger_end_ms
        self._unfinished: OrderedDict[Batch, None] = OrderedDict()  # oldest first

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the batches, oldest first."""
        return iter(self._unfinished)

    def statistics(self) -> tuple[int, int, int]:
        """Return (records without an outcome, those in flight, bytes held)."""
        records = in_flight = 0
        for batch in self._unfinished:
            records += batch.count
            if batch.is_sent:
                in_flight += batch.count
        return records, in_flight, self.buffered

    # --- memory ------------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Return True if `size` more bytes fit; an empty buffer has space for one item of any
        size."""
        return not self.buffered or self.buffered + size <= self._buffer_size

    def begin(self, queue: PartitionQueue) -> Batch:
        """Return a new, empty batch of a partition."""
        batch = Batch(queue)
        self._opened += 1
        batch.order = self._opened
        self._unfinished[batch] = None
        self._new.append(batch)
        if len(self._new) == 1:
            self._on_work()
        return batch

    def encoded(self, batch: Batch, encoded: bytes) -> None:
        """Replace a batch's columns by its encoded form in the accounting of space."""
        self.buffered -= batch.held
        batch.become_encoded(encoded, batch.number)
        self.buffered += batch.held

    def divide(self, whole: Batch, halves: "tuple[tuple[int, Batch], ...]") -> None:
        """Replace a batch by its halves, given with their first index."""
        self.remove(whole)
        whole.become(halves)
        for _, half in reversed(halves):
            half.order = whole.order
            self._unfinished[half] = None
            self._unfinished.move_to_end(half, last=False)
            self.buffered += half.held
            if not half.deadline_ms:
                self._new.append(half)  # like the whole batch, it has no deadline yet

    def remove(self, batch: Batch) -> None:
        """Remove a batch that is stored or divided."""
        del self._unfinished[batch]
        self._lingering.pop(batch, None)
        self.buffered -= batch.held
        assert self.buffered >= 0, f"{self.buffered} bytes are buffered"

    def drop(self, batches: Sequence[Batch]) -> None:
        """Remove batches that the caller fails."""
        for batch in batches:
            self.remove(batch)
            if batch.queue.numbering is not None:
                batch.queue.numbering.give_up(batch.number)
        self._failures.add(batches)

    def withdraw(self, batches: Sequence[Batch]) -> None:
        """Remove batches that are not in flight from their queues too; the caller fails them."""
        for batch in batches:
            if batch.queue.open is batch:
                batch.queue.open = None
                batch.queue.is_due = False
            else:
                batch.queue.closed.remove(batch)  # the first one, except after retries
        self.drop(batches)

    def withdraw_waiting(self) -> list[Batch]:
        """Withdraw the batches that are not in flight, and return them for the caller to fail."""
        batches = [batch for batch in self._unfinished if batch.part is None]
        self.withdraw(batches)
        return batches

    def take_all(self) -> list[Batch]:
        """Remove and return all batches, for the closing caller to fail."""
        batches = list(self._unfinished)
        for batch in batches:
            batch.queue.parts.clear()
            batch.queue.closed.clear()
            batch.queue.open = None
            batch.part = None
        self.drop(batches)
        return batches

    # --- times -------------------------------------------------------------------------------

    def stop_lingering(self, batch: Batch) -> None:
        """Record that a batch is closed."""
        self._lingering.pop(batch, None)

    def lingered(self, now_ms: int) -> tuple[list[Batch], int | None]:
        """Return each open batch once at the end of its linger time, and the next such time.

        The linger time starts at the first call after a batch was opened: only the sender's thread
        may read the clock.
        """
        for batch in self._new:
            batch.linger_end_ms = now_ms + self._linger_ms
            batch.deadline_ms = now_ms + self._delivery_timeout_ms
            if batch.queue.open is batch:
                self._lingering[batch] = None
        self._new.clear()
        due: list[Batch] = []
        while self._lingering:
            batch = next(iter(self._lingering))
            if batch.linger_end_ms > now_ms:
                return due, batch.linger_end_ms
            del self._lingering[batch]
            due.append(batch)
        return due, None

    def expired(self, now_ms: int) -> tuple[list[Batch], int | None]:
        """Remove the batches past their delivery deadline; return them with the next deadline.

        Batches in flight are not removed: their request has its own deadline.
        """
        late: list[Batch] = []
        next_ms: int | None = None
        for batch in self._unfinished:
            if batch.part is not None:
                # sometimes if batch.deadline_ms <= now_ms: a batch in flight is late
                continue
            if batch.deadline_ms <= now_ms:
                late.append(batch)
                continue
            next_ms = batch.deadline_ms if next_ms is None else min(next_ms, batch.deadline_ms)
            if batch.whole is None:
                break  # all later ones are younger; halves are not in this order
        self.withdraw(late)
        return late, next_ms

    def complete_or_undo(self) -> list[PartitionQueue]:
        """Complete or undo the append of a record after an interruption between two steps; return
        the queues of the batches."""
        for batch in list(self._unfinished):
            queue = batch.queue
            if queue.open is not batch:
                if not batch.count:
                    self._unfinished.pop(batch)  # it is not in its queue yet
                continue
            batch.cut()
            batch.size = content_size(batch.values, batch.keys, batch.headers)
            if batch in queue.closed or not batch.count:
                queue.open = None
                self._lingering.pop(batch, None)
            if not batch.count:
                self._unfinished.pop(batch)
        self._new = [batch for batch in self._new if batch in self._unfinished]
        self.buffered = sum(batch.held for batch in self._unfinished)
        return list(dict.fromkeys(batch.queue for batch in self._unfinished))
