"""The sections of the benchmarks' page about transactions."""

from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.pages.tables import Result, compared, head, line, subject, verdict

COMMAND = "python -m benchmarks.transactions --only"
RATE = (
    "Three brokers of quorumlog, and three of Apache Kafka, with one program: one producer, "
    "`acks=all`, a topic of one partition with three replicas, transactions of 100 records of "
    "100 bytes one after the other. The commit is timed from the acknowledgement of all records "
    "to the answer of the coordinator. librdkafka uses the older protocol, Kafka's Java client "
    "the newer one (KIP-890)."
)
THROUGHPUT = (
    "The same brokers and clients. The producer writes as many records as it can, without "
    "transactions and with a commit every 100 ms, the default of Kafka Streams."
)
IDLE = (
    "One broker: its use of CPU before and with producers that have one partition and one batch "
    "in an open transaction and send nothing."
)
FETCH = (
    "One broker, one partition in the page cache: transactions of ten batches of 64 KiB, every "
    "tenth one aborted. One connection fetches answers of 1 MiB with both isolation levels. The "
    "batches are the same; `read_committed` adds the aborted transactions of the range."
)
RECOVERY = (
    "Three brokers that are also controllers, one partition of `__transaction_state`. kill -9 of "
    "the coordinator, until a transactional id gets its producer id from another broker, which "
    "has read the whole partition by then."
)


def _refusals(result: Result) -> Iterator[str]:
    for each in result["refusals"]:
        words = [str(value) for name, value in each.items() if name != "why"]
        yield ""
        yield f"No row: {', '.join(words)}: {each['why']}."


def rate(result: Result) -> Iterator[str]:
    """Yield a row for each system and client."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds of {result['seconds']:g} s."
    yield ""
    yield from head(
        "system",
        "client",
        "transactions/s",
        "broker CPU µs a record",
        "commit p50 ms",
        "p99 ms",
        "client cores",
    )
    for row in result["rows"]:
        yield line(
            row["system"],
            row["client"],
            f"{row['commits_per_s']:,.0f}",
            f"{row['cpu_us']:.1f}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['client_cores']:.2f}",
        )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def throughput(result: Result) -> Iterator[str]:
    """Yield a row for each system, client and kind of sends."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds of {result['seconds']:g} s."
    yield ""
    yield from head(
        "system", "client", "sends", "records/s", "broker CPU µs a record", "client cores"
    )
    for row in result["rows"]:
        yield line(
            row["system"],
            row["client"],
            row["work"],
            f"{row['records_per_s']:,}",
            f"{row['cpu_us']:.2f}",
            f"{row['client_cores']:.2f}",
        )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def idle(result: Result) -> Iterator[str]:
    """Yield a row for each system."""
    yield (
        f"{subject(result)}; means of {result['seconds']:g} s; {result['producers']:,} producers."
    )
    yield ""
    yield from head("system", "of a core before", "of a core", "MB more")
    for row in result["rows"]:
        yield line(
            row["system"],
            f"{row['alone_share']:.1%}",
            f"{row['share']:.1%}",
            f"{row['memory_mb']:.0f}",
        )
    yield from _refusals(result)


def fetch(result: Result) -> Iterator[str]:
    """Yield a row for each system and isolation level."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds of {result['seconds']:g} s."
    yield ""
    yield from head("system", "isolation level", "MB/s", "broker CPU s/GB")
    for row in result["rows"]:
        yield line(
            row["system"], row["level"], f"{row['mb_per_s']:,.0f}", f"{row['cpu_s_per_gb']:.3f}"
        )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def recovery(result: Result) -> Iterator[str]:
    """Yield a row for each system."""
    yield f"{subject(result)}; {result['ids']:,} transactional ids."
    yield ""
    yield from head("system", "kills", "min s", "median s", "max s", "goal of the median")
    for row in result["rows"]:
        goal = "" if row["goal_median_s"] is None else f"< {row['goal_median_s']:g} s{verdict(row)}"
        figures = (f"{row[name]:.2f}" for name in ("min_s", "median_s", "max_s"))
        yield line(row["system"], str(row["kills"]), *figures, goal)
    yield from _refusals(result)


SECTIONS: Final[tuple[tuple[str, str, str, Callable[[Result], Iterator[str]]], ...]] = (
    ("Transactions", "transactions_rate", RATE, rate),
    ("Transactions: throughput", "transactions_throughput", THROUGHPUT, throughput),
    ("Transactions: open ones at rest", "transactions_idle", IDLE, idle),
    ("Transactions: isolation levels", "transactions_fetch", FETCH, fetch),
    ("Transactions: failover of a coordinator", "transactions_recovery", RECOVERY, recovery),
)
"""Titles, names of results, descriptions and tables of the sections."""
