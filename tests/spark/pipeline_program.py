"""The pipeline flights -> windowed totals -> topic -> table, on a cluster with two executors:
`python -m tests.spark.pipeline_program JSON`.

Without `ends` it runs until it is killed, or until a query fails; with it, it ends once the input
is in the table.
"""

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from quorumlog.spark import session
from quorumlog.spark.pipelines.lake import to_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA: Final = "time timestamp, origin string, delay int, distance int"
WINDOW: Final = "3 hours"
TOTALS: Final = "totals"
"""The topic, and the folder of its query's checkpoint."""
FAILED: Final = 3
CONFIG: Final = {
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def start_totals(spark: "SparkSession", given: dict[str, Any]) -> "StreamingQuery":
    """Start the query from the flights to the topic."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    flights = reader.option("pathGlobFilter", "*.parquet").parquet(given["flights"])
    totals = (
        flights.withWatermark("time", "1 hour")
        .groupBy(f.window("time", WINDOW), "origin")
        .agg(
            f.count("*").alias("flights"),
            f.sum("delay").alias("delay"),
            f.max("distance").alias("distance"),
        )
    )
    start = f.col("window.start").cast("long").alias("start")
    value = f.struct(start, "origin", "flights", "delay", "distance")
    rows = totals.select(f.col("origin").alias("key"), f.to_json(value).alias("value"))
    writer = rows.writeStream.format("quorumlog").option("bootstrap", given["bootstrap"])
    writer = writer.option("topic", TOTALS).outputMode("append")
    writer = writer.option("checkpointLocation", str(Path(given["checkpoints"]) / TOTALS))
    return (writer.trigger(availableNow=True) if given["ends"] else writer).start()


def main() -> None:
    """Run both queries."""
    given = json.loads(sys.argv[1])
    spark = session("pipeline", master="local-cluster[2,1,1024]", config=CONFIG | given["config"])
    totals = start_totals(spark, given)

    def watch() -> None:
        try:
            totals.awaitTermination()
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(FAILED)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    if given["ends"]:
        watcher.join()
    try:
        to_lake(
            bootstrap=given["bootstrap"],
            subscribe=TOTALS,
            path=given["table"],
            checkpoint=str(Path(given["checkpoints"]) / "table"),
            select=("partition as part", "offset", "cast(value as string) as value"),
            partition_by=("part",),
            interval=None if given["ends"] else 0.5,
            options={"startingOffsets": "earliest"},
            spark=spark,
        )
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(FAILED)
    spark.stop()


if __name__ == "__main__":
    main()
