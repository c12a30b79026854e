"""What the page of benchmarks shows of this room."""

from collections.abc import Iterator

from benchmarks.pages.tables import Result, compared, head, line, subject

COMMAND = "python -m benchmarks.kafka_wire --only"
THROUGHPUT = (
    "Apache Kafka from its Maven artifacts with default settings, and quorumlog with "
    "`flush.policy=replicated`, as Kafka's brokers do; one row has `fsync`. tansu and noida-db "
    "speak the same protocol and keep records in memory only (noida-db the newest 50 MB). The "
    "ceiling is a C program that only receives and writes, or sends a file by `sendfile`. The "
    "load generator replays the same encoded requests over raw sockets, from six connections "
    "with five produce requests or one fetch of 1 MiB in flight each. A gigabyte counts record "
    "batches. *Cores* are the machine's cores in use by brokers and generator. Where they add "
    "up to all cores, the machine limits the rate, and the CPU a gigabyte shows the cheaper "
    "broker."
)
REPLICAS = (
    "The same with three brokers on this machine, three replicas, `acks=all` and one connection "
    "for each partition to its leader. CPU is the sum of the three brokers."
)
LATENCY = (
    "Three brokers, three replicas, `acks=all`, records of 100 bytes at fixed rates: the time "
    "from the due time of a request to its acknowledgement, and to its arrival at a waiting "
    "consumer. Requests that are sent late also count from their due time. A rate that a system "
    "did not sustain is marked."
)
CLIENTS = (
    "The same brokers with common clients, and two systems with clients of their own. A "
    "gigabyte counts values. Where the client uses a whole core, the client limits the rate."
)
STARTS = (
    "One broker on a new, formatted directory: the time from its command to the first record "
    "acknowledged over the Kafka protocol, and its use of memory and CPU at rest."
)


def _refusals(result: Result) -> Iterator[str]:
    for each in result["refusals"]:
        words = [str(value) for name, value in each.items() if name != "why" and value != ""]
        yield ""
        yield f"No row: {', '.join(words)}: {each['why']}."


def throughput(result: Result) -> Iterator[str]:
    """A row a system and direction, a table a workload."""
    yield (
        f"{subject(result)}; medians of {result['rounds']} rounds of {result['seconds']:g} s,"
        f" {result['partitions']} partitions, `acks={result['acks']}`."
    )
    for workload in dict.fromkeys(row["workload"] for row in result["rows"]):
        yield ""
        yield f"Records of {workload.replace(', ', ', batches of ', 1)}:"
        yield ""
        yield from head("system", "", "MB/s", "broker CPU s/GB", "broker cores", "generator cores")
        for direction in ("produce", "fetch"):
            rows = [row for row in result["rows"] if row["workload"] == workload]
            for row in (row for row in rows if row["direction"] == direction):
                yield line(
                    row["system"],
                    direction,
                    f"{row['mb_per_s']:,.0f}",
                    f"{row['cpu_s_per_gb']:.2f}",
                    f"{row['cores']:.2f}",
                    f"{row['client_cores']:.2f}",
                )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def latency(result: Result) -> Iterator[str]:
    """A row a system and rate."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds of {result['seconds']:g} s."
    yield ""
    shares = ("p50", "p99", "p99.9")
    clocks = ("acknowledged", "delivered")
    yield from head(
        "system",
        "records",
        *(f"{clock} {share} ms" for clock in clocks for share in shares),
        "broker cores",
    )
    for row in result["rows"]:
        figures = (
            row[f"{clock}_{share.replace('.', '')}_ms"] for clock in clocks for share in shares
        )
        held = "" if row["held"] else f" (not held: {row['reached']:.0%})"
        yield line(
            row["system"],
            f"{row['rate']}{held}",
            *("" if figure is None else f"{figure:,.2f}" for figure in figures),
            f"{row['cores']:.2f}",
        )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def clients(result: Result) -> Iterator[str]:
    """A row a system, client, direction and size."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds."
    yield ""
    yield from head(
        "system", "client", "", "bytes", "records/s", "MB/s", "broker CPU s/GB", "client's CPU s/GB"
    )
    for row in result["rows"]:
        bound = " (client-bound)" if row["client_bound"] else ""
        yield line(
            row["system"],
            row["client"],
            row["direction"],
            f"{row['value_bytes']:,}",
            f"{row['records_per_s']:,}{bound}",
            f"{row['mb_per_s']:,.0f}",
            f"{row['cpu_s_per_gb']:.2f}",
            f"{row['client_cpu_s_per_gb']:.2f}",
        )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def starts(result: Result) -> Iterator[str]:
    """A row a system."""
    yield f"{subject(result)}; medians of {result['rounds']} starts."
    yield ""
    yield from head("system", "first answer s", "first record s", "idle MB", "idle, of a core")
    for row in result["rows"]:
        yield line(
            row["system"],
            f"{row['answers_s']:.2f}",
            f"{row['acknowledged_s']:.2f}",
            f"{row['memory_mb']:,.0f}",
            f"{row['idle_share']:.1%}",
        )
    yield ""
    yield from compared(result)
