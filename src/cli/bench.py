"""`quorumlog bench produce|fetch|latency`: benchmarks of a cluster, run from this machine.

Each run creates a topic, deletes it, and prints the results with the settings and the machine. One
run is one sample.
"""

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import BootstrapOption, Output, OutputOption
from .output import cell_text, count_text, echo, print_json, print_table, size_text
from .produce.options import Acks, Compression

if TYPE_CHECKING:
    from .bench_runs import FetchPlan, LatencyPlan, Measured, ProducePlan

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def print_report(
    measured: "Measured",
    plan: "ProducePlan | FetchPlan | LatencyPlan",
    *,
    partitions: int,
    as_json: bool,
) -> None:
    """Print the results of a run with its settings and the machine."""
    row = report_json(measured) | {
        "settings": asdict(plan) | {"partitions": partitions},
        "machine": machine(),
    }
    if as_json:
        print_json(row)
        return
    size = size_text(measured.bytes)
    rate = size_text(row["bytes_per_second"])
    cpu = row["cpu_seconds_per_million"]
    echo(
        f"{count_text(measured.records, 'record')}, {size} in {measured.seconds:.2f} s: "
        f"{row['records_per_second']:,.0f} records/s, {rate}/s, "
        f"{'-' if cpu is None else f'{cpu:.2f}'} CPU seconds per million records (this process)"
    )
    print_table(
        ("latency, ms", "samples", *(f"p{percent:g}" for percent in PERCENTILES), "max"),
        [
            (
                name,
                len(values),
                *(f"{value:.3f}" for value in latency_json(values)["ms"].values()),
            )
            for name, values in measured.latencies_ns.items()
            if values
        ],
        empty="No latency was sampled.",
    )
    settings = {name: value for name, value in row["settings"].items() if value is not None}
    echo(cell_text(settings))
    facts = row["machine"] | {"cpus": count_text(row["machine"]["cpus"], "CPU")}
    echo(", ".join(facts.values()))


def report_json(measured: "Measured") -> dict[str, Any]:
    """Return the JSON object of a run's results."""
    seconds = max(measured.seconds, 1e-9)
    millions = measured.records / 1e6
    return {
        "bench": measured.kind,
        "records": measured.records,
        "bytes": measured.bytes,
        "seconds": round(measured.seconds, 6),
        "records_per_second": round(measured.records / seconds, 1),
        "bytes_per_second": round(measured.bytes / seconds, 1),
        "cpu_seconds": round(measured.cpu_seconds, 6),
        "cpu_seconds_per_million": (
            round(measured.cpu_seconds / millions, 3) if measured.records else None
        ),
        "latency": {
            name: latency_json(values) for name, values in measured.latencies_ns.items() if values
        },
    }


def latency_json(latencies_ns: Sequence[int]) -> dict[str, Any]:
    """Return the percentiles of latencies in milliseconds: `{"samples", "ms": {"p50", ...}}`."""
    ordered = sorted(latencies_ns)
    found = {f"p{percent:g}": percentile(ordered, percent) / 1e6 for percent in PERCENTILES}
    return {"samples": len(ordered), "ms": found | {"max": ordered[-1] / 1e6}}


def percentile(ordered: Sequence[int], percent: float) -> int:
    """Return the percentile by nearest rank: the smallest value that at least `percent` per cent of
    the values do not exceed. The values must be in ascending order."""
    assert ordered, "no values"
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]


def machine() -> dict[str, Any]:
    """Return the CPU, its count, the operating system and the Python version."""
    return {
        "cpu": _cpu_name(),
        "cpus": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


app = typer.Typer(
    help="Benchmark produce, fetch and latency.", no_args_is_help=True, rich_markup_mode=None
)


class Api(StrEnum):
    """The client API that is measured."""

    RECORD = "record"
    ARROW = "arrow"


RecordsOption = Annotated[
    int,
    typer.Option("--records", "-n", metavar="COUNT", min=1, help="Number of records to measure"),
]
SizeOption = Annotated[
    int, typer.Option("--size", metavar="BYTES", min=1, help="Size of each record's value")
]
PartitionsOption = Annotated[
    int, typer.Option("--partitions", metavar="NUMBER", min=1, help="Partitions of the topic")
]
ReplicationOption = Annotated[
    int | None,
    typer.Option(
        "--replication",
        metavar="NUMBER",
        min=1,
        help="Replicas of the topic  [default: the cluster's]",
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="KEY=VALUE", help="Set a config of the topic; repeatable"
    ),
]
WarmUpOption = Annotated[
    int,
    typer.Option(
        "--warm-up", metavar="COUNT", min=0, help="Records to send or read before the measurement"
    ),
]
AcksOption = Annotated[Acks, typer.Option("--acks", help="Replicas that must acknowledge a record")]
CompressionOption = Annotated[
    Compression,
    typer.Option("--compression", help="Codec of batches; half of each value is random"),
]
KeepOption = Annotated[bool, typer.Option("--keep", help="Keep the topic and print its name")]
ApiOption = Annotated[
    Api, typer.Option("--api", help="Client API: record (one call per record) or arrow (tables)")
]


@app.command(
    "produce",
    short_help="Measure produce throughput and latency",
    epilog="""\b
Examples:
  quorumlog bench produce
  quorumlog bench produce --size 100 --api arrow --partitions 4
  quorumlog bench produce --rate 20000 --linger 0 --config flush.policy=fsync
""",
)
def bench_produce(
    records: RecordsOption = 200_000,
    size: SizeOption = 1_000,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="BYTES", min=1, help="Size of a full batch")
    ] = 983_040,
    linger: Annotated[
        int,
        typer.Option("--linger", metavar="MS", min=0, help="Time a batch waits for more records"),
    ] = 5,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    partitions: PartitionsOption = 1,
    replication: ReplicationOption = None,
    config: ConfigOption = None,
    producers: Annotated[
        int,
        typer.Option(
            "--producers", metavar="NUMBER", min=1, help="Number of producers, one thread each"
        ),
    ] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="PER_SECOND",
            min=0.1,
            help="Records per second, all producers together  [default: unlimited]",
        ),
    ] = None,
    api: ApiOption = Api.RECORD,
    warm_up: WarmUpOption = 10_000,
    keep: KeepOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Produce records and measure records and bytes per second, CPU time and latency.

    Latency is the time from `send` to the acknowledgement. Without --rate it is mostly queueing
    time.
    """
    from . import settings

    pass
    from .bench_runs import ProducePlan, bench_topic, run_produce

    plan = ProducePlan(
        records=records,
        size=size,
        batch_size=batch_size,
        linger_ms=linger,
        acks=acks.value,
        compression=compression.value,
        producers=producers,
        rate=rate,
        api=api.value,
        warm_up=warm_up,
    )
    with (
        settings.open_log(bootstrap=bootstrap) as log,
        bench_topic(
            log, partitions=partitions, replication=replication, configs=config or [], keep=keep
        ) as topic,
    ):
        measured = run_produce(log, topic, plan)
    print_report(measured, plan, partitions=partitions, as_json=output is Output.JSON)


@app.command(
    "fetch",
    short_help="Measure fetch throughput",
    epilog="""\b
Examples:
  quorumlog bench fetch
  quorumlog bench fetch --api arrow --size 100 --records 1000000
  quorumlog bench fetch --topic flights --records 50000
""",
)
def bench_fetch(
    records: RecordsOption = 200_000,
    size: SizeOption = 1_000,
    compression: CompressionOption = Compression.NONE,
    partitions: PartitionsOption = 1,
    replication: ReplicationOption = None,
    config: ConfigOption = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Read this existing topic from the beginning  [default: a new topic]",
        ),
    ] = None,
    api: ApiOption = Api.RECORD,
    warm_up: WarmUpOption = 10_000,
    keep: KeepOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Fetch records and measure records and bytes per second, and CPU time.

    A new topic is read right after it is written, so its records come from the page cache. Latency
    is the time of one poll, or of one table.
    """
    from . import settings

    pass
    from .bench_runs import FetchPlan, bench_topic, fill, run_fetch
    from .names import partitions_of

    plan = FetchPlan(
        records=records, size=size, compression=compression.value, api=api.value, warm_up=warm_up
    )
    with settings.open_log(bootstrap=bootstrap) as log:
        if topic is not None:
            partitions = partitions_of(log, topic)
            measured = run_fetch(log, topic, plan)
        else:
            with bench_topic(
                log, partitions=partitions, replication=replication, configs=config or [], keep=keep
            ) as name:
                fill(log, name, plan)
                measured = run_fetch(log, name, plan)
    print_report(measured, plan, partitions=partitions, as_json=output is Output.JSON)


@app.command(
    "latency",
    short_help="Measure the latency of single records at a steady rate",
    epilog="""\b
Examples:
  quorumlog bench latency
  quorumlog bench latency --records 5000 --rate 500 --config flush.policy=fsync
""",
)
def bench_latency(
    records: RecordsOption = 2_000,
    size: SizeOption = 100,
    acks: AcksOption = Acks.ALL,
    replication: ReplicationOption = None,
    config: ConfigOption = None,
    rate: Annotated[
        float,
        typer.Option("--rate", metavar="PER_SECOND", min=0.1, help="Records per second"),
    ] = 500.0,
    warm_up: WarmUpOption = 200,
    keep: KeepOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Send single records at a steady rate, and measure the time to acknowledgement and consumer.

    Latency starts at the time a record was due, so that a stall counts for every record it delays.
    """
    from . import settings

    pass
    from .bench_runs import LatencyPlan, bench_topic, run_latency

    plan = LatencyPlan(records=records, size=size, acks=acks.value, rate=rate, warm_up=warm_up)
    with (
        settings.open_log(bootstrap=bootstrap) as log,
        bench_topic(
            log, partitions=1, replication=replication, configs=config or [], keep=keep
        ) as topic,
    ):
        measured = run_latency(log, topic, plan)
    print_report(measured, plan, partitions=1, as_json=output is Output.JSON)
