"""The record buffer: records are appended to the open batches of the topics' partitions.

Pure: the sender passes the time. `incomplete_batches` bounds the buffer in bytes; `ready_queues`
has the states of a batch and its way to the sender.

Not thread-safe: the blocking producer holds one lock around `accept` and the sender's calls.
Appending a record may be interrupted between any two steps (Ctrl-C in a sending thread):
`_complete_or_undo` completes or undoes it before the interruption propagates.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat

from ...errors import QuorumlogError, UnknownTopicOrPartition
from ...records.batch import HEADER_SIZE
from ...records.record import Headers
from ...runtime import Entropy
from ..config import ProducerConfig
from ..topology import absent
from .batch_encoder import headers_size
from .batches import OBJECT_OVERHEAD, RECORD_OVERHEAD, Batch, OnDelivery
from .incomplete_batches import IncompleteBatches
from .partition_queue import PartitionQueue, TopicQueues
from .partitioner import CrcPartitioner, KeyPartitioner, Partitioner, choose, stick
from .ready_queues import ReadyQueues
from .record_input import Bulk, check_size


class Accumulator:
    """The record buffer of one producer; see the module."""

    def __init__(
        self,
        config: ProducerConfig,
        incomplete: IncompleteBatches,
        ready: ReadyQueues,
        *,
        entropy: Entropy,
        partitioner: Partitioner,
    ) -> None:
        self._incomplete = incomplete
        self._ready = ready
        self._topics: dict[str, TopicQueues] = {}
        self._open_topics = self._topics  # topics that accept records; empty after `refuse`
        self._entropy = entropy
        self.partitioner = partitioner
        # Records without a key may be appended in runs, without the partitioner.
        self.takes_runs = partitioner is stick or isinstance(
            partitioner, KeyPartitioner | CrcPartitioner
        )
        # The built-in partitioners do not raise: call them without the checks of `choose`.
        self._ask: Partitioner = partitioner if self.takes_runs else partial(choose, partitioner)
        self._batch_size_max = min(config.batch_size, config.max_request_size)
        self._buffer_size = config.buffer_size
        self._request_size_max = config.max_request_size
        self._is_idempotent = config.is_idempotent

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
        incomplete = self._incomplete
        buffered = incomplete.buffered + size + OBJECT_OVERHEAD
        if topic_queues is None or (buffered > self._buffer_size and incomplete.buffered):
            check_size(topic, size, self._request_size_max)
            return None
        if key is None and partition is None and self.takes_runs:
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
                check_size(topic, size, self._request_size_max)
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
            incomplete.buffered = buffered
            if batch.size >= topic_queues.batch_size:
                self._ready.close_open(batch.queue)
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
        incomplete = self._incomplete
        count = min(fit, (self._buffer_size - incomplete.buffered) // held_max)
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
            incomplete.buffered += size + count * OBJECT_OVERHEAD
        except BaseException:
            self._complete_or_undo()
            raise
        return batch, 1 + count

    def refuse(self) -> None:
        """Accept no more records: `accept` returns None from now on."""
        self._open_topics = {}

    def resume(self) -> None:
        """Accept records again, after `refuse`."""
        self._open_topics = self._topics

    def add_encoded(self, topic: str, partition: int, encoded: bytes, count: int) -> Batch:
        """Queue an encoded batch after the partition's other batches; the caller checks the
        space."""
        queue = self.queue(topic, partition)
        if queue.open is not None:
            self._ready.close_open(queue)
        batch = self._incomplete.begin(queue)
        batch.become_encoded(encoded)
        batch.count = count
        self._incomplete.buffered += batch.held
        queue.closed.append(batch)
        self._ready.update(queue)
        return batch

    # --- topics ------------------------------------------------------------------------------

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
        self._ready.retire(gone)
        return self._waiting(gone)

    def abandon(self, queue: PartitionQueue) -> list[Batch]:
        """Return the waiting batches of a queue after its partition or topic was deleted, to be
        failed."""
        return self._waiting([queue])

    def has_topic(self, topic: str) -> bool:
        """Return True if the topic was admitted."""
        return topic in self._topics

    def topic_queues(self, topic: str) -> TopicQueues:
        """Return the queues of an admitted topic, with the limit of a batch in bytes before
        compression."""
        return self._topics[topic]

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return a partition's queue; raise UnknownTopicOrPartition if there is none."""
        topic_queues = self._topics.get(topic)
        if topic_queues is None:
            raise UnknownTopicOrPartition("the topic was deleted", topic=topic, partition=partition)
        queues = topic_queues.queues
        if not 0 <= partition < len(queues):
            raise absent(topic, partition, len(queues))
        return queues[partition]

    def queues(self) -> list[PartitionQueue]:
        """Return the queues of all admitted topics."""
        return [queue for topic in self._topics.values() for queue in topic.queues]

    def forget_topic(self, topic: str, waiting: Sequence[PartitionQueue] = ()) -> list[Batch]:
        """Remove a deleted topic; return its batches that are not in flight, for the caller to
        fail.

        `waiting` are queues of it that had batches in flight when it was removed before.
        """
        topic_queues = self._topics.pop(topic, None)
        queues = topic_queues.queues if topic_queues is not None else []
        self._ready.retire(queues)
        return self._waiting([*queues, *waiting])

    def _waiting(self, queues: Sequence[PartitionQueue]) -> list[Batch]:
        """Remove and return the batches of queues that are not in flight."""
        batches: list[Batch] = []
        for queue in dict.fromkeys(queues):
            batches.extend(queue.closed)
            if queue.open is not None:
                batches.append(queue.open)
        self._incomplete.withdraw(batches)
        return batches

    # --- closing batches ---------------------------------------------------------------------

    def close_due(self, now_ms: int) -> int | None:
        """List the queues with a lingered open batch; return the time of the next one, if any."""
        lingered, next_ms = self._incomplete.lingered(now_ms)
        for batch in lingered:
            queue = batch.queue
            queue.is_due = True  # `take` closes it
            topic_queues = self._topics.get(queue.topic)
            if topic_queues is not None:
                topic_queues.unstick(queue)
            self._ready.update(queue)
        return next_ms

    def close_all(self) -> list[Batch]:
        """Close every open batch; return all batches without an outcome."""
        for batch in self._incomplete:
            if batch.queue.open is batch:
                self._ready.close_open(batch.queue)
        return list(self._incomplete)

    # --- internals ---------------------------------------------------------------------------

    def _next_batch(
        self, topic_queues: TopicQueues, queue: PartitionQueue | None, size: int, *, is_free: bool
    ) -> Batch:
        """Return an open batch with space for `size` bytes; of another partition if `is_free`."""
        if queue is not None and queue.open is not None:
            self._ready.close_open(queue)
        if is_free:
            queue = topic_queues.stick(self._entropy)
        assert queue is not None, "an explicit partition without its queue"
        batch = queue.open  # the new sticky partition may have one of records with keys
        if batch is not None and batch.size + size > topic_queues.batch_size:
            self._ready.close_open(queue)
            batch = None
        if batch is None:
            batch = queue.open = self._incomplete.begin(queue)
        return batch

    def _complete_or_undo(self) -> None:
        """Complete or undo the append of a record after an interruption between two steps."""
        self._ready.restore(self._incomplete.complete_or_undo())
