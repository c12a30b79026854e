"""Coordinator requests without a task: the coordinator calls back, often within the same call."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from ...broker.coordinator.decision import UNDECIDED
from ...broker.coordinator.shell.coordinator_shard import timed_out
from ...broker.groups.requests import GroupRequest
from ...errors import QuorumlogError
from .api import ANSWER_MS_MAX, Answer, BrokerContext, Call, Done
from .group_calls import check_group_request

AnswerOf: TypeAlias = Callable[[Call, Any], Answer]
"""Makes a response of the coordinator's result, or of its QuorumlogError."""


def begin_group_call(
    broker: BrokerContext, call: Call, request: GroupRequest[Any], answer_of: AnswerOf, done: Done
) -> bool:
    """Send a request to the coordinator (see `KafkaApi.begin`); return False if it needs a task."""
    if not broker.groups.has_topic:  # the topic is created first
        return False
    try:
        check_group_request(broker, call, request)
    except QuorumlogError as error:
        done(answer_of(call, error))
        return True
    _PendingCall(broker, call, request, answer_of, done).begin()
    return True


def begin_heartbeat(
    broker: BrokerContext, call: Call, request: GroupRequest[Any], answer_of: AnswerOf, done: Done
) -> bool:
    """Answer a heartbeat that only restarts a session; otherwise like `begin_group_call`."""
    if broker.groups.has_topic:
        try:
            check_group_request(broker, call, request)
            outcome = broker.groups.answer_at_once(request)
        except QuorumlogError as error:
            outcome = error
        if outcome is not UNDECIDED:
            done(answer_of(call, outcome))
            return True
    return begin_group_call(broker, call, request, answer_of, done)


class _PendingCall:
    """One request until its response."""

    __slots__ = (
        "_answer_of",
        "_broker",
        "_call",
        "_done",
        "_forget",
        "_outcome",
        "_request",
        "_step",
    )

    def __init__(
        self,
        broker: BrokerContext,
        call: Call,
        request: GroupRequest[Any],
        answer_of: AnswerOf,
        done: Done,
    ) -> None:
        self._broker = broker
        self._call = call
        self._request = request
        self._answer_of = answer_of
        self._done = done
        self._outcome: Any = None
        self._forget: Callable[[], None] | None = None  # None: it was answered, or is not pending
        self._step = 0  # of its deadline

    def begin(self) -> None:
        """Send the request, and answer at once if the coordinator does."""
        try:
            self._forget = self._broker.groups.submit(self._request, self._complete)
        except QuorumlogError as error:
            self._outcome = error
        if self._forget is None:
            self._answer()
        else:
            clock = self._broker.runtime.clock
            deadline_ms = self._call.began_ms + ANSWER_MS_MAX
            self._step = self._broker.deadlines.add(self._expire, deadline_ms, clock)
            self._call.abandon = self._abandon

    def _complete(self, outcome: Any) -> None:
        """Store the result. The response is sent from the event loop and not from here: the
        coordinator is within its own call, and the response starts this connection's next
        request."""
        self._outcome = outcome
        if self._forget is not None:
            self._call.abandon = None
            self._broker.deadlines.remove(self._expire, self._step)
            asyncio.get_running_loop().call_soon(self._answer)

    def _expire(self) -> None:
        assert self._forget is not None, "the request is not pending"
        self._forget()
        self._call.abandon = None
        self._outcome = timed_out(f"group {self._request.group}")
        self._answer()

    def _abandon(self) -> None:
        """Drop the request of an ended connection, which frees its place at once."""
        assert self._forget is not None, "the request is not pending"
        self._forget()
        self._call.abandon = None
        self._broker.deadlines.remove(self._expire, self._step)

    def _answer(self) -> None:
        self._done(self._answer_of(self._call, self._outcome))
