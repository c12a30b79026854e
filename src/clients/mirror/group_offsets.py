"""Committed offsets of groups: copied from the source's coordinators to the target's.

A copy has its source's offsets, so a committed offset has the same meaning in both. Offsets in the
target are never decreased, and a group with members there is not changed. An offset behind a marker
at the end of the source becomes the end of the copy, which has no marker: readers could not
continue beyond its end.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...errors import QuorumlogError
from ..admin.groups import list_groups
from ..connection import Connection
from ..groups import coordinator
from ..groups.coordinator import CommittedOffset
from ..offsets import PartitionLike

Committed: TypeAlias = Mapping[PartitionLike, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedOffsets:
    """The result of one pass over all groups."""

    groups: int  # with offsets in mirrored partitions
    offsets: int  # that were set
    refused: Mapping[str, str]  # errors by group


class CopyEnd(NamedTuple):
    """The end of the copy of a partition."""

    offset: int
    reached: int  # the source has no records to copy between `offset` and here


def offsets_to_commit(
    theirs: Committed, mine: Committed, ends: Mapping[PartitionLike, CopyEnd]
) -> Committed:
    """Return the offsets to commit: copied up to there already, and larger than the target's.
    Pure."""
    found = {
        place: CommittedOffset(min(each.offset, ends[place].offset), each.note)
        for place, each in theirs.items()
        if place in ends and each.offset <= ends[place].reached
    }
    return {
        place: each
        for place, each in found.items()
        if place not in mine or mine[place].offset < each.offset
    }


async def copy_group_offsets(
    source: Connection, target: Connection, ends: Mapping[PartitionLike, CopyEnd]
) -> CopiedOffsets:
    """Copy committed offsets of these partitions, up to the mirrored offsets.

    Raises an error of listing the source's groups. A group that cannot be read or written, because
    it was deleted for example, does not affect the others.
    """
    names = [each.name for each in await list_groups(source, (), ())]
    groups = offsets = 0
    refused: dict[str, str] = {}
    for name in names:
        try:
            theirs = await stored_offsets(source, name, ends)
            if not theirs:
                continue
            groups += 1
            mine = await stored_offsets(target, name, ends)
            news = offsets_to_commit(theirs, mine, ends)
            await coordinator.commit(target, name, news, deadline_ms=target.deadline_ms())
        except QuorumlogError as error:
            refused[name] = str(error)
        else:
            offsets += len(news)
    return CopiedOffsets(groups=groups, offsets=offsets, refused=refused)


async def stored_offsets(
    connection: Connection, group: str, places: Collection[PartitionLike] | None = None
) -> Committed:
    """Return the group's committed offsets in these partitions, by default in all. Those of open
    transactions do not count. Raises the errors of the group's coordinator."""
    deadline_ms = connection.deadline_ms()
    stored = await coordinator.fetch(
        connection, group, None, require_stable=False, deadline_ms=deadline_ms
    )
    return {
        place: each
        for place, each in stored.items()
        if each is not None and (places is None or place in places)
    }
