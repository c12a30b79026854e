"""A streaming query that kills its whole session at a step, for test_kills.

    killed_query.py '{"bootstrap": ..., "topic": ..., "start": ..., "folder": ..., "step": ...}'

With a step it runs until the kill; without one it reads all available records and ends. The sink is
a file for each micro-batch, by its number, so that a repeated one is overwritten. Its first query
for new records waits until the test has appended some: the file `waits` signals the wait, `go` ends
it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from quorumlog.spark import query_group, session
from quorumlog.spark.options import Mode, parse_options
from quorumlog.spark.source import QuorumlogSource, columns_wanted
from quorumlog.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def end(group: int) -> None:
    """Kill a session as a power cut does: the driver, its JVM, and the calling process."""
    os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class KilledReader(StreamReader):
    """A stream's reader that kills the session at one of its calls."""

    plan: dict[str, Any]
    first: dict[str, Any] | None = None

    def _at(self, step: str) -> None:
        if self.plan["step"] == step:
            end(self.plan["group"])

    def initialOffset(self) -> dict[str, Any]:
        self.first = super().initialOffset()
        return self.first

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if start != self.first:
            self._at("committed")
        elif self.plan["step"]:
            folder = Path(self.plan["folder"])
            (folder / "waits").touch()
            while not (folder / "go").exists():
                time.sleep(0.05)
        found = super().latestOffset(start, limit)
        self._at("plan" if start == self.first else "replanned")
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._at("planned")
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            self._at("tasks")
            yield batch


class KilledSource(QuorumlogSource):
    """The source, with a plan of the kill."""

    @classmethod
    def name(cls) -> str:
        return "killed"

    def streamReader(self, schema: StructType) -> StreamReader:
        query_group.COMMIT_TIMEOUT_MS = 60_000  # a busy machine may take over a second
        options = parse_options(self.options, Mode.STREAM)
        reader = KilledReader(options, schema, columns_wanted(schema, include_headers=None))
        reader.plan = json.loads(os.environ["QUORUMLOG_KILLED_QUERY"])
        return reader


def main() -> None:
    plan = json.loads(sys.argv[1]) | {"group": os.getpgid(0)}
    os.environ["QUORUMLOG_KILLED_QUERY"] = json.dumps(plan)
    folder = Path(plan["folder"])
    spark = session("killed query", master="local[2]", config={"spark.log.level": "ERROR"})
    spark.dataSource.register(KilledSource)

    def keep(frame: "DataFrame", number: int) -> None:
        rows = [int(row.value) for row in frame.orderBy("partition", "offset").collect()]
        partial = folder / f"batch-{number}.partial"
        partial.write_text(json.dumps(rows))
        partial.rename(folder / f"batch-{number}.json")
        if plan["step"] == ("sink", "second sink")[min(number, 1)]:
            end(plan["group"])

    reader = spark.readStream.format("killed").option("bootstrap", plan["bootstrap"])
    reader = reader.option("subscribe", plan["topic"]).option("groupId", plan["topic"])
    if plan["step"] == "second sink":
        reader = reader.option("maxOffsetsPerTrigger", "6")
    writer = reader.option("startingOffsets", plan["start"]).load().writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = (writer if plan["step"] else writer.trigger(availableNow=True)).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
