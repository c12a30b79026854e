"""Tasks port of a simulated process: the shared `TaskScope`, and lanes without threads.

A job starts at a drawn time after the jobs before it, runs without interruption on the loop, and
its result is delivered after a second drawn delay. A crash may happen before the job, inside it (at
any file operation) or between the job and its result.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import Overloaded
from ..runtime import Scope
from ..runtime.lanes import lane_limits
from ..runtime.scope import TaskScope
from .entropy import SimEntropy
from .fault_options import ActiveFaults
from .loop import SimLoop
from .process import NodeKilled, Process

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000


@dataclass(slots=True, eq=False)
class _Job:
    number: int  # 0-based, in the order of submission
    run: Callable[[], Any]
    cost_bytes: int
    waiter: "asyncio.Future[Any]"  # may be cancelled; the job runs all the same


class _Lane:
    """A FIFO queue and its simulated threads."""

    def __init__(
        self, tasks: "SimTasks", name: str, entropy: SimEntropy, faults: ActiveFaults
    ) -> None:
        self._limits = lane_limits(name)
        self.name = name
        self._tasks = tasks
        self._entropy = entropy
        self._faults = faults
        self._idle_threads = self._limits.threads
        self._queue: deque[_Job] = deque()
        self._given = 0
        self._unfinished: dict[int, None] = {}  # job numbers, in the order of submission
        self._unfinished_bytes = 0
        # (jobs below this number, waiter)
        self._drains: list[tuple[int, asyncio.Future[None]]] = []

    def submit(self, run: Callable[[], Any], cost_bytes: int) -> "asyncio.Future[Any]":
        """Queue a job and return the future of its result; raises Overloaded."""
        bytes_max = self._limits.waiting_bytes_max
        over_bytes = self._unfinished_bytes + cost_bytes > bytes_max and self._unfinished
        if len(self._unfinished) >= self._limits.waiting_jobs_max or over_bytes:
            waiting = f"{len(self._unfinished)} jobs and {self._unfinished_bytes} bytes"
            raise Overloaded(f"lane {self.name} has {waiting} waiting")
        job = _Job(self._given, run, cost_bytes, self._tasks.loop.create_future())
        self._given += 1
        self._unfinished[job.number] = None
        self._unfinished_bytes += cost_bytes
        self._queue.append(job)
        self._start_next()
        return job.waiter

    async def drain(self) -> None:
        """Return when every job submitted before this call has ended."""
        if self._unfinished:
            waiter = self._tasks.loop.create_future()
            self._drains.append((self._given, waiter))
            await waiter

    def _start_next(self) -> None:
        if self._idle_threads and self._queue:
            self._idle_threads -= 1
            self._later(self._run, self._queue.popleft())

    def _later(self, step: Callable[..., None], *args: Any) -> None:
        loop = self._tasks.loop
        loop.call_at_ns(loop.now_ns + self._draw_ns(), self._tasks.process, step, *args)

    def _draw_ns(self) -> int:
        return self._tasks.process.machine.device_slow_ms * NS_PER_MS + self._draw_weather_ns()

    def _draw_weather_ns(self) -> int:
        if self._entropy.chance(self._faults.options.lane_stall):
            return self._entropy.spread(*self._faults.options.lane_stall_ms) * NS_PER_MS
        return self._entropy.spread(*self._faults.options.lane_us) * NS_PER_US

    def _run(self, job: _Job) -> None:
        result, error = None, None
        try:
            result = job.run()
        except NodeKilled:  # the crash happened inside the job
            return
        except Exception as failure:
            error = failure
        self._idle_threads += 1
        self._start_next()
        self._later(self._deliver, job, result, error)

    def _deliver(self, job: _Job, result: Any, error: Exception | None) -> None:
        del self._unfinished[job.number]
        self._unfinished_bytes -= job.cost_bytes
        outcome = "ok" if error is None else type(error).__name__
        self._tasks.record("job-done", f"{self.name} {job.number} {outcome}")
        if job.waiter.cancelled():
            pass
        elif isinstance(error, StopIteration):  # a future rejects it, and the waiter would hang
            job.waiter.set_exception(RuntimeError(f"a job raised {error!r}"))
        elif error is not None:
            job.waiter.set_exception(error)
        else:
            job.waiter.set_result(result)
        oldest = next(iter(self._unfinished), self._given)
        while self._drains and self._drains[0][0] <= oldest:
            _, waiter = self._drains.pop(0)
            if not waiter.done():
                waiter.set_result(None)


class SimTasks:
    """`runtime.ports.Tasks` of a simulated process."""

    def __init__(
        self,
        loop: SimLoop,
        process: Process,
        entropy: SimEntropy,
        faults: ActiveFaults,
        *,
        record: Callable[[str, str], None],
        stop: Callable[[str], None],
    ) -> None:
        self.loop = loop
        self.process = process
        self.record = record  # (what, detail): an event of this process
        self._entropy = entropy
        self._faults = faults
        self._stop = stop
        self._lanes: dict[str, _Lane] = {}

    def scope(self, name: str) -> AbstractAsyncContextManager[Scope]:
        """Open a scope of child tasks."""
        self.process.check()
        return TaskScope(name)

    async def offload(self, lane: str, job: Callable[[], T], *, cost_bytes: int = 0) -> T:
        """Run a plain function in a lane and return its result; raises Overloaded."""
        self.process.check()
        if lane not in self._lanes:
            self._lanes[lane] = _Lane(self, lane, self._entropy.stream(lane), self._faults)
        result: T = await self._lanes[lane].submit(job, cost_bytes)
        return result

    async def drain(self, lane: str) -> None:
        """Return when every job submitted to the lane before this call has ended."""
        self.process.check()
        if lane in self._lanes:
            await self._lanes[lane].drain()

    def stop_node(self, reason: str) -> None:
        """Kill this process at once; the scenario reads the reason."""
        self.process.check()
        self._stop(reason)
        raise NodeKilled(f"{self.process} stopped: {reason}")
