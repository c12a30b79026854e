"""Why a group is behind in a partition: who holds it, since when nothing moves, what to do; pure.

Two looks at the group, some seconds apart, tell what moves.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..output import count_text
from .sentences import Finding

if TYPE_CHECKING:
    from ...clients import Group, GroupMember, GroupOffset, Partition

MOVES_MS = 10_000  # a commit that is younger says that the member works
SILENT_MS = 20_000  # whoever lives is heard of every few seconds
Place = tuple[str, int]


def lags(
    before: "Group",
    group: "Group",
    partitions: "Mapping[Place, Partition]",
    *,
    now_ms: int,
    between_ms: int,
) -> list[Finding]:
    """Say of each partition that the group is behind in, or cannot be read, why; `before` is the
    group `between_ms` earlier, `partitions` are those that exist."""
    earlier = {(each.topic, each.partition): each for each in before.offsets}
    found = []
    for each in group.offsets:
        place = (each.topic, each.partition)
        partition = partitions.get(place)
        has_nothing = each.committed is None and each.log_end_offset == 0
        is_read = each.lag == 0 or has_nothing
        is_well = is_read and partition is not None and partition.leader is not None
        told = _beyond(each, earlier.get(place), group) if is_well else None
        if is_well and told is None:
            continue
        told = told or _why(each, earlier.get(place), group, partition, now_ms, between_ms)
        why, remedy = told
        found.append(
            Finding(
                what=f"{each.topic}-{each.partition}",
                why=why,
                remedy=remedy,
                topic=each.topic,
                partition=each.partition,
            )
        )
    return found


def _why(
    offset: "GroupOffset",
    before: "GroupOffset | None",
    group: "Group",
    partition: "Partition | None",
    now_ms: int,
    between_ms: int,
) -> tuple[str, str]:
    behind = "nothing is committed" if offset.lag is None else f"{offset.lag:,} behind"
    if partition is None:
        return (
            f"there is no such partition any more, and {behind}",
            "What is stored of it expires; `quorumlog topics list` shows what there is",
        )
    if partition.leader is None:
        return (
            "nobody leads the partition, so that it can be neither read nor written",
            f"`quorumlog explain under-min-isr {offset.topic} -p {offset.partition}` says who "
            "could lead",
        )
    if offset.member is None:
        if before is not None and (before.committed or 0) < (offset.committed or 0):
            return _moved_from_outside(offset, before, behind, between_ms)
        return _without_member(offset, group, behind, now_ms)
    name, last = _name(offset.member), _last(offset, now_ms)
    waiting = _waits_for(offset, group)
    if waiting:
        return f"{behind}; {waiting}", _GIVE_BACK
    if offset.member.silent_ms > SILENT_MS:
        return (
            f"{behind}; {name} holds it and was heard of {offset.member.silent_ms // 1000} s ago: "
            "its process has died or hangs, or cannot reach the cluster",
            "Look at that host; once the member's session is over others get the partition",
        )
    if offset.committed is None:
        return (
            f"{name} holds it and has committed nothing yet: it has just begun, is stuck with its "
            "first records, or does not commit",
            "Look at that program; a consumer without auto_commit commits only when it is told to",
        )
    if before is not None and before.committed is not None and before.committed < offset.committed:
        return _moving(offset, before, name, behind, between_ms)
    if now_ms - offset.commit_ms <= MOVES_MS:
        return f"{behind}; {name} holds it and committed {last}", ""
    return (
        f"{behind}; {name} holds it, sends its heartbeats, and has moved nothing since {last}: it "
        "is paused, or stuck with a record",
        "Look at what that program does; one that does not poll for max_poll_interval_ms loses the "
        "partition to another member by itself",
    )


def _beyond(
    offset: "GroupOffset", before: "GroupOffset | None", group: "Group"
) -> tuple[str, str] | None:
    """Say that the group has been behind the log's end for a while, if it has: an offset that was
    committed between two looks may be one of records that were written between them."""
    at, end = offset.committed, offset.log_end_offset
    if at is None or end is None or at <= end or before is None or before.committed != at:
        return None
    return (
        f"{at:,} is committed, and the log ends at {end:,}: who reads from there is told "
        "OffsetOutOfRange",
        "Look at who committed it, or what was lost of the log; without members "
        f"`quorumlog groups reset-offsets {group.name} --to latest --topic {offset.topic} "
        f"--partition {offset.partition}` sets it back",
    )


_GIVE_BACK = (
    "It does so with its next poll; one that does not poll for max_poll_interval_ms is shut out"
)


def _without_member(
    offset: "GroupOffset", group: "Group", behind: str, now_ms: int
) -> tuple[str, str]:
    last = _last(offset, now_ms)
    since = f"; it committed last {last}" if last else ""
    if not group.members:
        return (
            f"{behind}; nobody reads it: group {group.name} has no members{since}",
            "Start its consumers; if it is not needed any more, "
            f"`quorumlog groups delete {group.name}`",
        )
    place = (offset.topic, offset.partition)
    to_come = next((each for each in group.members if place in each.target), None)
    if to_come is not None:
        return f"{behind}; {_name(to_come)} is about to read it{since}", ""
    wanted = any(offset.topic in each.topics or each.pattern for each in group.members)
    if not wanted:
        return (
            f"{behind}; none of the group's {count_text(len(group.members), 'member')} wants this "
            f"topic{since}",
            "Subscribe a member to it, or forget what is stored of it",
        )
    return (
        f"{behind}; the group is {group.state} and has not given it to a member yet{since}",
        "Ask again; it is given out once members that had it have let go",
    )


def _moved_from_outside(
    offset: "GroupOffset", before: "GroupOffset", behind: str, between_ms: int
) -> tuple[str, str]:
    """A program that is no member commits for the group: a streaming query, most likely."""
    who = "no member, but a program outside of the group such as a streaming query"
    why, remedy = _moving(offset, before, who, behind, between_ms)
    return why, remedy and "Give the query more cores, or the topic more partitions"


def _waits_for(offset: "GroupOffset", group: "Group") -> str:
    """Say who is to give the partition to whom, where it is about to move."""
    place, member = (offset.topic, offset.partition), offset.member
    if member is None or place in member.target or place not in member.owned:
        return ""
    to_come = next((each for each in group.members if place in each.target), None)
    to = "" if to_come is None else f" to {_name(to_come)}"
    return f"{_name(member)} is to give it{to}, and has not let go yet"


def _moving(
    offset: "GroupOffset", before: "GroupOffset", name: str, behind: str, between_ms: int
) -> tuple[str, str]:
    seconds = max(between_ms, 1) / 1000
    read = ((offset.committed or 0) - (before.committed or 0)) / seconds
    written = 0.0
    if offset.log_end_offset is not None and before.log_end_offset is not None:
        written = (offset.log_end_offset - before.log_end_offset) / seconds
    rates = f"{name} reads {read:,.0f} offsets a second, {written:,.0f} are written"
    if read > written:
        left_s = (offset.lag or 0) / (read - written)
        return f"{behind}; {rates}: it catches up in about {left_s:,.0f} s", ""
    return (
        f"{behind}; {rates}: it falls behind",
        "Give the group more members, up to one a partition, or more partitions to the topic, or "
        "make the work on a record cheaper",
    )


def _last(offset: "GroupOffset", now_ms: int) -> str:
    """Say when the group committed last."""
    if offset.commit_ms < 0:
        return ""
    seconds = max(0, now_ms - offset.commit_ms) // 1000
    if seconds < 120:
        return f"{seconds} s ago"
    if seconds < 7_200:
        return f"{seconds // 60} min ago"
    return f"{seconds // 3_600} h ago"


def _name(member: "GroupMember") -> str:
    name = member.instance_id or member.client_id
    told = f"{name}, " if name else ""
    host = f" at {member.host}" if member.host else ""
    return f"member {told}{member.member_id}{host}"
