"""The asyncio producer with transactions (KIP-98, KIP-447, KIP-890).

A transaction commits or aborts all its records, in all partitions, and the offsets of a consumer
together. Any broker forwards the calls to the transaction coordinator. The leader of a partition
adds it to the transaction with the first batch. `transaction_state` has the rules.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ...errors import (
    ClientClosed,
    InvalidRequest,
    OutcomeUnknown,
    ProducerUnusable,
    QuorumlogError,
    TransactionAbortable,
)
from ...proto import transactions_pb2 as pb
from ...runtime import Scope
from ...services import TRANSACTIONS_END, TRANSACTIONS_INIT_PRODUCER_ID
from ..config import ProducerConfig
from ..connection import Connection
from ..groups.coordinator import TransactionalCommit
from ..producer_identity import identity_message, read_identity
from ..retry import is_retriable
from .partitioner import Partitioner
from .producer import AsyncProducer, Threading
from .transaction_state import TransactionPhase, TransactionStateMachine

if TYPE_CHECKING:
    from ..groups.group_consumer import AsyncGroupConsumer, Offsets

CLOSE_ABORT_MS: Final = 5_000
"""Time limit of the abort of an open transaction when its producer is closed."""


class AsyncTransactionalProducer(AsyncProducer):
    """Sends records in transactions; created by `AsyncLog.producer(transactional_id=...)`.

    ```python
    async with log.producer(transactional_id="enrich-1") as producer:
        async with producer.transaction():
            await producer.send("out", b"...")
            await producer.send_offsets(consumer)
    ```
    Entering it ends the open transaction of an earlier producer with this id, which is fenced from
    then on. A delivery's outcome says that its record is stored, not that it is committed.

    An abortable error raises TransactionAbortable: the transaction is aborted, and may be repeated.
    A fatal error raises ProducerUnusable, or its subclass ProducerFenced, once; the producer is
    closed then. Not thread-safe: one event loop.
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ProducerConfig,
        *,
        partitioner: str | Partitioner = "murmur2",
        threading: Threading | None = None,
        on_close: Callable[[AsyncProducer], None] | None = None,
    ) -> None:
        assert config.transactional_id is not None, "a transactional producer has an id"
        super().__init__(
            connection,
            scope,
            config,
            partitioner=partitioner,
            threading=threading,
            on_close=on_close,
        )
        self._transactional_id = config.transactional_id
        self._state = TransactionStateMachine(config.transactional_id)
        self._call_lock = asyncio.Lock()
        self._outcomes.on_failure = self._on_failure
        self._sender.on_step = self._drop_unsent
        self.accumulator.refuse()  # until a transaction begins

    # --- transactions ------------------------------------------------------------------------

    def transaction(self) -> "AsyncTransaction":
        """Return a transaction for `async with`: it commits at the end of the block, and aborts if
        the block raises."""
        return AsyncTransaction(self)

    async def begin_transaction(self) -> None:
        """Begin a transaction.

        Raises InvalidTxnState if one is open. The first call of a producer that was not entered
        fences earlier producers of its id.
        """
        async with self._call_lock:
            self._check_not_closed()
            await self._initialize()
            if self._state.phase is TransactionPhase.ABORTING:  # without an answer
                await self._abort(self.connection.deadline_ms())
            self._state.begin()
            with self.lock:
                self._failures.take()
                self._failures.refusal = None
                self.transactions.begun += 1
                self._ready.identity = self._state.identity
                self._ready.is_halted = self._ready.has_taken = False
                self.accumulator.resume()

    async def commit_transaction(self, *, timeout_ms: int | None = None) -> None:
        """Flush, then commit; return once the commit is decided.

        Raises TransactionAbortable if a record or the offsets failed: abort then. Raises
        OutcomeUnknown without an answer within `timeout_ms` (default: `call_timeout_ms` after the
        flush): commit again, or close the producer and create another one with its id.
        """
        async with self._call_lock:
            self._check_not_closed()
            self._state.begin_commit()
            with self.lock:
                self.accumulator.refuse()
                batches = self.accumulator.close_all()
            self._fail_refused()
            deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
            await self._wait_settled(batches, deadline_ms)
            self._state.check_flushed()
            if deadline_ms is None:
                deadline_ms = self.connection.deadline_ms()  # the flush has its own limit
            await self._end_transaction(max(deadline_ms, self._clock.now_ms() + 1), commit=True)

    async def abort_transaction(self, *, timeout_ms: int | None = None) -> None:
        """Drop the records that are not sent, then abort; return once the abort is decided.

        Raises InvalidTxnState without an open transaction, OutcomeUnknown if a commit has no
        answer, and the last error after `timeout_ms` (default: `call_timeout_ms`); then call it
        again, or begin the next transaction.
        """
        async with self._call_lock:
            self._check_not_closed()
            await self._abort(self._deadline_ms(timeout_ms))

    async def send_offsets(
        self, consumer: "AsyncGroupConsumer", offsets: "Offsets | None" = None
    ) -> None:
        """Commit a consumer's offsets with this transaction, by default its positions.

        The coordinator of the group checks that the consumer is still its member (KIP-447), so that
        a consumer that lost its partitions cannot commit. Create it with auto_commit=False. Raises
        TransactionAbortable if the offsets are refused.
        """
        from ..groups.group_consumer import AsyncGroupConsumer

        if not isinstance(consumer, AsyncGroupConsumer):
            raise not_a_group_consumer(consumer)
        if consumer.config.auto_commit:
            raise InvalidRequest(
                f"send_offsets: the consumer of group {consumer.group} commits by itself; create"
                " it with auto_commit=False"
            )
        async with self._call_lock:
            self._check_open()
            identity = self._state.identity
            assert identity is not None, "an open transaction has an identity"

            def add() -> None:
                if self._state.identity == identity:  # else a repetition after the end
                    self._state.add()

            transaction = TransactionalCommit(self._transactional_id, identity, add)
            try:
                await consumer.commit(offsets, transaction=transaction)
            except asyncio.CancelledError:  # the offsets may arrive after the end
                self._on_failure(OutcomeUnknown("send_offsets was cancelled before its response"))
                raise
            except InvalidRequest:
                raise  # of the arguments; nothing was sent
            except QuorumlogError as error:
                self._on_failure(error)
                self._state.check_flushed()
                raise

    async def close(self, *, flush: bool = True, timeout_ms: int | None = None) -> None:
        """Abort an open transaction, then stop. Idempotent.

        `flush` has no effect: without a commit no record counts. The abort takes at most
        `timeout_ms` (default: 5 s); the coordinator aborts the transaction after
        `transaction_timeout_ms` otherwise.
        """
        limit_ms = CLOSE_ABORT_MS if timeout_ms is None else min(timeout_ms, CLOSE_ABORT_MS)
        try:
            if not self.is_closed:
                async with asyncio.timeout(limit_ms / 1000), self._call_lock:
                    await self._abort(self._clock.now_ms() + limit_ms)
        except (QuorumlogError, TimeoutError):
            pass  # there is none, or the coordinator aborts it
        finally:
            await super().close(flush=False)

    async def leave_transaction(self, error: BaseException | None) -> None:
        """End the transaction at the end of its block: commit it, or abort it after an error.

        Does nothing if the block has ended it. A failed abort is a note of the error.
        """
        state = self._state
        if state.phase in (TransactionPhase.NEW, TransactionPhase.READY):
            return
        if error is not None:
            await self._abort_after(error)
            return
        try:
            await self.commit_transaction()
        except BaseException as failure:  # cancellation too: nothing else ends the transaction
            await self._abort_after(failure)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort because of an error that is being raised, unless the end was requested. Raise the
        fatal error of the producer in place of an abortable one."""
        ended = (TransactionPhase.READY, TransactionPhase.UNUSABLE)
        if self._state.phase in ended or self._state.is_end_sent:
            return
        timeout_ms = None if isinstance(error, Exception) else CLOSE_ABORT_MS
        try:
            await self.abort_transaction(timeout_ms=timeout_ms)
        except QuorumlogError as failure:
            if isinstance(error, TransactionAbortable) and isinstance(failure, ProducerUnusable):
                raise failure from error
            error.add_note(f"the abort of the transaction failed: {failure}")
            self._state.withhold()

    async def __aenter__(self) -> "AsyncTransactionalProducer":
        is_entered = False
        try:
            async with self._call_lock:
                self._check_not_closed()
                await self._initialize()
            is_entered = True
        finally:
            if not is_entered:
                await self.close()
        return self

    def _check_open(self) -> None:
        """Raise unless records can be appended, as `TransactionStateMachine.check_open`."""
        self._check_not_closed()
        self._state.check_open()

    # --- internals ---------------------------------------------------------------------------

    async def _initialize(self) -> None:
        """Get the first identity, unless there is one."""
        self._state.check_usable()
        if not self._state.needs_identity:
            return
        request = pb.InitProducerIdRequest(
            transactional_id=self._transactional_id,
            timeout_ms=self.config.transaction_timeout_ms,
        )
        answer = await self.connection.call_any(TRANSACTIONS_INIT_PRODUCER_ID, request)
        self._state.initialized(read_identity(answer.producer))

    async def _abort(self, deadline_ms: int) -> None:
        self._state.begin_abort()
        self._drop_unsent()
        with self.lock:
            batches = self.accumulator.close_all()
        await self._wait_settled(batches, deadline_ms)
        await self._end_transaction(deadline_ms, commit=False)
        with self.lock:
            self._failures.take()  # the application gave the records up

    async def _end_transaction(self, deadline_ms: int, *, commit: bool) -> None:
        """Commit or abort at the coordinator, if it has the transaction."""
        if self._ready.has_taken:
            self._state.add()
        if not self._state.send_end():
            return
        identity = self._state.identity
        assert identity is not None, "an open transaction has an identity"
        request = pb.EndTransactionRequest(
            transactional_id=self._transactional_id,
            producer=identity_message(identity),
            commit=commit,
        )
        try:
            answer = await self.connection.call_any(
                TRANSACTIONS_END, request, deadline_ms=deadline_ms
            )
            following = read_identity(answer.producer)
        except QuorumlogError as error:
            if is_retriable(error) or isinstance(error, OutcomeUnknown | ClientClosed):
                if not commit:
                    raise
                raise OutcomeUnknown(
                    f"producer {self._transactional_id}: the commit has no answer"
                    f" ({error.message}); commit again, or close the producer and create another"
                    " one"
                ) from error
            self._state.end_refused(error)
            self._drop_unsent()
            self._state.check_flushed()
            raise
        self._state.ended(following)

    def _on_failure(self, error: QuorumlogError) -> None:
        """Record that a batch or the offsets failed, and drop what is not sent."""
        self._state.failed(error)
        self._drop_unsent()

    def _drop_unsent(self) -> None:
        """Fail the batches that are not in flight, if the transaction can only be aborted."""
        if not self._state.is_dropping:
            return
        reason = self._state.error
        self._drop_waiting(
            TransactionAbortable(
                f"producer {self._transactional_id}: the transaction was aborted before the record"
                f" was sent{'' if reason is None else f': {reason.message}'}"
            )
        )

    def _deadline_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.connection.deadline_ms()
        return self._clock.now_ms() + timeout_ms


class AsyncTransaction:
    """A transaction of an `AsyncTransactionalProducer`, for `async with`."""

    def __init__(self, producer: AsyncTransactionalProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> "AsyncTransaction":
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._producer.leave_transaction(error)


def not_a_group_consumer(consumer: object) -> InvalidRequest:
    """Return the error for an argument of `send_offsets` that is no group consumer."""
    return InvalidRequest(
        f"send_offsets: {type(consumer).__name__} has no group; give a consumer of group_consumer()"
    )
