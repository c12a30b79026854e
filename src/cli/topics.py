"""`quorumlog topics create|list|describe|alter|delete|delete-records`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..clients.admin.health import states_of
from ..clients.admin.plans import parse_assignments
from ..errors import (
    InvalidRequest,
    QuorumlogError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from .confirmation import confirmed
from .names import check_partition, partitions_of, unknown_topic
from .options import BootstrapOption, Output, OutputOption, TopicArgument
from .output import cell_text, count_text, echo, id_text, print_json, print_table

if TYPE_CHECKING:
    from ..clients.admin.descriptions import Topic, TopicListing
    from ..clients.blocking import Log

END_TIMEOUT_MS = 2_000  # per leader, for the high watermarks of its partitions

app = typer.Typer(
    help="Create, list, describe, alter and delete topics, or delete their oldest records.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


AssignmentsOption = Annotated[
    str | None,
    typer.Option(
        "--assignments",
        metavar="IDS/IDS",
        help="Replicas of each partition, the preferred leader first; slashes separate partitions",
    ),
]


@app.command(
    "create",
    short_help="Create a topic",
    epilog="""\b
Examples:
  quorumlog topics create flights --partitions 4
  quorumlog topics create audit --config flush.policy=fsync --config retention.ms=604800000
  quorumlog topics create placed --assignments 1,2,3/2,3,1   # two partitions, three replicas each
""",
)
def create(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the new topic")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="NUMBER",
            min=1,
            help="Number of partitions  [default: num.partitions of the cluster]",
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication",
            "-r",
            metavar="NUMBER",
            min=1,
            help="Replicas of each partition  [default: default.replication.factor of the cluster]",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="Set a topic config; repeatable"),
    ] = None,
    assignments: AssignmentsOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Create a topic. It is usable when the command returns."""
    from . import settings

    configs = parse_configs(config or [])
    if assignments is not None and (partitions, replication) != (None, None):
        raise typer.BadParameter(
            "--assignments sets partitions and replicas; remove --partitions and --replication"
        )
    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            topic = log.admin.create_topic(
                name,
                partitions=partitions,
                replication=replication,
                configs=configs,
                assignments=None if assignments is None else parse_assignments(assignments),
                if_not_exists=if_not_exists,
            )
        except TopicAlreadyExists as error:
            raise TopicAlreadyExists(
                f"{error.message} already; --if-not-exists accepts an existing topic", topic=name
            ) from None
    if output is Output.JSON:
        print_json(topic_json(topic, {}))
    else:
        partitions_text = count_text(len(topic.partitions), "partition")
        replicas_text = count_text(len(topic.partitions[0].replicas), "replica")
        each = "" if len(topic.partitions) == 1 else " each"
        echo(f"Topic {topic.name} has {partitions_text} with {replicas_text}{each}.")


@app.command("list", short_help="List topics")
def list_topics(
    counts: Annotated[
        bool,
        typer.Option(
            "--counts", help="Show the number of offsets of each topic; one call per partition"
        ),
    ] = False,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Include internal topics"),
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """List topics by name."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        topics = log.admin.list_topics(internal=internal)
        counted = {topic.name: count_offsets(log, topic) for topic in topics} if counts else {}
    if output is Output.JSON:
        print_json([listing_json(topic, counted) for topic in topics])
        return
    columns = ["topic", "partitions", "replication", *(["offsets"] if counts else [])]
    print_table(
        columns,
        [
            (
                topic.name,
                topic.partitions,
                topic.replication_factor,
                *([counted[topic.name]] if counts else []),
            )
            for topic in topics
        ],
        empty="No topics. Create one: quorumlog topics create NAME --partitions 4",
    )


@app.command("describe", short_help="Show a topic's configs and partitions")
def describe(
    name: TopicArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show a topic's configs and, per partition, its leader, replicas, ISR and high watermark."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            topic = log.admin.describe_topic(name)
        except UnknownTopicOrPartition:
            raise unknown_topic(log, name) from None
        ends = available_ends(log, topic)
    if output is Output.JSON:
        print_json(topic_json(topic, ends))
        return
    configs = cell_text(topic.configs)
    echo(f"Topic {topic.name}, id {id_text(topic.topic_id)}, configs: {configs}")
    print_table(
        ("partition", "leader", "epoch", "replicas", "isr", "elr", "high watermark", "state"),
        [
            (
                entry.partition,
                entry.leader,
                entry.leader_epoch,
                entry.replicas,
                entry.isr,
                entry.elr,
                ends.get(entry.partition),
                ", ".join(states_of(entry)),
            )
            for entry in topic.partitions
        ],
        empty="No partitions.",
    )


@app.command(
    "alter",
    short_help="Add partitions to a topic",
    epilog="""\b
Examples:
  quorumlog topics alter flights --partitions 8
  quorumlog topics alter flights --partitions 8 --assignments 1,2,3/2,3,1   # two are new
""",
)
def alter(
    name: TopicArgument,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", metavar="NUMBER", min=1, help="New total number of partitions"
        ),
    ],
    assignments: AssignmentsOption = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Validate and print the result, change nothing")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Add partitions to a topic while clients use it. The count cannot decrease.

    New records of a key may go to another partition than earlier ones, so the order by key holds
    only up to the change. `quorumlog configs alter` changes configs.
    """
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            topic = log.admin.create_partitions(
                name,
                partitions,
                assignments=None if assignments is None else parse_assignments(assignments),
                validate_only=validate_only,
            )
        except UnknownTopicOrPartition:
            raise unknown_topic(log, name) from None
    if output is Output.JSON:
        print_json(topic_json(topic, {}))
    else:
        has = "would have" if validate_only else "has"
        echo(f"Topic {name} {has} {count_text(len(topic.partitions), 'partition')}.")


@app.command("delete", short_help="Delete a topic and all its records")
def delete(
    name: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the topic does not exist")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Delete a topic and all its records. Asks for confirmation on a terminal."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            if not yes:
                partitions = count_text(log.partition_count(name), "partition")
                if not confirmed(f"Delete topic {name} and all records of its {partitions}?"):
                    raise InvalidRequest(f"topic {name} was not deleted: not confirmed")
            log.admin.delete_topic(name)
            deleted = True
        except UnknownTopicOrPartition:
            if not if_exists:
                remedy = "--if-exists accepts a missing topic"
                raise unknown_topic(log, name, remedy=remedy) from None
            deleted = False
    if output is Output.JSON:
        print_json({"deleted": name if deleted else None})
    else:
        echo(f"Topic {name} is deleted." if deleted else f"Topic {name} does not exist.")


@app.command(
    "delete-records",
    short_help="Delete the oldest records of a topic's partitions",
    epilog="""\b
Examples:
  quorumlog topics delete-records flights --partition 0 --before 42
  quorumlog topics delete-records flights --before -7d --yes
""",
)
def delete_records(
    name: TopicArgument,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="OFFSET",
            help="First record to keep: an offset, latest (keep none), -5 (keep the last five of "
            "each partition), -7d, or a time",
        ),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="NUMBER",
            min=0,
            help="Limit to this partition; repeatable",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Delete the records below an offset permanently. Asks for confirmation on a terminal.

    The log start offset moves at once; retention frees the disk space later.
    """
    from datetime import UTC, datetime

    from ..clients.times import FromEnd, parse_offset_spec
    from . import settings

    try:
        offset = parse_offset_spec(before, now=datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(f"--before: {error}") from None
    with settings.open_log(bootstrap=bootstrap) as log:
        count = partitions_of(log, name)
        chosen = sorted(set(partition or range(count)))
        check_partition(name, chosen[-1], count)
        if not yes:
            partitions = count_text(len(chosen), "partition")
            if not confirmed(f"Delete the records before {before} in {partitions} of {name}?"):
                raise InvalidRequest(f"no records of {name} were deleted: not confirmed")
        if isinstance(offset, FromEnd):
            ends = log.list_offsets(name, partitions=chosen)
            kept = offset.records
            starts = log.admin.delete_records(name, {p: max(0, ends[p] - kept) for p in chosen})
        else:
            starts = log.admin.delete_records(name, dict.fromkeys(chosen, offset))
    if output is Output.JSON:
        rows = [{"partition": p, "log_start_offset": start} for p, start in starts.items()]
        print_json({"topic": name, "partitions": rows})
    else:
        print_table(("partition", "log start offset"), list(starts.items()), empty="")


def available_ends(log: "Log", topic: "Topic") -> dict[int, int]:
    """Return the high watermarks of the partitions whose leaders answer within END_TIMEOUT_MS. A
    leader that just failed does not hide the partitions of the others."""
    by_leader: dict[int, list[int]] = {}
    for entry in topic.partitions:
        if entry.leader is not None:
            by_leader.setdefault(entry.leader, []).append(entry.partition)
    ends: dict[int, int] = {}
    for partitions in by_leader.values():
        try:
            ends |= log.list_offsets(topic.name, partitions=partitions, timeout_ms=END_TIMEOUT_MS)
        except QuorumlogError as error:
            if not error.retriable:
                raise
    return ends


def count_offsets(log: "Log", topic: "TopicListing") -> int | None:
    """Return the number of offsets between the log start and the high watermark of all partitions,
    None while the topic is being deleted."""
    try:
        first = log.list_offsets(topic.name, at="earliest")
        end = log.list_offsets(topic.name, at="latest")
    except UnknownTopicOrPartition:
        return None
    return sum(end[partition] - first[partition] for partition in first)


def listing_json(topic: "TopicListing", counted: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the JSON object of a listed topic, with "offsets" only if they were counted."""
    row: dict[str, Any] = {
        "name": topic.name,
        "id": id_text(topic.topic_id),
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
    }
    if topic.name in counted:
        row["offsets"] = counted[topic.name]
    return row


def parse_configs(pairs: list[str]) -> dict[str, str]:
    """Return KEY=VALUE pairs as a dict. Raise BadParameter for other texts."""
    configs = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--config {pair!r}: give KEY=VALUE, such as retention.ms=7d")
        configs[name.strip()] = value.strip()
    return configs


def topic_json(topic: "Topic", ends: Mapping[int, int]) -> dict[str, Any]:
    """Return the JSON object of a topic. `ends` are high watermarks by partition; a missing one is
    null."""
    return {
        "name": topic.name,
        "id": id_text(topic.topic_id),
        "configs": dict(topic.configs),
        "partitions": [
            {
                "partition": entry.partition,
                "leader": entry.leader,
                "leader_epoch": entry.leader_epoch,
                "replicas": list(entry.replicas),
                "isr": list(entry.isr),
                "elr": list(entry.elr),
                "adding": list(entry.adding),
                "removing": list(entry.removing),
                "min_isr": entry.min_isr,
                "states": states_of(entry),
                "high_watermark": ends.get(entry.partition),
            }
            for entry in topic.partitions
        ],
    }
