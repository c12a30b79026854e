"""One task of Spark: a range of one partition, read and decoded on an executor."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from quorumlog.spark.batches import Assembler, Gather
from quorumlog.spark.cluster import Cluster, Leader
from quorumlog.spark.fetching import Fetching, one_ahead
from quorumlog.spark.offsets import TopicPartition
from quorumlog.spark.options import ReadOptions
from quorumlog.spark.planning import Range


@dataclass(frozen=True, slots=True)
class Task:
    """The range of one task, and the partition's leader at planning time."""

    range: Range
    leader: Leader


def input_partitions(
    ranges: Sequence[Range], leaders: Mapping[TopicPartition, Leader]
) -> list[InputPartition]:
    """Return the tasks as Spark's input partitions."""
    return [InputPartition(Task(part, leaders[part.place])) for part in ranges]


def read_task(
    options: ReadOptions,
    schema: StructType,
    columns: tuple[str, ...],
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
    fetching = Fetching(
        # Below the prefetch timeout, so that the error has the cause and not only the timeout.
        Cluster(options.bootstrap, patience_ms=options.poll_timeout_ms * 9 // 10),
        task.range,
        leader=task.leader,
        isolation=options.isolation,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    assembler = Assembler(schema, columns, task.range.place)
    decoded = _decoded(fetching, assembler, task.range.end)
    yield from one_ahead(decoded, cancel=fetching.cancel, timeout_ms=options.poll_timeout_ms)


def _decoded(fetching: Fetching, assembler: Assembler, end: int) -> Iterator[pa.RecordBatch]:
    gather = Gather()
    for batches, start in fetching.responses():
        for chunk in gather.add(batches, start):
            yield from assembler.decode(chunk, end)
    for chunk in gather.rest():
        yield from assembler.decode(chunk, end)
