"""`quorumlog mirror --from A --to B --topics REGEX`, `mirror promote`, `mirror status`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidRequest, MirrorDiverged
from .options import BootstrapOption, Output, OutputOption
from .output import echo, print_json, print_raw, print_table

if TYPE_CHECKING:
    from ..clients.mirror import MirrorReport

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="""\b
Examples:
  quorumlog mirror --from old:9094 --to new:9094 --topics 'orders.*'
  quorumlog mirror --from old:9094 --to new:9094 --topics .+ --once   # stop when caught up
  quorumlog mirror --from kafka://old:9092 --from-config old.toml --to new:9094 --topics .+
  quorumlog mirror promote orders -b new:9094                         # accept producers
""",
)

FROM_HELP = "gRPC address of the source cluster, or a comma-separated list"
REPLICATION_HELP = "Replicas of mirror topics  [default: the target cluster's]"
KAFKA_HELP = "; kafka://HOST:PORT for a Kafka cluster (requires quorumlog[kafka])"
SourceConfigOption = Annotated[
    str | None,
    typer.Option(
        "--from-config",
        metavar="FILE",
        help="Configuration file with the security settings of the source cluster  "
        "[default: PLAINTEXT]",
    ),
]


@app.callback()
def mirror(
    ctx: typer.Context,
    source: Annotated[
        str | None, typer.Option("--from", metavar="HOST:PORT", help=FROM_HELP + KAFKA_HELP)
    ] = None,
    source_config: SourceConfigOption = None,
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="HOST:PORT", help="gRPC address of the target cluster"),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option("--topics", metavar="REGEX", help="Mirror topics whose whole name matches"),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when the mirror topics have caught up")
    ] = False,
    replication: Annotated[
        int | None,
        typer.Option("--replication", metavar="NUMBER", min=1, help=REPLICATION_HELP),
    ] = None,
    refresh: Annotated[
        float,
        typer.Option(
            "--refresh", metavar="SECONDS", min=0.1, help="Interval between topic refreshes"
        ),
    ] = 5.0,
    progress: Annotated[
        float,
        typer.Option(
            "--progress",
            metavar="SECONDS",
            min=0,
            help="Interval between progress lines; 0 for none",
        ),
    ] = 10.0,
    metrics: Annotated[
        str,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve metrics over HTTP at /metrics"),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Mirror topics of one cluster to another continuously, offset for offset.

    A mirror topic has the offsets, timestamps, keys and values of its source, and rejects other
    producers until it is promoted. The command runs until SIGINT or SIGTERM, retries all failures
    of both clusters, and resumes exactly where an earlier run stopped.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not (source and target and topics):
        print_raw(ctx.get_help() + "\n")
        raise typer.Exit(2)
    from .mirror_runner import MirrorPlan, run_mirror

    plan = MirrorPlan(
        source=source,
        source_config=source_config,
        target=target,
        topics=topics,
        once=once,
        replication=replication,
        refresh_ms=round(refresh * 1000),
        progress_s=progress,
        is_json=output is Output.JSON,
        metrics=metrics,
    )
    report = run_mirror(plan)
    _end(report, once=once, is_json=plan.is_json)


def _end(report: "MirrorReport", *, once: bool, is_json: bool) -> None:
    """Print the final report. Raise MirrorDiverged, or with --once the first problem."""
    from .mirror_runner import report_json, report_line

    if is_json:
        print_json({"event": "end", **report_json(report)})
    else:
        echo(report_line(report))
    if report.diverged:
        raise MirrorDiverged(report.problems[-1])
    if once and report.problems:
        raise InvalidRequest(report.problems[0])


@app.command(short_help="Promote mirror topics so that producers can write to them")
def promote(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of the topics")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Promote mirror topics so that producers can write to them, from the next offset on.

    First stop the producers of the source and let the mirror catch up: later records of the source
    are not copied. A promoted topic cannot become a mirror topic again.
    """
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        found = {topic.name: topic for topic in log.admin.describe_topics(topics)}
        promoted = [name for name in topics if "mirror.source" in found[name].configs]
        for name in promoted:
            log.admin.alter_configs(name, delete=["mirror.source"])
    if output is Output.JSON:
        print_json([{"topic": name, "promoted": name in promoted} for name in topics])
        return
    for name in topics:
        echo(
            f"{name} is promoted."
            if name in promoted
            else f"{name} is not a mirror topic; unchanged."
        )


@app.command(short_help="Show mirror topics and their lag")
def status(
    bootstrap: BootstrapOption = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="HOST:PORT", help=FROM_HELP + "; shows the lag"),
    ] = None,
    source_config: SourceConfigOption = None,
    output: OutputOption = None,
) -> None:
    """Show the mirror topics of a cluster, their sources, offsets and lag."""
    from . import settings
    from .mirror_status import mirror_status

    with settings.open_log(bootstrap=bootstrap) as log:
        if source is None:
            found = mirror_status(log, None)
        else:
            source_settings = settings.load_source(source, source_config, flag="--from-config")
            with settings.connect_with(source_settings) as theirs:
                found = mirror_status(log, theirs)
    if output is Output.JSON:
        print_json(found)
        return
    has_problems = any(each["problem"] is not None for each in found)
    print_table(
        ("topic", "partition", "copied to", "source's end", "lag", "mirrors")
        + ("problem",) * has_problems,
        [
            (
                each["topic"],
                each["partition"],
                each["copied_to"],
                each["source_end"],
                each["lag"],
                each["source"],
                *(each["problem"],) * has_problems,
            )
            for each in found
        ],
        empty="No mirror topics.",
    )
