"""A table written to the log and read again by columns, without a Python object for each record.

    python examples/arrow_roundtrip.py --rows 1000000

Each row is sent as one JSON object, which every consumer can read, keyed by its sensor so that a
sensor's rows stay in order. Reading returns Arrow tables, one for each partition; pyarrow parses
the JSON of all of them at once. Continue with `table.to_pandas()`.
"""

import argparse
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as json_rows

import quorumlog
from quorumlog.errors import QuorumlogError

TOPIC = "readings"
PARTITIONS = 4


def readings(count: int) -> pa.Table:
    """Return `count` rows of three sensors."""
    numbers = pa.array(range(count))
    sensors = pa.array(["north", "south", "west"]).take(pa.array(n % 3 for n in range(count)))
    return pa.table({"sensor": sensors, "number": numbers, "celsius": pc.divide(numbers, 7.0)})


def round_trip(bootstrap: str, table: pa.Table) -> pa.Table:
    """Send the rows, read them back, and return them."""
    with quorumlog.connect(bootstrap) as log:
        log.admin.create_topic(TOPIC, partitions=PARTITIONS, if_not_exists=True)
        ends = log.list_offsets(TOPIC)  # ends of the records that others stored before
        with log.producer(compression="zstd") as producer:
            producer.send_arrow(TOPIC, table.append_column("key", table["sensor"]), key="key")
        parts = [
            log.read_arrow(TOPIC, partitions=partition, start=end, columns=("value",))
            for partition, end in ends.items()
        ]
    values = pa.concat_tables(parts)["value"]
    lines = b"\n".join(values.to_pylist())
    schema = json_rows.ParseOptions(explicit_schema=table.schema)
    return json_rows.read_json(pa.BufferReader(lines), parse_options=schema)


def main() -> int:
    """Write, read and compare; return the exit code."""
    parser = argparse.ArgumentParser(description="An Arrow table into the log and out again.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9094")
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    table = readings(options.rows)
    started = time.perf_counter()
    try:
        found = round_trip(options.bootstrap, table)
    except QuorumlogError as error:
        print(error, file=sys.stderr)
        return 1
    seconds = time.perf_counter() - started
    same = found.sort_by("number").combine_chunks().equals(table.combine_chunks())
    print(f"{found.num_rows:,} rows there and back in {seconds:.2f} s, equal: {same}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
