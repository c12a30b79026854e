"""Requests to a coordinator that take no task: it tells the answer, often within the same call."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from .....broker.groups.requests import GroupRequest
from .....broker.groups.shell.term import not_in_time
from .....errors import QuorumlogError
from ...api import ANSWER_MS_MAX, Answer, Call, Done, Door

AnswerOf: TypeAlias = Callable[[Call, Any], Answer]
"""Makes an answer of what the coordinator answers, or of the QuorumlogError that came instead."""


def begun(
    door: Door, call: Call, request: GroupRequest[Any], answer_of: AnswerOf, done: Done
) -> bool:
    """Have the coordinator answer, see `Api.begin`; False: that takes a task now."""
    if not door.groups.has_topic:  # it is made first
        return False
    _Waiting(door, call, request, answer_of, done).begin()
    return True


class _Waiting:
    """One request, until it is answered."""

    __slots__ = (
        "_answer_of",
        "_call",
        "_done",
        "_door",
        "_forget",
        "_outcome",
        "_request",
        "_step",
    )

    def __init__(
        self, door: Door, call: Call, request: GroupRequest[Any], answer_of: AnswerOf, done: Done
    ) -> None:
        self._door = door
        self._call = call
        self._request = request
        self._answer_of = answer_of
        self._done = done
        self._outcome: Any = None
        self._forget: Callable[[], None] | None = None  # None: it was told, or never will be
        self._step = 0  # of its deadline

    def begin(self) -> None:
        """Ask, and answer at once where the coordinator does."""
        try:
            self._forget = self._door.groups.begin(self._request, self._tell)
        except QuorumlogError as error:
            self._outcome = error
        if self._forget is None:
            self._answer()
        else:
            clock = self._door.runtime.clock
            deadline_ms = self._call.began_ms + ANSWER_MS_MAX
            self._step = self._door.deadlines.add(self._expire, deadline_ms, clock)
            self._call.abandon = self._abandon

    def _tell(self, outcome: Any) -> None:
        """Take the answer. The loop passes it on, not who brings it: he is in the middle of his own
        affairs, and the next request of this connection begins with it."""
        self._outcome = outcome
        if self._forget is not None:
            self._call.abandon = None
            self._door.deadlines.remove(self._expire, self._step)
            asyncio.get_running_loop().call_soon(self._answer)

    def _expire(self) -> None:
        assert self._forget is not None, "it waits"
        self._forget()
        self._call.abandon = None
        self._outcome = not_in_time(self._request)
        self._answer()

    def _abandon(self) -> None:
        """Nobody waits: as where a task is cancelled, its place is free at once."""
        assert self._forget is not None, "it waits"
        self._forget()
        self._call.abandon = None
        self._door.deadlines.remove(self._expire, self._step)

    def _answer(self) -> None:
        self._done(self._answer_of(self._call, self._outcome))
