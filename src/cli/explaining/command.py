"""`quorumlog explain not-isr|under-min-isr|fenced|lag|retention`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import GroupNotFound
from ..options import BootstrapOption, Output, OutputOption
from ..output import print_json
from ..partitions.command import PartitionOption, SomeTopic
from ..partitions.moving import places_of, topics_of
from .sentences import Finding, fenced, not_in_sync, not_registered, under_min_isr

if TYPE_CHECKING:
    from ...clients import Partition
    from ...clients.blocking import Log

app = typer.Typer(
    help="Why something is as it is, in a sentence, and what to do about it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("not-isr", short_help="Why replicas are not in sync.")
def not_isr(
    topic: SomeTopic = None,
    partition: PartitionOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Say of each replica that is not in sync why, as its leader and the metadata tell."""
    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        chosen = _chosen(log, topic, partition)
        brokers = {broker.id: broker for broker in log.admin.describe_cluster().brokers}
        lacking = {
            place: each for place, each in chosen.items() if set(each.isr) < set(each.replicas)
        }
        told = log.admin.describe_replicas(lacking) if lacking else []
    seen = {(each.topic, each.partition): each for each in told}
    findings = [
        finding
        for place, each in lacking.items()
        for finding in not_in_sync(place[0], each, seen.get(place), brokers)
    ]
    _tell(findings, "All replicas are in sync.", output)


@app.command("under-min-isr", short_help="Why partitions refuse acks=all.")
def under_min(
    topic: SomeTopic = None,
    partition: PartitionOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Say of each partition with fewer replicas in sync than min.insync.replicas who is missing."""
    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        chosen = _chosen(log, topic, partition)
        brokers = {broker.id: broker for broker in log.admin.describe_cluster().brokers}
    findings = [
        under_min_isr(name, each, brokers)
        for (name, _), each in chosen.items()
        if each.is_under_min_isr
    ]
    _tell(findings, "Every partition has as many replicas in sync as it needs.", output)


@app.command("fenced", short_help="Why brokers are fenced.")
def why_fenced(
    broker: Annotated[
        int | None, typer.Argument(metavar="ID", min=0, help="Default: all that are fenced.")
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Say of each broker that the controller does not count on why it does not: the broker itself
    is asked too."""
    from .. import settings
    from .probing import look_at

    with settings.open_log(bootstrap=bootstrap) as log:
        brokers = {each.id: each for each in log.admin.describe_cluster().brokers}
    if broker is not None and broker not in brokers:
        findings = [not_registered(broker, brokers)]
    else:
        asked = [
            each
            for each in brokers.values()
            if each.id == broker or (broker is None and (each.fenced or each.stopping))
        ]
        findings = [fenced(*each) for each in zip(asked, look_at(asked), strict=True)]
    _tell(findings, "No broker is fenced.", output)


@app.command("lag", short_help="Why a consumer group is behind.")
def why_lag(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")],
    seconds: Annotated[
        float,
        typer.Option("--for", metavar="SECONDS", min=0.0, help="Look so long at what moves."),
    ] = 2.0,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Say of each partition that a group is behind in who holds it, since when it does not move,
    and why."""
    from time import sleep, time

    from .. import settings
    from ..groups.command import unknown_group
    from .lag import lags

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            before = log.admin.describe_group(group)
        except GroupNotFound:
            raise unknown_group(log, group) from None
        sleep(seconds)
        now = log.admin.describe_group(group)
        named = {each.topic for each in now.offsets}
        there = {each.name for each in log.admin.list_topics(internal=True)}
        partitions = {
            (topic.name, each.partition): each
            for topic in log.admin.describe_topics(sorted(named & there))
            for each in topic.partitions
        }
    findings = lags(
        before,
        now,
        partitions,
        now_ms=round(time() * 1000),
        between_ms=round(seconds * 1000),
    )
    _tell(findings, f"Group {group} has read everything that is there.", output)


@app.command("retention", short_help="Who keeps records that retention would take.")
def why_kept(
    topic: SomeTopic = None, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Say of each topic which groups hold what they have not read of it, from where on, and until
    when."""
    from time import time

    from .. import settings
    from .holding import holdings

    with settings.open_log(bootstrap=bootstrap) as log:
        found = holdings(
            topics_of(log, topic),
            lambda group: log.admin.describe_group(group),
            now_ms=round(time() * 1000),
        )
    _tell(found, "No group holds anything.", output)


def _chosen(
    log: "Log", topic: str | None, numbers: Sequence[int] | None
) -> "dict[tuple[str, int], Partition]":
    """Return the partitions that are asked about, by place."""
    if numbers and topic is None:
        raise typer.BadParameter("--partition goes with a topic")
    topics = topics_of(log, topic)
    chosen = set(places_of(topics, numbers))
    return {
        (each.name, partition.partition): partition
        for each in topics
        for partition in each.partitions
        if (each.name, partition.partition) in chosen
    }


def _tell(findings: Sequence[Finding], nothing: str, output: Output | None) -> None:
    if output is Output.JSON:
        print_json([_json(finding) for finding in findings])
        return
    for finding in findings:
        typer.echo(finding.text)
    if not findings:
        typer.echo(nothing)


def _json(finding: Finding) -> dict[str, Any]:
    return {
        "topic": finding.topic,
        "partition": finding.partition,
        "broker": finding.broker,
        "why": finding.why,
        "remedy": finding.remedy or None,
    }
