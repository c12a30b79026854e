"""`quorumlog groups list|describe|reset-offsets|delete`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..clients.times import FromEnd, parse_offset_spec
from ..errors import GroupNotFound, InvalidRequest
from ..ids import places_text
from ..settings.query_groups import START_GROUP_PREFIX
from .completion import topic_names
from .confirmation import confirmed
from .names import check_partition, partitions_of, unknown_group
from .options import BootstrapOption, Output, OutputOption
from .output import count_text, echo, print_json, print_table, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..clients.admin.groups import Group, GroupMember, GroupOffset, OffsetReset, Target
    from ..clients.blocking import Log

app = typer.Typer(
    help="List, describe and delete consumer groups, and reset their offsets.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")]


@app.command("list", short_help="List groups")
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Limit to groups in this state; repeatable"),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Limit to this type, consumer or classic; repeatable"
        ),
    ] = None,
    internal: Annotated[
        bool,
        typer.Option(
            "--internal",
            help="Include internal groups, which store the start offsets of Spark queries",
        ),
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """List groups by name. The type is consumer (KIP-848, the coordinator assigns partitions) or
    classic (a member assigns them)."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        groups = log.admin.list_groups(states=state or (), types=kind or ())
    if not internal:
        groups = [each for each in groups if not each.name.startswith(START_GROUP_PREFIX)]
    if output is Output.JSON:
        print_json(
            [
                {
                    "group": each.name,
                    "type": each.type,
                    "state": each.state,
                    "protocol_type": each.protocol_type,
                    "coordinator": each.coordinator,
                }
                for each in groups
            ]
        )
        return
    print_table(
        ("group", "type", "state", "coordinator"),
        [(each.name, each.type, each.state, each.coordinator) for each in groups],
        empty="No groups match --state and --type."
        if state or kind
        else "No groups. A group is created by its first consumer: "
        "quorumlog consume TOPIC --group NAME",
    )


@app.command("describe", short_help="Show a group's members, offsets and lag")
def describe(
    name: GroupArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show the members of a group, their assignments, and the committed offset and lag of each
    partition."""
    from time import time

    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            group = log.admin.describe_group(name)
        except GroupNotFound:
            raise unknown_group(log, name) from None
    if output is Output.JSON:
        print_json(group_json(group))
        return
    echo(
        f"Group {group.name}: {group.type}, {group.state}, epoch {group.epoch}, "
        f"assignor {group.assignor or '-'}, coordinator {group.coordinator}, lag {group.lag:,}"
    )
    now_ms = round(time() * 1000)
    for hold in group.holds:
        verb = "holds" if hold.end_ms > now_ms else "held"
        echo(
            f"It {verb} its unread records of {hold.topic} until {time_text(hold.end_ms)}, in "
            f"partitions of up to {size_text(hold.bytes_max)}"
        )
    echo("")
    print_table(
        ("member", "client", "host", "instance", "epoch", "owned", "target", "heard (ms ago)"),
        [
            (
                each.member_id,
                each.client_id or None,
                each.host or None,
                each.instance_id or None,
                None if each.epoch < 0 else each.epoch,
                places_text(each.owned),
                None if each.target == each.owned else places_text(each.target),
                None if each.silent_ms < 0 else each.silent_ms,
            )
            for each in group.members
        ],
        empty="No members.",
    )
    echo("")
    print_table(
        ("topic", "partition", "committed", "log end", "lag", "committed at", "member", "note"),
        [
            (
                each.topic,
                each.partition,
                each.committed,
                each.log_end_offset,
                each.lag,
                None if each.commit_ms < 0 else time_text(each.commit_ms),
                None if each.member is None else each.member.member_id,
                each.note or None,
            )
            for each in group.offsets
        ],
        empty="No committed offsets and no assigned partitions.",
    )


@app.command(
    "reset-offsets",
    short_help="Set a group's committed offsets",
    epilog="""\b
Examples:
  quorumlog groups reset-offsets billing --to earliest --dry-run
  quorumlog groups reset-offsets billing --to -1h --topic flights
  quorumlog groups reset-offsets billing --shift -100 --topic flights --partition 0
  quorumlog groups reset-offsets billing --to 42 --topic flights --partition 0 --yes
""",
)
def reset_offsets(
    name: GroupArgument,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="OFFSET",
            help="earliest, latest, an offset, -5 (the last five of each partition), -1h, a time",
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(
            "--shift", metavar="OFFSETS", help="Move by this number of offsets; negative moves back"
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Limit to this topic; repeatable  [default: all topics with committed offsets]",
            autocompletion=topic_names,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", metavar="NUMBER", min=0, help="Limit to this partition; repeatable"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the new offsets, change nothing")
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Set the committed offsets of a group without members, within the bounds of the logs. Asks for
    confirmation on a terminal."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        partitions = _chosen_partitions(log, topic or [], partition or [])
        try:
            target = _reset_target(log, name, to, shift, partitions, datetime.now(UTC))
            chosen = None if isinstance(target, dict) else partitions
            planned = log.admin.reset_offsets(name, target, topics=chosen, dry_run=True)
            if not dry_run:
                if not yes and not confirmed(
                    f"Set {count_text(len(planned), 'offset')} of group {name}?"
                ):
                    raise InvalidRequest(f"offsets of group {name} were not changed: not confirmed")
                exact: Any = {(each.topic, each.partition): each.after for each in planned}
                planned = log.admin.reset_offsets(name, exact)
        except GroupNotFound:
            raise unknown_group(log, name) from None
    _print_resets(name, planned, dry_run=dry_run, output=output)


def _chosen_partitions(
    log: "Log", topics: "Sequence[str]", numbers: "Sequence[int]"
) -> dict[str, list[int]] | None:
    """Return the selected partitions by topic; None: all with committed offsets."""
    if not topics:
        if numbers:
            raise typer.BadParameter("--partition requires --topic")
        return None
    found: dict[str, list[int]] = {}
    for topic in topics:
        count = partitions_of(log, topic)
        for number in numbers:
            check_partition(topic, number, count)
        found[topic] = sorted(set(numbers)) or list(range(count))
    return found


def _reset_target(
    log: "Log",
    group: str,
    to: str | None,
    shift: int | None,
    partitions: dict[str, list[int]] | None,
    now: datetime,
) -> "Target":
    """Return the target of --to or --shift; raise BadParameter unless exactly one is given."""
    from ..clients.admin.groups import Shift

    if (to is None) == (shift is None):
        raise typer.BadParameter("give exactly one of --to and --shift")
    if shift is not None:
        return Shift(shift)
    assert to is not None, "neither --to nor --shift"
    try:
        spec = parse_offset_spec(to, now=now)
    except ValueError as error:
        raise typer.BadParameter(f"--to: {error}") from None
    if not isinstance(spec, FromEnd):
        return spec
    if partitions is None:
        partitions = {}
        for each in log.admin.describe_group(group).offsets:
            if each.committed is not None:
                partitions.setdefault(each.topic, []).append(each.partition)
    ends = {topic: log.list_offsets(topic, partitions=some) for topic, some in partitions.items()}
    return {
        (topic, number): max(0, end - spec.records)
        for topic, some in ends.items()
        for number, end in some.items()
    }


def _print_resets(
    name: str, resets: "list[OffsetReset]", *, dry_run: bool, output: Output | None
) -> None:
    if output is Output.JSON:
        rows = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "before": each.before,
                "after": each.after,
            }
            for each in resets
        ]
        print_json({"group": name, "dry_run": dry_run, "offsets": rows})
        return
    print_table(
        ("topic", "partition", "before", "would be" if dry_run else "after"),
        [(each.topic, each.partition, each.before, each.after) for each in resets],
        empty="No offsets to set.",
    )


@app.command("delete", short_help="Delete a group and its offsets")
def delete(
    name: GroupArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Delete a group without members, with its offsets. Asks for confirmation on a terminal."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        if not yes and not confirmed(f"Delete group {name} with its offsets?"):
            raise InvalidRequest(f"group {name} was not deleted: not confirmed")
        try:
            log.admin.delete_group(name)
        except GroupNotFound:
            raise unknown_group(log, name) from None
    if output is Output.JSON:
        print_json({"deleted": name})
    else:
        echo(f"Group {name} is deleted.")


def group_json(group: "Group") -> dict[str, Any]:
    """Return the JSON object of a group."""
    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "epoch": group.epoch,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "lag": group.lag,
        "members": [_member_json(each) for each in group.members],
        "offsets": [_offset_json(each) for each in group.offsets],
        "holds": [
            {"topic": each.topic, "end": time_text(each.end_ms), "bytes_max": each.bytes_max}
            for each in group.holds
        ],
    }


def _member_json(member: "GroupMember") -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id or None,
        "client": member.client_id or None,
        "host": member.host or None,
        "rack": member.rack or None,
        "epoch": None if member.epoch < 0 else member.epoch,
        "heard_ms_ago": None if member.silent_ms < 0 else member.silent_ms,
        "classic": member.is_classic,
        "topics": list(member.topics),
        "pattern": member.pattern or None,
        "owned": [{"topic": topic, "partition": number} for topic, number in member.owned],
        "target": [{"topic": topic, "partition": number} for topic, number in member.target],
    }


def _offset_json(offset: "GroupOffset") -> dict[str, Any]:
    return {
        "topic": offset.topic,
        "partition": offset.partition,
        "committed": offset.committed,
        "log_end_offset": offset.log_end_offset,
        "lag": offset.lag,
        "member": None if offset.member is None else offset.member.member_id,
        "committed_at": None if offset.commit_ms < 0 else time_text(offset.commit_ms),
        "note": offset.note or None,
    }
