"""LeaveGroup: members leave a classic group, or an administrator sends them away from any group.

Since version 3 many leave at once (KIP-345), each with a result of its own; before, the one's error
is that of the request.
"""

from collections.abc import Sequence
from typing import Any, Final

from .....broker.groups.requests import LeaveGroup, Leaver
from .....errors import GroupNotFound, QuorumlogError, UnknownMember
from ...api import Answer, Call, Door
from ...group_codes import group_code
from ...messages import code_of
from .asking import asked

_TAKES_MANY: Final = 3  # from this version on


async def handle(door: Door, call: Call) -> Answer:
    """Translate both ways."""
    leavers = _leavers(call)
    outcome = await asked(door, call, LeaveGroup(group=call.body.group_id, leavers=leavers))
    if isinstance(outcome, GroupNotFound | UnknownMember):  # who is no member is told of each
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
