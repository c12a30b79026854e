"""LeaveGroup: remove members from a classic group, or by an administrator from any group.

Since version 3 one request removes several members (KIP-345), each with its own result; before, the
member's error is the top-level error.
"""

from collections.abc import Sequence
from typing import Any, Final

from ....broker.groups.requests import LeaveGroup, Leaver
from ....errors import GroupNotFound, QuorumlogError, UnknownMember
from ..api import Answer, BrokerContext, Call
from ..error_codes import code_of, group_code
from ..group_calls import ask_coordinator

_TAKES_MANY: Final = 3  # the first version with several members


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Forward the request to the coordinator."""
    leavers = _leavers(call)
    outcome = await ask_coordinator(
        broker, call, LeaveGroup(group=call.body.group_id, leavers=leavers)
    )
    if isinstance(outcome, GroupNotFound | UnknownMember):  # reported for each member
        codes: Sequence[int] = [UnknownMember.code] * len(leavers)
    elif isinstance(outcome, QuorumlogError):
        return {"error_code": group_code(outcome), "members": ()}
    else:
        codes = [code_of(error) for error in outcome.errors]
    if call.version < _TAKES_MANY:
        return {"error_code": codes[0]}
    return {
        "error_code": 0,
        "members": [
            {
                "member_id": leaver.member_id,
                "group_instance_id": leaver.instance_id,
                "error_code": code,
            }
            for leaver, code in zip(leavers, codes, strict=True)
        ],
    }


def _leavers(call: Call) -> tuple[Leaver, ...]:
    body: Any = call.body
    if call.version < _TAKES_MANY:
        return (Leaver(member_id=body.member_id),)
    return tuple(
        Leaver(
            member_id=each.member_id,
            instance_id=each.group_instance_id,
            reason=getattr(each, "reason", None) or "",
        )
        for each in body.members
    )
