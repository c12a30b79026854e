"""The sender: routes closed batches to the partition leaders.

One coordinator task routes queues that have something to send, closes lingered batches, parks
queues that must wait and fails expired batches. One `LeaderLink` per broker owns the Produce
stream. `retry` handles its failures. A queue is in exactly one place: listed in `ReadyQueues`,
offered to a link, in flight at a link, waiting for a lookup, or parked for a retry. All its batches
in flight are at one link. This preserves the order over retries and leader changes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from ...errors import (
    ConnectionFailed,
    NotImplementedHere,
    QuorumlogError,
    TimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...proto import transactions_pb2
from ...runtime import Scope
from ...services import TRANSACTIONS_INIT_PRODUCER_ID
from ..config import ProducerConfig
from ..connection import Connection
from ..coordination import coordinate
from ..topology import TopicLayout, invalid_response, leaderless, numbered
from .accumulator import Accumulator
from .batches import Batch
from .incomplete_batches import IncompleteBatches
from .leader_link import LeaderLink
from .outcomes import BatchOutcomes
from .partition_queue import PartitionQueue
from .ready_queues import ReadyQueues
from .retry import BatchRetries

IDLE_WAIT_MS = 60_000  # maximum wait between steps; every change wakes the task


class Sender:
    """The sender of one producer; `run` is its coordinator task."""

    def __init__(
        self,
        connection: Connection,
        config: ProducerConfig,
        *,
        accumulator: Accumulator,
        incomplete: IncompleteBatches,
        ready: ReadyQueues,
        outcomes: BatchOutcomes,
        scope: Scope,
        lock: AbstractContextManager[object],
    ) -> None:
        self._connection = connection
        self._clock = connection.runtime.clock
        self._accumulator = accumulator
        self._incomplete = incomplete
        self._ready = ready
        self._outcomes = outcomes
        self._retries = BatchRetries(connection, ready, outcomes, lock=lock, on_park=self.wake)
        self._config = config
        self._scope = scope
        self._lock = lock
        self._links: dict[str, LeaderLink] = {}  # by address
        self._looked_up: dict[str, list[PartitionQueue]] = {}  # waiting queues by topic looked up
        self._look_ups: dict[asyncio.Task[None], None] = {}  # tasks, that of a producer id too
        self._awaiting_id: list[PartitionQueue] = []  # waiting for a producer id
        self._work = asyncio.Event()
        self.on_step: Callable[[], None] | None = None  # called before each step

    # --- called by the producer --------------------------------------------------------------

    def wake(self) -> None:
        """Run a step soon. Call it on the loop's thread."""
        self._work.set()

    async def run(self) -> None:
        """Coordinate until cancelled."""
        await coordinate(self._step, self._work, self._clock)

    async def close(self) -> None:
        """Close the links; batches in flight get no outcome from here."""
        for task in list(self._look_ups):
            task.cancel()
        links, self._links = list(self._links.values()), {}
        try:
            await asyncio.gather(*[link.close() for link in links])
        finally:
            for link in links:
                link.abort()

    def admit(self, layout: TopicLayout) -> None:
        """Update a topic in the accumulator.

        Batches for a deleted topic of its name, or for partitions that no longer exist, fail.
        """
        topic, partitions = layout.name, len(layout.partitions)
        with self._lock:
            outdated = self._accumulator.admit(
                topic,
                partitions,
                topic_id=layout.topic_id,
                message_bytes_max=layout.message_bytes_max,
                leaderless=self._connection.topology.leaderless(topic),
            )
            gone = self._accumulator.shrink(topic, partitions)
        for batch in outdated:
            self._outcomes.fail([batch], _topic_recreated(topic, batch.queue.partition))
        self._outcomes.fail(gone, _no_partition(topic, partitions))

    # --- called by the links -----------------------------------------------------------------

    def on_slow(self, link: LeaderLink, topics: Sequence[str]) -> None:
        """Look up the leaders after a late response: the broker may be deposed and cut off."""
        self._spawn(self._recheck_leaders(link, topics), name="look for another leader")

    async def _recheck_leaders(self, link: LeaderLink, topics: Sequence[str]) -> None:
        for topic in topics:
            with suppress(QuorumlogError):
                await self._connection.refresh(topic)
        link.abort_if_deposed()

    # --- coordination ------------------------------------------------------------------------

    def _step(self, now_ms: int) -> int:
        """Run everything that is due; return the time of the next step."""
        if self.on_step is not None:
            self.on_step()
        retry_ms = self._retries.unpark_due(now_ms)
        with self._lock:
            linger_end_ms = self._accumulator.close_due(now_ms)
            late, deadline_ms = self._incomplete.expired(now_ms)
            ready = list(self._ready.ready)
            self._ready.ready.clear()
        for batch in late:
            self._expire(batch)
        for queue in ready:
            self._route(queue)
        times = [retry_ms, linger_end_ms, deadline_ms]
        times.extend(link.check_deadline(now_ms) for link in self._links.values())
        return min((time for time in times if time is not None), default=now_ms + IDLE_WAIT_MS)

    def _route(self, queue: PartitionQueue) -> None:
        """Offer a listed queue to its leader's link.

        Without a known leader it waits for a lookup of the topic; without a leader in the metadata
        it waits for a backoff before the next lookup.
        """
        leader = self._connection.leader_now(queue.topic, queue.partition)
        if leader is None:
            with self._lock:
                self._ready.park(queue)
            if self._connection.is_known(queue.topic):
                if self._fail_if_gone(queue):
                    return
                queue.failures += 1
                queue.last_error = leaderless(queue.topic, queue.partition)
                self._connection.topology.mark_stale(queue.topic)
                self._retries.park(queue)
            else:
                self._look_up(queue)
            return
        if queue.topic_id != leader.topic_id:
            self._fail_old_topic(queue)
            return
        if queue.parts and queue.address != leader.address:
            # sometimes: a leader changes with batches in flight
            with self._lock:
                self._ready.hold(queue)
            return
        if self._ready.lacks_id(queue):
            self._await_producer_id(queue)
            return
        link = self._links.get(leader.address)
        if link is None:
            link = LeaderLink(
                self,
                self._connection,
                self._config,
                leader.address,
                ready=self._ready,
                incomplete=self._incomplete,
                outcomes=self._outcomes,
                retries=self._retries,
                lock=self._lock,
            )
            link.start(self._scope)
            self._links[leader.address] = link
        link.offer(queue)

    def _fail_if_gone(self, queue: PartitionQueue) -> bool:
        """Return True if the topic does not have the partition; its batches fail then."""
        layout = self._connection.topology.topic(queue.topic)
        if layout is None or queue.partition < len(layout.partitions):
            return False
        with self._lock:
            batches = self._accumulator.abandon(queue)
            batches += self._accumulator.shrink(queue.topic, len(layout.partitions))
        self._outcomes.fail(batches, _no_partition(queue.topic, len(layout.partitions)))
        return True

    def _fail_old_topic(self, queue: PartitionQueue) -> None:
        """Fail the waiting batches of a deleted topic after one of the same name was created."""
        layout = self._connection.topology.topic(queue.topic)
        # sometimes: a topic is created again while batches wait
        assert layout is not None, f"{queue.topic} has a leader and no layout"
        with self._lock:
            self._ready.park(queue)
            batches = self._accumulator.abandon(queue)
        self._outcomes.fail(batches, _topic_recreated(queue.topic, queue.partition))
        self.admit(layout)

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
        self._outcomes.fail([batch], error)

    # --- lookups of producer ids and leaders -------------------------------------------------

    def _await_producer_id(self, queue: PartitionQueue) -> None:
        """Make the queue wait for another producer id; one is requested at a time."""
        with self._lock:
            self._ready.park(queue)
        self._awaiting_id.append(queue)
        if len(self._awaiting_id) == 1:
            self._spawn(self._request_producer_id(), name="producer id")

    async def _request_producer_id(self) -> None:
        failure: QuorumlogError | None = None
        try:
            self._ready.producer_id = await ask_producer_id(self._connection)
        except QuorumlogError as error:
            failure = error
        waiting, self._awaiting_id = self._awaiting_id, []
        for queue in waiting:
            if failure is not None and failure.retriable:
                queue.failures += 1
                queue.last_error = failure
                self._retries.park(queue)
                continue
            if failure is not None:
                with self._lock:
                    batches = self._accumulator.abandon(queue)
                self._outcomes.fail(batches, failure)
            with self._lock:
                self._ready.unpark(queue)

    def _look_up(self, queue: PartitionQueue) -> None:
        """Make the queue wait for a lookup of its topic; there is one per topic at a time."""
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
        try:  # half the delivery timeout, so that the error is known before batches expire
            deadline_ms = self._clock.now_ms() + wait_ms
            layout = await self._connection.refresh(topic, deadline_ms=deadline_ms)
        except UnknownTopicOrPartition as error:
            with self._lock:
                batches = self._accumulator.forget_topic(topic, self._looked_up[topic])
            self._outcomes.fail(batches, error)
        except QuorumlogError as error:
            failure = error  # retried after a backoff, until the batches expire
        else:
            self.admit(layout)
        for queue in self._looked_up.pop(topic):
            if failure is not None:
                queue.failures += 1
                if queue.last_error is None or not isinstance(failure, ConnectionFailed | TimedOut):
                    queue.last_error = failure  # an error of a broker is kept over a timeout
                self._retries.park(queue)
            else:
                with self._lock:
                    self._ready.unpark(queue)


def _topic_recreated(topic: str, partition: int) -> UnknownTopicId:
    return UnknownTopicId(
        "the topic was deleted and created again; the record was for the deleted topic: send it "
        "again to store it in the new one",
        topic=topic,
        partition=partition,
    )


def _no_partition(topic: str, partitions: int) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(
        f"the record's partition no longer exists: the topic has {numbered(partitions)}",
        topic=topic,
    )


async def ask_producer_id(connection: Connection) -> int:
    """Return a new producer id.

    Raises the errors of a call, UnknownServerError for an invalid response, NotImplementedHere if
    the cluster does not support producer ids.
    """
    try:
        answer = await connection.call_any(
            TRANSACTIONS_INIT_PRODUCER_ID,
            transactions_pb2.InitProducerIdRequest(),
            is_short=True,
        )
    except NotImplementedHere as error:
        raise NotImplementedHere(
            f"the cluster does not support producer ids ({error.message}): without "
            "enable_idempotence none is needed, but retries may be stored twice"
        ) from error
    producer = answer.producer
    if producer.producer_id < 0 or producer.producer_epoch != 0:
        raise invalid_response(
            f"returned producer id {producer.producer_id} with epoch {producer.producer_epoch}"
        )
    return producer.producer_id
