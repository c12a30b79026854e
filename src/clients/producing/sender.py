"""Carries closed batches from the accumulator to the partitions' leaders.

One coordinator task routes queues that have something to send, closes batches whose linger has
ended, parks queues that must wait and fails what is too late. One `LeaderLink` for each broker (see
`leader_link`) keeps the Produce stream. A queue is in exactly one place: listed in the accumulator,
offered to a link, in flight there, waiting for a look-up, or parked here; and what is in flight of
it is in flight at one link. So its order is kept across repeats and from leader to leader.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from typing import Any

from ...errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    Lost,
    MessageTooLarge,
    NotSent,
    OutOfOrderSequence,
    QuorumlogError,
    TimedOut,
    UnknownProducerId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...runtime import Scope
from ..config import ProducerConfig
from ..connection import Connection
from ..coordination import Changes, coordinate
from ..topology import TopicLayout, leaderless, numbered
from .accumulator import Accumulator
from .batches import Batch, Part, PartitionQueue
from .leader_link import LeaderLink
from .producer_id import ask_producer_id

MISPLACED = (OutOfOrderSequence, UnknownProducerId, InvalidProducerEpoch)
"""What a leader says of a batch whose number it does not expect."""

IDLE_WAIT_MS = 60_000  # nothing is due: look again after it, though every change wakes the task


class Sender:
    """See the module. Lives in the client's scope; `run` is its coordinator."""

    def __init__(
        self,
        connection: Connection,
        accumulator: Accumulator,
        config: ProducerConfig,
        *,
        scope: Scope,
        lock: AbstractContextManager[object],
    ) -> None:
        self._connection = connection
        self._clock = connection.runtime.clock
        self._accumulator = accumulator
        self._config = config
        self._scope = scope
        self._lock = lock
        self._links: dict[str, LeaderLink] = {}  # by address
        self._parked: dict[PartitionQueue, int] = {}  # until when, on now_ms()
        self._looked_up: dict[str, list[PartitionQueue]] = {}  # who waits, by topic being looked up
        self._look_ups: dict[asyncio.Task[None], None] = {}  # and the one of a producer id
        self._without_id: list[PartitionQueue] = []  # who waits for that
        self._work = asyncio.Event()
        self._changes = Changes()
        self.requests = 0  # parts of requests that were acknowledged, since the start
        self.delivered = 0  # records, as the four below
        self.failed = 0
        self.retries = 0  # batches that were put back to be sent again
        self.splits = 0  # batches that were halved

    # --- called by the producer --------------------------------------------------------------

    def fail(self, batches: Sequence[Batch], error: QuorumlogError) -> None:
        """Give batches that the accumulator has handed out that outcome."""
        for batch in batches:
            self.failed += batch.count
            batch.fail(error)
        self.announce()

    def wake(self) -> None:
        """The accumulator has something to do. On the loop's thread."""
        self._work.set()

    async def wait_change(self) -> None:
        """Return when batches have got their outcome, and so room is free, after this call."""
        await self._changes.wait()

    def announce(self) -> None:
        """End every `wait_change` that began before."""
        self._changes.announce()

    async def run(self) -> None:
        """Coordinate until cancelled."""
        await coordinate(self._step, self._work, self._clock)

    async def close(self) -> None:
        """End the links; what is in flight gets no outcome from here any more."""
        for task in list(self._look_ups):
            task.cancel()
        links, self._links = list(self._links.values()), {}
        try:
            await asyncio.gather(*[link.close() for link in links])
        finally:
            for link in links:
                link.abort()

    def admit(self, layout: TopicLayout) -> None:
        """Know a topic as it is now. What waits for one of its name that it replaced fails, and so
        does what waits for partitions that are gone."""
        topic, partitions = layout.name, len(layout.partitions)
        with self._lock:
            anew = self._accumulator.admit(
                topic,
                partitions,
                topic_id=layout.topic_id,
                message_bytes_max=layout.message_bytes_max,
                leaderless=self._connection.topology.leaderless(topic),
            )
            gone = self._accumulator.shrink(topic, partitions)
        for batch in anew:
            self.fail([batch], _made_anew(topic, batch.queue.partition))
        self.fail(gone, _no_partition(topic, partitions))

    # --- called by the links -----------------------------------------------------------------

    def on_stored(self, part: Part, base_offset: int, append_time_ms: int = -1) -> None:
        """A part was stored from `base_offset` on (-1: nobody will say), at the broker's time where
        the topic has it."""
        with self._lock:
            batches = self._accumulator.stored(part, self._clock.now_ms())
        self.requests += 1
        for batch in batches:
            self.delivered += batch.count
            batch.complete(base_offset, append_time_ms)
            if base_offset >= 0:
                base_offset += batch.count
        self.announce()

    def on_refused(self, part: Part, error: QuorumlogError) -> None:
        """A part's request failed: nothing of it was stored, or whether it was is unknown. Repeat
        it if that may help."""
        if part.batches[0].number is not None:
            if isinstance(error, DuplicateSequence):
                self.on_stored(part, -1)
                return
            if isinstance(error, MISPLACED):
                self._renumber(part, error)
                return
        if not error.retriable:
            self._refuse(part, error)
            return
        self._put_back(part, error, reason=error)

    def on_late(self, part: Part, error: QuorumlogError) -> None:
        """A part was not sent before its deadline: why an attempt failed, if there was one, says
        more than this."""
        self._put_back(part, error, reason=part.queue.last_error or error)

    def on_unsent(self, part: Part) -> None:
        """A part was not sent, since one of its partition before it has failed."""
        with self._lock:
            self._accumulator.put_back(part, None)

    def on_slow(self, link: LeaderLink, topics: Sequence[str]) -> None:
        """An answer takes long: another broker may lead by now, which this one can not say."""
        self._spawn(self._look_for_another(link, topics), name="look for another leader")

    async def _look_for_another(self, link: LeaderLink, topics: Sequence[str]) -> None:
        for topic in topics:
            with suppress(QuorumlogError):
                await self._connection.refresh(topic)
        link.leave_if_deposed()

    def _put_back(self, part: Part, error: QuorumlogError, *, reason: QuorumlogError) -> None:
        """Repeat a part that failed in a way that may pass; `reason` is told when time is up."""
        with self._lock:
            is_parked = self._accumulator.put_back(part, reason)
        is_news = self._connection.learn(part.queue.topic, part.queue.partition, error)
        self._repeat(part, is_parked=is_parked, is_soon=is_news)

    def _repeat(self, part: Part, *, is_parked: bool, is_soon: bool = False) -> None:
        """A part was put back: send it again after a back-off, or soon where the new leader is
        known."""
        queue = part.queue
        self.retries += len(part.batches)
        if is_parked and not is_soon:
            self._park(queue)
        elif is_soon:
            self._parked.pop(queue, None)
            with self._lock:
                self._accumulator.unpark(queue)

    def _renumber(self, part: Part, error: QuorumlogError) -> None:
        """The leader does not expect a batch's number."""
        is_fenced = isinstance(error, InvalidProducerEpoch)
        with self._lock:
            is_parked, batches = self._accumulator.misplaced(part, error, is_fenced=is_fenced)
        if batches:
            self.fail(batches, _unresolved(part.queue, error))
        else:
            self._repeat(part, is_parked=is_parked)

    def _refuse(self, part: Part, error: QuorumlogError) -> None:
        """Sending the same again is of no use: find the bad batch of several, halve one that is
        too large, and fail what can only fail."""
        queue = part.queue
        if not error.topic:
            error = copy(error)  # others may have it too
            error.topic, error.partition = queue.topic, queue.partition
        if isinstance(error, MessageTooLarge) and len(part.batches) == 1:
            (batch,) = part.batches
            self._connection.doubt(queue.topic)  # its limit is another than was known
            # As halves it would not be known for a repeat, were it stored as a whole already.
            may_come_twice = batch.number is not None and batch.may_be_stored
            with self._lock:
                is_split = not may_come_twice and self._accumulator.split(part)
            if is_split:
                self.splits += 1
                return
            error = _record_too_large(batch, error)
        with self._lock:
            batches = self._accumulator.refused(part)
        self.fail(batches, error)

    # --- coordination ------------------------------------------------------------------------

    def _step(self, now_ms: int) -> int:
        """Do all that can be done now; return when to look again."""
        for queue in [queue for queue, until_ms in self._parked.items() if until_ms <= now_ms]:
            del self._parked[queue]
            with self._lock:
                self._accumulator.unpark(queue)
        with self._lock:
            linger_end_ms = self._accumulator.close_due(now_ms)
            late, deadline_ms = self._accumulator.expired(now_ms)
            ready = list(self._accumulator.ready)
            self._accumulator.ready.clear()
        for batch in late:
            self._expire(batch)
        for queue in ready:
            self._route(queue)
        times = [linger_end_ms, deadline_ms, *self._parked.values()]
        times.extend(link.check_deadline(now_ms) for link in self._links.values())
        return min((time for time in times if time is not None), default=now_ms + IDLE_WAIT_MS)

    def _route(self, queue: PartitionQueue) -> None:
        """Offer a listed queue to its leader's link; while the leader is unknown it waits for the
        topic's look-up, while there is none for a back-off before the next look-up."""
        leader = self._connection.leader_now(queue.topic, queue.partition)
        if leader is None:
            with self._lock:
                self._accumulator.park(queue)
            if self._connection.is_known(queue.topic):
                if self._is_gone(queue):
                    return
                queue.failures += 1
                queue.last_error = leaderless(queue.topic, queue.partition)
                self._connection.doubt(queue.topic)
                self._park(queue)
            else:
                self._look_up(queue)
            return
        if queue.topic_id != leader.topic_id:
            self._fail_old_topic(queue)
            return
        if queue.parts and queue.address != leader.address:
            with self._lock:
                self._accumulator.hold(queue)
            return
        if self._accumulator.lacks_id(queue):
            self._ask_id(queue)
            return
        link = self._links.get(leader.address)
        if link is None:
            link = LeaderLink(
                self, self._connection, self._accumulator, self._config, leader.address
            )
            link.start(self._scope, self._lock)
            self._links[leader.address] = link
        link.offer(queue)

    def _is_gone(self, queue: PartitionQueue) -> bool:
        """Whether the topic has no such partition (any more): then what waits for it fails now."""
        layout = self._connection.topology.topic(queue.topic)
        if layout is None or queue.partition < len(layout.partitions):
            return False
        with self._lock:
            batches = self._accumulator.abandon(queue)
            batches += self._accumulator.shrink(queue.topic, len(layout.partitions))
        self.fail(batches, _no_partition(queue.topic, len(layout.partitions)))
        return True

    def _fail_old_topic(self, queue: PartitionQueue) -> None:
        """A queue's topic was deleted, and another one has its name: what waits for it fails."""
        layout = self._connection.topology.topic(queue.topic)
        assert layout is not None, f"{queue.topic} has a leader and no layout"
        with self._lock:
            self._accumulator.park(queue)
            batches = self._accumulator.abandon(queue)
        self.fail(batches, _made_anew(queue.topic, queue.partition))
        self.admit(layout)

    def _park(self, queue: PartitionQueue) -> None:
        wait_ms = self._connection.backoff.wait_ms(max(1, queue.failures))
        self._parked[queue] = self._clock.now_ms() + wait_ms
        self._work.set()

    def _expire(self, batch: Batch) -> None:
        queue = batch.queue
        cause = queue.last_error
        because = f"; the last attempt: {cause.message}" if cause is not None else ""
        error = TimedOut(
            f"not acknowledged within {self._config.delivery_timeout_ms} ms{because}",
            topic=queue.topic,
            partition=queue.partition,
        )
        error.__cause__ = cause
        self.fail([batch], error)

    # --- looking up producer ids and leaders -------------------------------------------------

    def _ask_id(self, queue: PartitionQueue) -> None:
        """Have the queue wait for another producer id, of which one is asked for at a time."""
        with self._lock:
            self._accumulator.park(queue)
        self._without_id.append(queue)
        if len(self._without_id) == 1:
            self._spawn(self._take_id(), name="producer id")

    async def _take_id(self) -> None:
        failure: QuorumlogError | None = None
        try:
            self._accumulator.producer_id = await ask_producer_id(self._connection)
        except QuorumlogError as error:
            failure = error
        waiting, self._without_id = self._without_id, []
        for queue in waiting:
            if failure is not None and failure.retriable:
                queue.failures += 1
                queue.last_error = failure
                self._park(queue)
                continue
            if failure is not None:
                with self._lock:
                    batches = self._accumulator.abandon(queue)
                self.fail(batches, failure)
            with self._lock:
                self._accumulator.unpark(queue)

    def _look_up(self, queue: PartitionQueue) -> None:
        """Have the queue wait for its topic's look-up, of which there is one at a time."""
        waiting = self._looked_up.get(queue.topic)
        if waiting is None:
            self._looked_up[queue.topic] = [queue]
            self._spawn(self._refresh(queue.topic), name=f"look-up {queue.topic}")
        else:
            waiting.append(queue)

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        task = self._scope.spawn(work, name=name)
        self._look_ups[task] = None
        task.add_done_callback(self._look_ups.pop)

    async def _refresh(self, topic: str) -> None:
        failure: QuorumlogError | None = None
        wait_ms = min(
            self._connection.config.call_timeout_ms, self._config.delivery_timeout_ms // 2
        )
        try:  # for so long that what prevents it is known before what waits for it is too late
            deadline_ms = self._clock.now_ms() + wait_ms
            layout = await self._connection.refresh(topic, deadline_ms=deadline_ms)
        except UnknownTopicOrPartition as error:
            with self._lock:
                batches = self._accumulator.forget_topic(topic, self._looked_up[topic])
            self.fail(batches, error)
        except QuorumlogError as error:
            failure = error  # asked again after a back-off, until the batches' deadline
        else:
            self.admit(layout)
        for queue in self._looked_up.pop(topic):
            if failure is not None:
                queue.failures += 1
                if queue.last_error is None or not isinstance(failure, NotSent | TimedOut):
                    queue.last_error = failure  # what a broker has said says more than silence
                self._park(queue)
            else:
                with self._lock:
                    self._accumulator.unpark(queue)


def _made_anew(topic: str, partition: int) -> UnknownTopicId:
    return UnknownTopicId(
        "the topic was deleted and made anew, and the record was meant for the one before: send it "
        "again to have it in the new one",
        topic=topic,
        partition=partition,
    )


def _no_partition(topic: str, partitions: int) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(
        f"the record's partition does not exist any more: the topic has {numbered(partitions)}",
        topic=topic,
    )


def _unresolved(queue: PartitionQueue, refusal: QuorumlogError) -> Lost:
    error = Lost(
        "an attempt got no answer, and since a batch before it was given up nothing can tell "
        f"whether it is stored ({refusal.message}): look before it is sent again",
        topic=queue.topic,
        partition=queue.partition,
    )
    error.__cause__ = refusal
    return error


def _record_too_large(batch: Batch, refusal: QuorumlogError) -> MessageTooLarge:
    error = MessageTooLarge(
        f"a single record, {batch.size} bytes as a batch, is refused ({refusal.message}): send a "
        "smaller one, compress it, or raise the topic's max.message.bytes",
        topic=batch.queue.topic,
        partition=batch.queue.partition,
    )
    error.__cause__ = refusal
    return error
