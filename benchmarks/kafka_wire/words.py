"""The text and tables of these benchmarks on the page."""

from collections.abc import Iterator

from benchmarks.pages.tables import Result, head, line, ratio, subject, verdict

COMMAND = "python -m benchmarks.kafka_wire --only"
PAIRS = (
    "Ratios are medians of pairs: both systems are measured one after the other, in the opposite "
    "order every other time. A goal is met if the median meets it, and four of five pairs do. A/A "
    "is the ratio of quorumlog to itself, the noise of the machine."
)
THROUGHPUT = (
    "Apache Kafka from its Maven artifacts with default settings and a heap of 1 GiB, and "
    "quorumlog with `flush.policy=replicated`, as Kafka's brokers do; one row has `fsync`. tansu "
    "and noida-db speak the same protocol and keep records in memory only (noida-db the newest "
    "50 MB). The ceiling is a C program of one thread that only receives and writes, or sends a "
    "file by `sendfile`. The load generator replays the same encoded requests over raw sockets, "
    "from six connections with five produce requests, or one fetch of one batch, in flight each. "
    "A gigabyte counts record batches. Both sides of a pair move the same bytes, fewer than the "
    "kernel starts to write back. quorumlog syncs its logs every second; for other systems a row "
    "is void if the kernel writes pages back. In a client-bound row the generator uses more than "
    "95 % of a core and the broker less than 80 %: the CPU a gigabyte decides. " + PAIRS
)
REPLICAS = (
    "The same with three brokers on this machine, three replicas, `acks=all` and one connection "
    "for each partition to its leader. CPU is the sum of the three brokers."
)
LATENCY = (
    "Three brokers, three replicas, `acks=all`, records of 100 bytes at fixed rates: the time "
    "from the due time of a request to its acknowledgement, and to its arrival at a waiting "
    "consumer. Requests that are sent late also count from their due time. A rate that a system "
    "did not sustain is marked, and so is a rate at which all cores of the machine are in use. "
    + PAIRS
)
CLIENTS = (
    "The same brokers with librdkafka and Kafka's Java client, and two systems with clients of "
    "their own. A gigabyte counts values, of which half the bytes are random. In a client-bound "
    "row the client's busiest thread uses more than 95 % of a core and the broker less than "
    "80 %: the CPU a gigabyte decides. " + PAIRS
)
STARTS = (
    "One broker on a new, formatted directory: the time from its command to the first record "
    "acknowledged over the Kafka protocol, and its memory and CPU at rest. " + PAIRS
)
TLS = (
    "The same load on one broker over TLS 1.3, with the cipher that both prefer: quorumlog and "
    "Apache Kafka, each with one more listener."
)
LOGINS = (
    "New connections over TLS 1.3, without resumption of sessions, from one process with 16 at a "
    "time: a handshake counts when ApiVersions was answered, a login when SCRAM-SHA-256 has ended "
    "(4,096 iterations, computed by the client once). In a storm 1,000 clients connect at once, "
    "log in and ask for metadata; its time is that of the slowest. " + PAIRS
)
AUTHORIZATION = (
    "Produce requests of one record of 100 bytes, 16 in flight on one connection, to two nodes of "
    "quorumlog: with `authorizer=acl` and without. A decision is cached by principal and host. "
    + PAIRS
)


def compared(result: Result) -> Iterator[str]:
    """Yield a table of ratios and their goals."""
    if not result["compared"]:
        return
    yield from head("compared", "ratio", "goal", "pairs that meet it", "A/A")
    for each in result["compared"]:
        note = f" ({each['note']})" if each["note"] else ""
        goal = f"{each['goal']}{verdict(each)}{note}"
        met = f"{each['pairs_met']} of {each['rounds']}"
        yield line(each["what"], ratio(each["ratio"]), goal, met, ratio(each["a_a"]))


def _refusals(result: Result) -> Iterator[str]:
    for each in result["refusals"]:
        words = [str(value) for name, value in each.items() if name != "why" and value != ""]
        yield ""
        yield f"No row: {', '.join(words)}: {each['why']}."


def _bound(row: Result) -> str:
    return " (void)" if row["void"] else " (client-bound)" if row["client_bound"] else ""


def throughput(result: Result) -> Iterator[str]:
    """Yield a table for each workload, with a row for each system and direction."""
    yield (
        f"{subject(result)}; medians of {result['rounds']} rounds of at least"
        f" {result['seconds']:g} s, {result['partitions']} partitions, `acks={result['acks']}`."
    )
    for workload in dict.fromkeys(row["workload"] for row in result["rows"]):
        yield ""
        yield f"Records of {workload.replace(' B, ', ' B, batches and answers of ', 1)}:"
        yield ""
        yield from head(
            "system", "", "MB/s", "s", "broker CPU s/GB", "broker cores", "generator cores"
        )
        for direction in ("produce", "fetch"):
            rows = [row for row in result["rows"] if row["workload"] == workload]
            for row in (row for row in rows if row["direction"] == direction):
                yield line(
                    row["system"],
                    direction,
                    f"{row['mb_per_s']:,.0f}{_bound(row)}",
                    f"{row['seconds']:.1f}",
                    f"{row['cpu_s_per_gb']:.2f}",
                    f"{row['cores']:.2f}",
                    f"{row['client_cores']:.2f}",
                )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def latency(result: Result) -> Iterator[str]:
    """Yield a row for each system and rate."""
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
        held += " (all cores in use)" if row["saturated"] else ""
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
    """Yield a row for each system, client, direction, size and codec."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds."
    yield ""
    yield from head(
        "system",
        "client",
        "",
        "bytes",
        "codec",
        "records/s",
        "MB/s",
        "broker CPU s/GB",
        "client's CPU s/GB",
    )
    for row in result["rows"]:
        yield line(
            row["system"],
            row["client"],
            row["direction"],
            f"{row['value_bytes']:,}",
            row["codec"],
            f"{row['records_per_s']:,}{_bound(row)}",
            f"{row['mb_per_s']:,.0f}",
            f"{row['cpu_s_per_gb']:.2f}",
            f"{row['client_cpu_s_per_gb']:.2f}",
        )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def starts(result: Result) -> Iterator[str]:
    """Yield a row for each system."""
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


def logins(result: Result) -> Iterator[str]:
    """Yield a row for each system and kind of connection."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds of {result['seconds']:g} s."
    yield ""
    yield from head("system", "", "a second", "slowest s", "broker CPU ms each")
    for row in result["rows"]:
        is_storm = row["count"] is not None
        bound = " (client-bound)" if row["client_bound"] else ""
        yield line(
            row["system"],
            f"{row['count']:,} clients at once" if is_storm else row["what"],
            f"{row['per_s']:,.0f}{bound}",
            f"{row['seconds']:.1f}" if is_storm else "",
            f"{row['broker_cpu_ms']:.2f}",
        )
    yield ""
    yield from compared(result)
    yield ""
    missed = "" if result["slowest_met"] else " (missed)"
    yield (
        f"The slowest client of all storms of quorumlog took {result['slowest_s']:g} s;"
        f" goal {result['slowest_goal_s']:g} s{missed}."
    )


def authorization(result: Result) -> Iterator[str]:
    """Yield a row for each node."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds of {result['seconds']:g} s."
    yield ""
    yield from head("node", "CPU µs a request")
    for row in result["rows"]:
        yield line(row["system"], f"{row['cpu_us']:.2f}")
    yield ""
    yield from compared(result)
