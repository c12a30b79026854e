"""Deadlines of waiting requests: one timer for all that expire at about the same time.

A timer for each request would cost more than all other work of a request that is answered at once.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from ...runtime import Clock

_LOG: Final = logging.getLogger("quorumlog.kafka")

STEP_MS: Final = 32
"""The resolution: a deadline fires at most this late."""

Expire: TypeAlias = Callable[[], None]


class RequestDeadlines:
    """The deadlines of one Kafka front end."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        # by the end of the step, in units of STEP_MS
        self._steps: dict[int, dict[Expire, None]] = {}

    def add(self, expire: Expire, deadline_ms: int, clock: Clock) -> int:
        """Schedule `expire` for soon after `deadline_ms` of the clock. Return the step, for
        `remove`."""
        step = deadline_ms // STEP_MS + 1
        waiting = self._steps.get(step)
        if waiting is None:
            waiting = self._steps[step] = {}
            left_ms = step * STEP_MS - clock.now_ms()
            asyncio.get_running_loop().call_later(max(left_ms, 0) / 1_000, self._expire, step)
        waiting[expire] = None
        return step

    def remove(self, expire: Expire, step: int) -> None:
        """Cancel a deadline."""
        waiting = self._steps.get(step)
        if waiting is not None:
            waiting.pop(expire, None)

    def _expire(self, step: int) -> None:
        for expire in self._steps.pop(step):
            try:
                expire()
            except Exception:  # a bug of one request must not stop the others
                _LOG.exception("kafka.deadline_failed")
