"""The record buffer: a queue of batches for each partition, bounded in bytes.

Pure: the sender passes the time; `on_work` notifies the sender. States of a batch: *open* (accepts
records) -> *closed* (full, or lingered) -> *in flight* (one part per partition, or several
numbered ones) -> done. After a retriable failure it returns from flight to its place in *closed*.

Invariants: `buffered` is the sum of what all batches without an outcome hold. A queue is in
`ready` exactly if `is_listed`; then it has something to send, and its turn.

Not thread-safe: the blocking producer holds one lock around `accept` and the sender's calls.
Appending a record may be interrupted between any two steps (Ctrl-C in a sending thread):
`_complete_or_undo` completes or undoes it before the interruption propagates.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat

from ...errors import MessageTooLarge, QuorumlogError, UnknownTopicOrPartition
from ...records.batch import HEADER_SIZE
from ...runtime import Entropy
from ..config import ProducerConfig
from ..topology import absent
from . import partition_queue
from .batch_encoder import content_size, headers_size, split
from .batches import OBJECT_OVERHEAD, RECORD_OVERHEAD, Batch, Headers, OnDelivery
from .failures import Failures
from .partition_queue import Part, PartitionQueue, TopicQueues
from .partitioner import CrcPartitioner, KeyPartitioner, Partitioner, choose, stick
from .record_input import Bulk
from .sequences import NO_ID


class Accumulator:
    """The record buffer of one producer; see the module."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        entropy: Entropy,
        partitioner: Partitioner,
        on_work: Callable[[], object],
    ) -> None:
        self.ready: deque[PartitionQueue] = deque()
        self.buffered = 0  # bytes held by the batches without an outcome
        self.producer_id = NO_ID  # for partitions that need one, see `lacks_id`
        self._topics: dict[str, TopicQueues] = {}
        self._open_topics = self._topics  # topics that accept records; empty after `refuse`
        self._entropy = entropy
        self.partitioner = partitioner
        self._sticks_without_key = partitioner is stick or isinstance(
            partitioner, KeyPartitioner | CrcPartitioner
        )
        # The built-in partitioners do not raise: call them without the checks of `choose`.
        self._ask: Partitioner = (
            partitioner if self._sticks_without_key else partial(choose, partitioner)
        )
        self._on_work = on_work
        self._batch_size_max = min(config.batch_size, config.request_size_max)
        self._buffer_size = config.buffer_size
        self._request_size_max = config.request_size_max
        self._linger_ms = config.linger_ms
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._is_idempotent = config.is_idempotent
        self._opened = 0  # number of batches so far: the order of those of a partition
        self._new: list[Batch] = []  # without linger end and deadline yet
        self._lingering: OrderedDict[Batch, None] = OrderedDict()  # open ones, by linger_end_ms
        self._unfinished: OrderedDict[Batch, None] = OrderedDict()  # oldest first
        self.failures = Failures()

    # --- appending records -----------------------------------------------------------------

    def accept(  # noqa: C901, PLR0912 -- the one step of every record: each call saved is a tenth of it
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition: int | None,
        on_delivery: OnDelivery | None = None,
    ) -> Batch | None:
        """Append one record and return its batch, of which it is the last record.

        Returns None if there is no space, or if the topic or the explicit partition is unknown:
        `admit` or wait, then repeat. Raises UnknownTopicOrPartition for a negative partition,
        PartitionerFailed, and MessageTooLarge if the record exceeds the request size.
        """
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += headers_size(headers)
        topic_queues = self._open_topics.get(topic)
        buffered = self.buffered + size + OBJECT_OVERHEAD
        if topic_queues is None or (buffered > self._buffer_size and self.buffered):
            self._check_size(topic, size)
            return None
        if key is None and partition is None and self._sticks_without_key:
            queue = topic_queues.sticky
        else:
            queues = topic_queues.queues
            if partition is None:
                partition = self._ask(topic, key, value, len(queues))
            if partition is None:
                queue = topic_queues.sticky
            elif 0 <= partition < len(queues):
                queue = queues[partition]
            else:
                if partition < 0:
                    self.queue(topic, partition)  # raises
                return None  # the topic may have grown
        try:
            batch = queue.open if queue is not None else None
            if batch is None or batch.size + size > topic_queues.batch_size:
                self._check_size(topic, size)
                batch = self._next_batch(topic_queues, queue, size, is_free=partition is None)
            if headers:
                batch.headers[batch.count] = headers
            if on_delivery is not None:
                batch.callbacks[batch.count] = on_delivery
            batch.values.append(value)
            batch.keys.append(key)
            batch.timestamps.append(timestamp_ms)
            batch.count += 1
            batch.size += size
            self.buffered = buffered
            if batch.size >= topic_queues.batch_size:
                self._close(batch.queue)
        except BaseException as error:
            if not isinstance(error, QuorumlogError):
                self._complete_or_undo()
            raise
        return batch

    def accept_run(
        self, topic: str, bulk: Bulk, first: int, partition: int | None, timestamp_ms: int
    ) -> tuple[Batch | None, int]:
        """Append one record and the following ones that fit in its batch; return batch and
        count."""
        key = bulk.keys[first] if bulk.keys is not None else None
        batch = self.accept(topic, key, bulk.values[first], timestamp_ms, (), partition)
        if batch is None or batch.queue.open is not batch:
            return batch, 1
        room = self._topics[topic].batch_size - batch.size
        fit = bisect_right(bulk.ends, bulk.ends[first] + room) - first - 1
        held_max = bulk.size_max + OBJECT_OVERHEAD
        count = min(fit, (self._buffer_size - self.buffered) // held_max)
        if count <= 0:
            return batch, 1
        begin, end = first + 1, first + 1 + count
        try:
            batch.values.extend(bulk.values[begin:end])
            batch.keys.extend(repeat(None, count) if bulk.keys is None else bulk.keys[begin:end])
            batch.timestamps.extend(array("q", [timestamp_ms]) * count)
            size = bulk.ends[end - 1] - bulk.ends[first]
            batch.count += count
            batch.size += size
            self.buffered += size + count * OBJECT_OVERHEAD
        except BaseException:
            self._complete_or_undo()
            raise
        return batch, 1 + count

    def refuse(self) -> None:
        """Accept no more records: `accept` returns None from now on."""
        self._open_topics = {}

    def has_room(self, size: int) -> bool:
        """Return True if `size` more bytes fit; an empty buffer has space for one item of any
        size."""
        return not self.buffered or self.buffered + size <= self._buffer_size

    def add_encoded(self, topic: str, partition: int, encoded: bytes, count: int) -> Batch:
        """Queue an encoded batch after the partition's other batches; the caller checks the
        space."""
        queue = self.queue(topic, partition)
        if queue.open is not None:
            self._close(queue)
        batch = self._begin(queue)
        batch.become_encoded(encoded)
        batch.count = count
        self.buffered += batch.held
        queue.closed.append(batch)
        self._list(queue)
        return batch

    def admit(
        self,
        topic: str,
        partitions: int,
        *,
        topic_id: bytes = b"",
        message_bytes_max: int | None = None,
        leaderless: Iterable[int] = (),
    ) -> list[Batch]:
        """Update a topic's partitions, leaders and batch size limit, or add the topic.

        The limit follows max.message.bytes, so that no record is refused because of others in its
        batch. Returns, for the caller to fail, the waiting batches of a deleted topic of the same
        name. Its batches in flight remain in queues that `abandon` empties.
        """
        outdated: list[Batch] = []
        topic_queues = self._topics.get(topic)
        if topic_queues is not None and topic_queues.topic_id != topic_id:
            outdated = self.forget_topic(topic)
            topic_queues = None
        if topic_queues is None:
            topic_queues = TopicQueues(topic, topic_id, self._batch_size_max)
            self._topics[topic] = topic_queues
        if message_bytes_max is not None:
            room = message_bytes_max * 15 // 16 - HEADER_SIZE  # sizes here are estimates
            topic_queues.batch_size = max(1, min(self._batch_size_max, room))
        topic_queues.grow(partitions, is_idempotent=self._is_idempotent)
        topic_queues.lead(leaderless)
        return outdated

    def shrink(self, topic: str, partitions: int) -> list[Batch]:
        """Remove partitions that a topic no longer has (it was deleted and created again).

        Returns their waiting batches, for the caller to fail.
        """
        topic_queues = self._topics.get(topic)
        if topic_queues is None or len(topic_queues.queues) <= partitions:
            return []
        gone = topic_queues.queues[partitions:]
        del topic_queues.queues[partitions:]
        topic_queues.lead(queue.partition for queue in gone)
        self._retire(gone)
        return self._waiting(gone)

    def abandon(self, queue: PartitionQueue) -> list[Batch]:
        """Return the waiting batches of a queue after its partition or topic was deleted, to be
        failed."""
        return self._waiting([queue])

    def encoded(self, batch: Batch, encoded: bytes) -> None:
        """Replace a batch's columns by its encoded form in the accounting of space."""
        self.buffered -= batch.held
        batch.become_encoded(encoded, batch.number)
        self.buffered += batch.held

    @property
    def takes_runs(self) -> bool:
        """True if records without a key may be appended in runs, without the partitioner."""
        return self._sticks_without_key

    def statistics(self) -> tuple[int, int, int]:
        """Return (records without an outcome, those in flight, bytes held)."""
        records = in_flight = 0
        for batch in self._unfinished:
            records += batch.count
            if batch.is_sent:
                in_flight += batch.count
        return records, in_flight, self.buffered

    def batch_size(self, topic: str) -> int:
        """Return the limit of a batch of a known topic, in bytes before compression."""
        return self._topics[topic].batch_size

    def knows(self, topic: str) -> bool:
        """Return True if the topic was admitted."""
        return topic in self._topics

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of an admitted topic."""
        return len(self._topics[topic].queues)

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return a partition's queue; raise UnknownTopicOrPartition if there is none."""
        topic_queues = self._topics.get(topic)
        if topic_queues is None:
            raise UnknownTopicOrPartition("the topic was deleted", topic=topic, partition=partition)
        queues = topic_queues.queues
        if not 0 <= partition < len(queues):
            raise absent(topic, partition, len(queues))
        return queues[partition]

    # --- sending ---------------------------------------------------------------------------

    def close_due(self, now_ms: int) -> int | None:
        """List the queues with a lingered open batch; return the time of the next one, if any.

        The linger time starts at the first call after a batch was opened: only the sender's thread
        may read the clock.
        """
        for batch in self._new:
            batch.linger_end_ms = now_ms + self._linger_ms
            batch.deadline_ms = now_ms + self._delivery_timeout_ms
            if batch.queue.open is batch:
                self._lingering[batch] = None
        self._new.clear()
        while self._lingering:
            batch = next(iter(self._lingering))
            if batch.linger_end_ms > now_ms:
                return batch.linger_end_ms
            del self._lingering[batch]
            queue = batch.queue
            queue.is_due = True  # `take` closes it
            topic_queues = self._topics.get(queue.topic)
            if topic_queues is not None:
                topic_queues.unstick(queue)
            self._list(queue)
        return None

    def close_all(self) -> list[Batch]:
        """Close every open batch; return all batches without an outcome."""
        for batch in self._unfinished:
            if batch.queue.open is batch:
                self._close(batch.queue)
        return list(self._unfinished)

    def lacks_id(self, queue: PartitionQueue) -> bool:
        """Return True if the queue needs another `producer_id` before it is taken."""
        numbering = queue.numbering
        if numbering is None or not numbering.needs_id:
            return False
        return self.producer_id in (NO_ID, numbering.producer_id)

    def take(self, queue: PartitionQueue, size_max: int, now_ms: int = 0) -> Part | None:
        """Put the oldest batches of a listed queue in flight, see `partition_queue.take`.

        Returns None if it has none, or must wait for the batches in flight.
        """
        assert queue.is_listed, f"{queue.topic}-{queue.partition} is taken without being listed"
        if not queue.has_turn or self.lacks_id(queue):  # since it was listed
            queue.is_listed = False
            self._list(queue)
            return None
        if queue.is_due and queue.open is not None and not queue.closed:
            self._close(queue)
        queue.is_listed = False
        part = partition_queue.take(queue, size_max, fresh_id=self.producer_id, now_ms=now_ms)
        self._list(queue)
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
            self._forget(batch)
        self._list(queue)
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
        self._drop(batches)
        self._list(queue)
        return batches

    def sequence_refused(
        self, part: Part, error: QuorumlogError, *, is_fenced: bool
    ) -> tuple[bool, tuple[Batch, ...]]:
        """Handle the refusal of a sequence number, see `partition_queue.renumber`.

        Returns the result of `put_back`, and the batches to fail because nothing can determine
        whether they are stored.
        """
        if partition_queue.renumber(part, is_fenced=is_fenced):
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
        self._forget(batch)
        batch.become(halves)
        partition_queue.divide(batch.number, halves)
        for _, half in reversed(halves):
            half.order = batch.order
            self._unfinished[half] = None
            self._unfinished.move_to_end(half, last=False)
            self.buffered += half.held
            if not half.deadline_ms:
                self._new.append(half)  # like the whole batch, it has no deadline yet
        partition_queue.bring_back(Part(queue, tuple(half for _, half in halves)))
        self._list(queue)
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
        partition_queue.bring_back(part)
        queue.last_error = error or queue.last_error
        if not was_recovering:
            queue.failures += 1
            queue.is_parked = True
        self._list(queue)
        return not was_recovering

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
        self._list(queue)

    def expired(self, now_ms: int) -> tuple[list[Batch], int | None]:
        """Remove the batches past their delivery deadline; return them with the next deadline.

        Batches in flight are not removed: their request has its own deadline.
        """
        late: list[Batch] = []
        next_ms: int | None = None
        for batch in self._unfinished:
            if batch.part is not None:
                continue
            if batch.deadline_ms <= now_ms:
                late.append(batch)
                continue
            next_ms = batch.deadline_ms if next_ms is None else min(next_ms, batch.deadline_ms)
            if batch.whole is None:
                break  # all later ones are younger; halves are not in this order
        self._pull(late)
        return late, next_ms

    def forget_topic(self, topic: str, waiting: Sequence[PartitionQueue] = ()) -> list[Batch]:
        """Remove a deleted topic; return its batches that are not in flight, for the caller to
        fail.

        `waiting` are queues of it that had batches in flight when it was removed before.
        """
        topic_queues = self._topics.pop(topic, None)
        queues = topic_queues.queues if topic_queues is not None else []
        self._retire(queues)
        return self._waiting([*queues, *waiting])

    def _waiting(self, queues: Sequence[PartitionQueue]) -> list[Batch]:
        """Remove and return the batches of queues that are not in flight."""
        batches: list[Batch] = []
        for queue in dict.fromkeys(queues):
            batches.extend(queue.closed)
            if queue.open is not None:
                batches.append(queue.open)
        self._pull(batches)
        return batches

    def take_all(self) -> list[Batch]:
        """Remove and return all batches without an outcome, for the closing caller to fail."""
        batches = list(self._unfinished)
        for batch in batches:
            batch.queue.parts.clear()
            batch.queue.closed.clear()
            batch.queue.open = None
            batch.part = None
        self._drop(batches)
        return batches

    # --- internals -------------------------------------------------------------------------

    def _next_batch(
        self, topic_queues: TopicQueues, queue: PartitionQueue | None, size: int, *, is_free: bool
    ) -> Batch:
        """Return an open batch with space for `size` bytes; of another partition if `is_free`."""
        if queue is not None and queue.open is not None:
            self._close(queue)
        if is_free:
            queue = topic_queues.stick(self._entropy)
        assert queue is not None, "an explicit partition without its queue"
        batch = queue.open  # the new sticky partition may have one of records with keys
        if batch is not None and batch.size + size > topic_queues.batch_size:
            self._close(queue)
            batch = None
        return batch or self._open(queue)

    def _check_size(self, topic: str, size: int) -> None:
        if size > self._request_size_max:
            raise MessageTooLarge(
                f"a record of {size} bytes is larger than request_size_max "
                f"({self._request_size_max}): raise it on the producer, and max.message.bytes on "
                "the topic",
                topic=topic,
            )

    def _begin(self, queue: PartitionQueue) -> Batch:
        batch = Batch(queue)
        self._opened += 1
        batch.order = self._opened
        self._unfinished[batch] = None
        self._new.append(batch)
        if len(self._new) == 1:
            self._on_work()
        return batch

    def _open(self, queue: PartitionQueue) -> Batch:
        batch = queue.open = self._begin(queue)
        return batch

    def _close(self, queue: PartitionQueue) -> None:
        assert queue.open is not None, f"{queue.topic}-{queue.partition} has no open batch"
        queue.closed.append(queue.open)
        self._lingering.pop(queue.open, None)
        queue.open = None
        queue.is_due = False
        self._list(queue)

    def _list(self, queue: PartitionQueue) -> None:
        has_work = queue.closed or (queue.is_due and queue.open is not None)
        if has_work and queue.has_turn and not (queue.is_listed or queue.is_parked):
            self.ready.append(queue)
            queue.is_listed = True
            self._on_work()

    def _pull(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.queue.open is batch:
                batch.queue.open = None
                batch.queue.is_due = False
            else:
                batch.queue.closed.remove(batch)  # the first one, except after retries
        self._drop(batches)

    def _drop(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._forget(batch)
            if batch.queue.numbering is not None:
                batch.queue.numbering.give_up(batch.number)
        self.failures.add(batches)

    def _retire(self, queues: Sequence[PartitionQueue]) -> None:
        """Discard the producer id if queues with numbers are removed.

        If their partitions are created again, old numbers would be taken for duplicates.
        """
        if any(
            queue.numbering is not None and queue.numbering.producer_id >= 0 for queue in queues
        ):
            self.producer_id = NO_ID

    def _forget(self, batch: Batch) -> None:
        del self._unfinished[batch]
        self._lingering.pop(batch, None)
        self.buffered -= batch.held
        assert self.buffered >= 0, f"{self.buffered} bytes are buffered"

    def _complete_or_undo(self) -> None:
        """Complete or undo the append of a record after an interruption between two steps."""
        for queue in self.ready:
            queue.is_listed = True
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
        for queue in dict.fromkeys(batch.queue for batch in self._unfinished):
            self._list(queue)
        self._on_work()
