"""Tasks of Spark: each reads and decodes a range of one partition on an executor.

`RangeFetcher` resumes at its position when a stream breaks or the leadership moves. `prefetch`
prefetches the next item of any iterator in a thread.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from quorumlog.clients.consumer.arrow_reader import SUBSCRIBE
from quorumlog.clients.retry import RetryLimit, is_retriable
from quorumlog.clients.topology import PartitionLeader
from quorumlog.errors import (
    OffsetOutOfRange,
    QuorumlogError,
    StreamBroken,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.ids import TopicPartition
from quorumlog.proto import log_pb2
from quorumlog.runtime import Buffer
from quorumlog.runtime.grpc_network import SyncStream
from quorumlog.spark.arrow_batches import Assembler, Gather
from quorumlog.spark.broker_calls import Cluster, backoff, isolation_number, now_ms
from quorumlog.spark.options import Isolation, ReadOptions
from quorumlog.spark.plan import FAIL_ON_DATA_LOSS, Range
from quorumlog.spark.values.bad_values import BadValues
from quorumlog.spark.values.plan import TaskValues, ValuePlan

T = TypeVar("T")

RESPONSE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes asked for in one answer: about 40,000 records of 100 bytes, a good Arrow batch."""

END_SECONDS_MAX: Final = 5.0
"""How long a task that is over waits for its thread, which may still ask a silent broker."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """The range of one task, and the partition's leader at planning time."""

    range: Range
    leader: PartitionLeader


def input_partitions(
    ranges: Sequence[Range], leaders: Mapping[TopicPartition, PartitionLeader]
) -> list[InputPartition]:
    """Return the tasks as Spark's input partitions."""
    return [InputPartition(Task(part, leaders[part.place])) for part in ranges]


class RangeFetcher:
    """Reads one range once. Not for two threads, but for `cancel`, which any may call."""

    def __init__(
        self,
        cluster: Cluster,
        part: Range,
        *,
        leader: PartitionLeader,
        isolation: Isolation,
        fail_on_data_loss: bool,
    ) -> None:
        self._cluster = cluster
        self._range = part
        self._leader = leader  # current leader, with the id of the planned topic
        self._isolation = isolation
        self._fail_on_data_loss = fail_on_data_loss
        self._position = part.start  # next offset to read
        self._failures = 0  # since the last response
        self._limit: RetryLimit | None = None  # of the retries since the first of them
        self._stream: SyncStream[Any] | None = None
        self._is_cancelled = False

    def responses(self) -> Iterator[tuple[Buffer, int]]:
        """Yield whole record batches with the offset that they were read from, up to the range's
        end; the first and the last batch may extend beyond the range.

        Retriable errors cause a retry from the current position, up to the cluster's retry limit
        without a response. With `fail_on_data_loss` raises
        OffsetOutOfRange if retention has deleted records of the range, and UnknownTopicOrPartition
        if the topic was deleted, even if a new one has its name. Otherwise logs the loss and
        continues at the log start, or ends.
        """
        while self._position < self._range.end and not self._is_cancelled:
            try:
                yield from self._subscribed()
            except OffsetOutOfRange as error:
                self._skip_deleted(error)
            except QuorumlogError as error:
                self._prepare_retry(error)

    def cancel(self) -> None:
        """Stop `responses()`, also while it waits for a broker. Idempotent."""
        self._is_cancelled = True
        if self._stream is not None:
            self._stream.close()

    def _subscribed(self) -> Iterator[tuple[Buffer, int]]:
        request = log_pb2.SubscribeRequest(
            topic=self._range.place.topic,
            partition=self._range.place.partition,
            offset=self._position,
            end_offset=self._range.end,
            max_bytes=RESPONSE_BYTES_MAX,
            isolation=isolation_number(self._isolation),
            topic_id=self._leader.topic_id,
        )
        self._stream = self._cluster.channel_to(self._leader.address).stream(SUBSCRIBE, [request])
        if self._is_cancelled:  # cancel() ran before this stream existed
            self._stream.close()
        try:
            for response in self._stream:
                start, self._position = self._position, response.next_offset
                self._failures = 0
                self._cluster.record_response()
                if response.batches:
                    yield response.batches, start
                if self._position >= self._range.end:
                    return
        finally:
            self._stream.close()
        raise StreamBroken(
            f"the broker ended the stream at offset {self._position}, before the end of the range "
            f"at {self._range.end}",
            topic=self._range.place.topic,
            partition=self._range.place.partition,
        )

    def _prepare_retry(self, error: QuorumlogError) -> None:
        """Prepare a retry, or raise the error."""
        if self._is_cancelled:
            return
        if self._limit is None or not self._failures:
            self._limit = self._cluster.retry_limit()
        self._failures += 1
        wait_ms = backoff().wait_ms(self._failures)
        if not (is_retriable(error) and self._limit.allows(self._failures, now_ms())):
            raise error
        logger.log(
            logging.WARNING if self._failures == self._limit.attempts else logging.INFO,
            "spark.resume place=%s offset=%d error=%s",
            self._range.place,
            self._position,
            error,
        )
        time.sleep(wait_ms / 1000)
        try:
            leader = self._cluster.leader(self._range.place)
        except UnknownTopicOrPartition as gone:
            self._end_without_topic(gone)
            return
        except QuorumlogError as failure:  # looked up again if the next attempt fails
            if not failure.retriable:
                raise
            return
        if leader.topic_id != self._leader.topic_id:  # deleted and recreated
            self._end_without_topic(error)
            return
        self._leader = leader

    def _end_without_topic(self, gone: QuorumlogError) -> None:
        place = self._range.place
        if self._fail_on_data_loss:
            raise UnknownTopicOrPartition(
                f"the partition was deleted after it was read up to offset {self._position}. "
                f"{FAIL_ON_DATA_LOSS}",
                topic=place.topic,
                partition=place.partition,
            ) from gone
        logger.warning("spark.data_loss place=%s deleted_at=%d", place, self._position)
        self._position = self._range.end

    def _skip_deleted(self, error: OffsetOutOfRange) -> None:
        place = self._range.place
        leaders = {place: self._leader}
        log_start = self._cluster.earliest(leaders, self._isolation)[place]
        if self._fail_on_data_loss or log_start <= self._position:
            raise OffsetOutOfRange(
                f"{error.message}. {FAIL_ON_DATA_LOSS}",
                topic=place.topic,
                partition=place.partition,
            ) from error
        logger.warning(
            "spark.data_loss place=%s start=%d log_start=%d", place, self._position, log_start
        )
        self._position = log_start


def prefetch(items: Iterator[T], *, cancel: Callable[[], None], timeout_ms: int) -> Iterator[T]:
    """Yield the items; a thread prefetches the next one while the caller uses one.

    Raises TimedOut if an item takes longer than `timeout_ms`. At the end, also after an error,
    `cancel` is called, which must end `items`; the thread is then joined for at most
    END_SECONDS_MAX. The daemon thread does not delay the end of the process.
    """
    wanted: SimpleQueue[bool] = SimpleQueue()
    made: SimpleQueue[T | Exception | None] = SimpleQueue()  # None: the end

    def make() -> None:
        while wanted.get():
            try:
                made.put(next(items, None))
            except Exception as error:
                made.put(error)

    thread = threading.Thread(target=make, name="quorumlog-ahead", daemon=True)
    thread.start()
    wanted.put(True)
    try:
        while (item := made.get(timeout=min(timeout_ms / 1000, threading.TIMEOUT_MAX))) is not None:
            if isinstance(item, Exception):
                raise item
            wanted.put(True)
            yield item
    except Empty:
        raise TimedOut(
            f"no data from a broker for {timeout_ms} ms (option 'pollTimeoutMs')"
        ) from None
    finally:
        # While the process ends, daemon threads are frozen and may hold a lock that cancel() needs;
        # the connection ends with the process.
        if not sys.is_finalizing():
            cancel()
            wanted.put(False)
            thread.join(END_SECONDS_MAX)


def read_task(
    options: ReadOptions,
    schema: StructType,
    columns: tuple[str, ...],
    values: ValuePlan | None,
    partition: InputPartition,
) -> Iterator[pa.RecordBatch]:
    """Yield a task's records in offset order, in Arrow batches of at most 65,000 rows.

    The next batch is prefetched while Spark processes one, so a task holds two, and the bytes of
    one. A partition without a task (Spark creates one for an empty plan) has no records.
    """
    task = partition.value
    if task is None:
        return
    assert isinstance(task, Task), f"not a task of this source: {task!r}"
    # Below the prefetch timeout, so that the error has the cause and not only the timeout.
    patience_ms = options.poll_timeout_ms * 9 // 10
    fetcher = RangeFetcher(
        Cluster(options.access, patience_ms=patience_ms),
        task.range,
        leader=task.leader,
        isolation=options.isolation,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    place = task.range.place
    task_values = None
    if values is not None:
        bad = BadValues(values.options, options.access, place, timeout_ms=patience_ms)
        task_values = TaskValues(values, bad)
    assembler = Assembler(schema, columns, place, task_values)
    decoded = _decoded(fetcher, assembler, task.range.end)
    try:
        yield from prefetch(decoded, cancel=fetcher.cancel, timeout_ms=options.poll_timeout_ms)
    finally:
        if task_values is not None:
            task_values.finish()


def _decoded(fetcher: RangeFetcher, assembler: Assembler, end: int) -> Iterator[pa.RecordBatch]:
    gather = Gather()
    for batches, start in fetcher.responses():
        for chunk in gather.add(batches, start):
            yield from assembler.decode(chunk, end)
    for chunk in gather.rest():
        yield from assembler.decode(chunk, end)
