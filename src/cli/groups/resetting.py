"""Where `quorumlog groups reset-offsets` sets a group: what was typed, as positions."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from ..times import FromEnd, parse_place
from ..topic_names import check_partition, partitions_of

if TYPE_CHECKING:
    from ...clients.admin.groups import Target
    from ...clients.blocking import Log

Places = dict[str, list[int]]


def chosen(log: "Log", topics: Sequence[str], numbers: Sequence[int]) -> Places | None:
    """Return the partitions that are named; None: all that the group has committed."""
    if not topics:
        if numbers:
            raise typer.BadParameter("--partition goes with --topic")
        return None
    found: Places = {}
    for topic in topics:
        count = partitions_of(log, topic)
        for number in numbers:
            check_partition(topic, number, count)
        found[topic] = sorted(set(numbers)) or list(range(count))
    return found


def target(
    log: "Log", group: str, to: str | None, shift: int | None, places: Places | None, now: datetime
) -> "Target":
    """Return where to set the offsets; raises a usage error."""
    from ...clients import Shift

    if (to is None) == (shift is None):
        raise typer.BadParameter("say where to: give --to or --shift, one of them")
    if shift is not None:
        return Shift(shift)
    assert to is not None, "one of them is given"
    try:
        place = parse_place(to, now=now)
    except ValueError as error:
        raise typer.BadParameter(f"--to: {error}") from None
    if not isinstance(place, FromEnd):
        return place
    if places is None:
        places = {}
        for each in log.admin.describe_group(group).offsets:
            if each.committed is not None:
                places.setdefault(each.topic, []).append(each.partition)
    ends = {topic: log.list_offsets(topic, partitions=some) for topic, some in places.items()}
    return {
        (topic, number): max(0, end - place.records)
        for topic, some in ends.items()
        for number, end in some.items()
    }
