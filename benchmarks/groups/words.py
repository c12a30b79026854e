"""The text and tables of these benchmarks on the page."""

from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.pages.tables import Result, compared, head, line, subject, verdict

COMMAND = "python -m benchmarks.groups --only"
REBALANCE = (
    "One broker of quorumlog, and one of Apache Kafka with the same program: members with one "
    "connection each that send what clients send by default. All join a new group at once; one "
    "more joins; it leaves. The time runs from the first request until every member has its "
    "assignment and every partition has one owner. Classic members learn of a change with their "
    "next heartbeat, after up to 3 s, KIP-848 members after up to 5 s. "
    "`group.initial.rebalance.delay.ms` is 0 for both."
)
RATES = (
    "The same brokers. 32 members, each in a group of its own, join and leave repeatedly; 32 "
    "members commit as soon as the previous commit is stored; 100 members of one group send a "
    "heartbeat as soon as the previous one is answered. Commits wait for replicas, not for "
    "disks, in Kafka and with `flush.policy=replicated`; one row has `fsync`, the default with "
    "a single replica of the groups' topic."
)
IDLE = (
    "Members of one group that only send heartbeats, every 3 s in the classic protocol and "
    "every 5 s in KIP-848. *More* is the broker's additional CPU with these members."
)
FAILOVER = (
    "Three brokers that are also controllers. kill -9 of a group's coordinator, until a member "
    "of the group commits again: it sends its commit to each remaining broker every 10 ms. "
    "quorumlog detects an ended process by its connections; Kafka waits for the end of the "
    "broker's session, 9 s by default. For a silent machine quorumlog also waits for the "
    "session, 3 s by default."
)
MIRROR = (
    "Two clusters of one node on this machine, a topic of six partitions. The mirror copies "
    "batches unchanged; a loop consumes and produces record by record with the Python client, "
    "or with librdkafka's Python package. Copies have one replica and are on disk when "
    "acknowledged."
)


def _refusals(result: Result) -> Iterator[str]:
    for each in result["refusals"]:
        yield ""
        yield f"No row: {each['system']}, {each['what']}: {each['why']}."


def rebalance(result: Result) -> Iterator[str]:
    """Yield a row for each system, protocol and event."""
    yield (
        f"{subject(result)}; medians of {result['rounds']} rounds; {result['members']} members,"
        f" {result['partitions']:,} partitions."
    )
    yield ""
    yield from head("system", "protocol", "", "seconds", "broker CPU s")
    for row in result["rows"]:
        yield line(
            row["system"],
            row["protocol"],
            row["event"],
            f"{row['seconds']:.2f}",
            f"{row['cpu_s']:.2f}",
        )
    yield ""
    yield from compared(result)


def rates(result: Result) -> Iterator[str]:
    """Yield a row for each system and request."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds of {result['seconds']:g} s."
    yield ""
    yield from head("system", "", "a second", "broker CPU µs each", "broker cores", "client cores")
    for row in sorted(result["rows"], key=lambda row: row["what"]):
        yield line(
            row["system"],
            row["what"],
            f"{row['per_s']:,.0f}",
            f"{row['cpu_us']:,.0f}",
            f"{row['cores']:.2f}",
            f"{row['client_cores']:.2f}",
        )
    yield from _refusals(result)
    yield ""
    yield from compared(result)


def idle(result: Result) -> Iterator[str]:
    """Yield a row for each system and protocol."""
    yield (
        f"{subject(result)}; means of {result['seconds']:g} s; {result['members']:,} members,"
        f" {result['partitions']:,} partitions."
    )
    yield ""
    yield from head("system", "protocol", "of a core", "more", "goal", "MB more", "settled in s")
    for row in result["rows"]:
        goal = "" if row["goal"] is None else f"< {row['goal']:.0%}{verdict(row)}"
        yield line(
            row["system"],
            row["protocol"],
            f"{row['share']:.1%}",
            f"{row['more']:.1%}",
            goal,
            f"{row['memory_mb']:.0f}",
            f"{row['settled_s']:.1f}",
        )


def failover(result: Result) -> Iterator[str]:
    """Yield the distributions of seconds."""
    yield f"{subject(result)}."
    yield ""
    yield from head("seconds", "kills", "min", "median", "p90", "max", "goal of the median")
    for row in result["rows"]:
        figures = (f"{row[name]:.2f}" for name in ("min_s", "median_s", "p90_s", "max_s"))
        goal = "" if row["goal_median_s"] is None else f"< {row['goal_median_s']:g}{verdict(row)}"
        yield line(row["case"], str(row["count"]), *figures, goal)
    if result["compared"]:
        yield ""
        yield from compared(result)


def mirror(result: Result) -> Iterator[str]:
    """Yield a row for each way and size."""
    yield f"{subject(result)}; medians of {result['rounds']} rounds."
    yield ""
    yield from head("", "bytes", "records/s", "MB/s", "its CPU s/GB", "nodes' CPU s/GB")
    for row in result["rows"]:
        yield line(
            row["way"],
            f"{row['value_bytes']:,}",
            f"{row['records_per_s']:,.0f}",
            f"{row['mb_per_s']:,.1f}",
            f"{row['cpu_s_per_gb']:.1f}",
            f"{row['nodes_cpu_s_per_gb']:.1f}",
        )
    yield ""
    yield from compared(result)


SECTIONS: Final[tuple[tuple[str, str, str, Callable[[Result], Iterator[str]]], ...]] = (
    ("Groups that share out partitions", "groups_rebalance", REBALANCE, rebalance),
    ("Joins, leaves, commits and heartbeats", "groups_rates", RATES, rates),
    ("Members at rest", "groups_idle", IDLE, idle),
    ("Failover of a group's coordinator", "groups_failover", FAILOVER, failover),
    ("Mirroring", "groups_mirror", MIRROR, mirror),
)
"""Titles, names of results, descriptions and tables of the sections."""
