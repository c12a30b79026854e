"""`quorumlog groups list|describe|reset-offsets|delete`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import GroupNotFound, InvalidRequest, QuorumlogError
from ...settings.query_groups import START_GROUP_PREFIX
from ..completion import topic_names
from ..confirmation import confirmed
from ..options import BootstrapOption, Output, OutputOption
from ..output import count_text, print_json, print_table, size_text, time_text

if TYPE_CHECKING:
    from ...clients import Group, GroupMember, GroupOffset, OffsetReset
    from ...clients.blocking import Log

app = typer.Typer(
    help="See consumer groups and their lag, set them back, delete them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask; nobody is asked without a terminal.")
]


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state; repeatable."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only consumer or classic groups."),
    ] = None,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="List the groups too that hold where a query starts."),
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """List all groups by name: consumer groups, whose coordinator shares partitions out, and
    classic ones, of which a member does."""
    from .. import settings

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
        empty="No group is so; without --state and --type all are listed."
        if state or kind
        else "There are no groups. One begins with its first consumer: "
        "quorumlog consume TOPIC --group NAME",
    )


@app.command("describe", short_help="Show a group's members, offsets and lag.")
def describe(
    name: GroupArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show who is in a group, who reads what, and how far that is from the end."""
    from time import time

    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            group = log.admin.describe_group(name)
        except GroupNotFound:
            raise unknown_group(log, name) from None
    if output is Output.JSON:
        print_json(group_json(group))
        return
    typer.echo(
        f"Group {group.name}: {group.type}, {group.state}, epoch {group.epoch}, "
        f"assignor {group.assignor or '-'}, coordinator {group.coordinator}, lag {group.lag:,}"
    )
    now_ms = round(time() * 1000)
    for hold in group.holds:
        holds = "holds what it has" if hold.end_ms > now_ms else "held what it had"
        typer.echo(
            f"It {holds} not read of {hold.topic} until {time_text(hold.end_ms)}, in "
            f"partitions of up to {size_text(hold.bytes_max)}"
        )
    typer.echo("")
    print_table(
        ("member", "client", "host", "instance", "epoch", "reads", "is to read", "heard (ms ago)"),
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
        empty="It has no members.",
    )
    typer.echo("")
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
        empty="It has committed nothing, and reads nothing.",
    )


@app.command(
    "reset-offsets",
    short_help="Set how far a group has read.",
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
            metavar="PLACE",
            help="earliest, latest, an offset, -5 (the five last of each partition), -1h, a time.",
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option("--shift", metavar="OFFSETS", help="So many on, or back (-100)."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Only this topic; repeatable.  [default: all that the group has committed]",
            autocompletion=topic_names,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", metavar="NUMBER", min=0, help="Only this partition; repeatable."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be, change nothing.")
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Set how far a group without members has read, within what the logs have. In a terminal you
    are asked first."""
    from .. import settings
    from . import resetting

    with settings.open_log(bootstrap=bootstrap) as log:
        places = resetting.chosen(log, topic or [], partition or [])
        try:
            where = resetting.target(log, name, to, shift, places, datetime.now(UTC))
            of = None if isinstance(where, dict) else places
            planned = log.admin.reset_offsets(name, where, of=of, dry_run=True)
            if not dry_run:
                if not yes and not confirmed(
                    f"Set {count_text(len(planned), 'offset')} of group {name}?"
                ):
                    raise InvalidRequest(f"nothing of {name} is set")
                exact: Any = {(each.topic, each.partition): each.after for each in planned}
                planned = log.admin.reset_offsets(name, exact)
        except GroupNotFound:
            raise unknown_group(log, name) from None
    _print_resets(name, planned, dry_run=dry_run, output=output)


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
        empty="Nothing is set.",
    )


@app.command("delete")
def delete(
    name: GroupArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Delete a group without members, with its offsets. In a terminal you are asked first."""
    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        if not yes and not confirmed(f"Delete group {name} with its offsets?"):
            raise InvalidRequest(f"{name} is not deleted")
        try:
            log.admin.delete_group(name)
        except GroupNotFound:
            raise unknown_group(log, name) from None
    if output is Output.JSON:
        print_json({"deleted": name})
    else:
        typer.echo(f"Group {name} is deleted.")


def unknown_group(log: "Log", name: str) -> GroupNotFound:
    """Return the error that says which group may have been meant."""
    from difflib import get_close_matches

    try:
        names = [each.name for each in log.admin.list_groups()]
    except QuorumlogError:  # of a broker that does not answer just now: this one is told
        names = []
    near = get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`quorumlog groups list` shows all"
    return GroupNotFound(f"there is no group {name}: {hint}")


def places_text(places: tuple[tuple[str, int], ...]) -> str:
    """Return partitions as "t-0,1 u-3"."""
    by_topic: dict[str, list[str]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}-{','.join(some)}" for topic, some in by_topic.items()) or "-"


def group_json(group: "Group") -> dict[str, Any]:
    """Return the JSON contract of a group."""
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
