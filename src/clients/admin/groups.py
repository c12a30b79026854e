"""Consumer groups: describe, list, reset offsets, delete. Any broker relays to the coordinator."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...errors import (
    GroupNotFound,
    InvalidRequest,
    NonEmptyGroup,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from ...ids import TopicPartition
from ...proto import admin_pb2, errors_pb2, groups_pb2
from ...runtime.error_detail import decode_error
from ...services import (
    ADMIN_DESCRIBE_TOPICS,
    GROUPS_DELETE,
    GROUPS_DELETE_OFFSETS,
    GROUPS_DESCRIBE,
    GROUPS_LIST,
)
from ...settings.query_groups import RETENTION_HOLDS, Hold, parse_holds
from ...visible_text import count_text
from ..connection import Connection
from ..consumer.assigned_partitions import Topics, parse_assignment
from ..groups import coordinator
from ..groups.coordinator import CommittedOffset
from ..offsets import PartitionLike, Position, look_up, parse_partition
from ..topology import invalid_response

END_TIMEOUT_MS: Final = 2_000  # of the end offsets of one leader's partitions
LIST_TIMEOUT_MS: Final = 2_000  # of a list without the groups of silent brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in the result of `list_groups`."""

    name: str
    type: str  # "consumer" (assignment by the coordinator, KIP-848) or "classic" (by a member)
    state: str  # "Empty", "Stable", "Reconciling", "PreparingRebalance", ...
    protocol_type: str  # "consumer" for groups of consumers
    coordinator: int  # node id of the coordinating broker


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListings:
    """The groups of the brokers that answered."""

    groups: tuple[GroupListing, ...]  # by name
    errors: tuple[QuorumlogError, ...]  # of the other brokers, which they name


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group."""

    member_id: str
    instance_id: str  # group.instance.id of a static member; else ""
    client_id: str
    host: str  # its address
    rack: str
    epoch: int  # -1 for a member of the classic protocol
    is_classic: bool
    topics: tuple[str, ...]
    pattern: str
    owned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]  # its target assignment
    silent_ms: int = -1  # time since its last request to the coordinator; -1: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The committed offset of a group in one partition."""

    topic: str
    partition: int
    committed: int | None  # None: no offset is stored
    log_end_offset: int | None  # None: its leader did not answer
    member: GroupMember | None  # the member that it is assigned to
    note: str = ""
    commit_ms: int = -1  # time of the commit, milliseconds since 1970 (UTC)

    @property
    def lag(self) -> int | None:
        """Offsets between the committed offset and the end; None if either is unknown."""
        if self.committed is None or self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHold:
    """A group's retention hold on a topic: retention does not delete its unread records."""

    topic: str
    end_ms: int  # milliseconds since 1970 (UTC)
    bytes_max: int  # size of a partition's log up to which records are held


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group with its members and committed offsets."""

    name: str
    type: str
    state: str
    coordinator: int
    epoch: int  # increases with each rebalance; the generation of a classic group
    target_epoch: int  # epoch of the target assignment; -1 for classic groups
    assignor: str  # "uniform", "range", or a strategy of the members
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]  # of partitions with a committed offset or a member
    holds: tuple[GroupHold, ...] = ()  # on these topics, by name; expired ones too

    @property
    def lag(self) -> int:
        """The sum of the known lags."""
        return sum(each.lag or 0 for each in self.offsets)


@dataclass(frozen=True, slots=True)
class Shift:
    """A number of offsets relative to the committed offset; negative: backwards."""

    by: int


Target: TypeAlias = (
    Position
    | Shift
    | Mapping[TopicPartition, Position | Shift]
    | Mapping[PartitionLike, Position | Shift]
)
"""The new offsets of a group: one for every partition, or by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """One offset that was set, or would be set in a dry run."""

    topic: str
    partition: int
    before: int | None
    after: int


async def list_groups(
    connection: Connection, states: Collection[str], types: Collection[str]
) -> list[GroupListing]:
    """Query any broker; retry until every coordinator has answered it."""
    _check_filters(states, types)

    async def attempt(remaining_ms: int) -> list[GroupListing]:
        answer = await connection.call_any(
            GROUPS_LIST,
            groups_pb2.ListGroupsRequest(states=states, types=types),
            deadline_ms=connection.runtime.clock.now_ms() + remaining_ms,
        )
        if answer.errors:
            raise decode_error(answer.errors[0])
        return [_listing(each) for each in answer.groups]

    return await connection.repeat(attempt)


async def list_reachable_groups(
    connection: Connection, states: Collection[str], types: Collection[str], timeout_ms: int
) -> GroupListings:
    """Query any broker once; it returns what the brokers list within the time of its attempt."""
    _check_filters(states, types)
    answer = await connection.call_any(
        GROUPS_LIST,
        groups_pb2.ListGroupsRequest(states=states, types=types),
        deadline_ms=connection.runtime.clock.now_ms() + timeout_ms,
        is_short=True,
    )
    return GroupListings(
        groups=tuple(map(_listing, answer.groups)), errors=tuple(map(decode_error, answer.errors))
    )


def _check_filters(states: Collection[str], types: Collection[str]) -> None:
    for given in (states, types):
        if isinstance(given, str):
            raise InvalidRequest(f"{given!r} is a str: give a list of states or types")


async def describe_group(connection: Connection, name: str, end_timeout_ms: int) -> Group:
    """Query the coordinator, the committed offsets and the end offsets; see `AsyncAdmin`."""
    deadline_ms = connection.deadline_ms()
    described = await _describe(connection, name, deadline_ms)
    stored = await coordinator.fetch(
        connection, name, None, require_stable=False, deadline_ms=deadline_ms
    )
    members = tuple(map(_member, described.members))
    readers: dict[PartitionLike, GroupMember] = {
        place: member for member in members for place in member.owned or member.target
    }
    places = sorted({*readers, *stored})
    ends = await _ends(connection, places, end_timeout_ms)
    holds = await _holds(connection, name, {topic for topic, _ in places})
    listing = _listing(described.listing)
    return Group(
        name=name,
        type=listing.type,
        state=listing.state,
        coordinator=listing.coordinator,
        epoch=described.group_epoch,
        target_epoch=described.target_epoch,
        assignor=described.assignor,
        members=members,
        offsets=tuple(
            _offset(place, stored.get(place), ends.get(place), readers.get(place))
            for place in places
        ),
        holds=holds,
    )


async def reset_offsets(
    connection: Connection, name: str, to: Target, *, topics: Topics | None, dry_run: bool
) -> list[OffsetReset]:
    """Set the offsets of a group without members; see `AsyncAdmin.reset_offsets`."""
    deadline_ms = connection.deadline_ms()
    try:
        described = await _describe(connection, name, deadline_ms)
    except GroupNotFound:
        if topics is None and not isinstance(to, Mapping):
            raise
    else:
        if described.members and not dry_run:
            raise NonEmptyGroup(
                f"group {name} has {count_text(len(described.members), 'member')} that would "
                "overwrite the offsets: stop the consumers first (`quorumlog groups describe` "
                "lists them)"
            )
    stored = await coordinator.fetch(connection, name, None, deadline_ms=deadline_ms)
    wanted = await _targets(connection, to, topics, stored, deadline_ms)
    shifted = {place: at for place, at in wanted.items() if isinstance(at, Shift)}
    found = await look_up(
        connection,
        {place: at for place, at in wanted.items() if not isinstance(at, Shift)},
        deadline_ms=deadline_ms,
    )
    for place, shift in shifted.items():
        before = stored.get(place)
        if before is None:
            raise InvalidRequest(
                f"group {name} has no committed offset to shift: give a position",
                topic=place[0],
                partition=place[1],
            )
        found[place] = before.offset + shift.by
    first = await look_up(connection, dict.fromkeys(wanted, "earliest"), deadline_ms=deadline_ms)
    end = await look_up(connection, dict.fromkeys(wanted, "latest"), deadline_ms=deadline_ms)
    after = {place: min(max(found[place], first[place]), end[place]) for place in sorted(wanted)}
    if not dry_run:
        await coordinator.commit(
            connection,
            name,
            {place: CommittedOffset(offset) for place, offset in after.items()},
            deadline_ms=deadline_ms,
        )
    return [
        OffsetReset(
            topic=place[0],
            partition=place[1],
            before=None if (old := stored.get(place)) is None else old.offset,
            after=offset,
        )
        for place, offset in after.items()
    ]


async def _targets(
    connection: Connection,
    to: Target,
    topics: Topics | None,
    stored: Collection[PartitionLike],
    deadline_ms: int,
) -> dict[PartitionLike, Position | Shift]:
    """Return the position of each partition to reset."""
    if isinstance(to, Mapping):
        if topics is not None:
            raise InvalidRequest("positions by partition determine the partitions: remove `topics`")
        return {parse_partition(place): at for place, at in to.items()}
    if topics is None:
        if not stored:
            raise InvalidRequest(
                "the group has no committed offsets: name the topics with `topics`"
            )
        return dict.fromkeys(stored, to)
    places: list[PartitionLike] = []
    for topic, partitions in parse_assignment(topics).items():
        if partitions is None:
            layout = await connection.layout(topic, deadline_ms=deadline_ms)
            partitions = tuple(range(len(layout.partitions)))
        places += [(topic, partition) for partition in partitions]
    return dict.fromkeys(places, to)


async def delete_group(connection: Connection, name: str) -> None:
    """Delete a group and its offsets."""
    request = groups_pb2.DeleteGroupsRequest(groups=[_name(name)])

    async def attempt(remaining_ms: int) -> None:
        deadline_ms = connection.runtime.clock.now_ms() + remaining_ms
        answer = await connection.call_any(GROUPS_DELETE, request, deadline_ms=deadline_ms)
        _raise_first(answer.errors, 1)

    await connection.repeat(attempt)


async def delete_offsets(
    connection: Connection, name: str, places: Iterable[PartitionLike]
) -> None:
    """Delete a group's committed offsets of partitions."""
    wanted = list(dict.fromkeys(places))
    if not wanted:
        raise InvalidRequest("partitions is empty; name the partitions to delete")
    request = groups_pb2.DeleteOffsetsRequest(
        group=_name(name),
        partitions=[groups_pb2.GroupPartition(topic=t, partition=p) for t, p in wanted],
    )

    async def attempt(remaining_ms: int) -> None:
        deadline_ms = connection.runtime.clock.now_ms() + remaining_ms
        answer = await connection.call_any(GROUPS_DELETE_OFFSETS, request, deadline_ms=deadline_ms)
        _raise_first(answer.errors, len(wanted))

    await connection.repeat(attempt)


def _raise_first(errors: Sequence[errors_pb2.Error], asked: int) -> None:
    if len(errors) != asked:
        raise invalid_response(f"returned {len(errors)} results for {asked} requests")
    for error in errors:
        if error.name:
            raise decode_error(error)


async def _describe(
    connection: Connection, name: str, deadline_ms: int
) -> groups_pb2.GroupDescription:
    async def attempt(remaining_ms: int) -> groups_pb2.GroupDescription:
        answer = await connection.call_any(
            GROUPS_DESCRIBE,
            groups_pb2.DescribeGroupsRequest(groups=[_name(name)]),
            deadline_ms=connection.runtime.clock.now_ms() + remaining_ms,
        )
        if [each.listing.group for each in answer.groups] != [name]:
            raise invalid_response(
                f"describes {len(answer.groups)} groups where {name} was asked for"
            )
        if answer.groups[0].HasField("error"):
            raise decode_error(answer.groups[0].error)
        return answer.groups[0]

    return await connection.repeat(attempt, deadline_ms=deadline_ms)


async def _ends(
    connection: Connection, places: Iterable[PartitionLike], timeout_ms: int
) -> dict[PartitionLike, int]:
    """Return the end offsets of partitions, if their leaders answer within `timeout_ms`.

    A failed leader must not prevent the result for the others.
    """
    by_leader: dict[str, list[PartitionLike]] = {}
    absent: set[str] = set()
    for topic, partition in places:
        if topic in absent:
            continue
        try:
            await connection.layout(topic)
        except UnknownTopicOrPartition:
            absent.add(topic)
            continue
        leader = connection.topology.leader(topic, partition)
        if leader is not None:
            by_leader.setdefault(leader.address, []).append((topic, partition))
        else:
            connection.topology.mark_stale(topic)
    deadline_ms = connection.runtime.clock.now_ms() + timeout_ms

    async def ask(some: Iterable[PartitionLike]) -> dict[PartitionLike, int]:
        try:
            return await look_up(connection, dict.fromkeys(some, "latest"), deadline_ms=deadline_ms)
        except QuorumlogError as error:
            if not error.retriable:
                raise
            return {}

    answers = await asyncio.gather(*map(ask, by_leader.values()))
    return {place: end for answer in answers for place, end in answer.items()}


async def _holds(
    connection: Connection, name: str, topics: Collection[str]
) -> tuple[GroupHold, ...]:
    """Return a group's retention holds on topics; on an error none, as the rest is still useful."""
    if not topics:
        return ()
    request = admin_pb2.DescribeTopicsRequest(names=sorted(topics))
    try:
        answer = await connection.call_any(ADMIN_DESCRIBE_TOPICS, request)
    except QuorumlogError:
        return ()
    return tuple(
        GroupHold(topic=result.name, end_ms=hold.end_ms, bytes_max=hold.bytes_max)
        for result in answer.results
        for entry in result.topic.configs
        if entry.name == RETENTION_HOLDS
        for hold in _readable(entry.value)
        if hold.group == name
    )


def _readable(text: str) -> tuple[Hold, ...]:
    try:
        return parse_holds(text)
    except ValueError:  # written by a newer version
        return ()


def _offset(
    place: PartitionLike,
    stored: CommittedOffset | None,
    end: int | None,
    member: GroupMember | None,
) -> GroupOffset:
    return GroupOffset(
        topic=place[0],
        partition=place[1],
        committed=None if stored is None else stored.offset,
        log_end_offset=end,
        member=member,
        note="" if stored is None else stored.note,
        commit_ms=-1 if stored is None else stored.commit_ms,
    )


def _listing(listing: groups_pb2.GroupListing) -> GroupListing:
    return GroupListing(
        name=listing.group,
        type=listing.type,
        state=listing.state,
        protocol_type=listing.protocol_type,
        coordinator=listing.coordinator,
    )


def _member(member: groups_pb2.GroupMember) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.host,
        rack=member.rack,
        epoch=member.member_epoch,
        is_classic=member.is_classic,
        topics=tuple(member.subscription.topics),
        pattern=member.subscription.pattern,
        owned=_places(member.owned),
        target=_places(member.target),
        silent_ms=member.silent_ms,
    )


def _places(partitions: Iterable[groups_pb2.GroupPartition]) -> tuple[TopicPartition, ...]:
    named = [each for each in partitions if each.topic]
    return tuple(sorted(TopicPartition(each.topic, each.partition) for each in named))


def _name(group: Any) -> str:
    if not isinstance(group, str) or not group:
        raise InvalidRequest(f"group is {group!r}: give the group's name as a str")
    return group
