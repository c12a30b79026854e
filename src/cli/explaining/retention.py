"""Consumer groups that hold back retention of a topic: from which offset, until when."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import GroupNotFound, QuorumlogError
from ...settings.query_groups import RETENTION_HOLDS, Hold, parse_holds
from ..output import count_text, size_text, time_text
from .sentences import Finding

if TYPE_CHECKING:
    from ...clients import Group, Topic


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
