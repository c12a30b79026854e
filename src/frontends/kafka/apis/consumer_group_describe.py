"""ConsumerGroupDescribe: describe groups of the consumer protocol (KIP-848) with their members."""

from collections.abc import Iterator
from typing import Any

from ....broker.groups.records import Partitions
from ....broker.groups.requests import DescribeGroup, GroupDescription, MemberDescription
from ....errors import GroupNotFound, QuorumlogError
from ....metadata import MetadataImage
from ..api import ANSWER_MS_MAX, Answer, BrokerContext, Call, Fields
from ..authorized_operations import group_operations
from ..encoding_offload import encode_if_large
from ..error_codes import group_code
from ..group_calls import check_group_request, partition_fields
from ..item_results import outcomes

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Describe each named group once, with its own result."""
    names = list(dict.fromkeys(call.body.group_ids))

    async def describe(name: str) -> GroupDescription:
        deadline_ms = call.began_ms + ANSWER_MS_MAX
        request = DescribeGroup(group=name)
        check_group_request(broker, call, request)
        found = await broker.groups.ask(request, deadline_ms=deadline_ms)
        if found.is_classic:
            raise GroupNotFound(f"{name!r}: a classic group; use DescribeGroups")
        authorizer = broker.api.authorizer
        topics = _topics(broker.image, found)
        authorizer.check_description(call.client.identity, f"group {name}", topics)
        return found

    found = await outcomes(broker, names, describe, context=call.context)
    image, is_asked = broker.image, call.body.include_authorized_operations
    groups = [
        _failed(name, each)
        if isinstance(each, QuorumlogError)
        else {
            **_described(image, each),
            "authorized_operations": group_operations(broker, call, name, is_asked=is_asked),
        }
        for name, each in zip(names, found, strict=True)
    ]
    members = sum(len(group["members"]) for group in groups)
    return await encode_if_large(
        broker, call, {"groups": groups}, elements=len(groups) + 4 * members
    )


def _topics(image: MetadataImage, group: GroupDescription) -> Iterator[str]:
    """Yield the topics that the members are subscribed to, own, or have in their targets."""
    for member in group.members:
        yield from member.topics
        for topic_id in (*member.owned, *member.target):
            topic = image.topic_of_id(topic_id)
            if topic is not None:
                yield topic.name


def _failed(name: str, error: QuorumlogError) -> Fields:
    return {
        "error_code": group_code(error),
        "error_message": str(error),
        "group_id": name,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }


def _described(image: MetadataImage, group: GroupDescription) -> dict[str, Any]:
    return {
        "error_code": 0,
        "group_id": group.group,
        "group_state": group.state,
        "group_epoch": group.generation,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.protocol,
        "members": [_member(image, each) for each in group.members],
    }


def _member(image: MetadataImage, member: MemberDescription) -> Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.pattern,
        "assignment": _named(image, member.owned),
        "target_assignment": _named(image, member.target),
        "member_type": CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    }


def _named(image: MetadataImage, partitions: Partitions) -> Fields:
    """Return partitions with the names of their topics, deleted topics left out."""
    topics = []
    for fields in partition_fields(partitions):
        topic = image.topic_of_id(fields["topic_id"])
        if topic is not None:
            topics.append({**fields, "topic_name": topic.name})
    return {"topic_partitions": topics}
