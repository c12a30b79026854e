"""DescribeGroups: describe classic groups with their members.

An unknown group is reported as Dead; since version 6 also with an error (KIP-1043).
"""

from typing import Any, Final

from ....broker.groups.requests import DescribeGroup, GroupDescription, MemberDescription
from ....errors import GroupNotFound, QuorumlogError
from ..api import ANSWER_MS_MAX, Answer, BrokerContext, Call, Fields
from ..authorized_operations import group_operations
from ..encoding_offload import encode_if_large
from ..error_codes import group_code
from ..group_calls import check_group_request
from ..item_results import outcomes

DEAD: Final = "Dead"

_FAILS_WHAT_IS_NOT: Final = 6  # the first version in which an unknown group is an error


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Describe each named group once, with its own result."""
    names = list(dict.fromkeys(call.body.groups))

    async def describe(name: str) -> GroupDescription:
        deadline_ms = call.began_ms + ANSWER_MS_MAX
        request = DescribeGroup(group=name)
        check_group_request(broker, call, request)
        found = await broker.groups.ask(request, deadline_ms=deadline_ms)
        if not found.is_classic:
            raise GroupNotFound(f"{name!r}: not a classic group; use ConsumerGroupDescribe")
        return found

    found = await outcomes(broker, names, describe, context=call.context)
    is_asked = getattr(call.body, "include_authorized_operations", False)
    groups = [
        _failed(call, name, each)
        if isinstance(each, QuorumlogError)
        else {
            **_described(each),
            "authorized_operations": group_operations(broker, call, name, is_asked=is_asked),
        }
        for name, each in zip(names, found, strict=True)
    ]
    members = sum(len(group["members"]) for group in groups)
    return await encode_if_large(broker, call, {"groups": groups}, elements=len(groups) + members)


def _failed(call: Call, name: str, error: QuorumlogError) -> Fields:
    is_not = isinstance(error, GroupNotFound)
    code, message = group_code(error), str(error) if is_not else None
    if is_not and call.version < _FAILS_WHAT_IS_NOT:
        code = 0
    return {
        "error_code": code,
        "error_message": message,
        "group_id": name,
        "group_state": DEAD if is_not else "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def _described(group: GroupDescription) -> dict[str, Any]:
    return {
        "error_code": 0,
        "group_id": group.group,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [_member(each) for each in group.members],
    }


def _member(member: MemberDescription) -> Fields:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.subscription,
        "member_assignment": member.assignment,
    }
