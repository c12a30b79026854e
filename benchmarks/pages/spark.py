"""What the page says of Spark."""

from collections.abc import Iterator

from benchmarks.pages.tables import Result, head, line


def spark_read(result: Result) -> Iterator[str]:
    """Rows a second of our source, of the tuple source and of the ceiling."""
    yield (
        f"{result['cpus']} cores, Python {result['python']}; {result['records']:,} records in "
        f"{result['partitions']} partitions. {result['ratio_to_tuples']:.2f} times the source that "
        f"yields tuples (goal {result['goal_ratio_to_tuples']:.0f}), "
        f"{result['ratio_to_ceiling']:.2f} of the ceiling."
    )
    yield ""
    yield from head("source", "rows/s", "JVM CPU s/M", "Python CPU s/M", "broker CPU s/M")
    for name, row in result["cases"].items():
        cpu = (row[f"cpu_{part}_s_per_million_rows"] for part in ("jvm", "python", "broker"))
        yield line(name, f"{row['rows_per_second']:,.0f}", *(f"{spent:.2f}" for spent in cpu))


def spark_stream(result: Result) -> Iterator[str]:
    """Rows a second and milliseconds a micro-batch, of our source and of the ceiling."""
    yield (
        f"{result['cpus']} cores, Python {result['python']}; {result['records']:,} records in "
        f"{result['partitions']} partitions. {result['ratio_to_ceiling']:.2f} of the ceiling (goal "
        f"{result['goal_ratio_to_ceiling']}), {result['extra_ms_per_batch']:.0f} ms more a "
        "micro-batch."
    )
    yield ""
    yield from head("source", "rows/s", "ms a small micro-batch", "... of it in latestOffset")
    for name, row in result["cases"].items():
        parts = row["batch_ms"]
        times = (f"{parts.get(part, 0):.0f}" for part in ("triggerExecution", "latestOffset"))
        yield line(name, f"{row['rows_per_second']:,.0f}", *times)
