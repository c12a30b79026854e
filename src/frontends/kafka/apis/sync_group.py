"""SyncGroup: return a classic member's assignment once the group's leader has sent it."""

from typing import Final

from ....broker.groups.requests import SyncGroup
from ....errors import InconsistentGroupProtocol, QuorumlogError
from ..api import Answer, BrokerContext, Call
from ..error_codes import group_code
from ..group_calls import ask_and_wait

_NAMES_PROTOCOL: Final = 5  # the first version that names the protocol, and requires it


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Forward the request to the coordinator."""
    body = call.body
    protocol_type = getattr(body, "protocol_type", None)
    protocol = getattr(body, "protocol_name", None)
    if call.version >= _NAMES_PROTOCOL and (protocol_type is None or protocol is None):
        return {"error_code": InconsistentGroupProtocol.code, "assignment": b""}
    request = SyncGroup(
        group=body.group_id,
        client=call.client.identity.principal,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=body.generation_id,
        protocol_type=protocol_type,
        protocol=protocol,
        assignments={each.member_id: bytes(each.assignment) for each in body.assignments},
        describes=broker.api.authorizer.describes_topics(call.client.identity),
    )
    outcome = await ask_and_wait(broker, call, request)
    if isinstance(outcome, QuorumlogError):
        return {"error_code": group_code(outcome), "assignment": b""}
    return {
        "error_code": 0,
        "protocol_type": outcome.protocol_type,
        "protocol_name": outcome.protocol,
        "assignment": outcome.assignment,
    }
