"""What the page of benchmarks shows of this room."""

from collections.abc import Iterator

from benchmarks.pages.tables import Result, compared, head, line, subject

COMMAND = "python -m benchmarks.kafka_wire --only"
THROUGHPUT = (
    "Apache Kafka from its Maven artifacts, with its default settings, beside ours with"
    " `flush.policy=replicated`, which is what Kafka's brokers do; a row for `fsync`. tansu and"
    " noida-db speak the same protocol and hold records in memory only (noida-db the newest 50 MB)."
    " The ceiling is a C program that receives and writes, or sends a file by `sendfile`, and does"
    " nothing else. Our load generator replays the same encoded requests over raw sockets to each,"
    " from six connections with five produce requests or one fetch of 1 MiB under way each. A"
    " gigabyte is one of record batches. *Cores* are those that brokers and generator took of the"
    " machine's; where they come to all of them, the rate is what the machine could, shared between"
    " both, and the CPU a gigabyte says which broker is cheaper."
)
REPLICAS = (
    "The same with three brokers on this machine, three replicas, `acks=all` and one connection a"
    " partition to its leader. CPU is that of all three brokers."
)
LATENCY = (
    "Three brokers, three replicas, `acks=all`, records of 100 bytes at fixed rates: from when a"
    " request was due to its acknowledgement, and to when a consumer that waits for it has it. Also"
    " requests that could not leave in time count from when they were due. A rate that a system did"
    " not hold says so."
)
CLIENTS = (
    "The same brokers through clients that people use, and two systems that have their own. A"
    " gigabyte is one of values. Where the client takes a whole core, the rate is the client's."
)
STARTS = (
    "One broker on a new directory that is formatted already: from its command to the first"
    " acknowledged record by the Kafka protocol, and what it takes at rest."
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
