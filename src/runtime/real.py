"""The real runtime: the machine's clocks, entropy, threads, files and network.

The only user of `time`, `random`, `secrets` and `threading`. One process runs one loop; `run()`
creates it, with uvloop if it is installed.
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
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ..errors import InvalidConfig, Overloaded
from .byte_network import ByteNetwork
from .files import RealFiles, exit_at_once
from .grpc_network import GrpcNetwork
from .grpc_options import CONNECT_MS
from .lanes import LaneLimits, lane_limits
from .ports import (
    PLAIN_CALLS,
    PLAIN_CHANNEL,
    ByteConnection,
    ByteProtocol,
    CallListener,
    CallSecurity,
    Channel,
    ChannelSecurity,
    Clock,
    Entropy,
    Handler,
    Listener,
    Runtime,
    Scope,
    Tasks,
)
from .scope import TaskScope
from .system import environment

T = TypeVar("T")

_log = logging.getLogger(__name__)

SWITCH_S: Final = 0.0005
"""The interpreter's switch interval, after which a waiting thread gets the interpreter.

Python's default of 5 ms is three times the duration of a lane's write of 4 MiB, whose result would
wait for it.
"""
NO_ROUTES: Final[Mapping[str, str]] = MappingProxyType({})
LOOP_VARIABLE: Final = "QUORUMLOG_LOOP"
"""Environment variable: `uvloop`, `asyncio`, or empty for uvloop if it is installed."""


# --- running -----------------------------------------------------------------------------------


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop of the kind that the environment requests. Raise InvalidConfig.

    asyncio's loop is the selector loop (not Windows' proactor), since byte connections watch
    descriptors.
    """
    wanted = environment(LOOP_VARIABLE)
    if wanted not in ("", "uvloop", "asyncio"):
        raise InvalidConfig(f"{LOOP_VARIABLE}={wanted}: not an event loop; use uvloop or asyncio")
    if wanted != "asyncio":
        try:
            import uvloop
        except ImportError:
            if wanted:
                raise InvalidConfig(
                    f"{LOOP_VARIABLE}=uvloop: uvloop is not installed; install it or unset "
                    f"{LOOP_VARIABLE}"
                ) from None
        else:
            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()


def run(
    main: Callable[[Runtime], Coroutine[Any, Any, T]],
    *,
    name: str = "node",
    on_stop: Callable[[str], None] = exit_at_once,
    connect_ms: int = CONNECT_MS,
    routes: Mapping[str, str] = NO_ROUTES,
) -> T:
    """Run `main(runtime)` on a new loop until it returns, then end everything the runtime owns.

    Open listeners and channels are closed and lanes are drained before the loop ends. Use it in a
    process of its own: it sets the interpreter's switch interval to SWITCH_S. `connect_ms` is the
    timeout of a channel's connection attempt; `routes` are those of `RealNetwork`.
    """
    refuse_stripped_assertions()
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_run_in_loop(main, name, on_stop, connect_ms, routes))
    finally:
        sys.setswitchinterval(before_s)


async def _run_in_loop(
    main: Callable[[Runtime], Coroutine[Any, Any, T]],
    name: str,
    on_stop: Callable[[str], None],
    connect_ms: int,
    routes: Mapping[str, str],
) -> T:
    opened = open_runtime(name, on_stop=on_stop, connect_ms=connect_ms, routes=routes)
    async with opened as runtime:
        return await main(runtime)


@asynccontextmanager
async def open_runtime(
    name: str,
    *,
    on_stop: Callable[[str], None] = exit_at_once,
    connect_ms: int = CONNECT_MS,
    routes: Mapping[str, str] = NO_ROUTES,
) -> AsyncIterator[Runtime]:
    """Yield a runtime for the running loop and close it at the end."""
    runtime = real_runtime(name, on_stop=on_stop, connect_ms=connect_ms, routes=routes)
    try:
        yield runtime
    finally:
        await close_runtime(runtime)


def real_runtime(
    name: str,
    *,
    on_stop: Callable[[str], None] = exit_at_once,
    connect_ms: int = CONNECT_MS,
    routes: Mapping[str, str] = NO_ROUTES,
) -> Runtime:
    """Return a runtime for the running loop; end it with `close_runtime`.

    `name` is part of its thread names. `on_stop` replaces the action of `tasks.stop_node`, which
    ends the process by default.
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
        network=RealNetwork(clock, tasks, connect_ms=connect_ms, routes=routes),
    )


async def close_runtime(runtime: Runtime) -> None:
    """Close listeners and channels, then wait for every lane's jobs and end its threads."""
    assert isinstance(runtime.network, RealNetwork), f"{runtime.network} is not a RealNetwork"
    assert isinstance(runtime.tasks, RealTasks), f"{runtime.tasks} is not a RealTasks"
    await runtime.network.close()
    await runtime.tasks.close()


def refuse_stripped_assertions() -> None:
    """Exit if assertions are disabled, since they are part of the product's safety."""
    if not __debug__:
        raise SystemExit("quorumlog: `python -O` is not supported; its assertions protect the data")


# --- clock and entropy -------------------------------------------------------------------------


class RealClock:
    """The loop's monotonic time and the machine's UTC.

    The loop caches its time for one iteration, so it does not advance during a callback.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Return the loop's monotonic milliseconds."""
        # uvloop counts whole milliseconds and returns them divided by 1000. Without the half
        # microsecond 1.001 s would become 1000 ms, before the timer that was set for 1001.
        return int(self._loop.time() * 1000 + 0.0005)

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 (UTC)."""
        return time.time_ns() // 1_000_000

    def busy_us(self) -> int:
        """Return microseconds of the machine's finest monotonic clock."""
        return time.perf_counter_ns() // 1_000


class RealEntropy:
    """A tree of streams below one key of the operating system's entropy.

    Numbers come from a Mersenne Twister seeded by the stream's key. Tokens come from keyed BLAKE2b
    over a counter, so that they stay unpredictable to an observer of other tokens.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key  # 32 bytes
        self._rng = random.Random(int.from_bytes(key, "big"))
        self._tokens = 0  # number of tokens drawn

    def stream(self, purpose: str) -> Entropy:
        """Return the child stream of a purpose."""
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
        """Return when every job submitted to the lane before this call has ended."""
        if lane in self._lanes:
            await self._lanes[lane].drain()

    def stop_node(self, reason: str) -> None:
        """End the process at once, unless the runtime has another `on_stop`."""
        _log.critical("node.stopped_at_once node=%s reason=%s", self._name, reason)
        self._on_stop(reason)

    async def close(self) -> None:
        """Wait for every lane's jobs, then end its threads, including lanes that start during the
        wait."""
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
    number: int  # 0-based, in submission order
    run: Callable[[], Any]
    cost_bytes: int
    waiter: asyncio.Future[Any]  # may be cancelled; the job still runs


class _Lane:
    """A FIFO queue with its threads. All methods except `_work` run on the loop's thread.

    It does not use an executor: a cancelled future of an executor is never run, but a submitted job
    must run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, limits: LaneLimits) -> None:
        self._loop = loop
        self._name = name
        self._limits = limits
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._given = 0
        self._unfinished: dict[int, None] = {}  # job numbers in submission order
        self._unfinished_bytes = 0
        self._drains: list[tuple[int, asyncio.Future[None]]] = []  # (jobs below it, waiter)

    def submit(self, run: Callable[[], Any], cost_bytes: int) -> asyncio.Future[Any]:
        """Queue a job and return the future of its result. Raise Overloaded."""
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
        """Return when every job submitted before has ended."""
        if self._unfinished:
            waiter = self._loop.create_future()
            self._drains.append((self._given, waiter))
            await waiter

    def stop(self) -> None:
        """End the threads of a drained lane."""
        assert not self._unfinished, f"{self._name}: stopped with {len(self._unfinished)} jobs"
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
                f"lane {self._name}: full with {waiting} jobs and {self._unfinished_bytes} bytes;"
                " retry later"
            )

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        # A daemon: a thread that hangs on a failed device must not keep the process alive.
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
            except RuntimeError:  # the loop is closed: no task waits any more
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
        elif isinstance(error, StopIteration):  # a future rejects it, and the task would hang
            job.waiter.set_exception(RuntimeError(f"lane {self._name}: a job raised {error!r}"))
        elif error is not None:
            job.waiter.set_exception(error)
        else:
            job.waiter.set_result(result)


# --- network -----------------------------------------------------------------------------------


class RealNetwork:
    """The Network port, composed of the two implementations."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        *,
        connect_ms: int = CONNECT_MS,
        routes: Mapping[str, str] = NO_ROUTES,
    ) -> None:
        """`routes` maps an address to the one that is connected to in its place, both "host:port".
        An address without a route stays."""
        self._routes = dict(routes)
        self._bytes = ByteNetwork(tasks)
        self._calls = GrpcNetwork(clock, self._bytes.why_not_bindable, connect_ms=connect_ms)

    async def serve(
        self,
        address: str,
        handlers: Mapping[str, Handler],
        *,
        is_ready: bool = True,
        security: CallSecurity = PLAIN_CALLS,
    ) -> CallListener:
        """Serve calls on an address by method path. Raise AddressInUse."""
        return await self._calls.serve(address, handlers, is_ready=is_ready, security=security)

    def channel(self, address: str, security: ChannelSecurity = PLAIN_CHANNEL) -> Channel:
        """Return a channel to the address. It connects at the first call."""
        return self._calls.channel(self._routes.get(address, address), security)

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Accept byte connections. Raise AddressInUse."""
        return await self._bytes.listen_bytes(address, factory)

    async def connect_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> ByteConnection:
        """Connect. Raise ConnectionFailed if refused, otherwise OutcomeUnknown.

        Through a relay a refused connection is made and then ends at once.
        """
        return await self._bytes.connect_bytes(self._routes.get(address, address), factory)

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Return True if a connection to the address is refused within the timeout. Ignore routes:
        a relay accepts every connection."""
        return await self._bytes.refuses(address, timeout_ms)

    async def close(self) -> None:
        """Close every open listener and channel at once."""
        await self._calls.close()
        await self._bytes.close()
