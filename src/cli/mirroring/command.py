"""`quorumlog mirror --from A --to B --topics REGEX`, `mirror promote`, `mirror status`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import InvalidRequest, MirrorDiverged
from ..options import BootstrapOption, Output, OutputOption
from ..output import print_json, print_table

if TYPE_CHECKING:
    from ...clients.mirror import MirrorReport

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="""\b
Examples:
  quorumlog mirror --from old:9094 --to new:9094 --topics 'orders.*'
  quorumlog mirror --from old:9094 --to new:9094 --topics .+ --once   until all is copied
  quorumlog mirror promote orders -b new:9094                         from now on written there
""",
)

FROM_HELP = "A gRPC address of the cluster that is copied, or several by commas."
KAFKA_HELP = " Of a Kafka cluster: kafka://HOST:PORT (needs quorumlog[kafka])."


@app.callback()
def mirror(
    ctx: typer.Context,
    source: Annotated[
        str | None, typer.Option("--from", metavar="HOST:PORT", help=FROM_HELP + KAFKA_HELP)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="HOST:PORT", help="The same of the cluster copied to."),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option(
            "--topics", metavar="REGEX", help="The topics whose whole names match are copied."
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when the copies have all that there is.")
    ] = False,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication", metavar="NUMBER", min=1, help="Of copies.  [default: the cluster's]"
        ),
    ] = None,
    refresh: Annotated[
        float,
        typer.Option(
            "--refresh", metavar="SECONDS", min=0.1, help="How often topics are looked at."
        ),
    ] = 5.0,
    progress: Annotated[
        float,
        typer.Option("--progress", metavar="SECONDS", min=0, help="How often to tell; 0: never."),
    ] = 10.0,
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Serve metrics there, at /metrics, over HTTP."
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Copy topics of one cluster into another, offset by offset, and keep the copies up to date.

    A copy has its source's offsets, times, keys and values, and takes records of nobody else until
    it is promoted. A mirror may end at any moment: the next one goes on exactly there. Runs until
    SIGINT or SIGTERM; what either side does meanwhile does not end it.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not (source and target and topics):
        typer.echo(ctx.get_help())
        raise typer.Exit(2)
    from .running import Plan, run_mirror

    plan = Plan(
        source=source,
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
    """Tell how far it got; raises what was not mirrored, if that is to be an exit code."""
    from .running import report_json, report_line

    if is_json:
        print_json({"event": "end", **report_json(report)})
    else:
        typer.echo(report_line(report))
    if report.diverged:
        raise MirrorDiverged(report.problems[-1])
    if once and report.problems:
        raise InvalidRequest(report.problems[0])


@app.command(short_help="Make of copies topics that anybody writes.")
def promote(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Make of copies topics that anybody writes: the next record gets the next offset.

    Stop what writes to the source first, and let the mirror catch up: what is written there later
    is not copied any more. A topic cannot become a copy again.
    """
    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        found = {topic.name: topic for topic in log.admin.describe_topics(topics)}
        promoted = [name for name in topics if "mirror.source" in found[name].configs]
        for name in promoted:
            log.admin.alter_configs(name, delete=["mirror.source"])
    if output is Output.JSON:
        print_json([{"topic": name, "promoted": name in promoted} for name in topics])
        return
    for name in topics:
        typer.echo(
            f"{name} takes records now." if name in promoted else f"{name} is no mirror: no change."
        )


@app.command(short_help="Show which topics are copies, and how far they are.")
def status(
    bootstrap: BootstrapOption = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="HOST:PORT", help=FROM_HELP + " Tells how far copies lag."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show which topics of a cluster are copies, of what, and how far they are."""
    from .. import settings
    from .standing import standing

    with settings.open_log(bootstrap=bootstrap) as log:
        if source is None:
            found = standing(log, None)
        else:
            with settings.open_log(bootstrap=source) as theirs:
                found = standing(log, theirs)
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
        empty="No topic is a copy.",
    )
