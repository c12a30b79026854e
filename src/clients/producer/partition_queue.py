"""The queue of one partition: the order in which its batches are sent and put back. Pure.

Without sequence numbers a request carries as many batches as fit, and one request is in flight.
With numbers each request carries one batch, see `sequences`. A batch that is put back takes its old
place.
"""

from collections import deque
from collections.abc import Iterable

from ...errors import QuorumlogError
from ...records.batch import BATCHES_MAX
from ...runtime import Entropy
from .batches import Batch
from .sequences import IN_FLIGHT_MAX, ProducerSequence, SequenceNumbers


class Part:
    """Batches of one partition in one request; a single one if they are numbered."""

    __slots__ = ("batches", "queue")

    def __init__(self, queue: "PartitionQueue", batches: tuple[Batch, ...]) -> None:
        self.queue = queue
        self.batches = batches


class PartitionQueue:
    """The batches of one partition, oldest first: in flight, then closed, then the open one."""

    __slots__ = (
        "address",
        "closed",
        "failures",
        "is_due",
        "is_listed",
        "is_parked",
        "is_recovering",
        "last_error",
        "numbering",
        "open",
        "partition",
        "parts",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes = b"",
        *,
        numbering: SequenceNumbers | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id  # the records must not go to another topic of the same name
        self.partition = partition
        self.numbering = numbering  # None: the producer is not idempotent
        self.open: Batch | None = None
        self.is_due = False  # the open batch has lingered
        self.closed: deque[Batch] = deque()
        self.parts: deque[Part] = deque()  # in flight, oldest first
        self.address = ""  # the broker that they were sent to
        self.is_recovering = False  # one of them failed: nothing is sent until all are answered
        self.is_listed = False  # in `ready`, or offered to a leader's link
        self.is_parked = False  # waits for a backoff or for a leader
        self.failures = 0  # consecutive
        self.last_error: QuorumlogError | None = None

    @property
    def in_flight(self) -> tuple[Batch, ...]:
        """The batches in flight, oldest first."""
        return tuple(batch for part in self.parts for batch in part.batches)

    @property
    def next_size(self) -> int:
        """The size of the next batch to send, in bytes."""
        batch = self.closed[0] if self.closed else self.open
        return batch.size if batch is not None else 0

    @property
    def has_turn(self) -> bool:
        """True if more may be sent now: several numbered batches (see `sequences`), or one
        request."""
        if not self.parts:
            return True
        numbering = self.numbering
        return (
            numbering is not None
            and numbering.is_trusted
            and not numbering.has_gap
            and not self.is_recovering
            and len(self.parts) < IN_FLIGHT_MAX
        )


class TopicQueues:
    """The queues of one topic."""

    __slots__ = ("batch_size", "led", "left", "name", "queues", "sticky", "topic_id")

    def __init__(self, name: str, topic_id: bytes, batch_size: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.batch_size = batch_size  # the producer's, or less if the topic's limit is lower
        self.queues: list[PartitionQueue] = []  # by partition index
        self.led: list[PartitionQueue] = []  # the partitions with a leader; all if none has one
        self.sticky: PartitionQueue | None = None  # takes records without a key for one batch
        self.left: PartitionQueue | None = None  # the sticky partition before

    @property
    def partition_count(self) -> int:
        """The number of partitions, with and without a leader."""
        return len(self.queues)

    def grow(self, partitions: int, *, is_idempotent: bool) -> None:
        """Add queues up to this number of partitions."""
        for partition in range(len(self.queues), partitions):
            numbering = SequenceNumbers() if is_idempotent else None
            self.queues.append(
                PartitionQueue(self.name, partition, self.topic_id, numbering=numbering)
            )

    def lead(self, leaderless: Iterable[int]) -> None:
        """Record the partitions without a leader."""
        without = frozenset(leaderless)
        self.led = [queue for queue in self.queues if queue.partition not in without] or self.queues
        if self.sticky is not None and self.sticky not in self.led:
            self.unstick(self.sticky)

    def unstick(self, queue: PartitionQueue) -> None:
        """End the stickiness to this partition."""
        if self.sticky is queue:
            self.left, self.sticky = queue, None

    def stick(self, entropy: Entropy) -> PartitionQueue:
        """Choose another sticky partition at random among those with a leader."""
        old, led = self.sticky or self.left, self.led
        place = entropy.below(len(led))
        if led[place] is old and len(led) > 1:
            place = (place + 1 + entropy.below(len(led) - 1)) % len(led)
        self.sticky = led[place]
        return self.sticky


def take(queue: PartitionQueue, size_max: int, *, fresh_id: int, now_ms: int) -> Part | None:
    """Put the oldest closed batches in flight: up to `size_max` bytes and BATCHES_MAX batches, but
    at least one batch.

    Assigns sequence numbers, with producer id `fresh_id` if a new one is needed. Returns None if
    there is nothing to send. The queue must have its turn.
    """
    assert queue.has_turn, f"{queue.topic}-{queue.partition} has requests in flight"
    if not queue.closed:
        return None
    batch = queue.closed.popleft()
    taken, size = [batch], batch.size
    if queue.numbering is not None:
        _give_number(queue, batch, fresh_id=fresh_id, now_ms=now_ms)
    else:
        while queue.closed and len(taken) < BATCHES_MAX and not taken[-1].goes_alone:
            batch = queue.closed[0]
            if size + batch.size > size_max or batch.goes_alone:
                break
            taken.append(queue.closed.popleft())
            size += batch.size
    part = Part(queue, tuple(taken))
    for batch in part.batches:
        batch.part = part
    queue.parts.append(part)
    return part


def remove_from_flight(part: Part, *, has_failed: bool) -> bool:
    """Remove a part from flight; return False if it was not (a closing producer has taken it
    back)."""
    queue = part.queue
    if part not in queue.parts:
        return False
    queue.parts.remove(part)
    for batch in part.batches:
        batch.part = None
        batch.is_sent = False
    if has_failed and queue.numbering is not None:
        queue.numbering.is_trusted = False
        queue.is_recovering = True
    if not queue.parts:
        queue.is_recovering = False
    return True


def bring_back(part: Part) -> None:
    """Put the batches of a part that is no longer in flight in their old places."""
    closed = part.queue.closed
    for batch in part.batches:
        at = 0
        while at < len(closed) and closed[at].place < batch.place:
            at += 1
        closed.insert(at, batch)


def renumber(part: Part, *, is_fenced: bool, is_transactional: bool) -> bool:
    """Prepare a batch for a retry after the leader refused its sequence number or epoch.

    `is_fenced`: another producer has its id. The retry waits for the batches before it or gets
    another number (rules 4 and 5 of `sequences`). Returns False if the batch may be stored and no
    number can prevent a duplicate, and for the first batch if `is_transactional`: its failure makes
    the transaction abortable.
    """
    (batch,), numbering = part.batches, part.queue.numbering
    assert numbering is not None, "only idempotent producers give numbers"
    if not _is_first(batch):
        # sometimes: a later batch is refused before the first one
        return True
    if is_transactional:
        return False
    is_present = numbering.is_current(batch.number)
    if is_present and is_fenced:
        # sometimes: another producer has the producer id
        numbering.is_spent = True
    if batch.may_be_stored and (is_fenced or numbering.has_gap or not is_present):
        # sometimes: the outcome of a batch stays unknown
        return False
    # sometimes: a refused batch gets another number
    numbering.give_up(batch.number)
    batch.number = None
    return True


def _is_first(batch: Batch) -> bool:
    """Return True if no earlier batch of the partition lacks an outcome."""
    queue = batch.queue
    oldest = queue.parts[0].batches[0] if queue.parts else batch
    waiting = queue.closed[0] if queue.closed else batch
    return min(oldest.place, waiting.place) >= batch.place


def divide(number: ProducerSequence | None, parts: tuple[tuple[int, Batch], ...]) -> None:
    """Divide a batch's range of sequence numbers among its halves."""
    if number is not None:
        for first, part in parts:
            part.number = number.after(first)


def _give_number(queue: PartitionQueue, batch: Batch, *, fresh_id: int, now_ms: int) -> None:
    numbering = queue.numbering
    assert numbering is not None, "the producer is idempotent"
    if not queue.parts:
        numbering.expire_trust(now_ms)
    if numbering.has_gap and numbering.is_current(batch.number) and not batch.may_be_stored:
        batch.number = None
    if batch.number is None:
        if numbering.needs_identity:
            # sometimes if queue.closed: batches wait for a new producer epoch
            numbering.begin(fresh_id)
            for other in queue.closed:  # their old numbers cannot follow the new one
                other.number = None
        batch.number = numbering.give(batch.count)
