"""`quorumlog explain not-isr|under-min-isr|fenced|lag|retention`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import GroupNotFound
from ..options import BootstrapOption, Output, OutputOption
from ..output import print_json
from ..partitions.command import PartitionOption, SomeTopic
from ..partitions.reassignment import partitions_of_topics, topics_of
from .sentences import Finding, fenced, not_in_sync, not_registered, under_min_isr

if TYPE_CHECKING:
    from ...clients import Partition
    from ...clients.blocking import Log

app = typer.Typer(
    help="Explain why a replica, broker or group is unhealthy, and what to do about it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("not-isr", short_help="Explain why replicas are not in sync")
def not_isr(
    topic: SomeTopic = None,
    partition: PartitionOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Explain for each replica outside the ISR why it is not in sync, by its leader's replication
    state and the metadata."""
    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        chosen = _chosen(log, topic, partition)
        brokers = {broker.id: broker for broker in log.admin.describe_cluster().brokers}
        incomplete = {
            place: each for place, each in chosen.items() if set(each.isr) < set(each.replicas)
        }
        described = log.admin.describe_replicas(incomplete) if incomplete else []
    replicas = {(each.topic, each.partition): each for each in described}
    findings = [
        finding
        for place, each in incomplete.items()
        for finding in not_in_sync(place[0], each, replicas.get(place), brokers)
    ]
    _print(findings, "All replicas are in sync.", output)


@app.command("under-min-isr", short_help="Explain why partitions reject acks=all")
def under_min(
    topic: SomeTopic = None,
    partition: PartitionOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show the missing replicas of each partition whose ISR is below min.insync.replicas."""
    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        chosen = _chosen(log, topic, partition)
        brokers = {broker.id: broker for broker in log.admin.describe_cluster().brokers}
    findings = [
        under_min_isr(name, each, brokers)
        for (name, _), each in chosen.items()
        if each.is_under_min_isr
    ]
    _print(findings, "No partition is below min.insync.replicas.", output)


@app.command("fenced", short_help="Explain why brokers are fenced")
def why_fenced(
    broker: Annotated[
        int | None,
        typer.Argument(
            metavar="ID", min=0, help="Node id of the broker  [default: all fenced brokers]"
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Explain for each fenced broker why it is fenced, by the metadata and by an answer of the
    broker itself."""
    from .. import settings
    from .probe import probe_brokers

    with settings.open_log(bootstrap=bootstrap) as log:
        brokers = {each.id: each for each in log.admin.describe_cluster().brokers}
    if broker is not None and broker not in brokers:
        findings = [not_registered(broker, brokers)]
    else:
        probed = [
            each
            for each in brokers.values()
            if each.id == broker or (broker is None and (each.fenced or each.stopping))
        ]
        findings = [fenced(*each) for each in zip(probed, probe_brokers(probed), strict=True)]
    _print(findings, "No broker is fenced.", output)


@app.command("lag", short_help="Explain why a consumer group lags")
def why_lag(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group")],
    seconds: Annotated[
        float,
        typer.Option("--for", metavar="SECONDS", min=0.0, help="Time to observe progress"),
    ] = 2.0,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Explain for each partition with lag which member owns it, since when it makes no progress,
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
        existing = {each.name for each in log.admin.list_topics(internal=True)}
        partitions = {
            (topic.name, each.partition): each
            for topic in log.admin.describe_topics(sorted(named & existing))
            for each in topic.partitions
        }
    findings = lags(
        before,
        now,
        partitions,
        now_ms=round(time() * 1000),
        between_ms=round(seconds * 1000),
    )
    _print(findings, f"Group {group} has no lag.", output)


@app.command("retention", short_help="Show consumer groups that hold back retention")
def why_kept(
    topic: SomeTopic = None, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show for each topic the groups whose unread records retention must keep, from which offset
    and until when."""
    from time import time

    from .. import settings
    from .retention import retention_holds

    with settings.open_log(bootstrap=bootstrap) as log:
        found = retention_holds(
            topics_of(log, topic),
            lambda group: log.admin.describe_group(group),
            now_ms=round(time() * 1000),
        )
    _print(found, "No group holds back retention.", output)


def _chosen(
    log: "Log", topic: str | None, numbers: Sequence[int] | None
) -> "dict[tuple[str, int], Partition]":
    """Return the selected partitions by (topic, partition)."""
    if numbers and topic is None:
        raise typer.BadParameter("--partition requires TOPIC")
    topics = topics_of(log, topic)
    chosen = set(partitions_of_topics(topics, numbers))
    return {
        (each.name, partition.partition): partition
        for each in topics
        for partition in each.partitions
        if (each.name, partition.partition) in chosen
    }


def _print(findings: Sequence[Finding], empty: str, output: Output | None) -> None:
    if output is Output.JSON:
        print_json([_json(finding) for finding in findings])
        return
    for finding in findings:
        typer.echo(finding.text)
    if not findings:
        typer.echo(empty)


def _json(finding: Finding) -> dict[str, Any]:
    return {
        "topic": finding.topic,
        "partition": finding.partition,
        "broker": finding.broker,
        "why": finding.why,
        "remedy": finding.remedy or None,
    }
