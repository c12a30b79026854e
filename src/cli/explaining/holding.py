"""Which groups hold what retention would take, from where on and until when."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import GroupNotFound, QuorumlogError
from ...settings.query_groups import RETENTION_HOLDS, Hold, parse_holds
from ..output import count_text, size_text, time_text
from .sentences import Finding

if TYPE_CHECKING:
    from ...clients import Group, Topic


def holdings(
    topics: "Sequence[Topic]", describe: "Callable[[str], Group]", *, now_ms: int
) -> list[Finding]:
    """Say of each hold on these topics what it comes to; `describe` returns a group, or raises
    QuorumlogError. A lease that has ended is told of too, until another one takes its place."""
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
                why = f"{_what(topic, hold.group, groups[hold.group])} {until}"
            found.append(Finding(what=topic.name, why=why, remedy=remedy, topic=topic.name))
    return found


def _holds(text: str) -> tuple[Hold, ...]:
    try:
        return parse_holds(text)
    except ValueError:  # of a newer version
        return ()


def _without_effect(hold: Hold, now_ms: int) -> tuple[str, str]:
    until = time_text(hold.end_ms)
    if hold.end_ms <= now_ms:
        return f"group {hold.group} holds nothing any more: its lease has ended {until}", ""
    return (
        f"group {hold.group} holds nothing: its lease would end {until}, later than any may",
        "Set the clock of the machine that took it",
    )


def _bounds(topic: "Topic", hold: Hold) -> tuple[str, str]:
    return (
        f"until {time_text(hold.end_ms)}, in partitions of up to {size_text(hold.bytes_max)}",
        "A query that runs renews it. To end it now: quorumlog configs alter "
        f"{topic.name} --delete {RETENTION_HOLDS}",
    )


def _what(topic: "Topic", name: str, group: "Group | QuorumlogError") -> str:
    """What of a topic a group holds, as brokers decide it."""
    if isinstance(group, QuorumlogError) and not isinstance(group, GroupNotFound):
        return (
            f"nobody says now how far group {name} has read ({group.message}), so that everything "
            "is held"
        )
    known = () if isinstance(group, GroupNotFound) else group.offsets
    read = [each for each in known if each.topic == topic.name and each.committed is not None]
    if not read:
        return f"group {name} has committed nothing and holds everything"
    records = count_text(sum(each.lag or 0 for each in read), "record")
    most = max(read, key=lambda each: each.lag or 0)
    held = (
        f"group {name} holds {records} that it has not read, the most in {topic.name}-"
        f"{most.partition} from offset {most.committed} on,"
    )
    untold = sorted({each.partition for each in topic.partitions} - {p.partition for p in read})
    if untold:
        numbers = ", ".join(map(str, untold))
        held += f" and all of partitions {numbers}, of which it has committed nothing,"
    return held
