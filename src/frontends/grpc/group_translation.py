"""Translation between the group coordinator's values and the messages of `quorumlog.v1`. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from ...broker.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    EntryBudget,
    decode_assignment,
    decode_subscription,
)
from ...broker.groups.records import Partitions
from ...broker.groups.requests import (
    NO_GENERATION,
    CommitOffsets,
    ConsumerHeartbeat,
    DescribesTopic,
    FetchOffsets,
    GroupDescription,
    ListedGroup,
    MemberDescription,
    OffsetToCommit,
    StoredOffset,
)
from ...errors import QuorumlogError, UnknownTopicId, UnknownTopicOrPartition
from ...ids import NodeId, TopicId
from ...metadata import MetadataImage
from ...proto import errors_pb2
from ...proto import groups_pb2 as pb
from ...runtime.error_detail import encode_error

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


# --- partitions ----------------------------------------------------------------------------------


def read_partitions(
    image: MetadataImage,
    parts: Iterable[pb.GroupPartition],
    describes: DescribesTopic | None,
) -> Partitions:
    """Return partitions by the ids of their topics. Names of deleted topics, and of those that the
    client may not describe, are left out."""
    found: dict[TopicId, set[int]] = {}
    for part in parts:
        topic = None if part.topic_id else image.topic(part.topic)
        if topic is not None and describes is not None and not describes(topic.name):
            continue
        topic_id = TopicId(part.topic_id) if topic is None else topic.id
        if topic_id:
            found.setdefault(topic_id, set()).add(part.partition)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def group_partitions(image: MetadataImage, partitions: Partitions) -> list[pb.GroupPartition]:
    """Return partitions with the names of their topics, by name and partition."""
    found = []
    for topic_id, indexes in partitions.items():
        topic = image.topic_of_id(topic_id)
        name = "" if topic is None else topic.name
        found += [
            pb.GroupPartition(topic=name, partition=index, topic_id=topic_id) for index in indexes
        ]
    return sorted(found, key=lambda part: (part.topic, part.topic_id, part.partition))


def place_of(image: MetadataImage, part: pb.GroupPartition | pb.CommittedOffset) -> TopicId:
    """Return the topic id of a partition. Raises UnknownTopicId or UnknownTopicOrPartition, also
    for an index that the topic lacks."""
    topic = image.topic_of_id(part.topic_id) if part.topic_id else image.topic(part.topic)
    if part.topic_id and (topic is None or part.topic not in ("", topic.name)):
        raise UnknownTopicId(
            "unknown topic id, or its topic has another name; look it up again",
            topic=part.topic,
            partition=part.partition,
        )
    if topic is None or part.partition not in topic.partitions:
        raise UnknownTopicOrPartition(
            "unknown partition; check its name", topic=part.topic, partition=part.partition
        )
    return topic.id


# --- requests ------------------------------------------------------------------------------------


def read_heartbeat(
    image: MetadataImage,
    request: pb.GroupHeartbeatRequest,
    host: str,
    describes: DescribesTopic | None,
) -> ConsumerHeartbeat:
    """Translate a validated heartbeat; `host` and `describes` are the client's."""
    is_told = request.HasField("subscription")
    return ConsumerHeartbeat(
        group=request.group,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id or None,
        rack=request.rack or None,
        client_id=request.client_id,
        client_host=f"/{host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms or -1,
        topics=frozenset(request.subscription.topics) if is_told else None,
        pattern=request.subscription.pattern if is_told else None,
        assignor=request.assignor or None,
        owned=read_partitions(image, request.owned.partitions, describes)
        if request.HasField("owned")
        else None,
        describes=describes,
    )


def read_offset(image: MetadataImage, offset: pb.CommittedOffset) -> OffsetToCommit:
    """Translate an offset of a commit; raises like `place_of`."""
    topic_id = place_of(image, offset)
    topic = image.topic_of_id(topic_id)
    assert topic is not None
    return OffsetToCommit(
        topic=topic.name,
        partition=offset.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch if offset.HasField("leader_epoch") else -1,
        note=offset.note,
        topic_id=topic_id,
    )


def read_commit(
    request: pb.CommitOffsetsRequest, offsets: Iterable[OffsetToCommit]
) -> CommitOffsets:
    """Translate a commit with a part of its offsets."""
    return CommitOffsets(
        group=request.group,
        member_id=request.member_id,
        generation=request.member_epoch if request.member_id else NO_GENERATION,
        offsets=tuple(offsets),
    )


def read_fetch(
    request: pb.FetchOffsetsRequest, places: tuple[tuple[str, int], ...] | None
) -> FetchOffsets:
    """Translate a request for the offsets of some partitions, or of all."""
    return FetchOffsets(
        group=request.group,
        partitions=places,
        member_id=request.member_id,
        member_epoch=request.member_epoch if request.member_id else NO_GENERATION,
        require_stable=request.require_stable,
    )


# --- responses -----------------------------------------------------------------------------------


def error_message(failure: QuorumlogError | None) -> errors_pb2.Error:
    """Return an error message, empty for None."""
    return errors_pb2.Error() if failure is None else encode_error(failure)


def offset_result(image: MetadataImage, stored: StoredOffset) -> pb.OffsetResult:
    """Translate the stored offset of a partition."""
    topic = image.topic(stored.topic)
    offset = pb.CommittedOffset(
        topic=stored.topic,
        partition=stored.partition,
        offset=stored.offset,
        note=stored.note,
        topic_id=b"" if topic is None else topic.id,
        commit_ms=stored.commit_ms,
    )
    if stored.leader_epoch >= 0:
        offset.leader_epoch = stored.leader_epoch
    result = pb.OffsetResult(offset=offset)
    if stored.error is not None:
        result.error.CopyFrom(encode_error(stored.error))
    return result


def group_listing(listing: ListedGroup, coordinator: NodeId) -> pb.GroupListing:
    """Translate an entry of the list of groups."""
    return pb.GroupListing(
        group=listing.group,
        type=CLASSIC if listing.is_classic else CONSUMER,
        state=listing.state,
        protocol_type=listing.protocol_type,
        coordinator=coordinator,
    )


def group_description(
    image: MetadataImage, group: GroupDescription, coordinator: NodeId
) -> pb.GroupDescription:
    """Translate a group with its members."""
    members, budget = [], EntryBudget()
    for member in sorted(group.members, key=lambda each: each.member_id):
        described = _group_member(image, member)
        if group.is_classic and group.protocol_type == PROTOCOL_TYPE:
            _fill_from_metadata(image, described, member, budget)
        members.append(described)
    return pb.GroupDescription(
        listing=pb.GroupListing(
            group=group.group,
            type=CLASSIC if group.is_classic else CONSUMER,
            state=group.state,
            protocol_type=group.protocol_type,
            coordinator=coordinator,
        ),
        group_epoch=group.generation,
        members=members,
        target_epoch=group.target_epoch,
        assignor=group.protocol,
    )


def topics_of(group: pb.GroupDescription) -> Iterator[str]:
    """Yield the topics that the members are subscribed to, own, or have in their targets."""
    for member in group.members:
        yield from member.subscription.topics
        yield from (part.topic for part in (*member.owned, *member.target) if part.topic)


def _group_member(image: MetadataImage, member: MemberDescription) -> pb.GroupMember:
    described = pb.GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id or "",
        member_epoch=member.member_epoch,
        host=member.client_host.removeprefix("/"),
        owned=group_partitions(image, member.owned),
        target=group_partitions(image, member.target),
        client_id=member.client_id,
        rack=member.rack or "",
        is_classic=member.is_classic,
        silent_ms=member.silent_ms,
    )
    if not member.is_classic or member.topics or member.pattern:
        described.subscription.topics.extend(sorted(member.topics))
        described.subscription.pattern = member.pattern or ""
    return described


def _fill_from_metadata(
    image: MetadataImage,
    described: pb.GroupMember,
    member: MemberDescription,
    budget: EntryBudget,  # of all members
) -> None:
    """Decode the subscription and assignment of a classic consumer group's member, if possible."""
    try:
        subscription = decode_subscription(member.subscription, budget)
        described.subscription.topics.extend(subscription.topics)
        assigned = decode_assignment(member.assignment, budget).partitions
    except ValueError:
        return  # not sent yet, or in a format of its own
    for name in sorted(assigned):
        topic = image.topic(name)
        topic_id = b"" if topic is None else topic.id
        for index in sorted(assigned[name]):
            described.owned.add(topic=name, partition=index, topic_id=topic_id)
    described.target.extend(described.owned)
