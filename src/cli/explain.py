"""`quorumlog explain not-isr|under-min-isr|fenced|lag|lso|retention`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..clients.admin.findings import (
    Finding,
    fenced,
    not_in_sync,
    not_registered,
    under_min_isr,
    unstable,
)
from ..errors import GroupNotFound, QuorumlogError
from ..settings.query_groups import RETENTION_HOLDS, Hold, parse_holds
from .options import BootstrapOption, Output, OutputOption
from .output import count_text, echo, print_json, size_text, time_text
from .partitions.command import PartitionOption, SomeTopic
from .partitions.reassignment import partitions_of_topics, topics_of

if TYPE_CHECKING:
    from ..clients.admin.descriptions import Partition, Topic
    from ..clients.admin.groups import Group
    from ..clients.blocking import Log


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
    from . import settings

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
    from . import settings

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
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        brokers = {each.id: each for each in log.admin.describe_cluster().brokers}
        probed = [
            each
            for each in brokers.values()
            if each.id == broker or (broker is None and (each.fenced or each.stopping))
        ]
        findings = [fenced(each) for each in log.admin.explain_fenced(probed)]
    if broker is not None and broker not in brokers:
        findings = [not_registered(broker, brokers)]
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

    from ..clients.admin.lag_findings import lags
    from . import settings
    from .names import unknown_group

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


@app.command("lso", short_help="Explain why readers of committed records wait")
def why_unstable(
    topic: SomeTopic = None,
    partition: PartitionOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Explain for each partition with a last stable offset below its high watermark which
    transaction holds it. Readers of committed records do not pass it."""
    from time import time

    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        lags: dict[tuple[str, int], tuple[int, int]] = {}
        chosen: dict[str, list[int]] = {}
        for name, number in _chosen(log, topic, partition):
            chosen.setdefault(name, []).append(number)
        for name, numbers in chosen.items():
            stable = log.list_offsets(name, partitions=numbers, isolation_level="read_committed")
            ends = log.list_offsets(name, partitions=numbers)
            lags |= {(name, each): (stable[each], ends[each]) for each in numbers}
        held = [place for place, (stable, end) in lags.items() if stable < end]
        found = log.admin.open_transactions(held) if held else []
        ids = log.admin.list_transactions() if found else []
        hanging = log.admin.find_hanging_transactions(held) if found else []
    findings = unstable(
        lags,
        found,
        {each.producer_id: each for each in ids},
        hanging,
        now_ms=round(time() * 1000),
    )
    _print(findings, "All records are stable: no open transaction holds back readers.", output)


@app.command("retention", short_help="Show consumer groups that hold back retention")
def why_kept(
    topic: SomeTopic = None, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show for each topic the groups whose unread records retention must keep, from which offset
    and until when."""
    from time import time

    from . import settings

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
        echo(finding.text)
    if not findings:
        echo(empty)


def _json(finding: Finding) -> dict[str, Any]:
    return {
        "topic": finding.topic,
        "partition": finding.partition,
        "broker": finding.broker,
        "why": finding.why,
        "remedy": finding.instruction or None,
    }


def retention_holds(
    topics: "Sequence[Topic]", describe: "Callable[[str], Group]", *, now_ms: int
) -> list[Finding]:
    """Return a finding for each hold on these topics, also for expired leases that are still in the
    config. `describe` returns a group, or raises QuorumlogError."""
    groups: dict[str, Group | QuorumlogError] = {}
    found: list[Finding] = []
    for topic in topics:
        for hold in _holds(topic.configs.get(RETENTION_HOLDS, "")):
            if not hold.counts(now_ms):
                why, remedy = _without_effect(hold, now_ms)
            else:
                if hold.group not in groups:
                    try:
                        groups[hold.group] = describe(hold.group)
                    except QuorumlogError as error:
                        groups[hold.group] = error
                until, remedy = _bounds(topic, hold)
                why = f"{_held_records(topic, hold.group, groups[hold.group])} {until}"
            found.append(Finding(what=topic.name, why=why, remedy=remedy, topic=topic.name))
    return found


def _holds(text: str) -> tuple[Hold, ...]:
    try:
        return parse_holds(text)
    except ValueError:  # written by a newer release
        return ()


def _without_effect(hold: Hold, now_ms: int) -> tuple[str, str]:
    until = time_text(hold.end_ms)
    if hold.end_ms <= now_ms:
        return f"group {hold.group} holds no records: its lease expired {until}", ""
    return (
        f"group {hold.group} holds no records: its lease ends {until}, beyond the maximum",
        "Correct the clock of the machine that took the lease",
    )


def _bounds(topic: "Topic", hold: Hold) -> tuple[str, str]:
    return (
        f"until {time_text(hold.end_ms)}, in partitions of up to {size_text(hold.bytes_max)}",
        "A running query renews the lease; to end it now: quorumlog configs alter "
        f"{topic.name} --delete {RETENTION_HOLDS}",
    )


def _held_records(topic: "Topic", name: str, group: "Group | QuorumlogError") -> str:
    """Return which records of a topic a group holds, by the brokers' rules."""
    if isinstance(group, QuorumlogError) and not isinstance(group, GroupNotFound):
        return (
            f"the offsets of group {name} are not available ({group.message}), so that all records "
            "are held"
        )
    known = () if isinstance(group, GroupNotFound) else group.offsets
    read = [each for each in known if each.topic == topic.name and each.committed is not None]
    if not read:
        return f"group {name} has no committed offset and holds all records"
    records = count_text(sum(each.lag or 0 for each in read), "record")
    most = max(read, key=lambda each: each.lag or 0)
    held = (
        f"group {name} holds {records} that it has not read, most of them in {topic.name}-"
        f"{most.partition} from offset {most.committed},"
    )
    uncommitted = sorted(
        {each.partition for each in topic.partitions} - {p.partition for p in read}
    )
    if uncommitted:
        numbers = ", ".join(map(str, uncommitted))
        held += f" and all of partitions {numbers}, which have no committed offset,"
    return held
