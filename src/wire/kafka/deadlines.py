"""When requests that wait are given up: one timer for all whose time is up at about the same time.

A timer each would cost a request that is answered at once more than all the rest of its waiting.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from ...runtime import Clock

_LOG: Final = logging.getLogger("quorumlog.kafka")

STEP_MS: Final = 32
"""A deadline is at most so much late."""

Expire: TypeAlias = Callable[[], None]


class Deadlines:
    """Those of one door."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: dict[int, dict[Expire, None]] = {}  # by the end of the step, in STEP_MS

    def add(self, expire: Expire, deadline_ms: int, clock: Clock) -> int:
        """Have `expire` called soon after `deadline_ms` of the clock; returns the step, for
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
        """It waits no more."""
        waiting = self._steps.get(step)
        if waiting is not None:
            waiting.pop(expire, None)

    def _expire(self, step: int) -> None:
        for expire in self._steps.pop(step):
            try:
                expire()
            except Exception:  # a bug: the others have nothing to do with it
                _LOG.exception("kafka.deadline_failed")
