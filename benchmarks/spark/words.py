"""The sections of the benchmarks' page about Spark."""

from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.pages.tables import Result, compared, head, line, subject

COMMAND = "python -m benchmarks.spark --only"
READ = (
    "A batch read of records with 100-byte values, four partitions, two Spark cores. One query "
    'uses all seven columns, the other one the value alone (`.schema("value binary")`). *Prepared '
    "Arrow batches* is a Python source that yields one batch again and again, the ceiling of "
    "Spark's interface; *Parquet* is the same table in files, read by Spark's vectorised reader."
)
CONNECTOR = (
    "The same query with all columns, in one session of the newest Spark for which the Kafka "
    "connector exists: the connector reads the same records from the same broker, and from a "
    "broker of Apache Kafka."
)
STREAM = (
    "Micro-batches of 100-byte records, and of a thousand for the fixed cost of a micro-batch, "
    "compared with a Python streaming source of prepared Arrow batches."
)
SINK = (
    "A batch write of rows made in the JVM, with keys of 10 bytes and values of 100, to four "
    "partitions of one broker with `flush.policy=replicated`. *Counts the rows* is a Python sink "
    "that drops them, the ceiling."
)
SINK_CONNECTOR = (
    "The same write in one session with the Kafka connector, which writes at least once, to the "
    "same broker and to a broker of Apache Kafka."
)
COMMIT = (
    "Three nodes, eight tasks, each with records in eight partitions of three replicas: the time "
    "of the commit, from the results of the tasks until readers get all records."
)
FIRST = (
    "A new process: seconds to a session, and from there to the answer of the first aggregation "
    "of 10,000 rows. The broker runs already."
)


def _cases(result: Result) -> Iterator[str]:
    groups = list(next(iter(result["cases"].values()))["cpu_s_per_million"])
    names = {"jvm": "JVM", "python": "Python"}
    yield from head("case", "rows/s", *(f"{names.get(group, group)} CPU s/M" for group in groups))
    for name, row in result["cases"].items():
        used = (f"{row['cpu_s_per_million'][group]:.2f}" for group in groups)
        yield line(name, f"{row['rows_per_s']:,}", *used)


def cases(result: Result) -> Iterator[str]:
    """Yield a row for each case."""
    yield (
        f"{subject(result)}, Spark {result['spark']}; {result['records']:,} records, medians of "
        f"{result['rounds']} rounds after one that warms up."
    )
    yield ""
    yield from _cases(result)
    yield ""
    yield from compared(result)


def stream(result: Result) -> Iterator[str]:
    """Yield a row for each source."""
    yield (
        f"{subject(result)}, Spark {result['spark']}; {result['batch_rows']:,} rows a large "
        f"micro-batch, {result['small_rows']:,} a small one."
    )
    yield ""
    yield from head("source", "rows/s", "ms a small micro-batch", "of it in latestOffset")
    for name, row in result["cases"].items():
        times = (row["batch_ms"].get(part, 0) for part in ("triggerExecution", "latestOffset"))
        yield line(name, f"{row['rows_per_s']:,}", *(f"{each:.0f}" for each in times))
    yield ""
    yield from compared(result)


def commit(result: Result) -> Iterator[str]:
    """Yield the row."""
    yield f"{subject(result)}; {result['commits']} commits."
    yield ""
    yield from head("records a task", "p50 ms", "p99 ms")
    yield line(f"{result['records']:,}", f"{result['p50_ms']:.1f}", f"{result['p99_ms']:.1f}")
    yield ""
    yield from compared(result)


def first(result: Result) -> Iterator[str]:
    """Yield a row for each case."""
    yield f"{subject(result)}; medians of {result['rounds']} processes."
    yield ""
    yield from head("source", "session s", "first answer s")
    for name, row in result["cases"].items():
        yield line(name, f"{row['session_s']:.2f}", f"{row['answer_s']:.2f}")
    yield ""
    yield from compared(result)


SECTIONS: Final[tuple[tuple[str, str, str, Callable[[Result], Iterator[str]]], ...]] = (
    ("Spark: batch reads", "spark_read", READ, cases),
    ("Spark: batch reads beside the Kafka connector", "spark_connector", CONNECTOR, cases),
    ("Spark: streams", "spark_stream", STREAM, stream),
    ("Spark: sink", "spark_sink", SINK, cases),
    ("Spark: sink beside the Kafka connector", "spark_sink_connector", SINK_CONNECTOR, cases),
    ("Spark: commit of a batch", "spark_commit", COMMIT, commit),
    ("Spark: first query", "spark_first", FIRST, first),
)
"""Titles, names of results, descriptions and tables of the sections."""
