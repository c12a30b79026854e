"""The asyncio producer of one task attempt of a staged write (see `clients.staged_commits`).

The attempt begins with the first record: the coordinator returns a producer id, or the answer that
the number is committed. In that case the records are counted and dropped. `seal` waits for the
acknowledgements and returns the task's result. Until then the attempt is kept alive by a timer. An
attempt that is left without `seal` is aborted; the coordinator aborts it later if that fails.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from ...errors import ClientClosed, InvalidRequest, InvalidTxnState, QuorumlogError, StageLost
from ...ids import ProducerIdentity
from ...proto import staged_commits_pb2 as pb
from ...records.record import Headers
from ...runtime import Entropy, Scope
from ...services import (
    STAGED_COMMITS_ABORT,
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_KEEP_ALIVE,
    STAGED_COMMITS_SEAL,
)
from ..config import ProducerConfig
from ..connection import Connection
from ..producer_identity import identity_message, read_identity
from ..retry import is_retriable
from ..staged_commits import (
    CommittedWrite,
    PartitionCount,
    StagedWrite,
    TaskResult,
    check_number,
    committed_write,
)
from .arrow_producer import ArrowColumns, convert_rows, is_in_memory, iter_slices
from .batch_encoder import content_size
from .batches import Batch, DeliveredRange, OnDelivery
from .bulk import Span
from .partition_queue import PartitionQueue
from .partitioner import Partitioner
from .producer import AsyncProducer, Threading
from .record_input import Bulk, Content, HeadersIn, as_int, check_size
from .sequences import SEQUENCE_MASK

if TYPE_CHECKING:
    import pyarrow as pa

    from .arrow_producer import ArrowSource

KEEP_ALIVE_INTERVAL_MS: Final = 15_000
"""Interval of the keep-alives; the coordinator aborts an open attempt after 120 s without one."""
CLOSE_ABORT_MS: Final = 5_000
"""Time limit of the abort of an attempt that is left without `seal`."""


class TaskAttempt(NamedTuple):
    """One execution of one task of a write."""

    write: StagedWrite
    task: int
    attempt: int  # no other attempt of the write has it


def make_task_attempt(
    write: StagedWrite, task: int, attempt: int | None, entropy: Entropy
) -> TaskAttempt:
    """Return an attempt, with a random number without one; raise InvalidRequest for wrong
    arguments."""
    if not isinstance(write, StagedWrite):
        raise InvalidRequest(f"write is a {type(write).__name__}: give what `open_write` returned")
    check_number("task", task)
    if attempt is None:
        attempt = int.from_bytes(entropy.token(8), "big") >> 1
    return TaskAttempt(write, task, check_number("attempt", attempt))


class AttemptPhase(Enum):
    """The phase of a task attempt."""

    NEW = "new"  # without a record
    OPEN = "open"
    DROPPING = "dropping"  # the number is committed: records are counted and dropped
    SEALING = "sealing"
    SEALED = "sealed"
    FAILED = "failed"


class AsyncStagedProducer(AsyncProducer):
    """Sends the records of one task attempt; created by `AsyncLog.staged_producer()`.

    ```python
    async with log.staged_producer(write, task=3) as producer:
        await producer.send("out", b"...")
        result = await producer.seal()
    ```
    A delivery's outcome says that its record is stored, not that it is visible. Its offset is -1 if
    the number was committed before: the record is dropped then. After a record has failed, or the
    attempt has expired, every call raises StageLost: run the task again, with another producer.
    Not thread-safe: one event loop.
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ProducerConfig,
        attempt: TaskAttempt,
        *,
        partitioner: str | Partitioner = "murmur2",
        threading: Threading | None = None,
        on_close: Callable[[AsyncProducer], None] | None = None,
    ) -> None:
        assert config.transactional_id == attempt.write.name, "its records are transactional"
        super().__init__(
            connection,
            scope,
            config,
            partitioner=partitioner,
            threading=threading,
            on_close=on_close,
        )
        self.attempt = attempt
        self._scope = scope
        self._phase = AttemptPhase.NEW
        self._error: QuorumlogError | None = None  # that made it fail
        self._committed: CommittedWrite | None = None
        self._dropped_count = 0  # guarded by the lock, like the accumulator
        self._result: TaskResult | None = None
        self._call_lock = asyncio.Lock()
        self._keep_alive: asyncio.Task[None] | None = None
        self._outcomes.on_failure = self._fail
        self._sender.on_step = self._drop_failed

    @property
    def has_begun(self) -> bool:
        """True after the first record, or `seal` without one."""
        return self._phase is not AttemptPhase.NEW

    async def seal(self, *, timeout_ms: int | None = None) -> TaskResult:
        """Wait until all records are stored, and end the attempt; return the task's result, for
        the driver to commit.

        Raises StageLost if a record failed or the attempt expired. An error that is retriable
        (no answer within `timeout_ms`, by default `call_timeout_ms` after the flush) leaves the
        attempt open: call it again.
        """
        async with self._call_lock:
            if self._result is None:
                self._check_not_closed()
                self._check_not_failed()
                self._result = await self._seal_attempt(timeout_ms)
            return self._result

    async def _seal_attempt(self, timeout_ms: int | None) -> TaskResult:
        write, task, _ = self.attempt
        identity = self._ready.identity
        if identity is None:
            with self.lock:
                self._phase = AttemptPhase.SEALED
                count = self._dropped_count
            return TaskResult(write=write, task=task, count=count, committed=self._committed)
        with self.lock:
            self._phase = AttemptPhase.SEALING
            self.accumulator.refuse()
            batches = self.accumulator.close_all()
        self._fail_refused()
        deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        await self._wait_settled(batches, deadline_ms)
        self._check_not_failed()
        partitions = self._counts()
        request = _seal_request(write.name, identity, partitions)
        if deadline_ms is not None:
            deadline_ms = max(deadline_ms, self._clock.now_ms() + 1)
        await self.connection.call_any(STAGED_COMMITS_SEAL, request, deadline_ms=deadline_ms)
        self._phase = AttemptPhase.SEALED
        self._stop_keep_alive()
        return TaskResult(
            write=write,
            task=task,
            count=sum(each.records for each in partitions),
            producer=identity,
            partitions=partitions,
        )

    def _counts(self) -> tuple[PartitionCount, ...]:
        """Return the acknowledged records of each partition."""
        return tuple(
            sorted(
                PartitionCount(
                    queue.topic,
                    queue.partition,
                    queue.numbering.record_count,
                    (queue.numbering.next_sequence - 1) & SEQUENCE_MASK,
                )
                for queue in self.accumulator.queues()
                if queue.numbering is not None and queue.numbering.record_count
            )
        )

    async def close(self, *, flush: bool = True, timeout_ms: int | None = None) -> None:
        """Stop, and abort the attempt unless it is sealed. Idempotent.

        `flush` has no effect: without `seal` no record counts. The abort takes at most `timeout_ms`
        (default: 5 s); the coordinator aborts the attempt after 120 s otherwise.
        """
        limit_ms = CLOSE_ABORT_MS if timeout_ms is None else min(timeout_ms, CLOSE_ABORT_MS)
        self._stop_keep_alive()
        ended = (AttemptPhase.NEW, AttemptPhase.DROPPING, AttemptPhase.SEALED)
        try:
            if not self.is_closed and self._phase not in ended:
                self._fail(ClientClosed("the producer was closed before the attempt was sealed"))
                async with asyncio.timeout(limit_ms / 1000):
                    await self._abort(self._clock.now_ms() + limit_ms)
        except (QuorumlogError, TimeoutError):
            pass  # the coordinator aborts it
        finally:
            await super().close(flush=False)

    async def _abort(self, deadline_ms: int) -> None:
        """Abort this attempt at the coordinator."""
        identity = self._ready.identity
        assert identity is not None, "the attempt has begun"
        write = self.attempt.write
        request = pb.AbortStageRequest(
            name=write.name,
            number=write.number,
            write_id=write.write_id,
            producer=identity_message(identity),
        )
        await self.connection.call_any(STAGED_COMMITS_ABORT, request, deadline_ms=deadline_ms)

    async def __aenter__(self) -> "AsyncStagedProducer":
        return self

    # --- the next steps of `send`, `send_many` and `send_arrow` ------------------------------

    def accept(
        self,
        topic: str,
        value: Content,
        key: Content,
        headers: HeadersIn,
        timestamp_ms: int | datetime | None,
        partition: int | None,
        on_delivery: OnDelivery | None = None,
    ) -> Batch | None:
        """See `AsyncProducer.accept`; None before the attempt begins. Raises StageLost, and
        InvalidTxnState after `seal`."""
        if self._is_new():
            self._check_not_closed()
            return None
        return super().accept(topic, value, key, headers, timestamp_ms, partition, on_delivery)

    def accept_many(
        self, topic: str, bulk: Bulk, first: int, timestamp_ms: int, partition: int | None
    ) -> list[Span]:
        """See `AsyncProducer.accept_many` and `accept`."""
        if self._is_new():
            self._check_not_closed()
            return []
        if self._phase is AttemptPhase.DROPPING:
            self._check_open()
            if partition is not None:
                partition = as_int(partition, "a partition is")
            end = len(bulk.values)
            return [Span(first, end, self._drop(topic, partition, end - first), 0)]
        return super().accept_many(topic, bulk, first, timestamp_ms, partition)

    async def wait_acceptable(
        self,
        topic: str,
        size: int = 1,
        partition: int | None = None,
        *,
        until_ms: int | None = None,
    ) -> int:
        """Begin the attempt at its first record; then as `AsyncProducer.wait_acceptable`.

        Raises NumberTooOld, FencedWrite and StagedAttemptsExceeded too.
        """
        await self._begin()
        if self._phase is AttemptPhase.DROPPING:
            return self._block_until_ms()
        return await super().wait_acceptable(topic, size, partition, until_ms=until_ms)

    async def send_arrow(
        self,
        topic: str,
        data: "ArrowSource",
        *,
        key: str | None = None,
        value: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        partition: int | str | None = None,
    ) -> list[DeliveredRange]:
        """See `AsyncProducer.send_arrow`; without ranges if the number was committed before."""
        self._check_not_closed()
        self._check_not_failed()
        source = iter_slices(data)

        async def read() -> "pa.RecordBatch | None":
            if is_in_memory(data):
                return next(source, None)
            return await self.connection.runtime.tasks.offload("read", lambda: next(source, None))

        part = await read()
        if part is None:
            return []
        await self._begin()
        if self._phase is not AttemptPhase.DROPPING:
            return await super().send_arrow(
                topic,
                chain([part], source),
                key=key,
                value=value,
                timestamp=timestamp,
                headers=headers,
                partition=partition,
            )
        columns = ArrowColumns(
            key, value, timestamp, headers, partition if isinstance(partition, str) else None
        )
        while part is not None:
            await self.connection.runtime.tasks.offload(
                "cpu", partial(convert_rows, part, columns, self.wall_ms()), cost_bytes=part.nbytes
            )
            with self.lock:
                self._dropped_count += part.num_rows
            part = await read()
        return []

    def _drop_record(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition: int | None,
        on_delivery: OnDelivery | None,
    ) -> Batch:
        """Count a record of a number that is committed; raise MessageTooLarge as
        `Accumulator.accept` does."""
        check_size(topic, content_size([value], [key], {0: headers}), self.config.max_request_size)
        return self._drop(topic, partition, 1, on_delivery)

    def _drop(
        self, topic: str, partition: int | None, count: int, on_delivery: OnDelivery | None = None
    ) -> Batch:
        """Count records of a number that is committed; return their outcome."""
        self._dropped_count += count
        batch = Batch(PartitionQueue(topic, -1 if partition is None else partition))
        batch.count = count
        if on_delivery is None:
            batch.complete(-1)
        else:
            batch.callbacks[0] = on_delivery
            self._on_loop(lambda: batch.complete(-1))
        return batch

    # --- internals ---------------------------------------------------------------------------

    def _is_new(self) -> bool:
        """Return True before the attempt begins."""
        return self._phase is AttemptPhase.NEW

    async def _begin(self) -> None:
        """Begin the attempt, unless it has begun."""
        if not self._is_new():
            return
        async with self._call_lock:
            self._check_not_closed()
            if not self._is_new():  # a concurrent call began it
                return
            write, task, attempt = self.attempt
            request = pb.BeginAttemptRequest(
                name=write.name,
                number=write.number,
                write_id=write.write_id,
                task=task,
                attempt=attempt,
                stage_timeout_ms=write.stage_timeout_ms,
            )
            answer = await self.connection.call_any(STAGED_COMMITS_BEGIN, request)
            if answer.HasField("committed"):
                self._committed = committed_write(write, answer.committed)
                self._append = self._drop_record
                self._phase = AttemptPhase.DROPPING
                return
            identity = read_identity(answer.producer)
            self._check_not_closed()
            with self.lock:
                self._ready.identity = identity
                self._phase = AttemptPhase.OPEN
            self._keep_alive = self._scope.spawn(
                self._keep_alive_loop(identity), name=f"keep-alive of task {task}"
            )

    async def _keep_alive_loop(self, identity: ProducerIdentity) -> None:
        """Keep the attempt alive until it is sealed, closed or lost."""
        request = pb.KeepAttemptAliveRequest(
            name=self.attempt.write.name, producer=identity_message(identity)
        )
        while True:
            await asyncio.sleep(KEEP_ALIVE_INTERVAL_MS / 1000)
            deadline_ms = self._clock.now_ms() + KEEP_ALIVE_INTERVAL_MS
            try:
                await self.connection.call_any(
                    STAGED_COMMITS_KEEP_ALIVE, request, deadline_ms=deadline_ms, is_short=True
                )
            except QuorumlogError as error:
                if not is_retriable(error):
                    self._fail(error)
                    return

    def _stop_keep_alive(self) -> None:
        task, self._keep_alive = self._keep_alive, None
        if task is not None:
            task.cancel()

    def _fail(self, error: QuorumlogError) -> None:
        """Record that a record failed or the attempt was lost, and drop what is not sent."""
        if self._phase in (AttemptPhase.OPEN, AttemptPhase.SEALING):
            self._error = error
            self._phase = AttemptPhase.FAILED
        self._drop_failed()

    def _drop_failed(self) -> None:
        if self._phase is AttemptPhase.FAILED:
            self._drop_waiting(self._lost())

    def _check_open(self) -> None:
        """Raise StageLost if the attempt failed, InvalidTxnState after `seal`."""
        self._check_not_closed()
        self._check_not_failed()
        if self._phase in (AttemptPhase.SEALING, AttemptPhase.SEALED):
            raise InvalidTxnState(
                f"staged commits {self.attempt.write.name}: the attempt of task"
                f" {self.attempt.task} is sealed; send all records before `seal`"
            )

    def _check_not_failed(self) -> None:
        if self._phase is AttemptPhase.FAILED:
            raise self._lost()

    def _lost(self) -> StageLost:
        """Return the error of a failed attempt."""
        assert self._error is not None, "failed without an error"
        name, task = self.attempt.write.name, self.attempt.task
        cause = self._error.message.removesuffix("; run the task again")
        lost = StageLost(
            f"staged commits {name}: the attempt of task {task} failed"
            f" ({cause.removeprefix(f'staged commits {name}: ')});"
            " run the task again with another producer",
            task=task,
        )
        lost.topic, lost.partition = self._error.topic, self._error.partition
        lost.__cause__ = self._error
        return lost


def _seal_request(
    name: str, identity: ProducerIdentity, partitions: Sequence[PartitionCount]
) -> pb.SealAttemptRequest:
    return pb.SealAttemptRequest(
        name=name,
        producer=identity_message(identity),
        partitions=[
            pb.SealedPartition(
                topic=each.topic,
                partition=each.partition,
                records=each.records,
                last_sequence=each.last_sequence,
            )
            for each in partitions
        ],
    )
