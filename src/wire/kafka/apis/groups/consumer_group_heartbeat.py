"""ConsumerGroupHeartbeat: a member joins a group of KIP-848, stays, learns what to read, leaves.

Since version 1 members draw their ids themselves, and may name topics by a pattern.
"""

from datetime import timedelta
from typing import Any, Final

from .....broker.groups.requests import ConsumerBeat, ConsumerHeartbeat
from .....errors import InvalidRequest, QuorumlogError
from ...api import Answer, Call, Door, Fields
from ...group_codes import group_code
from .asking import asked, host_of, partition_fields, read_partitions

_MEMBERS_DRAW_IDS: Final = 1  # from this version on (KIP-1082)
_MS: Final = timedelta(milliseconds=1)


async def handle(door: Door, call: Call) -> Answer:
    """Translate both ways."""
    if call.version >= _MEMBERS_DRAW_IDS and not call.body.member_id:
        return _failed(InvalidRequest("member_id is empty; draw one, a UUID as text"))
    outcome = await asked(door, call, _request(call))
    if isinstance(outcome, QuorumlogError):
        return _failed(outcome)
    return _told(outcome)


def _request(call: Call) -> ConsumerHeartbeat:
    body: Any = call.body
    topics, owned = body.subscribed_topic_names, body.topic_partitions
    return ConsumerHeartbeat(
        group=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack=body.rack_id,
        client_id=call.client_id,
        client_host=host_of(call),
        rebalance_timeout_ms=body.rebalance_timeout // _MS,
        topics=None if topics is None else frozenset(topics),
        pattern=getattr(body, "subscribed_topic_regex", None),
        assignor=body.server_assignor,
        owned=None if owned is None else read_partitions(owned),
    )


def _failed(error: QuorumlogError) -> Fields:
    return {
        "error_code": group_code(error),
        "error_message": str(error),
        "member_epoch": 0,
        "heartbeat_interval": 0,
    }


def _told(beat: ConsumerBeat) -> Fields:
    assignment = None
    if beat.assignment is not None:
        assignment = {"topic_partitions": partition_fields(beat.assignment)}
    return {
        "error_code": 0,
        "member_id": beat.member_id,
        "member_epoch": beat.member_epoch,
        "heartbeat_interval": beat.heartbeat_interval_ms,
        "assignment": assignment,
    }
