"""Heartbeat: a member of a classic group lives, and hears whether the group begins anew."""

from .....broker.groups.requests import ClassicHeartbeat
from .....errors import CoordinatorLoading, QuorumlogError
from ...api import Answer, Call, Door
from ...group_codes import group_code
from .asking import asked


async def handle(door: Door, call: Call) -> Answer:
    """Pass it on. While the coordinator reads what is stored, every member is believed."""
    body = call.body
    request = ClassicHeartbeat(
        group=body.group_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=body.generation_id,
    )
    error = await asked(door, call, request)
    if not isinstance(error, QuorumlogError) or isinstance(error, CoordinatorLoading):
        return {"error_code": 0}
    return {"error_code": group_code(error)}
