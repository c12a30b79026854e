"""How far groups have read: from the source's coordinators to the target's, one to one.

A copy has its source's offsets, so a committed offset means the same in both. What is committed in
the target is never set back, and a group that has members there is its own master.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import QuorumlogError
from ..administration.groups import list_groups
from ..connection import Connection
from ..consuming.grouping import calls
from ..consuming.grouping.calls import CommittedOffset
from ..offsets import Place

Committed: TypeAlias = Mapping[Place, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """What became of a look at all groups."""

    groups: int  # that have offsets in mirrored partitions
    offsets: int  # that were set
    refused: Mapping[str, str]  # why the offsets of a group were not, by group


def to_set(theirs: Committed, mine: Committed, copied_to: Mapping[Place, int]) -> Committed:
    """Return the offsets that a group is to get: of partitions that are copied so far, and nothing
    back. Pure."""
    return {
        place: CommittedOffset(each.offset, each.note)
        for place, each in theirs.items()
        if each.offset <= copied_to.get(place, -1)
        and (place not in mine or mine[place].offset < each.offset)
    }


async def copy_group_offsets(
    source: Connection, target: Connection, copied_to: Mapping[Place, int]
) -> Copying:
    """Copy what groups have committed of these partitions, whose copies are so far. Raises what
    keeps the groups of the source from being listed; a group that cannot be read or written, which
    may be gone by now, keeps no other out."""
    names = [each.name for each in await list_groups(source, (), ())]
    groups = offsets = 0
    refused: dict[str, str] = {}
    for name in names:
        try:
            theirs = await _stored(source, name, copied_to)
            if not theirs:
                continue
            groups += 1
            mine = await _stored(target, name, copied_to)
            news = to_set(theirs, mine, copied_to)
            await calls.commit(target, name, news, deadline_ms=target.deadline_ms())
        except QuorumlogError as error:
            refused[name] = str(error)
        else:
            offsets += len(news)
    return Copying(groups=groups, offsets=offsets, refused=refused)


async def _stored(connection: Connection, group: str, places: Collection[Place]) -> Committed:
    stored = await calls.fetch(connection, group, None, deadline_ms=connection.deadline_ms())
    return {place: each for place, each in stored.items() if place in places and each is not None}
