"""JoinGroup: add a member to a classic group; the response waits for the other members.

Since version 4 a new member gets its id first and joins again with it (KIP-394). Version 0 has one
timeout, for the session and the rebalance.
"""

from datetime import timedelta
from typing import Any, Final

from ....broker.groups.requests import NO_GENERATION, Joined, JoinGroup
from ....errors import MemberIdRequired, QuorumlogError
from ..api import Answer, BrokerContext, Call, Fields
from ..error_codes import group_code
from ..group_calls import ask_and_wait, client_host

_GIVES_IDS_FIRST: Final = 4  # the first version with MemberIdRequired
_MAY_NAME_NO_PROTOCOL: Final = 7  # the first version with a nullable protocol name
_LETS_LEADERS_SKIP: Final = 9  # the first version with skip_assignment (KIP-814)

_MS: Final = timedelta(milliseconds=1)


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Forward the request to the coordinator."""
    body = call.body
    outcome = await ask_and_wait(broker, call, _request(broker, call))
    if isinstance(outcome, QuorumlogError):
        return {
            **_nobody(call),
            "error_code": group_code(outcome),
            "member_id": body.member_id,
        }
    if outcome.is_member_id_required:
        return {
            **_nobody(call),
            "error_code": MemberIdRequired.code,
            "member_id": outcome.member_id,
        }
    return _joined(outcome)


def _request(broker: BrokerContext, call: Call) -> JoinGroup:
    body: Any = call.body
    session_timeout_ms = body.session_timeout // _MS
    rebalance_timeout = getattr(body, "rebalance_timeout", None)
    return JoinGroup(
        group=body.group_id,
        client=call.client.identity.principal,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=call.client_id,
        client_host=client_host(call),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout is None else rebalance_timeout // _MS
        ),
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in body.protocols),
        takes_member_id_first=call.version >= _GIVES_IDS_FIRST,
        can_skip_assignment=call.version >= _LETS_LEADERS_SKIP,
        reason=getattr(body, "reason", None) or "",
        describes=broker.api.authorizer.describes_topics(call.client.identity),
    )


def _nobody(call: Call) -> Fields:
    """Return the fields of a response without a generation."""
    return {
        "generation_id": NO_GENERATION,
        "protocol_name": None if call.version >= _MAY_NAME_NO_PROTOCOL else "",
        "leader": "",
        "members": (),
    }


def _joined(joined: Joined) -> Fields:
    return {
        "error_code": 0,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol or "",
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "metadata": each.subscription,
            }
            for each in joined.members
        ],
    }
