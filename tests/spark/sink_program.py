"""A driver with faults, in a separate process: `python -m tests.spark.sink_program JSON`.

It writes the files of a folder to a topic and exits with 0, or with 3 and the error if the query
fails.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from tests.spark.sink_faults import Fault, Plan, register_faulty, start_query

from quorumlog.spark import session


def main() -> int:
    """Run the query."""
    given = json.loads(sys.argv[1])
    faults = tuple(
        Fault(**(each | {"actions": tuple(each["actions"])})) for each in given["faults"]
    )
    spark = session(
        "faults of the sink",
        master=given.get("master", "local[2,3]"),
        config={"spark.log.level": "ERROR", **given.get("config", {})},
    )
    register_faulty(spark, Plan(given["folder"], faults, os.getpgid(0)))
    options = {name: given[name] for name in ("bootstrap", "topic")}
    query = start_query(spark, Path(given["source"]), Path(given["checkpoint"]), options)
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print(error)
        return 3
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
