"""Causes of consumer lag per partition: the owner, its progress, the remedy. Pure.

Two descriptions of the group, some seconds apart, show the progress.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...visible_text import count_text, duration_text, shell_word
from .findings import Finding

if TYPE_CHECKING:
    from .descriptions import Partition
    from .groups import Group, GroupMember, GroupOffset

RECENT_COMMIT_MS = 10_000  # a member with a younger commit makes progress
SILENT_MS = 20_000  # a healthy member sends a heartbeat every few seconds
Place = tuple[str, int]


def lags(
    before: "Group",
    group: "Group",
    partitions: "Mapping[Place, Partition]",
    *,
    now_ms: int,
    between_ms: int,
) -> list[Finding]:
    """Return a finding for each partition with lag or without a leader. `before` is the group
    `between_ms` earlier, `partitions` are the existing ones."""
    earlier = {(each.topic, each.partition): each for each in before.offsets}
    found = []
    for each in group.offsets:
        place = (each.topic, each.partition)
        partition = partitions.get(place)
        has_nothing = each.committed is None and each.log_end_offset == 0
        is_read = each.lag == 0 or has_nothing
        is_healthy = is_read and partition is not None and partition.leader is not None
        cause = _beyond_end(each, earlier.get(place), group) if is_healthy else None
        if is_healthy and cause is None:
            continue
        cause = cause or _cause(each, earlier, group, partition, now_ms, between_ms)
        why, remedy = cause
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


def _cause(
    offset: "GroupOffset",
    earlier: "Mapping[Place, GroupOffset]",
    group: "Group",
    partition: "Partition | None",
    now_ms: int,
    between_ms: int,
) -> tuple[str, str]:
    behind = _behind(offset)
    if partition is None:
        return (
            f"{behind}; the partition does not exist any more",
            "The committed offset expires; `quorumlog topics list` lists existing topics",
        )
    if partition.leader is None:
        return (
            "the partition has no leader, so it can be neither read nor written",
            f"`quorumlog explain under-min-isr {offset.topic} -p {offset.partition}` shows which "
            "replica can lead",
        )
    if offset.member is None:
        before = earlier.get((offset.topic, offset.partition))
        if before is not None and (before.committed or 0) < (offset.committed or 0):
            return _committed_by_non_member(offset, before, behind, between_ms)
        return _without_member(offset, group, behind, now_ms)
    return _owner_cause(offset, offset.member, earlier, group, now_ms, between_ms)


def _owner_cause(
    offset: "GroupOffset",
    owner: "GroupMember",
    earlier: "Mapping[Place, GroupOffset]",
    group: "Group",
    now_ms: int,
    between_ms: int,
) -> tuple[str, str]:
    behind, before = _behind(offset), earlier.get((offset.topic, offset.partition))
    name, last = _name(owner), _last(offset, now_ms)
    waiting = _waits_for(offset, group)
    if waiting:
        return f"{behind}; {waiting}", _REVOCATION
    if owner.silent_ms > SILENT_MS:
        return (
            f"{behind}; its owner, {name}, sent the last heartbeat "
            f"{owner.silent_ms // 1000} s ago: the process failed, hangs, or cannot reach "
            "the cluster",
            "Check that host; the partition is reassigned when the member's session expires",
        )
    is_progressing = (
        before is not None
        and before.committed is not None
        and offset.committed is not None
        and before.committed < offset.committed
    )
    is_recent = offset.commit_ms >= 0 and now_ms - offset.commit_ms <= RECENT_COMMIT_MS
    is_idle = not is_progressing and not is_recent
    elsewhere = is_idle and _progress_elsewhere(owner, earlier, group, now_ms, between_ms)
    if elsewhere:
        here = "has not committed here yet" if not last else f"committed here last {last}"
        return (
            f"{behind}; its owner, {name}, is active ({elsewhere}) but {here}: it probably reads "
            "other partitions first",
            "Wait until it has read the others; if it does not commit here then, find out whether "
            "the program has paused the partition",
        )
    if offset.committed is None:
        return (
            f"its owner, {name}, has not committed an offset: it has just started, is stuck at the "
            "first records, or never commits",
            "Check that program; without auto_commit it must call commit()",
        )
    if before is not None and is_progressing:
        return _progress(offset, before, name, behind, between_ms)
    if is_recent:
        return f"{behind}; its owner, {name}, committed {last}", ""
    return (
        f"{behind}; its owner, {name}, sends heartbeats but committed last {last}: it is paused or "
        "stuck at a record",
        "Check that program; a member that does not poll for max_poll_interval_ms loses the "
        "partition",
    )


def _progress_elsewhere(
    owner: "GroupMember",
    earlier: "Mapping[Place, GroupOffset]",
    group: "Group",
    now_ms: int,
    between_ms: int,
) -> str:
    """Return the partition in which a member commits most, with the rate or the last commit, "" if
    it commits in none."""
    found: list[tuple[float, int, str]] = []
    for each in group.offsets:
        if each.member is None or each.committed is None:
            continue
        if each.member.member_id != owner.member_id:
            continue
        name = f"{each.topic}-{each.partition}"
        before = earlier.get((each.topic, each.partition))
        read = 0 if before is None else each.committed - (before.committed or 0)
        if read > 0:
            rate = 1000 * read / max(between_ms, 1)
            found.append((rate, each.commit_ms, f"{name}, {rate:,.1f} records/s"))
        elif 0 <= now_ms - each.commit_ms <= RECENT_COMMIT_MS:
            last = f"{name}, last commit {_last(each, now_ms)}"
            found.append((0.0, each.commit_ms, last))
    return max(found)[2] if found else ""


def _behind(offset: "GroupOffset") -> str:
    """Return the lag as text."""
    if offset.committed is None:
        return "no committed offset"
    if offset.lag is None:
        return "the lag is unknown, since the leader of the partition did not answer"
    return f"lag {offset.lag:,}"


def _beyond_end(
    offset: "GroupOffset", before: "GroupOffset | None", group: "Group"
) -> tuple[str, str] | None:
    """Return the finding for a committed offset beyond the log end offset, None if it is not. An
    offset that changed since `before` is skipped: its records may be newer than the end offset."""
    at, end = offset.committed, offset.log_end_offset
    if at is None or end is None or at <= end or before is None or before.committed != at:
        return None
    return (
        f"committed offset {at:,} is beyond the log end offset {end:,}; consumers fail with "
        "OffsetOutOfRange",
        "Find out which client committed it, or whether the log lost records; stop the members, "
        f"then reset: `quorumlog groups reset-offsets {shell_word(group.name)} --to latest --topic "
        f"{offset.topic} --partition {offset.partition}`",
    )


_REVOCATION = (
    "It revokes the partition in its next poll; a member that does not poll for "
    "max_poll_interval_ms is removed"
)


def _without_member(
    offset: "GroupOffset", group: "Group", behind: str, now_ms: int
) -> tuple[str, str]:
    last = _last(offset, now_ms)
    since = f"; the last commit was {last}" if last else ""
    if not group.members:
        return (
            f"{behind}; group {group.name} has no members{since}",
            "Start its consumers",
        )
    place = (offset.topic, offset.partition)
    next_owner = next((each for each in group.members if place in each.target), None)
    if next_owner is not None:
        return f"{behind}; it is assigned to {_name(next_owner)}, which has not taken it{since}", ""
    wanted = any(offset.topic in each.topics or each.pattern for each in group.members)
    if not wanted:
        return (
            f"{behind}; none of the group's {count_text(len(group.members), 'member')} subscribes "
            f"to the topic{since}",
            "Subscribe a member to the topic, or ignore the committed offset",
        )
    return (
        f"{behind}; the group is {group.state} and has not assigned the partition yet{since}",
        "Retry; it is assigned once its previous owners have revoked it",
    )


def _committed_by_non_member(
    offset: "GroupOffset", before: "GroupOffset", behind: str, between_ms: int
) -> tuple[str, str]:
    """Return the finding for commits by a program that is not a member."""
    reader = "a program outside of the group, such as a streaming query,"
    why, remedy = _progress(offset, before, reader, behind, between_ms)
    return why, remedy and "Give the query more cores, or the topic more partitions"


def _waits_for(offset: "GroupOffset", group: "Group") -> str:
    """Return the revocation that the partition waits for, "" if there is none."""
    place, member = (offset.topic, offset.partition), offset.member
    if member is None or place in member.target or place not in member.owned:
        return ""
    next_owner = next((each for each in group.members if place in each.target), None)
    to = "" if next_owner is None else f" for {_name(next_owner)}"
    return f"{_name(member)} must revoke it{to}, and has not done so yet"


def _progress(
    offset: "GroupOffset", before: "GroupOffset", name: str, behind: str, between_ms: int
) -> tuple[str, str]:
    seconds = max(between_ms, 1) / 1000
    read = ((offset.committed or 0) - (before.committed or 0)) / seconds
    written = 0.0
    if offset.log_end_offset is not None and before.log_end_offset is not None:
        written = (offset.log_end_offset - before.log_end_offset) / seconds
    rates = f"{name} reads {read:,.1f} records/s, producers write {written:,.1f} records/s"
    if read > written:
        left_s = (offset.lag or 0) / (read - written)
        return f"{behind}; {rates}: it catches up in about {duration_text(1000 * left_s)}", ""
    return (
        f"{behind}; {rates}: the lag grows",
        "Add members, up to one per partition, add partitions, or reduce the work per record",
    )


def _last(offset: "GroupOffset", now_ms: int) -> str:
    """Return the time since the last commit as text, "" if there is none."""
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
    prefix = f"{name}, " if name else ""
    host = f" at {member.host}" if member.host else ""
    return f"member {prefix}{member.member_id}{host}"
