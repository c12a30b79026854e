"""ConsumerGroupHeartbeat: join or leave a group of the consumer protocol (KIP-848), keep the
session alive, receive the assignment.

Since version 1 members choose their own ids and may subscribe by a pattern.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, Final

from ....broker.coordinator.decision import UNDECIDED
from ....broker.groups.records import Partitions
from ....broker.groups.requests import ConsumerBeat, ConsumerHeartbeat, DescribesTopic
from ....errors import InvalidRequest, QuorumlogError
from ....ids import TopicId
from ..api import Answer, BrokerContext, Call, Client, Done, Fields, PreparedResponse
from ..authorized_operations import describe_denial
from ..codecs.groups import (
    USUAL_BYTES_MAX,
    PlainHeartbeatBody,
    encode_plain_heartbeat,
    read_plain_heartbeat,
)
from ..error_codes import group_code
from ..group_calls import (
    allows_group_request,
    ask_coordinator,
    client_host,
    host_of,
    partition_fields,
    read_partitions,
)
from ..pending_group_call import begin_heartbeat

read = read_plain_heartbeat

_MEMBERS_DRAW_IDS: Final = 1  # the first version in which members choose their ids (KIP-1082)
_MS: Final = timedelta(milliseconds=1)


class PlainHeartbeatResponse(PreparedResponse):
    """A response without a new assignment."""

    __slots__ = ("_beat",)

    def __init__(self, beat: ConsumerBeat) -> None:
        self._beat = beat

    def parts(self, throttle_ms: int) -> Sequence[bytes]:
        """Return the body."""
        beat = self._beat
        return (
            encode_plain_heartbeat(
                beat.member_id,
                beat.member_epoch,
                beat.heartbeat_interval_ms,
                throttle_ms=throttle_ms,
            ),
        )


@lru_cache(maxsize=4_096)  # the heartbeats of a member are equal until its epoch changes
def _read_plain_request(
    version: int, body: bytes, client_id: str, peer: str
) -> ConsumerHeartbeat | None:
    beat = read_plain_heartbeat(version, memoryview(body))
    return None if beat is None else _plain_request(beat, client_id, peer)


_encode_plain: Final = lru_cache(maxsize=4_096)(partial(encode_plain_heartbeat, throttle_ms=0))


def at_once(broker: BrokerContext, client: Client, version: int, body: memoryview) -> bytes | None:
    """Answer a heartbeat that only restarts a session; see `KafkaApi.at_once`."""
    if client.client_id is None or len(body) > USUAL_BYTES_MAX:
        return None
    try:
        request = _read_plain_request(version, bytes(body), client.client_id, client.peer)
        if request is None or not allows_group_request(broker, client, request):
            return None
        beat = broker.groups.answer_at_once(request)
    except QuorumlogError:
        return None
    if beat is UNDECIDED:
        return None
    return _encode_plain(beat.member_id, beat.member_epoch, beat.heartbeat_interval_ms)


def begin(broker: BrokerContext, call: Call, done: Done) -> bool:
    """Forward a heartbeat without arrays to the coordinator."""
    request = _whole_plain_request(broker, call)
    if not request.member_id:
        return False
    return begin_heartbeat(broker, call, request, partial(_answer, broker), done)


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Forward any heartbeat to the coordinator."""
    plain = isinstance(call.body, PlainHeartbeatBody)
    if plain:
        request = _whole_plain_request(broker, call)
    else:
        request = _request(broker, call)
        denial = _topics_denial(broker, call, request)
        if denial is not None:
            return _failed(denial)
    if call.version >= _MEMBERS_DRAW_IDS and not request.member_id:
        return _failed(InvalidRequest("member_id: empty; choose a UUID, as text"))
    outcome = await ask_coordinator(broker, call, request)
    return _answer(broker, call, outcome)


def _describes(broker: BrokerContext, call: Call) -> DescribesTopic | None:
    return broker.api.authorizer.describes_topics(call.client.identity)


def _plain_request(
    beat: PlainHeartbeatBody,
    client_id: str,
    peer: str,
    describes: DescribesTopic | None = None,
    *,
    principal: str = "",
) -> ConsumerHeartbeat:
    """Without a principal, for the request of a heartbeat that changes nothing."""
    return ConsumerHeartbeat(
        group=beat.group,
        client=principal,
        member_id=beat.member_id,
        member_epoch=beat.member_epoch,
        instance_id=beat.instance_id,
        rack=beat.rack,
        client_id=client_id,
        client_host=host_of(peer),
        rebalance_timeout_ms=beat.rebalance_timeout_ms,
        pattern=beat.pattern,
        assignor=beat.assignor,
        describes=describes,
    )


def _whole_plain_request(broker: BrokerContext, call: Call) -> ConsumerHeartbeat:
    principal = call.client.identity.principal
    describes = _describes(broker, call)
    return _plain_request(
        call.body, call.client_id, call.client.peer, describes, principal=principal
    )


def _request(broker: BrokerContext, call: Call) -> ConsumerHeartbeat:
    body: Any = call.body
    topics, owned = body.subscribed_topic_names, body.topic_partitions
    return ConsumerHeartbeat(
        group=body.group_id,
        client=call.client.identity.principal,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack=body.rack_id,
        client_id=call.client_id,
        client_host=client_host(call),
        rebalance_timeout_ms=body.rebalance_timeout // _MS,
        topics=None if topics is None else frozenset(topics),
        pattern=getattr(body, "subscribed_topic_regex", None),
        assignor=body.server_assignor,
        owned=None if owned is None else read_partitions(owned),
        describes=_describes(broker, call),
    )


def _topics_denial(
    broker: BrokerContext, call: Call, request: ConsumerHeartbeat
) -> QuorumlogError | None:
    """Return the error of a subscription to topics that the client may not describe."""
    denials = (describe_denial(broker, call, name) for name in sorted(request.topics or ()))
    return next((denial for denial in denials if denial is not None), None)


def _answer(broker: BrokerContext, call: Call, outcome: ConsumerBeat | QuorumlogError) -> Answer:
    if isinstance(outcome, QuorumlogError):
        return _failed(outcome)
    if outcome.assignment is None:
        return PlainHeartbeatResponse(outcome)
    return _assigned(broker, call, outcome, outcome.assignment)


def _failed(error: QuorumlogError) -> Fields:
    return {
        "error_code": group_code(error),
        "error_message": str(error),
        "member_epoch": 0,
        "heartbeat_interval": 0,
    }


def _assigned(
    broker: BrokerContext, call: Call, beat: ConsumerBeat, assignment: Partitions
) -> Fields:
    """Return a response with the assignment, without topics that the client may not describe. A
    denial is reported: another member has the topic by the same pattern."""
    image = broker.image

    def may_describe(topic_id: TopicId) -> bool:
        topic = image.topic_of_id(topic_id)
        return topic is None or describe_denial(broker, call, topic.name) is None

    assigned = {
        topic_id: indexes for topic_id, indexes in assignment.items() if may_describe(topic_id)
    }
    return {
        "error_code": 0,
        "member_id": beat.member_id,
        "member_epoch": beat.member_epoch,
        "heartbeat_interval": beat.heartbeat_interval_ms,
        "assignment": {"topic_partitions": partition_fields(assigned)},
    }
