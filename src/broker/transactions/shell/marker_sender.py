"""The marker sender of a broker's transaction coordinator.

It takes the decisions of `MarkerQueue` to the partition leaders, and reports transactions with all
markers written to the coordinator. The queue repeats what fails, so a coordinator that
reports nothing has ended its leadership, and the next one writes the markers again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

from ....errors import QuorumlogError, TransactionCoordinatorFenced, UnknownServerError
from ....ids import NodeId, TopicId
from ....metadata.delta import ImageDelta
from ....proto import transaction_coordination_pb2 as pb
from ....records.control import TransactionMarker
from ....runtime import Clock
from ....runtime.error_detail import decode_error
from ....services import TRANSACTION_COORDINATION_WRITE_MARKERS
from ...shell.broker_calls import BrokerCalls
from ..marker_queue import MarkedTransaction, MarkerQueue, MarkerRequest
from ..requests import MarkerPartition, MarkersWritten, WriteMarkers
from .metrics import TransactionMetrics

_LOG = logging.getLogger("quorumlog.transactions")

WAIT_MS: Final = 1_000
"""Maximum time until a leader has answered every marker of a request; late ones are repeated."""
CALL_MS: Final = 3_000
"""The timeout of the call, after which the leader counts as silent."""
MARKERS_A_TURN: Final = 2_000
"""Markers that are queued before other tasks of the event loop run; one transaction may exceed it.
One commit can decide thousands of transactions."""

WriteHere: TypeAlias = Callable[
    [Sequence[tuple[TransactionMarker, MarkerPartition, int]], int],
    Awaitable[list[QuorumlogError | None]],
]
"""Writes markers to partitions that this broker leads in a leader epoch, within a time in
milliseconds."""


class MarkerSender:
    """Writes the markers of decided transactions. Belongs to the loop's thread."""

    def __init__(
        self,
        clock: Clock,
        spawn: Callable[..., "asyncio.Task[None]"],
        queue: MarkerQueue,
        calls: BrokerCalls,
        *,
        cluster_id: str,
        node_id: NodeId,
        figures: TransactionMetrics,
        write_here: WriteHere,
        report: Callable[[MarkersWritten], object],
    ) -> None:
        """`spawn` starts a task, as `Scope.spawn`. `report` has the shard of the transactional id
        decide a report; it raises the error of a report that was not decided."""
        self._queue = queue
        self._clock = clock
        self._spawn = spawn
        self._calls = calls
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._figures = figures
        self._write_here = write_here
        self._report = report
        self._decided: deque[tuple[int, TransactionMarker, WriteMarkers]] = deque()  # to be queued
        self._wake = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}  # the first one sends the others
        self._is_closed = False

    def start(self, partition: int, coordinator_epoch: int, effect: WriteMarkers) -> None:
        """Write the markers of a transaction that was decided in a leadership of a partition of
        `__transaction_state`."""
        marker = TransactionMarker(
            effect.producer, coordinator_epoch, effect.is_commit, effect.transaction_version
        )
        self._decided.append((partition, marker, effect))
        if not self._tasks:
            self._start_task(self._run(), "transaction markers")
        self._wake.set()

    def drop(self, partition: int, coordinator_epoch: int) -> None:
        """Drop the transactions of one leadership; see `MarkerQueue.drop`."""
        self._decided = deque(
            each
            for each in self._decided
            if (each[0], each[1].coordinator_epoch) != (partition, coordinator_epoch)
        )
        self._queue.drop(partition, coordinator_epoch)

    def close(self) -> None:
        """Send nothing more. The next coordinator writes the markers that are left."""
        self._is_closed = True
        for task in reversed(list(self._tasks)):
            task.cancel()

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._is_closed:
            work.close()
            return
        task = self._spawn(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]

    def apply(self, delta: ImageDelta) -> None:
        """Apply a metadata change, before the coordinator starts and ends shards for it."""
        touched: dict[tuple[TopicId, int], None] = dict.fromkeys(delta.touched_partitions)
        for topic in delta.deleted_topics():
            touched.update(dict.fromkeys((topic.id, index) for index in topic.partitions))
        self._queue.image_changed(delta.after, touched)
        self._wake.set()

    async def _run(self) -> None:
        """Send requests and reports when they are due."""
        while True:
            self._wake.clear()
            now_ms = self._clock.now_ms()
            self._queue_decided(now_ms)
            for request in self._queue.take_requests(now_ms):
                self._figures.marker_requests += 1
                self._start_task(self._send(request), f"markers for broker {request.broker}")
            for transaction in self._queue.take_written():
                self._report_written(transaction)
            if self._decided:
                await asyncio.sleep(0)
                continue
            due_ms = self._queue.deadline_ms()
            left_s = None if due_ms is None else max(0, due_ms - self._clock.now_ms()) / 1000
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _queue_decided(self, now_ms: int) -> None:
        """Queue the next decided transactions, up to MARKERS_A_TURN markers."""
        left = MARKERS_A_TURN
        while self._decided and left > 0:
            partition, marker, effect = self._decided.popleft()
            self._queue.add(partition, marker, effect, now_ms)
            left -= len(effect.partitions)

    # --- requests ---------------------------------------------------------------------------------

    async def _send(self, request: MarkerRequest) -> None:
        try:
            if request.broker == self._node_id:
                markers = [
                    (each.transaction.marker, each.partition, each.leader_epoch)
                    for each in request.markers
                ]
                errors = await self._write_here(markers, WAIT_MS)
            else:
                errors = await self._write_there(request)
        except QuorumlogError as error:
            _LOG.info("transactions.markers_failed broker=%d error=%s", request.broker, error)
            self._queue.failed(request, self._clock.now_ms())
        except Exception:  # a bug: other markers are still written
            _LOG.exception("transactions.markers_broke broker=%d", request.broker)
            self._queue.failed(request, self._clock.now_ms())
        else:
            fenced = [each for each in errors if isinstance(each, TransactionCoordinatorFenced)]
            if fenced:
                _LOG.warning(
                    "transactions.coordinator_fenced broker=%d error=%s", request.broker, fenced[0]
                )
            self._queue.answered(request, errors, self._clock.now_ms())
        self._wake.set()

    async def _write_there(self, request: MarkerRequest) -> list[QuorumlogError | None]:
        message = pb.WriteMarkersRequest(
            cluster_id=self._cluster_id, broker_id=request.broker, wait_ms=WAIT_MS
        )
        last: MarkedTransaction | None = None
        for each in request.markers:
            if each.transaction is not last:
                last, entry = each.transaction, message.entries.add()
                entry.producer_id, entry.producer_epoch = last.marker.producer
                entry.coordinator_epoch = last.marker.coordinator_epoch
                entry.is_commit = last.marker.is_commit
                entry.transaction_version = last.marker.transaction_version
            entry.targets.add(
                topic=each.partition.topic,
                partition=each.partition.partition,
                topic_id=each.partition.topic_id,
                leader_epoch=each.leader_epoch,
                end_sequence=each.partition.last_sequence + 1,
            )
        answer = await self._calls.call(
            request.broker, TRANSACTION_COORDINATION_WRITE_MARKERS, message, timeout_ms=CALL_MS
        )
        errors: list[QuorumlogError | None] = [None] * len(request.markers)
        if answer.markers != len(errors):
            raise UnknownServerError(
                f"broker {request.broker} answered {answer.markers} of {len(errors)} markers; check"
                " that it runs the same version"
            )
        for failed in answer.failed:
            errors[failed.marker % len(errors)] = decode_error(failed.error)
        return errors

    # --- reports ----------------------------------------------------------------------------------

    def _report_written(self, transaction: MarkedTransaction) -> None:
        effect = transaction.effect
        report = MarkersWritten(
            transactional_id=effect.transactional_id,
            producer=effect.producer,
            partitions=effect.partitions,
        )
        try:
            self._report(report)
        except QuorumlogError:
            self._queue.not_reported(transaction, self._clock.now_ms())
        except Exception:  # a bug: other transactions are still reported
            _LOG.exception("transactions.report_broke partition=%d", transaction.partition)
            self._queue.not_reported(transaction, self._clock.now_ms())
        else:
            self._queue.reported(transaction)
