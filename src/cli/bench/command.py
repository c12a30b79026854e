"""`quorumlog bench produce|fetch|latency`: what a cluster does, measured from this machine.

Each makes a topic of its own and deletes it, and says with the numbers what they depend on: the
settings and the machine. One run is one sample.
"""

from enum import StrEnum
from typing import Annotated

import typer

from ..options import BootstrapOption, Output, OutputOption
from ..producing.options import Acks, Compression

app = typer.Typer(
    help="Measure producing, fetching and latency.", no_args_is_help=True, rich_markup_mode=None
)


class Api(StrEnum):
    """Which face of the client is measured."""

    RECORD = "record"
    ARROW = "arrow"


RecordsOption = Annotated[
    int, typer.Option("--records", "-n", metavar="COUNT", min=1, help="How many are measured.")
]
SizeOption = Annotated[
    int, typer.Option("--size", metavar="BYTES", min=1, help="Bytes of each record's value.")
]
PartitionsOption = Annotated[
    int, typer.Option("--partitions", metavar="NUMBER", min=1, help="Partitions of the topic.")
]
ReplicationOption = Annotated[
    int | None,
    typer.Option(
        "--replication", metavar="NUMBER", min=1, help="Its replicas.  [default: the cluster's]"
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A config of it; repeatable."),
]
WarmUpOption = Annotated[
    int,
    typer.Option("--warm-up", metavar="COUNT", min=0, help="Records before the measurement."),
]
AcksOption = Annotated[Acks, typer.Option("--acks", help="Whose acknowledgement is awaited.")]
CompressionOption = Annotated[
    Compression,
    typer.Option("--compression", help="Of batches; values are half random, half repeated."),
]
KeepOption = Annotated[
    bool, typer.Option("--keep", help="Do not delete the topic afterwards; its name is told.")
]
ApiOption = Annotated[
    Api, typer.Option("--api", help="record: one call a record; arrow: whole tables.")
]


@app.command(
    "produce",
    short_help="Send records and time them.",
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
        int, typer.Option("--batch-size", metavar="BYTES", min=1, help="A full batch, bytes.")
    ] = 983_040,
    linger: Annotated[
        int, typer.Option("--linger", metavar="MS", min=0, help="A batch waits so long, ms.")
    ] = 5,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    partitions: PartitionsOption = 1,
    replication: ReplicationOption = None,
    config: ConfigOption = None,
    producers: Annotated[
        int,
        typer.Option("--producers", metavar="NUMBER", min=1, help="Threads with one each."),
    ] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="PER_SECOND",
            min=0.1,
            help="Records a second of all producers together.  [default: as many as go]",
        ),
    ] = None,
    api: ApiOption = Api.RECORD,
    warm_up: WarmUpOption = 10_000,
    keep: KeepOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Send records and time them: records and MB a second, CPU, and how long a record took.

    A latency is the time from handing a record in to its acknowledgement. Without --rate it is
    mostly the time in queues that are kept full.
    """
    from .. import settings
    from .produce import run_produce
    from .report import print_report
    from .runs import ProducePlan, bench_topic

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
    short_help="Read records and time it.",
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
            help="Read this one from the beginning, once; it is left alone.  [default: a new one]",
        ),
    ] = None,
    api: ApiOption = Api.RECORD,
    warm_up: WarmUpOption = 10_000,
    keep: KeepOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Read records and time it: records and MB a second, and CPU.

    What is read was just written, so it comes from memory. A latency is that of one poll, or of
    one table.
    """
    from .. import settings
    from ..topic_names import partitions_of
    from .fetch import fill, run_fetch
    from .report import print_report
    from .runs import FetchPlan, bench_topic

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
    short_help="Time single records at a steady rate.",
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
        typer.Option("--rate", metavar="PER_SECOND", min=0.1, help="Records a second."),
    ] = 500.0,
    warm_up: WarmUpOption = 200,
    keep: KeepOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Send single records at a steady rate, and time each to its acknowledgement and to a reader.

    Latencies count from when a record was due, so that a stall is not hidden by what it delays.
    """
    from .. import settings
    from .latency import run_latency
    from .report import print_report
    from .runs import LatencyPlan, bench_topic

    plan = LatencyPlan(records=records, size=size, acks=acks.value, rate=rate, warm_up=warm_up)
    with (
        settings.open_log(bootstrap=bootstrap) as log,
        bench_topic(
            log, partitions=1, replication=replication, configs=config or [], keep=keep
        ) as topic,
    ):
        measured = run_latency(log, topic, plan)
    print_report(measured, plan, partitions=1, as_json=output is Output.JSON)
