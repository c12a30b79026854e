"""The consumer for programs without a loop; see `blocking`.

It polls many records with one crossing of threads and hands them out one by one; a position counts
what was handed out.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Stopping
from .consumer import AsyncConsumer, ConsumerRecord
from .log import AsyncLog
from .offsets import Position

if TYPE_CHECKING:
    from .blocking import Log
    from .io_thread import IoThread

T = TypeVar("T")


class Consumer:
    """Reads assigned partitions; made by `Log.consumer()`. One reader at a time.

    Iterating waits for the next record as long as it takes, and ends only with `until_end`.
    """

    def __init__(self, log: "Log", make: Callable[[AsyncLog], AsyncConsumer]) -> None:
        self._log = log
        self._make_consumer = make
        self._io: IoThread
        self._consumer: AsyncConsumer
        self._ahead: deque[ConsumerRecord] = deque()  # polled, not handed out
        self._is_closed = False
        self._make({})

    def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return what is there; see `AsyncConsumer.poll`."""
        limit = self._consumer.config.poll_records_max if max_records is None else max_records
        if self._ahead:
            return [self._ahead.popleft() for _ in range(min(limit, len(self._ahead)))]
        return self._wait(lambda c: c.poll(max_records=limit, timeout_ms=timeout_ms))

    def __iter__(self) -> "Consumer":
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record; StopIteration at the end with `until_end`."""
        if not self._ahead:
            self._ahead.extend(self._wait(lambda consumer: consumer.poll(timeout_ms=None)))
            if not self._ahead:
                raise StopIteration
        return self._ahead.popleft()

    def assignment(self) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs that are read."""
        return self._wait(lambda consumer: consumer.assignment())

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that the application gets."""
        for record in self._ahead:
            if record.topic == topic and record.partition == partition:
                return record.offset
        return self._wait(lambda consumer: consumer.position(topic, partition))

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return the end of what is committed, as the last answer said."""
        return self._wait(lambda consumer: consumer.high_watermark(topic, partition))

    def seek(self, topic: str, partition: int, position: Position) -> None:
        """Go on reading a partition from a position."""
        self._wait(lambda consumer: consumer.seek(topic, partition, position))
        self._drop(topic, partition)

    def pause(self, topic: str, partition: int) -> None:
        """Hand out nothing of a partition until it is resumed."""
        position = self.position(topic, partition)
        self._wait(lambda consumer: consumer.pause(topic, partition))
        self._wait(lambda consumer: consumer.seek(topic, partition, position))
        self._drop(topic, partition)

    def resume(self, topic: str, partition: int) -> None:
        """Read a paused partition again."""
        self._wait(lambda consumer: consumer.resume(topic, partition))

    def close(self) -> None:
        """Stop reading. Repeating is fine."""
        if not self._is_closed:
            self._io.refuse_callbacks()
            self._is_closed = True
            self._ahead.clear()
            if not self._io.is_ended:
                self._io.wait(self._consumer.close())

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _drop(self, topic: str, partition: int) -> None:
        """Forget what was polled of a partition and not handed out."""
        kept = [r for r in self._ahead if (r.topic, r.partition) != (topic, partition)]
        self._ahead = deque(kept)

    def _wait(self, work: Callable[[AsyncConsumer], Coroutine[Any, Any, T]]) -> T:
        if self._is_closed:
            raise Stopping("the consumer is closed")
        if self._io.is_ended:
            self._make(self._consumer.positions())
        return self._io.wait(work(self._consumer))

    def _make(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Make the consumer; after a fork it goes on where it was."""
        io, log = self._log.opened()

        async def make() -> AsyncConsumer:
            consumer = self._make_consumer(log)
            for (topic, partition), offset in positions.items():
                await consumer.seek(topic, partition, offset)
            return consumer

        self._consumer = io.wait(make())
        self._io = io
