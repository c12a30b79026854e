"""The writers of `df.write` and `writeStream`: exactly once by staged commits, or at least once.

Exactly once: the driver opens a write when Spark plans the writer; it travels to the tasks in the
pickled writer. Each task attempt stages its records and returns the result as its message. Commit
makes the records of the winning attempts visible in one idempotent call, and aborts all others.

A query's commits have the name `spark/<query id>/<commitName>` and the batch id as number, which
tasks take from Spark's local properties; commit takes them from the messages, since Spark makes a
fresh writer for it. Batch writes have a name only by options.

Memory of a task: the producer's buffer (`bufferSize`, 64 MiB by default; a full one blocks the
task), 8 MiB of rows that are not encoded, and one Arrow batch of Spark
(`spark.sql.execution.arrow.maxRecordsPerBatch` rows).
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import Row, StructType

import quorumlog
from quorumlog.clients.staged_commits import COMMIT_TIMEOUT_MS, StagedWrite, TaskResult
from quorumlog.errors import (
    CommittedBatchDiffers,
    InvalidConfig,
    InvalidRequest,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.spark.broker_calls import now_ms
from quorumlog.spark.options import Mode
from quorumlog.spark.process_client import client_of
from quorumlog.spark.sink_rows import batches_of, send_rows, written_columns
from quorumlog.spark.versions import HAS_STREAM_ARROW_WRITER, DataSourceStreamArrowWriter
from quorumlog.spark.write_options import DeliveryGuarantee, OnDifferentBatch, WriteOptions

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Spark's local properties with the query and the micro-batch of a task."""

CONNECT_TIMEOUT_MS: Final = 10_000
"""Time limit of the first connection for a plan: the address may be wrong."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """The message of a task that wrote."""

    count: int  # records
    result: TaskResult | None  # of the task's staged records; None: delivered at least once


class TopicWriter:
    """The steps of every writer, on the driver and in tasks. Picklable."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Raise InvalidConfig for columns or a mode that cannot be written. Calls no broker."""
        if overwrite:
            raise _no_overwrite(options.mode)
        self._options = options
        self._columns = written_columns(schema, options.topic)
        self._is_open = False
        self.write: StagedWrite | None = None

    def open(self) -> None:
        """Open the write, on the driver; raise UnknownTopicOrPartition for option topic.
        Idempotent."""
        if self._is_open:
            return
        options = self._options
        client = client_of(options.access, connect_timeout_ms=CONNECT_TIMEOUT_MS)
        if options.topic is not None:
            _check_topic(client, options.topic)
        if options.delivery is DeliveryGuarantee.EXACTLY_ONCE:
            self.write = client.open_write(
                options.batch_name(),
                options.commit_number or 0,
                stage_timeout_ms=options.stage_timeout_ms,
            )
        self._is_open = True

    def send(self, batches: Iterator[pa.RecordBatch], write: StagedWrite | None) -> TaskMessage:
        """Send the rows of a task attempt, staged in `write`, and return its message.

        A failed attempt is aborted, as far as the brokers can be reached.
        """
        client = client_of(self._options.access)
        options = self._options
        if write is None:
            with client.producer(partitioner=options.partitioner, **options.producer) as producer:
                return TaskMessage(send_rows(producer, batches, self._columns), None)
        context = _task_context()
        with client.staged_producer(
            write,
            context.partitionId(),
            attempt=context.taskAttemptId(),
            partitioner=options.partitioner,
            **options.producer,
        ) as staged:
            send_rows(staged, batches, self._columns)
            result = staged.seal()
        return TaskMessage(result.count, result)

    def stream_write(self) -> StagedWrite | None:
        """Return the write of the task's micro-batch, None at least once."""
        if self.write is None:
            return None
        context = _task_context()
        query_id, batch_id = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        if query_id is None or batch_id is None:
            raise InvalidRequest(
                f"Spark gave the task no {QUERY_ID} or {BATCH_ID}, which identify a micro-batch; "
                "set option 'delivery' to 'atleastonce'"
            )
        return self.write.for_batch(self._options.stream_name(query_id), int(batch_id))

    def commit(self, write: StagedWrite, results: Sequence[TaskResult]) -> None:
        """Commit the results of all tasks; repeated for COMMIT_TIMEOUT_MS, which includes the time
        to connect: Spark may commit in a new process.

        Raises CommittedBatchDiffers if the batch was committed with another number of records,
        unless option onDifferentBatch is warn.
        """
        is_fatal = self._options.on_different_batch is OnDifferentBatch.FAIL
        deadline_ms = now_ms() + COMMIT_TIMEOUT_MS
        client = client_of(self._options.access, connect_timeout_ms=COMMIT_TIMEOUT_MS)
        try:
            committed = client.commit_write(
                write,
                results,
                timeout_ms=max(deadline_ms - now_ms(), 1),
                on_different="raise" if is_fatal else "warn",
            )
        except CommittedBatchDiffers as error:  # with the remedy of this interface
            raise CommittedBatchDiffers(
                error.message.replace("on_different='warn'", "option onDifferentBatch=warn")
            ) from None
        if committed is not None:
            # A repeated batch, or another write under the same commitName and commitNumber.
            level = logging.INFO if committed.is_mine else logging.WARNING
            logger.log(
                level,
                "spark.committed name=%s number=%d records=%d mine=%s%s",
                write.name,
                write.number,
                committed.count,
                committed.is_mine,
                "" if committed.is_mine else ": an earlier write has this number, none is added",
            )

    def abort(self, write: StagedWrite) -> None:
        """Abort what is staged, as far as the brokers can be reached. Never decides a number."""
        try:
            client = client_of(self._options.access, connect_timeout_ms=CONNECT_TIMEOUT_MS)
            client.abort_write(write)
        except QuorumlogError as error:
            logger.warning(
                "spark.not_aborted name=%s number=%d error=%s: the coordinator aborts it later",
                write.name,
                write.number,
                error,
            )


class BatchWriter(DataSourceArrowWriter):
    """The writer of one DataFrame."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._writer = TopicWriter(options, schema, overwrite)
        self._writer.open()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of a task."""
        return self._writer.send(iterator, self._writer.write)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the records of all tasks visible; nothing is left to do at least once."""
        if self._writer.write is not None:
            self._writer.commit(self._writer.write, _results(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write."""
        if self._writer.write is not None:
            self._writer.abort(self._writer.write)


class _MicroBatch:
    """The writer of a micro-batch. Spark makes one to plan it, and another one to commit it.

    Only the planned one opens a write: a commit needs no write of its own, and an abort no topic.
    """

    def __init__(
        self, options: WriteOptions, schema: StructType, overwrite: bool, *, plans: bool = False
    ) -> None:
        """Open the write if this plans a micro-batch."""
        self._writer = TopicWriter(options, schema, overwrite)
        self._schema = schema
        if plans:
            self._writer.open()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a writer for tasks, which has an open write."""
        self._writer.open()
        return self.__dict__

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the records of all tasks visible; nothing is left to do at least once."""
        results = _results(messages)
        if not results:
            return
        write = results[0].write
        if write.number != batchId:
            raise InvalidRequest(
                f"staged commits {write.name}: Spark commits batch {batchId} with the results of "
                f"batch {write.number}; start the query again"
            )
        self._writer.commit(write, results)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the write of the messages.

        Without a message its name is unknown; the next run of the batch aborts it, or the
        coordinator after the stage timeout.
        """
        results = _results(messages)
        if results:
            self._writer.abort(results[0].write)


class StreamWriter(_MicroBatch, DataSourceStreamArrowWriter):
    """The writer of a micro-batch that gets Arrow batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of a task."""
        return self._writer.send(iterator, self._writer.stream_write())


class StreamRowWriter(_MicroBatch, DataSourceStreamWriter):
    """The writer of a micro-batch that gets rows, for versions of Spark without the other."""

    def write(self, iterator: Iterator[Row]) -> TaskMessage:
        """Write the rows of a task."""
        batches = batches_of(iterator, self._schema)
        return self._writer.send(batches, self._writer.stream_write())


def stream_writer(
    options: WriteOptions, schema: StructType, overwrite: bool, *, plans: bool
) -> DataSourceStreamWriter:
    """Return the writer of a micro-batch for this version of Spark, with an open write if it
    plans the micro-batch."""
    kind = StreamWriter if HAS_STREAM_ARROW_WRITER else StreamRowWriter
    return kind(options, schema, overwrite, plans=plans)


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    """Return the results of the tasks; the message of a failed task is None."""
    found: list[Any] = [getattr(message, "result", None) for message in messages]
    return [result for result in found if result is not None]


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InvalidRequest("there is no task of Spark; write through df.write or writeStream")
    return context


def _check_topic(client: quorumlog.Log, topic: str) -> None:
    try:
        client.partition_count(topic)
    except UnknownTopicOrPartition as error:
        raise UnknownTopicOrPartition(
            "the topic of option 'topic' does not exist; create it (quorumlog topics create "
            f"{topic}), or correct the option",
            topic=topic,
        ) from error


def _no_overwrite(mode: Mode) -> InvalidConfig:
    if mode is Mode.STREAM:
        return InvalidConfig(
            "outputMode 'complete' replaces the result with each micro-batch, and a topic only "
            "takes further records; use outputMode('append'), or write in foreachBatch"
        )
    return InvalidConfig(
        "mode 'overwrite' replaces data, and a topic only takes further records; use mode('append')"
    )
