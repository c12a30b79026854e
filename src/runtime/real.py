"""The real runtime: the machine's clocks, entropy, threads, files and network.

The only home of `time`, `random`, `secrets`, `threading` (the network and the files have homes of
their own). One process runs one loop; `run()` makes it, on uvloop where that is installed.
"""

import asyncio
import hashlib
import logging
import queue
import random
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ..errors import Overloaded
from .files import RealFiles, exit_at_once
from .grpc_options import CONNECT_MS
from .lanes import LaneLimits, lane_limits
from .loops import new_loop
from .network import RealNetwork
from .ports import Entropy, Runtime, Scope
from .scope import TaskScope

T = TypeVar("T")

_log = logging.getLogger(__name__)

SWITCH_S: Final = 0.0005
"""How long a thread that computes may keep the interpreter from one that waits for it. Python's own
5 ms are three times what a lane's write of 4 MiB takes, and its result waits for them."""


# --- running -----------------------------------------------------------------------------------


def run(
    main: Callable[[Runtime], Coroutine[Any, Any, T]],
    *,
    name: str = "node",
    on_stop: Callable[[str], None] = exit_at_once,
    connect_ms: int = CONNECT_MS,
) -> T:
    """Run `main(runtime)` on a new loop until it returns, then end all that the runtime owns.

    Listeners and channels left open are closed and lanes are drained before the loop goes. For a
    process of its own: the interpreter's switch interval is SWITCH_S meanwhile. `connect_ms` is
    what one attempt of a channel to connect may take.
    """
    refuse_stripped_assertions()
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_run_in_loop(main, name, on_stop, connect_ms))
    finally:
        sys.setswitchinterval(before_s)


async def _run_in_loop(
    main: Callable[[Runtime], Coroutine[Any, Any, T]],
    name: str,
    on_stop: Callable[[str], None],
    connect_ms: int,
) -> T:
    async with open_runtime(name, on_stop=on_stop, connect_ms=connect_ms) as runtime:
        return await main(runtime)


@asynccontextmanager
async def open_runtime(
    name: str, *, on_stop: Callable[[str], None] = exit_at_once, connect_ms: int = CONNECT_MS
) -> AsyncIterator[Runtime]:
    """Give the running loop's runtime and close what it owns on the way out."""
    runtime = real_runtime(name, on_stop=on_stop, connect_ms=connect_ms)
    try:
        yield runtime
    finally:
        await close_runtime(runtime)


def real_runtime(
    name: str, *, on_stop: Callable[[str], None] = exit_at_once, connect_ms: int = CONNECT_MS
) -> Runtime:
    """Return a runtime for the running loop; end it with `close_runtime`.

    `name` marks its threads; `on_stop` is what `tasks.stop_node` does, by default the end of the
    process.
    """
    refuse_stripped_assertions()
    loop = asyncio.get_running_loop()
    clock = RealClock(loop)
    tasks = RealTasks(loop, name, on_stop)
    return Runtime(
        clock=clock,
        entropy=RealEntropy(secrets.token_bytes(32)),
        tasks=tasks,
        files=RealFiles(),
        network=RealNetwork(clock, tasks, connect_ms=connect_ms),
    )


async def close_runtime(runtime: Runtime) -> None:
    """Close listeners and channels, then let every lane end its jobs and its threads."""
    assert isinstance(runtime.network, RealNetwork), f"not a real network: {runtime.network}"
    assert isinstance(runtime.tasks, RealTasks), f"not real tasks: {runtime.tasks}"
    await runtime.network.close()
    await runtime.tasks.close()


def refuse_stripped_assertions() -> None:
    """Assertions are part of the product's safety: without them nothing starts."""
    if not __debug__:
        raise SystemExit("quorumlog refuses `python -O`: its assertions keep the data safe")


# --- clock and entropy -------------------------------------------------------------------------


class RealClock:
    """The loop's monotonic time and the machine's UTC.

    The loop caches its time for one iteration, so a long callback does not see it move.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Monotonic milliseconds of the loop."""
        # uvloop counts whole milliseconds and hands them out divided by 1000: without the half
        # microsecond, 1.001 s would come back as 1000 ms, before the timer that was set for 1001.
        return int(self._loop.time() * 1000 + 0.0005)

    def wall_ms(self) -> int:
        """Milliseconds since 1970 (UTC)."""
        return time.time_ns() // 1_000_000

    def busy_us(self) -> int:
        """Microseconds of the machine's finest monotonic clock."""
        return time.perf_counter_ns() // 1_000


class RealEntropy:
    """A tree of streams below one key of the operating system's entropy.

    Numbers come from a Mersenne Twister seeded by the stream's key; tokens from keyed BLAKE2b over
    a counter, so that they stay unpredictable to somebody who has seen others.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key  # 32 bytes
        self._rng = random.Random(int.from_bytes(key, "big"))
        self._tokens = 0  # given so far

    def stream(self, purpose: str) -> Entropy:
        """Return the stream of a purpose below this one."""
        key = hashlib.blake2b(purpose.encode(), key=self._key, person=b"stream", digest_size=32)
        return RealEntropy(key.digest())

    def below(self, end: int) -> int:
        """Return an int of [0, end)."""
        assert end >= 1, f"below({end})"
        return self._rng.randrange(end)

    def uniform(self, low: float, high: float) -> float:
        """Return a float of [low, high]."""
        return self._rng.uniform(low, high)

    def token(self, size: int) -> bytes:
        """Return `size` random bytes."""
        blocks = []
        for _ in range(0, size, 64):
            counter = self._tokens.to_bytes(16, "big")
            blocks.append(hashlib.blake2b(counter, key=self._key, person=b"token").digest())
            self._tokens += 1
        return b"".join(blocks)[:size]


# --- tasks and lanes ---------------------------------------------------------------------------


class RealTasks:
    """Scopes on the running loop, lanes on threads."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, on_stop: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._name = name
        self._on_stop = on_stop
        self._lanes: dict[str, _Lane] = {}

    def scope(self, name: str) -> AbstractAsyncContextManager[Scope]:
        """Open a scope of child tasks."""
        return TaskScope(name)

    async def offload(self, lane: str, job: Callable[[], T], *, cost_bytes: int = 0) -> T:
        """Run a plain function in a lane's thread and return its result."""
        result: T = await self._lane(lane).submit(job, cost_bytes)
        return result

    async def drain(self, lane: str) -> None:
        """Return when every job given to the lane before this call has ended."""
        if lane in self._lanes:
            await self._lanes[lane].drain()

    def stop_node(self, reason: str) -> None:
        """End the process at once, unless the runtime was made with another `on_stop`."""
        _log.critical("node.stopped_at_once node=%s reason=%s", self._name, reason)
        self._on_stop(reason)

    async def close(self) -> None:
        """Let every lane end its jobs, then its threads; also lanes that begin meanwhile."""
        while self._lanes:
            lane = self._lanes.pop(next(iter(self._lanes)))
            await lane.drain()
            lane.stop()

    def _lane(self, name: str) -> "_Lane":
        lane = self._lanes.get(name)
        if lane is None:
            thread_name = f"{self._name}-{name}"
            lane = self._lanes[name] = _Lane(self._loop, thread_name, lane_limits(name))
        return lane


@dataclass(slots=True)
class _Job:
    number: int  # 0-based, in the order given
    run: Callable[[], Any]
    cost_bytes: int
    waiter: asyncio.Future[Any]  # may be cancelled; the job runs all the same


class _Lane:
    """A FIFO queue with its threads. All but `_work` runs on the loop's thread.

    Own threads rather than an executor: an executor's future that is cancelled before it runs is
    never run, and a job must run once it is given.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, limits: LaneLimits) -> None:
        self._loop = loop
        self._name = name
        self._limits = limits
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._given = 0
        self._unfinished: dict[int, None] = {}  # job numbers in the order given
        self._unfinished_bytes = 0
        self._drains: list[tuple[int, asyncio.Future[None]]] = []  # (jobs below it, waiter)

    def submit(self, run: Callable[[], Any], cost_bytes: int) -> asyncio.Future[Any]:
        """Queue a job and return the future of its result; raises Overloaded."""
        self._check_room(cost_bytes)
        job = _Job(self._given, run, cost_bytes, self._loop.create_future())
        self._given += 1
        self._unfinished[job.number] = None
        self._unfinished_bytes += cost_bytes
        if len(self._threads) < min(self._limits.threads, len(self._unfinished)):
            self._start_thread()
        self._queue.put(job)
        return job.waiter

    async def drain(self) -> None:
        """Return when every job given before has ended."""
        if self._unfinished:
            waiter = self._loop.create_future()
            self._drains.append((self._given, waiter))
            await waiter

    def stop(self) -> None:
        """End the threads; the lane is drained."""
        assert not self._unfinished, f"{self._name} stops with {len(self._unfinished)} jobs"
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _check_room(self, cost_bytes: int) -> None:
        waiting = len(self._unfinished)
        full = waiting >= self._limits.waiting_jobs_max
        bytes_after = self._unfinished_bytes + cost_bytes
        if full or (waiting and bytes_after > self._limits.waiting_bytes_max):
            raise Overloaded(
                f"lane {self._name} is full: {waiting} jobs, {self._unfinished_bytes} bytes wait"
            )

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        # A daemon: a thread that hangs in a dead device must not keep the process alive.
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            result, error = None, None
            try:
                result = job.run()
            except Exception as failure:
                error = failure
            try:
                self._loop.call_soon_threadsafe(self._on_done, job, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            del job, result, error  # free the buffers while this thread waits

    def _on_done(self, job: _Job, result: Any, error: Exception | None) -> None:
        del self._unfinished[job.number]
        self._unfinished_bytes -= job.cost_bytes
        self._deliver(job, result, error)
        oldest = next(iter(self._unfinished), self._given)
        while self._drains and self._drains[0][0] <= oldest:
            _, waiter = self._drains.pop(0)
            if not waiter.done():
                waiter.set_result(None)

    def _deliver(self, job: _Job, result: Any, error: Exception | None) -> None:
        if job.waiter.cancelled():
            if error is not None:
                _log.error("lane.lost_failure lane=%s error=%r", self._name, error)
        elif isinstance(error, StopIteration):  # a future refuses it, and the waiter would hang
            job.waiter.set_exception(RuntimeError(f"a job raised {error!r}"))
        elif error is not None:
            job.waiter.set_exception(error)
        else:
            job.waiter.set_result(result)
