"""Heartbeat: keep a classic group's member alive, and report a rebalance to it."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ....broker.coordinator.decision import UNDECIDED
from ....broker.groups.requests import ClassicHeartbeat
from ....errors import CoordinatorLoading, QuorumlogError
from ..api import Answer, BrokerContext, Call, Client, Done, PreparedResponse
from ..codecs.groups import (
    USUAL_BYTES_MAX,
    ClassicHeartbeatBody,
    encode_heartbeat,
    read_heartbeat,
)
from ..error_codes import group_code
from ..group_calls import allows_group_request, ask_coordinator
from ..pending_group_call import begin_heartbeat

read = read_heartbeat

_SUCCESSES: Final = tuple(encode_heartbeat(version, 0, throttle_ms=0) for version in range(5))
"""The response without an error in each version."""


@lru_cache(maxsize=4_096)  # the heartbeats of a member are equal until the next generation
def _read_request(version: int, body: bytes) -> ClassicHeartbeat:
    return _request(read_heartbeat(version, memoryview(body)))


def at_once(broker: BrokerContext, client: Client, version: int, body: memoryview) -> bytes | None:
    """Answer a heartbeat that only restarts a session; see `KafkaApi.at_once`."""
    if len(body) > USUAL_BYTES_MAX:
        return None
    try:
        request = _read_request(version, bytes(body))
        if not allows_group_request(broker, client, request):
            return None
        outcome = broker.groups.answer_at_once(request)
    except QuorumlogError:
        return None
    return None if outcome is UNDECIDED else _SUCCESSES[version]


class ClassicHeartbeatResponse(PreparedResponse):
    """An encoded response."""

    __slots__ = ("_code", "_version")

    def __init__(self, version: int, code: int) -> None:
        self._version = version
        self._code = code

    @property
    def error_codes(self) -> Sequence[int]:
        """The error code, if there is one."""
        return (self._code,) if self._code else ()

    def parts(self, throttle_ms: int) -> Sequence[bytes]:
        """Return the body."""
        return (encode_heartbeat(self._version, self._code, throttle_ms=throttle_ms),)


def begin(broker: BrokerContext, call: Call, done: Done) -> bool:
    """Forward the heartbeat to the coordinator without a task."""
    return begin_heartbeat(broker, call, _request(call.body), _answer, done)


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Forward the heartbeat to the coordinator in a task."""
    outcome = await ask_coordinator(broker, call, _request(call.body))
    return _answer(call, outcome)


def _request(beat: ClassicHeartbeatBody) -> ClassicHeartbeat:
    return ClassicHeartbeat(
        group=beat.group,
        member_id=beat.member_id,
        instance_id=beat.instance_id,
        generation=beat.generation,
    )


def _answer(call: Call, outcome: QuorumlogError | None) -> ClassicHeartbeatResponse:
    """Return the response. While the coordinator loads, every member's heartbeat succeeds."""
    if outcome is None or isinstance(outcome, CoordinatorLoading):
        return ClassicHeartbeatResponse(call.version, 0)
    return ClassicHeartbeatResponse(call.version, group_code(outcome))
