"""Where records wait for their request: a queue of batches for each partition, bounded in bytes.

Pure: the sender tells it the time, and it says through `on_work` that the sender has something to
do. The life of a batch: *open* (takes records) -> *closed* (full, or its linger has ended) -> *in
flight* (at most one group a partition, which keeps the order) -> done; or back to the front of
*closed* when the request failed in a way that may be repeated.

Invariants: `buffered` is the sum of what is held by all batches that are not done; a queue is in
`ready` exactly when `is_listed`, and then it has closed batches and nothing in flight.

Not thread-safe: the blocking face holds one lock around `accept` and around the sender's calls.
Taking a record may be interrupted between any two steps (Ctrl-C in a thread that sends): it is then
finished or undone before the interruption goes on, see `_mend`.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat

from ...errors import MessageTooLarge, QuorumlogError, UnknownTopicOrPartition
from ...records.batch import HEADER_SIZE
from ...runtime import Entropy
from ..config import ProducerConfig
from ..topology import absent
from .batch_encoding import content_size, headers_size, split
from .batches import (
    OBJECT_OVERHEAD,
    RECORD_OVERHEAD,
    Batch,
    Headers,
    OnDelivery,
    PartitionQueue,
    TopicQueues,
)
from .columns import Bulk
from .failures import Failures
from .partitioner import CrcPartitioner, KeyPartitioner, Partitioner, choose, stick


class Accumulator:
    """See the module."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        entropy: Entropy,
        partitioner: Partitioner,
        on_work: Callable[[], object],
    ) -> None:
        self.ready: deque[PartitionQueue] = deque()
        self.buffered = 0  # bytes held by the batches that are not done
        self._topics: dict[str, TopicQueues] = {}
        self._open_topics = self._topics  # those that take records; none after `refuse`
        self._entropy = entropy
        self.partitioner = partitioner
        self._sticks_without_key = partitioner is stick or isinstance(
            partitioner, KeyPartitioner | CrcPartitioner
        )
        # Ours do not fail, and may be asked without a net.
        self._ask: Partitioner = (
            partitioner if self._sticks_without_key else partial(choose, partitioner)
        )
        self._on_work = on_work
        self._batch_size_max = min(config.batch_size, config.request_size_max)
        self._buffer_size = config.buffer_size
        self._request_size_max = config.request_size_max
        self._linger_ms = config.linger_ms
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._new: list[Batch] = []  # not stamped with their times yet
        self._lingering: OrderedDict[Batch, None] = OrderedDict()  # open ones, by linger_end_ms
        self._unfinished: OrderedDict[Batch, None] = OrderedDict()  # oldest first
        self.failures = Failures()

    # --- the side that gives records -------------------------------------------------------

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
        """Take one record and return its batch (it is the last of it); None when there is no room,
        or when the topic, or the partition that the caller names, is not known here: `admit` or
        wait, then repeat.

        Raises UnknownTopicOrPartition for a negative partition, PartitionerFailed, and
        MessageTooLarge for a record that no request can carry.
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
                self._check_partition(topic, partition)
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
                self._mend()
            raise
        return batch

    def accept_run(
        self, topic: str, bulk: Bulk, first: int, partition: int | None, timestamp_ms: int
    ) -> tuple[Batch | None, int]:
        """Take one record, and those behind it that go into the same batch; return how many."""
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
            self._mend()
            raise
        return batch, 1 + count

    def refuse(self) -> None:
        """Take no more records: `accept` returns None from now on."""
        self._open_topics = {}

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes fit; one item always does when nothing is buffered."""
        return not self.buffered or self.buffered + size <= self._buffer_size

    def add_encoded(self, topic: str, partition: int, encoded: bytes, count: int) -> Batch:
        """Queue a batch that is encoded already, behind what the partition has; room is the
        caller's business."""
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
    ) -> list[Batch]:
        """Know a topic, or that it has more partitions than before, and how large its batches may
        be: so that a record is refused for its own size, never for its neighbours'.

        Returns, for the caller to fail, what waits for a topic of this name and another id: it was
        deleted and made anew. What of it is in flight stays so, in queues that `abandon` empties.
        """
        anew: list[Batch] = []
        topic_queues = self._topics.get(topic)
        if topic_queues is not None and topic_queues.topic_id != topic_id:
            anew = self.forget_topic(topic)
            topic_queues = None
        if topic_queues is None:
            topic_queues = TopicQueues(topic, topic_id, self._batch_size_max)
            self._topics[topic] = topic_queues
        if message_bytes_max is not None:
            room = message_bytes_max * 15 // 16 - HEADER_SIZE  # sizes here are estimates
            topic_queues.batch_size = max(1, min(self._batch_size_max, room))
        for partition in range(len(topic_queues.queues), partitions):
            topic_queues.queues.append(PartitionQueue(topic, partition, topic_id))
        return anew

    def shrink(self, topic: str, partitions: int) -> list[Batch]:
        """A topic has fewer partitions than before (it was deleted and made again): return what
        waits for those that are gone and is not in flight, for the caller to fail."""
        topic_queues = self._topics.get(topic)
        if topic_queues is None or len(topic_queues.queues) <= partitions:
            return []
        gone = topic_queues.queues[partitions:]
        del topic_queues.queues[partitions:]
        if topic_queues.sticky in gone:
            topic_queues.sticky = None
        return self._waiting(gone)

    def abandon(self, queue: PartitionQueue) -> list[Batch]:
        """A queue's partition does not exist, or its topic: return what waits in it, for the caller
        to fail."""
        return self._waiting([queue])

    def encoded(self, batch: Batch, encoded: bytes) -> None:
        """A batch is encoded: from now on it takes the room of its bytes."""
        self.buffered -= batch.held
        batch.become_encoded(encoded)
        self.buffered += batch.held

    @property
    def takes_runs(self) -> bool:
        """Whether records without a key may go where the one before went, unasked."""
        return self._sticks_without_key

    def statistics(self) -> tuple[int, int, int]:
        """Return (records not done, of those in flight, bytes held)."""
        records = in_flight = 0
        for batch in self._unfinished:
            records += batch.count
            if batch.is_sent:
                in_flight += batch.count
        return records, in_flight, self.buffered

    def batch_size(self, topic: str) -> int:
        """Return the bytes that a batch of an admitted topic may have before compression."""
        return self._topics[topic].batch_size

    def knows(self, topic: str) -> bool:
        """Whether the topic was admitted."""
        return topic in self._topics

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic that was admitted."""
        return len(self._topics[topic].queues)

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return a partition's queue; raises UnknownTopicOrPartition when there is none."""
        topic_queues = self._topics.get(topic)
        if topic_queues is None:
            raise UnknownTopicOrPartition("the topic is gone", topic=topic, partition=partition)
        queues = topic_queues.queues
        if not 0 <= partition < len(queues):
            raise absent(topic, partition, len(queues))
        return queues[partition]

    # --- the side that sends ---------------------------------------------------------------

    def close_due(self, now_ms: int) -> int | None:
        """Close the batches whose linger has ended; return when the next one's will, if any.

        A batch's time begins at the first call after it was opened: only the sender knows a clock
        that may be read on its thread.
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
            self._close(batch.queue)
        return None

    def close_all(self) -> list[Batch]:
        """Close every open batch; return all batches that are not done."""
        for batch in self._unfinished:
            if batch.queue.open is batch:
                self._close(batch.queue)
        return list(self._unfinished)

    def take(self, queue: PartitionQueue, size_max: int) -> tuple[Batch, ...]:
        """Put the oldest closed batches of a listed queue in flight, up to `size_max` bytes but at
        least one; () when it has none any more."""
        assert queue.is_listed, f"{queue.topic}-{queue.partition} is taken without being listed"
        assert not queue.in_flight, f"{queue.topic}-{queue.partition} has a request in flight"
        queue.is_listed = False
        taken: list[Batch] = []
        size = 0
        while queue.closed:
            batch = queue.closed[0]
            if taken and (size + batch.size > size_max or batch.goes_alone):
                break
            taken.append(queue.closed.popleft())
            size += batch.size
            if batch.goes_alone:
                break
        queue.in_flight = tuple(taken)
        return queue.in_flight

    def stored(self, queue: PartitionQueue) -> tuple[Batch, ...]:
        """What is in flight was acknowledged: return it, for the caller to complete."""
        batches, queue.in_flight = queue.in_flight, ()
        queue.failures = 0
        queue.last_error = None
        for batch in batches:
            self._forget(batch)
        self._list(queue)
        return batches

    def refused(self, queue: PartitionQueue) -> tuple[Batch, ...]:
        """What is in flight was refused for good: return it, for the caller to fail; or (), when
        several batches were refused together and each will be sent alone to find the bad one."""
        batches, queue.in_flight = queue.in_flight, ()
        if len(batches) > 1:
            for batch in batches:
                batch.goes_alone = True
            queue.closed.extendleft(reversed(batches))
            batches = ()
        self._drop(batches)
        self._list(queue)
        return batches

    def split(self, queue: PartitionQueue) -> bool:
        """The one batch in flight was too large: put its halves in its place and return True;
        False when it has only one record."""
        (batch,) = queue.in_flight
        if batch.count == 1:
            return False
        parts = split(batch)
        queue.in_flight = ()
        self._forget(batch)
        batch.become(parts)
        for _, part in reversed(parts):
            queue.closed.appendleft(part)
            self._unfinished[part] = None
            self._unfinished.move_to_end(part, last=False)
            self.buffered += part.held
            if not part.deadline_ms:
                self._new.append(part)  # as the whole one, which was not stamped yet
        self._list(queue)
        return True

    def put_back(self, queue: PartitionQueue, error: QuorumlogError) -> None:
        """What is in flight is to be sent again, in its old place; the queue is parked until
        `unpark`."""
        queue.closed.extendleft(reversed(queue.in_flight))
        queue.in_flight = ()
        queue.failures += 1
        queue.last_error = error
        queue.is_parked = True

    def park(self, queue: PartitionQueue) -> None:
        """A listed queue cannot be sent now: keep it out of `ready` until `unpark`."""
        queue.is_listed = False
        queue.is_parked = True

    def unpark(self, queue: PartitionQueue) -> None:
        """List a parked queue again, if it has anything to send."""
        queue.is_parked = False
        self._list(queue)

    def expired(self, now_ms: int) -> tuple[list[Batch], int | None]:
        """Take out the batches whose delivery deadline has passed and that are not in flight:
        return them, for the caller to fail, with the next deadline.

        A batch in flight is left: its request has a deadline of its own.
        """
        late: list[Batch] = []
        next_ms: int | None = None
        for batch in self._unfinished:
            if batch in batch.queue.in_flight:
                continue
            if batch.deadline_ms <= now_ms:
                late.append(batch)
                continue
            next_ms = batch.deadline_ms if next_ms is None else min(next_ms, batch.deadline_ms)
            if batch.whole is None:
                break  # all behind it are younger, which is not so behind a part
        self._pull(late)
        return late, next_ms

    def forget_topic(self, topic: str, waiting: Sequence[PartitionQueue] = ()) -> list[Batch]:
        """Forget a topic that is gone: return what of it is not in flight, for the caller to
        fail. `waiting` are queues of it: those that were in flight when it was forgotten before
        are known to nobody else."""
        topic_queues = self._topics.pop(topic, None)
        queues = topic_queues.queues if topic_queues is not None else []
        return self._waiting([*queues, *waiting])

    def _waiting(self, queues: Sequence[PartitionQueue]) -> list[Batch]:
        """Take out what waits in queues."""
        batches: list[Batch] = []
        for queue in dict.fromkeys(queues):
            batches.extend(queue.closed)
            if queue.open is not None:
                batches.append(queue.open)
        self._pull(batches)
        return batches

    def take_all(self) -> list[Batch]:
        """The producer ends: return every batch that is not done, for the caller to fail."""
        batches = list(self._unfinished)
        for batch in batches:
            batch.queue.in_flight = ()
            batch.queue.closed.clear()
            batch.queue.open = None
        self._drop(batches)
        return batches

    # --- within ----------------------------------------------------------------------------

    def _check_partition(self, topic: str, partition: int) -> None:
        """Raise UnknownTopicOrPartition for what no topic ever has."""
        if partition < 0:
            self.queue(topic, partition)

    def _next_batch(
        self, topic_queues: TopicQueues, queue: PartitionQueue | None, size: int, *, is_free: bool
    ) -> Batch:
        """Return an open batch with room for `size` bytes, of another partition if the choice is
        free: the one before is full, or there was none."""
        if queue is not None and queue.open is not None:
            self._close(queue)
        if is_free:
            queue = self._stick(topic_queues)
        assert queue is not None, "a choice that is not free has made it"
        batch = queue.open  # of records with keys, where the choice was free
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

    def _stick(self, topic_queues: TopicQueues) -> PartitionQueue:
        """Move on to another partition, drawn among the others."""
        queues, old = topic_queues.queues, topic_queues.sticky
        if old is None or len(queues) == 1:
            chosen = queues[self._entropy.below(len(queues))]
        else:
            chosen = queues[
                (old.partition + 1 + self._entropy.below(len(queues) - 1)) % len(queues)
            ]
        topic_queues.sticky = chosen
        return chosen

    def _begin(self, queue: PartitionQueue) -> Batch:
        batch = Batch(queue)
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
        self._list(queue)

    def _list(self, queue: PartitionQueue) -> None:
        if queue.closed and not (queue.is_listed or queue.in_flight or queue.is_parked):
            self.ready.append(queue)
            queue.is_listed = True
            self._on_work()

    def _pull(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.queue.open is batch:
                batch.queue.open = None
            else:
                batch.queue.closed.remove(batch)  # it is in front, unless one has been sent again
        self._drop(batches)

    def _drop(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._forget(batch)
        self.failures.add(batches)

    def _forget(self, batch: Batch) -> None:
        del self._unfinished[batch]
        self._lingering.pop(batch, None)
        self.buffered -= batch.held
        assert self.buffered >= 0, f"{self.buffered} bytes are buffered"

    def _mend(self) -> None:
        """Taking a record was interrupted between two steps: finish what is half closed, and undo
        what is half taken."""
        for queue in self.ready:
            queue.is_listed = True
        for batch in list(self._unfinished):
            queue = batch.queue
            if queue.open is not batch:
                if not batch.count:
                    self._unfinished.pop(batch)  # its queue has not got it yet
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
