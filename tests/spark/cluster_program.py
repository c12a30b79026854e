"""A user's program on a cluster or through Spark Connect, for test_clusters.

    cluster_program.py '{"master": ..., "bootstrap": ..., "topic": ..., "written": ..., ...}'

It writes the records of topic `topic` to `written` in a batch, and those to `streamed` in a stream.
`master` is "connect" for a Spark Connect session with a separate server, otherwise a master's
address. It prints the results of its reads as one line of JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorumlog.spark import configure, session
from quorumlog.spark.sessions import find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = {
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def connect(events: Path) -> "SparkSession":
    """Return a session of Spark Connect without configuration; its server writes the data of its UI
    into a folder."""
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.remote("local[2]")
    events.mkdir()
    log = {"enabled": "true", "compress": "false", "rolling.enabled": "false", "dir": f"{events}"}
    config = CONFIG | {f"spark.eventLog.{name}": value for name, value in log.items()}
    for name, value in config.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


def summary(frame: "DataFrame") -> list[list[int]]:
    """Return records, first and last offset, and the sum of the values of each partition."""
    from pyspark.sql import functions as f

    rows = (
        frame.groupBy("partition")
        .agg(
            f.count("*"),
            f.min("offset"),
            f.max("offset"),
            f.sum(f.col("value").cast("string").cast("long")),
        )
        .orderBy("partition")
        .collect()
    )
    return [list(row) for row in rows]


def refused_password(spark: "SparkSession", options: dict[str, str]) -> str:
    """Return the error of a read with a password, which the broker has not configured."""
    from pyspark.errors import PySparkException

    login = 'ScramLoginModule required username="etl" password="hunter2-top";'
    reader = spark.read.format("quorumlog").options(**options)
    try:
        reader.option("kafka.sasl.jaas.config", login).load().count()
    except PySparkException as error:
        return str(error)
    return ""


def main() -> None:
    plan = json.loads(sys.argv[1])
    is_connect = plan["master"] == "connect"
    events = Path(plan["folder"]) / "events"
    spark = connect(events) if is_connect else session(master=plan["master"], config=CONFIG)
    found: dict[str, Any] = {}
    options = {"bootstrap": plan["bootstrap"], "subscribe": plan["topic"]}
    try:
        listed = ", ".join(f"{name} '{value}'" for name, value in options.items())
        spark.sql(f"CREATE TEMPORARY VIEW found USING quorumlog OPTIONS ({listed})")
        found["by itself"] = summary(spark.table("found"))
        configure(spark)
        found["refused"] = refused_password(spark, options)
        records = spark.read.format("quorumlog").options(**options).load()
        found["batch"] = summary(records)
        writes = {"bootstrap": plan["bootstrap"], "topic": plan["written"]}
        streamed = writes | {"topic": plan["streamed"]}
        columns = ("partition", "key", "value")
        records.select(*columns).write.format("quorumlog").options(**writes).mode("append").save()
        # The stream reads what the batch has written.
        options["subscribe"] = plan["written"]
        stream = spark.readStream.format("quorumlog").options(**options)
        started = stream.option("startingOffsets", "earliest").load().select(*columns)
        writer = started.writeStream.format("quorumlog").options(**streamed)
        writer = writer.option("checkpointLocation", str(Path(plan["folder"]) / "checkpoint"))
        found["ends"] = writer.trigger(availableNow=True).start().awaitTermination(240)
        options["subscribe"] = plan["streamed"]
        found["stream"] = summary(spark.read.format("quorumlog").options(**options).load())
        if not is_connect:
            executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
            found["executors"] = executors - 1  # the list includes the driver
        print(json.dumps(found))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
