"""Metrics of the remote calls of a node's listeners, and of stalls of the event loop.

Stalls are measured by the lateness of a timer: a task that blocks the loop for 50 ms delays the
timer by 30 to 50 ms. Fifty timers a second cost 0.25 % of a core.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ...errors import QuorumlogError
from ...metrics import LATENCY_MS, STALL_MS, Histogram, Recent, Scrape
from ...metrics.table import CALL_SECONDS, CALLS, CALLS_OPEN, LOOP_LATENESS, LOOP_STALL
from ...runtime import CallContext, Clock, Handler, Stream

OK = "ok"
CANCELLED = "cancelled"  # by the caller or its deadline
BROKEN = "broken"  # the handler failed: a bug, with an exception in the log


@dataclass(slots=True)
class _Calls:
    """The calls of one method."""

    open: int = 0
    ended: dict[str, int] = field(default_factory=dict)  # by outcome
    took_ms: Histogram = field(default_factory=lambda: Histogram(LATENCY_MS))


class CallMetrics:
    """The calls of all methods; `counted` wraps handlers with the counting."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, _Calls] = {}  # by method, of those called so far

    def counted(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Return the handlers wrapped with call metrics."""
        return {path: self._counted(path, handler) for path, handler in handlers.items()}

    def collect(self, scrape: Scrape) -> None:
        """Write the metrics."""
        for method, calls in self._calls.items():
            scrape.put(CALLS_OPEN, calls.open, method)
            for outcome, count in calls.ended.items():
                scrape.put(CALLS, count, method, outcome)
            if calls.took_ms.count:
                scrape.put_histogram(CALL_SECONDS, calls.took_ms, method)

    def _counted(self, path: str, handler: Handler) -> Handler:
        method = path.rpartition("/")[0].rpartition(".")[2] + "/" + path.rpartition("/")[2]
        answer: Any = handler.call

        async def unary(request: Any, context: CallContext) -> Any:
            calls = self._begin(method)
            began_ms = self._clock.now_ms()
            outcome = BROKEN
            try:
                response = await answer(request, context)
                outcome = OK
                return response
            except BaseException as error:
                outcome = outcome_of(error)
                raise
            finally:
                calls.took_ms.observe(self._clock.now_ms() - began_ms)
                _end(calls, outcome)

        async def streaming(stream: Stream[Any, Any], context: CallContext) -> None:
            calls = self._begin(method)
            outcome = OK
            try:
                await answer(stream, context)
            except BaseException as error:
                outcome = outcome_of(error)
                raise
            finally:
                _end(calls, outcome)

        return replace(handler, call=streaming if handler.method.streaming else unary)

    def _begin(self, method: str) -> _Calls:
        calls = self._calls.setdefault(method, _Calls())
        calls.open += 1
        return calls


def outcome_of(error: BaseException) -> str:
    """Return the name of a call's outcome, one of a closed set."""
    if isinstance(error, QuorumlogError):
        return type(error).__name__
    return BROKEN if isinstance(error, Exception) else CANCELLED


def _end(calls: _Calls, outcome: str) -> None:
    calls.open -= 1
    calls.ended[outcome] = calls.ended.get(outcome, 0) + 1


PERIOD_MS: Final = 20
WINDOW_MS: Final = 60_000


class StallMonitor:
    """Measures while run() runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late_ms = Histogram(STALL_MS)
        self._recent = Recent(window_ms=WINDOW_MS)
        self._due_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Measure until cancelled."""
        self._set()
        try:
            await asyncio.Event().wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def longest_ms(self) -> int:
        """Return the longest stall of the last minute."""
        return self._recent.largest(self._clock.now_ms())

    def collect(self, scrape: Scrape) -> None:
        """Write the metrics."""
        scrape.put_histogram(LOOP_LATENESS, self._late_ms)
        scrape.put(LOOP_STALL, self.longest_ms() / 1000)

    def _set(self) -> None:
        self._due_ms = self._clock.now_ms() + PERIOD_MS
        self._timer = asyncio.get_running_loop().call_later(PERIOD_MS / 1000, self._fired)

    def _fired(self) -> None:
        now_ms = self._clock.now_ms()
        late_ms = max(0, now_ms - self._due_ms)
        self._late_ms.observe(late_ms)
        self._recent.observe(late_ms, now_ms)
        self._set()  # a timer costs half of a sleeping task
