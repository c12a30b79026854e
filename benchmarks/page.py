"""Writes docs/benchmarks.md and its chart from the results in benchmarks/results.

Run: python -m benchmarks.page (after the others; `make bench` does).
A benchmark without a result on this machine keeps its section of the page, and each section names
its machine. A benchmark without a section gets the command that measures it. The section "Summary"
is written by hand.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.groups import words as groups
from benchmarks.kafka_wire import words as wire
from benchmarks.metadata.words import COSTS, ROLLING
from benchmarks.pages.kafka_chart import chart
from benchmarks.pages.starts import startup
from benchmarks.pages.tables import Result, compared, head, line, machine, ratio, verdict
from benchmarks.spark import words as spark
from benchmarks.transactions import words as transactions

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "benchmarks.md"
CHART = HERE.parent / "docs" / "pictures" / "beside_kafka.svg"
SUMMARY = "## Summary"
STORAGE = "storage_"  # prefix of the results of benchmarks/storage
RAFT = "raft"  # of benchmarks/raft
CLUSTER = "cluster_"  # of benchmarks/cluster
WIRE = "kafka_wire_"  # of benchmarks/kafka_wire
GROUPS = "groups_"  # of benchmarks/groups
TRANSACTIONS = "transactions_"  # of benchmarks/transactions
SPARK = "spark_"  # of benchmarks/spark
METADATA = {
    "metadata": "python -m benchmarks.metadata",
    "metadata_sweep": "python -m benchmarks.metadata --sweep",
    "metadata_rolling": "python -m benchmarks.metadata.rolling",
}

HEAD = """\
# Benchmarks

`make bench` writes this page from the results of the benchmarks; only the summary is written by
hand. Each figure is compared with a ceiling or a peer of the same run on the same machine, because
a rate alone says more about the machine than about the program. Figures are medians of repeated
rounds, with client and server on one machine.

![Rates relative to Apache Kafka](pictures/beside_kafka.svg)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One benchmark's section of the page."""

    title: str
    name: str  # of its script and of its result
    about: str
    rows: Callable[[Result], Iterator[str]]  # the lines of its tables

    @property
    def command(self) -> str:
        """Return the command that runs the benchmark."""
        if self.name.startswith(STORAGE):
            return f"python -m benchmarks.storage.{self.name.removeprefix(STORAGE)}"
        if self.name.startswith(RAFT):
            return f"python -m benchmarks.{self.name.replace('_', '.')}"
        if self.name in METADATA:
            return METADATA[self.name]
        if self.name.startswith(WIRE):
            return f"{wire.COMMAND} {self.name.removeprefix(WIRE)}"
        if self.name.startswith(GROUPS):
            return f"{groups.COMMAND} {self.name.removeprefix(GROUPS)}"
        if self.name.startswith(TRANSACTIONS):
            return f"{transactions.COMMAND} {self.name.removeprefix(TRANSACTIONS)}"
        if self.name.startswith(SPARK):
            return f"{spark.COMMAND} {self.name.removeprefix(SPARK)}"
        if self.name.startswith(CLUSTER):
            return f"python -m benchmarks.cluster --only {self.name.removeprefix(CLUSTER)}"
        return f"python benchmarks/{self.name}.py"


def clients(result: Result) -> Iterator[str]:
    """Yield a table for each size of values."""
    yield f"{machine(result['machine'])}."
    for size, rows in result["sizes"].items():
        yield ""
        yield f"Values of {int(size):,} bytes:"
        yield ""
        yield from head(
            "what",
            "records/s",
            "client CPU µs each",
            "budget µs",
            "server CPU µs each",
            "of codec",
            "of bare stream",
        )
        for row in rows:
            name = f"{row['group']}: {row['name']}" if row["group"] else row["name"]
            yield line(
                name,
                f"{row['records_per_s']:,.0f}",
                f"{row['client_cpu_s_per_million']:.2f}",  # seconds per million: microseconds each
                "" if row["budget_us"] is None or size != "100" else f"{row['budget_us']:.1f}",
                f"{row['server_cpu_s_per_million']:.2f}",
                *(ratio(row.get(f"ratio_to_{ceiling}")) for ceiling in ("codec", "bare")),
            )


def grpc_throughput(result: Result) -> Iterator[str]:
    """Yield the rates and ratios of 1 MiB batches."""
    yield f"{result['machine']}, Python {result['python']}; goal {result['goal']}."
    yield ""
    yield from head("row", "median MB/s", "of its bare server")
    for name, rate in result["median_mb_per_s"].items():
        yield line(name.strip(), f"{rate:,.0f}", ratio(result["ratios"].get(name)))


def codec(result: Result) -> Iterator[str]:
    """Yield millions of records per second, for each size of batches and for both codecs."""
    yield f"{machine(result['machine'])}; one is used."
    yield ""
    blocks = {title: rows for title, rows in result["rows"].items() if title != "ceilings"}
    yield from head("median, million records/s", *blocks)
    for name in next(iter(blocks.values())):
        yield line(name, *(f"{rows[name]['median'] / 1e6:.2f}" for rows in blocks.values()))
    for name, row in result["rows"]["ceilings"].items():
        yield line(f"ceiling: {name}", f"{row['median'] / 1e6:.2f}", *[""] * (len(blocks) - 1))


def append(result: Result) -> Iterator[str]:
    """Yield the microseconds of the parts of an append and of a read."""
    yield f"{result['cores']} cores of {result['machine']}, Python {result['python']}."
    yield ""
    yield from head("part", "median µs", "p99 µs", "budget µs")
    for name, row in result["rows"].items():
        budget = "" if row["budget_us"] is None else f"{row['budget_us']:.0f}"
        yield line(name, f"{row['median_us']:.1f}", f"{row['p99_us']:.1f}", budget)


def raft(result: Result) -> Iterator[str]:
    """Yield rates, latencies and CPU of each system, then their ratios."""
    yield (
        f"{machine(result)}; values of"
        f" {result['value_bytes']} bytes, medians of {result['rounds']} rounds. A write of one"
        f" value and its `fdatasync` take {result['sync_ms']:.2f} ms here."
    )
    yield ""
    yield from head(
        "system",
        "proposals",
        "under way",
        "commits/s",
        "p50 ms",
        "p99 ms",
        "members' CPU s/1,000",
        "client's CPU s/1,000",
    )
    for row in result["rows"]:
        client = row["client_cpu_s_per_1000"]
        yield line(
            row["system"],
            row["way"],
            f"{row['outstanding']:,}",
            f"{row['commits_per_s']:,.0f}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['server_cpu_s_per_1000']:.3f}",
            "" if client is None else f"{client:.3f}",
        )
    yield ""
    shares = [row["client_cores"] for row in result["rows"] if row["client_cores"] is not None]
    yield f"The client took at most {max(shares, default=0.0):.2f} of a core."
    if result["failures"]:
        failed = ", ".join(sorted({each.partition(":")[0] for each in result["failures"]}))
        yield f"{len(result['failures'])} clusters failed and were taken again: {failed}."
    yield ""
    yield from compared(result)


def cluster_replication(result: Result) -> Iterator[str]:
    """Yield rates, CPU and latencies of both ways, then their ratios."""
    yield (f"{machine(result)}; medians of {result['rounds']} rounds.")
    yield ""
    yield from head(
        "way",
        "bytes",
        "records/s",
        "MB/s",
        "servers' CPU µs each",
        "client's CPU µs each",
        "p50 ms",
        "p99 ms",
    )
    for row in result["rows"]:
        waits = ("" if row[name] is None else f"{row[name]:.2f}" for name in ("p50_ms", "p99_ms"))
        yield line(
            row["way"],
            f"{row['value_bytes']:,}",
            f"{row['records_per_s']:,}",
            f"{row['mb_per_s']:,.1f}",
            f"{row['server_cpu_us']:.2f}",
            f"{row['client_cpu_us']:.2f}",
            *waits,
        )
    yield ""
    yield from head("three replicas, of one", "ratio")
    for each in result["ratios"]:
        yield line(each["what"], ratio(each["ratio"]))


def cluster_restart(result: Result) -> Iterator[str]:
    """Yield the results of the clients."""
    yield f"{machine(result)}."
    yield ""
    yield from head("records", "errors", "missing", "twice", "p50 ms", "p99 ms", "longest wait")
    yield line(
        f"{result['records']:,}",
        f"{result['errors']}{verdict(result)}",
        str(result["missing"]),
        str(result["twice"]),
        *("" if result[name] is None else f"{result[name]:.2f}" for name in ("p50_ms", "p99_ms")),
        f"{result['longest_s']} s",
    )


def cluster_scale(result: Result) -> Iterator[str]:
    """Yield the costs of partitions."""
    yield f"{machine(result)}."
    yield ""
    created = {"met": result["met_create"]}
    rested = {"met": result["met_idle"]}
    yield from head("what", "measured", "goal")
    yield line(
        f"{result['topics']:,} topics, {result['partitions']:,} partitions of 3 replicas made",
        f"{result['create_s']:.1f} s",
        f"< {result['goal_create_s']:.0f} s{verdict(created)}",
    )
    yield line("longest stall of a loop during that", f"{result['create_stall_s']:.3f} s", "")
    for name, partitions, goal in (
        ("idle_shares_empty", 0, ""),
        ("idle_shares", result["idle_partitions"], f"< {result['goal_idle']:.0%}{verdict(rested)}"),
        ("idle_shares_many", result["idle_partitions"] + result["partitions"], ""),
    ):
        yield line(
            f"most of a core that a node takes at rest with {partitions:,} partitions",
            f"{max(result[name]):.1%}",
            goal,
        )
    yield line("memory of a node without partitions", f"{result['node_mb_empty']:.0f} MB", "")
    for name, what in (("unused", "that was never used"), ("used", "with a record")):
        yield line(f"memory of a replica {what}", f"{result[f'bytes_{name}_replica']:,} bytes", "")
    for name, partitions in (
        ("descriptors_empty", 0),
        ("descriptors_used", result["idle_partitions"] + result["partitions"]),
    ):
        if name in result:  # absent from results of older runs
            yield line(
                f"open descriptors of a node with {partitions:,} partitions", result[name], ""
            )


def metadata(result: Result) -> Iterator[str]:
    """Yield a table with a column for each size."""
    yield f"{machine(result)}."
    yield ""
    rows = result["rows"]
    yield from head("partitions", *(f"{row['partitions']:,}" for row in rows))
    for name, what in COSTS.items():
        yield line(what, *(f"{row[name]:,}" for row in rows))


def metadata_sweep(result: Result) -> Iterator[str]:
    """Yield a picture for each axis."""
    yield f"{machine(result)}."
    for axis in result["sweeps"]:
        yield ""
        yield f"![What {axis} cost](pictures/metadata_{axis}.svg)"


def metadata_rolling(result: Result) -> Iterator[str]:
    """Yield a table with a column for each phase, then the cost of the run."""
    yield from head(f"{result['failures']} brokers", *(each["name"] for each in result["phases"]))
    for name, what in ROLLING.items():
        yield line(what, *(f"{phase[name]:,}" for phase in result["phases"]))
    yield ""
    yield (
        f"{result['events']:,} events took {result['cpu_s']:,.0f} s of one core of {result['cpu']}"
        f" and {result['memory_mib']:,} MiB."
    )


def raft_failover(result: Result) -> Iterator[str]:
    """Yield the distributions of seconds."""
    yield f"{machine(result)}."
    yield ""
    yield from head("seconds", "ends", "min", "median", "p90", "max", "goal of the median")
    for row in result["rows"]:
        figures = (f"{row[name]:.2f}" for name in ("min_s", "median_s", "p90_s", "max_s"))
        goal = "" if row["goal_median_s"] is None else f"< {row['goal_median_s']}{verdict(row)}"
        yield line(row["case"], str(row["count"]), *figures, goal)


def storage(result: Result) -> Iterator[str]:
    """Yield the stored rows as a table; a missing figure is an empty cell."""
    facts = {
        key.replace("_", " "): value
        for key, value in result.items()
        if key not in ("rows", "machine", "cores", "python", "codec")
    }
    yield (
        ", ".join(
            [
                f"{result['cores']} cores of {result['machine']}, Python {result['python']}",
                f"{result['codec']} codec",
                *(f"{name} {value:,}" for name, value in facts.items()),
            ]
        )
        + "."
    )
    yield ""
    rows = result["rows"]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    yield from head(*(name.replace("_", " ") for name in columns))
    for row in rows:
        yield line(*(_shown(row.get(name)) for name in columns))


def _shown(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:,}"


SECTIONS = (
    Section(
        title="Python clients",
        name="clients",
        about=(
            "Both clients, record by record and in Arrow, with a topic of one partition and "
            "`flush.policy=replicated`. *Of codec* is the rate relative to the record codec "
            "alone, *of bare stream* relative to a bare gRPC stream with the same bytes. "
            "Microseconds a record equal seconds a million records; the budget is the goal for "
            "the client. `--profile` shows the client's CPU time by function."
        ),
        rows=clients,
    ),
    Section(
        title="Produce and fetch over gRPC",
        name="grpc_throughput",
        about=(
            "Encoded batches of 1 MiB, compared with a bare Python gRPC server that moves the same "
            "bytes to or from a file in the page cache, in as many messages or calls, without "
            "checks."
        ),
        rows=grpc_throughput,
    ),
    Section(
        title="Kafka protocol: one broker",
        name="kafka_wire_throughput",
        about=wire.THROUGHPUT,
        rows=wire.throughput,
    ),
    Section(
        title="Kafka protocol: three replicas",
        name="kafka_wire_replicas",
        about=wire.REPLICAS,
        rows=wire.throughput,
    ),
    Section(
        title="Kafka protocol: waits",
        name="kafka_wire_latency",
        about=wire.LATENCY,
        rows=wire.latency,
    ),
    Section(
        title="Kafka protocol: real clients",
        name="kafka_wire_clients",
        about=wire.CLIENTS,
        rows=wire.clients,
    ),
    Section(
        title="Kafka protocol: start and rest",
        name="kafka_wire_starts",
        about=wire.STARTS,
        rows=wire.starts,
    ),
    Section(
        title="Kafka protocol: TLS",
        name="kafka_wire_tls",
        about=wire.TLS,
        rows=wire.throughput,
    ),
    Section(
        title="Kafka protocol: connections and logins",
        name="kafka_wire_logins",
        about=wire.LOGINS,
        rows=wire.logins,
    ),
    Section(
        title="Kafka protocol: authorization",
        name="kafka_wire_authorization",
        about=wire.AUTHORIZATION,
        rows=wire.authorization,
    ),
    Section(
        title="Record codec",
        name="codec",
        about="Values of 100 bytes, CRC included, on one core, compiled and in plain Python.",
        rows=codec,
    ),
    Section(
        title="Append and read",
        name="append",
        about="The broker's own work for one batch of 16 KB, in microseconds.",
        rows=append,
    ),
    Section(
        title="Storage: sequential",
        name="storage_sequential",
        about=("One log from end to end, compared with `pwrite` and `pread` of the same bytes."),
        rows=storage,
    ),
    Section(
        title="Storage: codec beside aiokafka",
        name="storage_codec_beside_aiokafka",
        about=(
            "Building batches, and reading them into Arrow and into records, compared with "
            "aiokafka's C extension and kafka-python: keys of 8 bytes, uncompressed, CRC "
            "included, on one core."
        ),
        rows=storage,
    ),
    Section(
        title="Storage: lookup by offset",
        name="storage_lookup",
        about=("Lookup of an offset in a log of many segments; *anywhere* includes closed files."),
        rows=storage,
    ),
    Section(
        title="Storage: opening",
        name="storage_opening",
        about=(
            "A data directory of many partitions after a clean shutdown, and one of its partitions."
        ),
        rows=storage,
    ),
    Section(
        title="Storage: recovery",
        name="storage_recovery",
        about=(
            "Bytes that recovery reads after an unclean shutdown, by the position of the "
            "recovery point."
        ),
        rows=storage,
    ),
    Section(
        title="Storage: compaction",
        name="storage_compaction",
        about=(
            "One round over a log with many records for each key, without a node's throttle, "
            "compared with a copy of its files. The rate counts the log's bytes; the round "
            "reads them twice."
        ),
        rows=storage,
    ),
    Section(
        title="Storage: group commit",
        name="storage_group_commit",
        about="Durable appends by concurrent callers, compared with `fdatasync`.",
        rows=storage,
    ),
    Section(
        title="Consensus",
        name="raft",
        about=(
            "Three voters on one machine, each in a folder of its own, and etcd and PySyncObj "
            "in the same rounds. quorumlog and etcd fsync before they answer, PySyncObj never "
            "does. quorumlog gets proposals over one stream, with a response for each: "
            "*gathered* sends as many in a message as were answered in one, *one by one* sends "
            "each alone. etcd gets puts over 8 connections to its leader, from the same client. "
            "*Injected* proposals are made in the leader's process, and the client's CPU is "
            "part of the members'. PySyncObj sends every 100 ms by default; *tuned* sends every "
            "10 ms for many commands, and at once for one."
        ),
        rows=raft,
    ),
    Section(
        title="Failover of the quorum",
        name="raft_failover",
        about=(
            "Three controllers, and three members of etcd if it is installed, with a client that "
            "calls the live ones every 10 ms: the time from the signal to the active controller "
            "until the next committed proposal. The default heartbeat interval is 100 ms, the "
            "election timeout 1 to 2 s."
        ),
        rows=raft_failover,
    ),
    Section(
        title="Replicas",
        name="cluster_replication",
        about=(
            "Three nodes on one machine, and one client. A topic of three replicas with "
            "`acks=all`, compared with one of a single replica with `acks=1`, both with one "
            "partition for each node and `flush.policy=replicated`. Latency is that of one "
            "record at a time. Three replicas are three writes on the same cores."
        ),
        rows=cluster_replication,
    ),
    Section(
        title="Failover of the cluster",
        name="cluster_failover",
        about=(
            "kill -9 of the leader of a partition, of the active controller, and of a node with "
            "both roles. *Served* calls the remaining nodes every 10 ms until all in-sync "
            "replicas acknowledge a record (for a controller: until a metadata change is "
            "committed). *Client* is one call of the Python client with default settings."
        ),
        rows=raft_failover,
    ),
    Section(
        title="Restart of every node",
        name="cluster_restart",
        about=(
            "Three nodes are stopped in order and started again, one after the other, while a "
            "producer with default settings sends 500 records a second and a consumer reads "
            "them."
        ),
        rows=cluster_restart,
    ),
    Section(
        title="Many partitions",
        name="cluster_scale",
        about=(
            "Topics of ten partitions with three replicas on three nodes: the time to create "
            "them, and their cost in CPU and memory at rest."
        ),
        rows=cluster_scale,
    ),
    *(
        Section(title=title, name=name, about=about, rows=rows)
        for title, name, about, rows in groups.SECTIONS
    ),
    *(
        Section(title=title, name=name, about=about, rows=rows)
        for title, name, about, rows in transactions.SECTIONS
    ),
    *(
        Section(title=title, name=name, about=about, rows=rows)
        for title, name, about, rows in spark.SECTIONS
    ),
    Section(
        title="Metadata of large clusters",
        name="metadata",
        about=(
            "A controller alone that starts on a snapshot of that many partitions with three "
            "replicas, ten a topic. One broker with its share of replicas fails; commands are "
            "decided, committed and replayed one at a time, medians. *Stall* is the longest "
            "blocking of the event loop."
        ),
        rows=metadata,
    ),
    Section(
        title="What partitions, topics and brokers cost",
        name="metadata_sweep",
        about=(
            "The same controller, in seconds of CPU: one size grows while the others stay at 20 "
            "brokers, ten partitions a topic and 20,000 partitions. Both axes are logarithmic: "
            "a level curve is a cost that does not grow with the cluster."
        ),
        rows=metadata_sweep,
    ),
    Section(
        title="Brokers that fail among 100,000 partitions",
        name="metadata_rolling",
        about=(
            "A simulation with the product's decisions of the controller and of all 300,000 "
            "replicas on 100 brokers, over modelled logs, messages and time, with every "
            "invariant checked. Ten brokers crash and return one after the other, then ten at "
            "once, while clients append to one partition in twenty. A broker is fenced at a "
            "random time within a second of its crash, and returns after five."
        ),
        rows=metadata_rolling,
    ),
    Section(
        title="Start",
        name="startup",
        about="`quorumlog dev` on a new directory; brokers and clusters of `quorumlog.testing`.",
        rows=startup,
    ),
)


def page(results: dict[str, Result], before: str = "") -> str:
    """Return the page for the available results, by benchmark; other sections are kept."""
    kept = {text.partition("\n")[0]: text for text in re.split(r"^(?=## )", before, flags=re.M)}
    parts = [HEAD]
    if SUMMARY in kept:
        parts.append(kept[SUMMARY].rstrip("\n") + "\n")
    for section in SECTIONS:
        title = f"## {section.title}"
        result = results.get(section.name)
        if result is None and title in kept:
            parts.append(kept[title].rstrip("\n") + "\n")
            continue
        command = f"`{section.command}`"
        rows = [f"*Not measured here yet: {command} does.*"]
        if result is not None:
            rows = [*section.rows(result), "", f"Measured by {command}."]
        parts.append("\n".join([title, "", section.about, "", *rows, ""]))
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    PAGE.write_text(page(results, PAGE.read_text()))
    CHART.write_text(chart(PAGE.read_text()))
    print(f"wrote {PAGE.name} from {len(results)} results")


if __name__ == "__main__":
    main()
