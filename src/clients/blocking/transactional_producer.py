"""The blocking producer with transactions; see `producer.transactional_producer`."""

from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..producer.partitioner import Partitioner
from ..producer.producer import AsyncProducer
from ..producer.transactional_producer import AsyncTransactionalProducer, not_a_group_consumer
from .producer import Producer

if TYPE_CHECKING:
    from ..groups.group_consumer import AsyncGroupConsumer, Offsets
    from .group_consumer import GroupConsumer
    from .log import Log

T = TypeVar("T")


class TransactionalProducer(Producer):
    """Sends records in transactions; created by `Log.producer(transactional_id=...)`.

    ```python
    with log.producer(transactional_id="enrich-1") as producer:
        with producer.transaction():
            producer.send("out", b"...")
            producer.send_offsets(consumer)
    ```
    See `AsyncTransactionalProducer`. Thread-safe: the records of all threads are in the one
    transaction that is open. A fork aborts it.
    """

    def __init__(
        self,
        log: "Log",
        partitioner: str | Partitioner,
        settings: Mapping[str, Any],
        transactional_id: str,
    ) -> None:
        super().__init__(log, partitioner, {**settings, "transactional_id": transactional_id})

    def transaction(self) -> "Transaction":
        """Return a transaction for `with`: it commits at the end of the block, and aborts if the
        block raises."""
        return Transaction(self)

    def begin_transaction(self) -> None:
        """Begin a transaction; see `AsyncTransactionalProducer.begin_transaction`."""
        self._ask(lambda producer: producer.begin_transaction())

    def commit_transaction(self, *, timeout_ms: int | None = None) -> None:
        """Flush, then commit; see `AsyncTransactionalProducer.commit_transaction`."""
        self._ask(lambda producer: producer.commit_transaction(timeout_ms=timeout_ms))

    def abort_transaction(self, *, timeout_ms: int | None = None) -> None:
        """Drop the records that are not sent, then abort; see
        `AsyncTransactionalProducer.abort_transaction`."""
        self._ask(lambda producer: producer.abort_transaction(timeout_ms=timeout_ms))

    def send_offsets(self, consumer: "GroupConsumer", offsets: "Offsets | None" = None) -> None:
        """Commit a consumer's offsets with this transaction; see
        `AsyncTransactionalProducer.send_offsets`."""

        def send(member: "AsyncGroupConsumer") -> Coroutine[Any, Any, None]:
            return self._transactional(self._producer).send_offsets(member, offsets)

        from .group_consumer import GroupConsumer

        if not isinstance(consumer, GroupConsumer):
            raise not_a_group_consumer(consumer)
        consumer.add_to_transaction(send)

    def leave_transaction(self, error: BaseException | None) -> None:
        """End the transaction at the end of its block; see
        `AsyncTransactionalProducer.leave_transaction`."""
        if error is not None and (self._is_closed or self._io.is_ended):
            return
        self._ask(lambda producer: producer.leave_transaction(error))

    def __enter__(self) -> "TransactionalProducer":
        is_entered = False
        try:
            self._ask(lambda producer: producer.__aenter__())
            is_entered = True
        finally:
            if not is_entered:
                self.close()
        return self

    def _ask(self, work: Callable[[AsyncTransactionalProducer], Coroutine[Any, Any, T]]) -> T:
        return self._wait(lambda producer: work(self._transactional(producer)))

    @staticmethod
    def _transactional(producer: AsyncProducer) -> AsyncTransactionalProducer:
        assert isinstance(producer, AsyncTransactionalProducer), "made with a transactional id"
        return producer


class Transaction:
    """A transaction of a `TransactionalProducer`, for `with`."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer

    def __enter__(self) -> "Transaction":
        self._producer.begin_transaction()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.leave_transaction(error)
