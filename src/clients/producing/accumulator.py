"""Where records wait for their request: a queue of batches for each partition, bounded in bytes.

Pure: the sender tells it the time, and it says through `on_work` that the sender has something to
do. The life of a batch: *open* (takes records) -> *closed* (full, or its linger has ended) -> *in
flight* (at most one group a partition, which keeps the order) -> done; or back to the front of
*closed* when the request failed in a way that may be repeated.

Invariants: `buffered` is the sum of what is held by all batches that are not done; a queue is in
`ready` exactly when `is_listed`, and then it has something to send, and its turn.

Not thread-safe: the blocking face holds one lock around `accept` and around the sender's calls.
Taking a record may be interrupted between any two steps (Ctrl-C in a thread that sends): it is then
finished or undone before the interruption goes on, see `_mend`.
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
from . import ordering
from .batch_encoding import content_size, headers_size, split
from .batches import (
    OBJECT_OVERHEAD,
    RECORD_OVERHEAD,
    Batch,
    Headers,
    OnDelivery,
    Part,
    PartitionQueue,
    TopicQueues,
)
from .columns import Bulk
from .failures import Failures
from .numbering import NO_ID
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
        self.producer_id = NO_ID  # for partitions that need one, see `lacks_id`
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
        self._is_idempotent = config.is_idempotent
        self._opened = 0  # batches, ever: the order of those of a partition
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
                if partition < 0:
                    self.queue(topic, partition)  # raises: no topic ever has it
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
        leaderless: Iterable[int] = (),
    ) -> list[Batch]:
        """Know a topic, or that it has more partitions than before, which of them nobody leads, and
        how large its batches may be: so that a record is refused for its own size, never for its
        neighbours'.

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
        topic_queues.grow(partitions, is_idempotent=self._is_idempotent)
        topic_queues.lead(leaderless)
        return anew

    def shrink(self, topic: str, partitions: int) -> list[Batch]:
        """A topic has fewer partitions than before (it was deleted and made again): return what
        waits for those that are gone and is not in flight, for the caller to fail."""
        topic_queues = self._topics.get(topic)
        if topic_queues is None or len(topic_queues.queues) <= partitions:
            return []
        gone = topic_queues.queues[partitions:]
        del topic_queues.queues[partitions:]
        topic_queues.lead(queue.partition for queue in gone)
        self._retire(gone)
        return self._waiting(gone)

    def abandon(self, queue: PartitionQueue) -> list[Batch]:
        """A queue's partition does not exist, or its topic: return what waits in it, for the caller
        to fail."""
        return self._waiting([queue])

    def encoded(self, batch: Batch, encoded: bytes) -> None:
        """A batch is encoded: from now on it takes the room of its bytes."""
        self.buffered -= batch.held
        batch.become_encoded(encoded, batch.number)
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
        """Have the batches leave whose linger has ended; return when the next one's will, if any.

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
            del self._lingering[batch]
            queue = batch.queue
            queue.is_due = True  # it is closed when it is taken
            topic_queues = self._topics.get(queue.topic)
            if topic_queues is not None:
                topic_queues.unstick(queue)
            self._list(queue)
        return None

    def close_all(self) -> list[Batch]:
        """Close every open batch; return all batches that are not done."""
        for batch in self._unfinished:
            if batch.queue.open is batch:
                self._close(batch.queue)
        return list(self._unfinished)

    def lacks_id(self, queue: PartitionQueue) -> bool:
        """Whether the queue can only be taken once `producer_id` is another one."""
        numbering = queue.numbering
        if numbering is None or not numbering.needs_id:
            return False
        return self.producer_id in (NO_ID, numbering.producer_id)

    def take(self, queue: PartitionQueue, size_max: int, now_ms: int = 0) -> Part | None:
        """Put the oldest batches of a listed queue in flight, see `ordering.take`; None when it
        has none any more, or has to wait for what is in flight."""
        assert queue.is_listed, f"{queue.topic}-{queue.partition} is taken without being listed"
        if not queue.has_turn or self.lacks_id(queue):  # since it was listed
            queue.is_listed = False
            self._list(queue)
            return None
        if queue.is_due and queue.open is not None and not queue.closed:
            self._close(queue)
        queue.is_listed = False
        part = ordering.take(queue, size_max, fresh_id=self.producer_id, now_ms=now_ms)
        self._list(queue)
        return part

    def stored(self, part: Part, now_ms: int = 0) -> tuple[Batch, ...]:
        """What is in flight was acknowledged: return it, for the caller to complete."""
        queue = part.queue
        is_trusted = queue.numbering is not None and not queue.is_recovering
        if not ordering.land(part, has_failed=False):
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
        """What is in flight was refused for good: return it, for the caller to fail; or (), when
        several batches were refused together and each will be sent alone to find the bad one."""
        queue, batches = part.queue, part.batches
        if not ordering.land(part, has_failed=True):
            return ()
        if len(batches) > 1:
            for batch in batches:
                batch.goes_alone = True
            ordering.bring_back(part)
            batches = ()
        self._drop(batches)
        self._list(queue)
        return batches

    def misplaced(
        self, part: Part, error: QuorumlogError, *, is_fenced: bool
    ) -> tuple[bool, tuple[Batch, ...]]:
        """The leader refused a number, see `ordering.renumber`: returns as `put_back`, with the
        batches that the caller is to fail since nothing can tell any more whether they are
        stored."""
        if ordering.renumber(part, is_fenced=is_fenced):
            return self.put_back(part, error), ()
        return False, self.refused(part)

    def split(self, part: Part) -> bool:
        """The one batch in flight was too large: put its halves in its place and return True;
        False when it has only one record."""
        (batch,), queue = part.batches, part.queue
        if batch.count == 1:
            return False
        halves = split(batch)
        ordering.land(part, has_failed=True)
        self._forget(batch)
        batch.become(halves)
        ordering.divide(batch.number, halves)
        for _, half in reversed(halves):
            half.order = batch.order
            self._unfinished[half] = None
            self._unfinished.move_to_end(half, last=False)
            self.buffered += half.held
            if not half.deadline_ms:
                self._new.append(half)  # as the whole one, which was not stamped yet
        ordering.bring_back(Part(queue, tuple(half for _, half in halves)))
        self._list(queue)
        return True

    def put_back(self, part: Part, error: QuorumlogError | None) -> bool:
        """What is in flight is to be sent again, in its old place; None: it was not sent at all,
        since one before it has failed. True: the queue is parked until `unpark`; False: it is done
        with, or one before it has failed, too."""
        queue = part.queue
        was_recovering = queue.is_recovering
        if not ordering.land(part, has_failed=True):
            return False
        ordering.bring_back(part)
        queue.last_error = error or queue.last_error
        if not was_recovering:
            queue.failures += 1
            queue.is_parked = True
        self._list(queue)
        return not was_recovering

    def hold(self, queue: PartitionQueue) -> None:
        """A listed queue cannot be sent before what is in flight of it has come back."""
        assert queue.parts, f"nothing of {queue.topic}-{queue.partition} will come back"
        queue.is_listed = False

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
            if batch.part is not None:
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
        self._retire(queues)
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
            batch.queue.parts.clear()
            batch.queue.closed.clear()
            batch.queue.open = None
            batch.part = None
        self._drop(batches)
        return batches

    # --- within ----------------------------------------------------------------------------

    def _next_batch(
        self, topic_queues: TopicQueues, queue: PartitionQueue | None, size: int, *, is_free: bool
    ) -> Batch:
        """Return an open batch with room for `size` bytes, of another partition if the choice is
        free: the one before is full, or there was none."""
        if queue is not None and queue.open is not None:
            self._close(queue)
        if is_free:
            queue = topic_queues.stick(self._entropy)
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
                batch.queue.closed.remove(batch)  # it is in front, unless one has been sent again
        self._drop(batches)

    def _drop(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._forget(batch)
            if batch.queue.numbering is not None:
                batch.queue.numbering.gave_up(batch.number)
        self.failures.add(batches)

    def _retire(self, queues: Sequence[PartitionQueue]) -> None:
        """Queues are gone for good. If their partitions come back, it is with other numbers: those
        of before would be taken for repeats."""
        if any(
            queue.numbering is not None and queue.numbering.producer_id >= 0 for queue in queues
        ):
            self.producer_id = NO_ID

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
