"""The streaming query of the demo (see flights.py), and a process for it that can be killed.

As a program it is the query's first driver, with its own Spark:

    python examples/flights_stream.py '{"bootstrap": "127.0.0.1:9094", "checkpoint": "/tmp/c"}'
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as json_lines

import quorumlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SOURCE: Final = "flights"
TARGET: Final = "delays"
GROUP: Final = "delays"
BATCH_ROWS: Final = 36_000
LATE_MINUTES: Final = 15
DELAY: Final = (
    "time_hour string, carrier string, flight int, origin string, dest string, dep_delay int"
)
NAMES: Final = [part.split()[0] for part in DELAY.split(", ")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The options of the query, equal for all its drivers."""

    bootstrap: str
    checkpoint: str

    def start(self, spark: "SparkSession") -> "StreamingQuery":
        """Start the query, or continue it: one record for each flight, with its delay."""
        from pyspark.sql import functions as f

        flights = spark.readStream.format("quorumlog").option("bootstrap", self.bootstrap)
        flights = flights.option("subscribe", SOURCE).option("startingOffsets", "earliest")
        flights = flights.option("groupId", GROUP).option("maxOffsetsPerTrigger", str(BATCH_ROWS))
        flight = f.from_json(f.col("value").cast("string"), DELAY)
        delays = flights.load().select(flight.alias("flight")).select("flight.*")
        delays = delays.withColumn("late", f.col("dep_delay") > LATE_MINUTES)
        value = f.to_json(f.struct("*")).alias("value")
        records = delays.select(f.col("origin").alias("key"), value)
        writer = records.writeStream.format("quorumlog").option("bootstrap", self.bootstrap)
        writer = writer.option("topic", TARGET).option("checkpointLocation", self.checkpoint)
        return writer.trigger(availableNow=True).start()


class Driver:
    """A process that runs the query until it is killed."""

    def __init__(self, job: Job) -> None:
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115 (`kill` closes it)
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(asdict(job))],
            stdout=self._messages,
            stderr=self._messages,
            start_new_session=True,  # a process group with its Java machine
        )

    def check(self) -> None:
        """Raise SystemExit with its last messages if it has ended."""
        code = self._process.poll()
        if code is not None:
            self._messages.seek(0)
            last = "".join(self._messages.readlines()[-20:])
            raise SystemExit(f"the driver ended with exit code {code}:\n{last}")

    def kill(self) -> None:
        """Kill it and its Java machine as a power cut does: kill -9. Repeated calls are
        permitted."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._messages.close()


class Progress:
    """The query's progress, which every client can query from the brokers."""

    def __init__(self, log: quorumlog.Log) -> None:
        self._log = log
        self.done = 0  # flights in committed micro-batches, at the last query
        self.staged = 0  # records of the target that no reader gets yet, at the last query

    def look(self) -> None:
        """Query the brokers. A query that fails, during a change of leader, keeps the last
        figures."""
        with contextlib.suppress(quorumlog.errors.QuorumlogError):
            self.done = sum(
                each.committed or 0 for each in self._log.admin.describe_group(GROUP).offsets
            )
            ends = self._log.list_offsets(TARGET)
            visible = self._log.list_offsets(TARGET, isolation_level="read_committed")
            self.staged = sum(ends.values()) - sum(visible.values())


def read_delays(log: quorumlog.Log) -> pa.Table:
    """Return the records of the target as a table, sorted."""
    values = log.read_arrow(TARGET, columns=("value",))["value"].to_pylist()
    schema = pa.schema([(name, TYPES[name]) for name in [*NAMES, "late"]])
    table = json_lines.read_json(
        pa.BufferReader(b"\n".join(values)),
        parse_options=json_lines.ParseOptions(explicit_schema=schema),
    )
    return in_order(table)


def expected_delays(flights: pa.Table) -> pa.Table:
    """Return the same rows, computed by pyarrow from the original file."""
    late = pc.greater(flights["dep_delay"], LATE_MINUTES)
    return in_order(flights.select(NAMES).append_column("late", late))


TYPES: Final[dict[str, Any]] = {
    **{
        part.split()[0]: pa.int32() if part.endswith("int") else pa.string()
        for part in DELAY.split(", ")
    },
    "late": pa.bool_(),
}


def in_order(table: pa.Table) -> pa.Table:
    """Return the rows by time and flight, which identify them."""
    order = [(name, "ascending") for name in ("time_hour", "carrier", "flight", "origin")]
    return table.sort_by(order).combine_chunks()


def main() -> None:
    """Run the query until it is killed, or to the end of the topic."""
    from quorumlog.spark import session

    job = Job(**json.loads(sys.argv[1]))
    # A task that fails while a leader changes is repeated, up to three times.
    # Spark's files are beside the checkpoint: a killed driver does not remove them.
    config = {"spark.log.level": "ERROR", "spark.local.dir": f"{job.checkpoint}.local"}
    spark = session("delays", master="local[2,4]", config=config)
    job.start(spark).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
