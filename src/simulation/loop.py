"""The event loop of a simulation: one loop for all nodes, on virtual time.

The ready queue is first in, first out, as asyncio promises; timers are in a heap of (virtual ns,
sequence). Virtual time advances only when no handle is ready, so code takes no time and a run is a
function of the draws of its ports. Unmodified C tasks and futures run on it.

Each handle belongs to the process in its context's `NODE`. Handles of a dead process are retained
and never run; those of a paused one are parked until it resumes. Threads, executors, sockets,
signals and subprocesses are not implemented: the inherited methods raise NotImplementedError.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import heapq
import math
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from .process import NODE, NodeKilled, Process

T = TypeVar("T")

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
TIMER_SLACK_NS: Final = 1_000  # a timer fires this late, as on a real machine: `now_ms` has passed
# handles run without an advance of time; more is a live-lock
INSTANT_HANDLES_MAX: Final = 2_000_000


class Deadlock(Exception):
    """No handle is ready, no timer is set, and the awaited condition does not hold."""


class Livelock(Exception):
    """Handles keep making each other ready and time does not advance."""


class SimHandle(asyncio.TimerHandle):
    """A callback with its process; a timer if `virtual_ns` >= 0."""

    __slots__ = ("process", "virtual_ns")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Any,
        loop: "SimLoop",
        context: contextvars.Context | None,
    ) -> None:
        context = contextvars.copy_context() if context is None else context
        super().__init__(when, callback, args, loop, context)
        self.process: Process | None = context.get(NODE)
        self.virtual_ns = -1

    def run(self) -> None:
        """Run the callback in its context; errors propagate."""
        self._context.run(self._callback, *self._args)  # type: ignore[attr-defined]


class SimLoop(asyncio.AbstractEventLoop):
    """The loop. Owns the virtual clock, the queues and the retained objects of dead processes."""

    def __init__(self) -> None:
        self.now_ns = 0  # virtual time
        self.handles_run = 0
        self.unawaited_errors: list[
            str
        ] = []  # errors that asyncio reported because no task awaited them
        # Called after every handle of a process.
        self.after_handle: Callable[[Process], None] | None = None
        # handles and tasks of dead processes: if freed, they would clean up
        self.retained: list[object] = []
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[int, int, SimHandle]] = []
        self._sequence = 0
        self._cancelled_timers = 0
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], tuple[int, Process | None]]
        self._tasks = weakref.WeakKeyDictionary()
        self._running = False
        self._closed = False

    # --- used by tasks and futures ---

    def time(self) -> float:
        """Return seconds on the monotonic clock of the running handle's node; virtual time for the
        harness."""
        return self.time_of(NODE.get())

    def time_of(self, process: Process | None) -> float:
        """Return seconds on the monotonic clock of a process's machine; virtual time for the
        harness."""
        local_ns = self.now_ns if process is None else process.machine.local_ns(self.now_ns)
        return local_ns / NS_PER_S

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Append a callback to the ready queue."""
        handle = SimHandle(0.0, callback, args, self, context)
        if not self._closed:  # futures of a finished run may still be finalised: drop it
            self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call after `delay` seconds of the node's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at `when` seconds of the node's clock, or at once if that has passed."""
        handle = SimHandle(when, callback, args, self, context)
        local_ns = math.ceil(when * NS_PER_S)
        machine = handle.process.machine if handle.process is not None else None
        virtual_ns = local_ns if machine is None else machine.virtual_ns(local_ns)
        self._push(max(virtual_ns + TIMER_SLACK_NS, self.now_ns), handle)
        return handle

    def call_at_ns(
        self, virtual_ns: int, process: Process | None, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call at a virtual time in the context of a process: the entry of external events."""
        context = contextvars.Context() if process is None else process.context()
        handle = SimHandle(virtual_ns / NS_PER_S, callback, args, self, context)
        self._push(max(virtual_ns, self.now_ns), handle)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a stock future on this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[T]":
        """Return a stock task on this loop; a weak reference to it is kept, in order."""
        self._sequence += 1
        name = name or f"task-{self._sequence}"
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        process = NODE.get() if context is None else context.get(NODE)
        self._tasks[task] = (self._sequence, process)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an error that no task awaited."""
        if not self._closed and not isinstance(context.get("exception"), NodeKilled):
            self.unawaited_errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Delegate to `call_exception_handler`."""
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        """Return False: debug mode slows and times handles."""
        return False

    def is_running(self) -> bool:
        """Return True while a handle runs."""
        return self._running

    def is_closed(self) -> bool:
        """Return True after close()."""
        return self._closed

    def close(self) -> None:
        """End the run: queued handles and suspended tasks are retained, never run."""
        assert not self._running, "close() inside a handle"
        self.retained += [*self._ready, *self._timers, *self.pending_tasks()]
        self._ready.clear()
        self._timers.clear()
        self._closed = True

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Count a cancelled timer; rebuild the heap if most are cancelled (asyncio's hook)."""
        self._cancelled_timers += handle._scheduled  # type: ignore[attr-defined]
        if self._cancelled_timers > 256 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    # --- running ---

    def run_while(self, wanted: Callable[[], bool], *, end_ns: int) -> bool:
        """Run handles while `wanted()` holds; return True if it still holds at virtual `end_ns`.
        Raises the errors of handles, Deadlock, Livelock."""
        assert not self._running, "the loop is running already"
        self._running = True
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            return self._run_while(wanted, end_ns)
        finally:
            self._running = False
            asyncio._set_running_loop(outer)

    def _run_while(self, wanted: Callable[[], bool], end_ns: int) -> bool:
        instant = 0
        while wanted():
            if self._ready:
                instant += 1
                if instant > INSTANT_HANDLES_MAX:
                    raise Livelock(f"time stands still at {self.now_ns} ns\n{self.suspended()}")
                self._run_one(self._ready.popleft())
                continue
            due_ns = self._next_timer_ns()
            if due_ns is None:
                raise Deadlock(f"nothing is ready and no timer is set\n{self.suspended()}")
            if due_ns > end_ns:
                self.now_ns = max(self.now_ns, end_ns)
                return True
            instant = 0
            self._move_due(due_ns)
        return False

    def _run_one(self, handle: SimHandle) -> None:
        if handle.cancelled():
            return
        process = handle.process
        if process is not None:
            if not process.alive:
                self.retained.append(handle)
                return
            if process.parked is not None:
                process.parked.append(handle)
                return
        self.handles_run += 1
        with contextlib.suppress(NodeKilled):  # a crash inside a plain callback
            handle.run()
        if self.after_handle is not None and process is not None and process.alive:
            self.after_handle(process)

    def _next_timer_ns(self) -> int | None:
        """Return the virtual time of the first timer that can still fire; drop the ones before
        it."""
        while self._timers:
            due_ns, _, handle = self._timers[0]
            dead = handle.process is not None and not handle.process.alive
            if not dead and not handle.cancelled():
                return due_ns
            heapq.heappop(self._timers)
            handle._scheduled = False  # type: ignore[attr-defined]
            if dead:
                self.retained.append(handle)
        return None

    def _move_due(self, due_ns: int) -> None:
        """Advance time and make every timer of that instant ready, in order."""
        assert due_ns >= self.now_ns, f"time would go from {self.now_ns} back to {due_ns}"
        self.now_ns = due_ns
        while self._timers and self._timers[0][0] <= due_ns:
            _, _, handle = heapq.heappop(self._timers)
            handle._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(handle)

    def _push(self, virtual_ns: int, handle: SimHandle) -> None:
        if self._closed:
            return
        self._sequence += 1
        handle.virtual_ns = virtual_ns
        handle._scheduled = True  # type: ignore[attr-defined]
        heapq.heappush(self._timers, (virtual_ns, self._sequence, handle))

    # --- processes ---

    def retain_tasks(self, process: Process) -> None:
        """Retain the tasks of a process that has just died, so that none of their clean-up runs.

        Its handles follow when they come up.
        """
        assert not process.alive, f"{process} lives"
        self.retained += self.pending_tasks(process)
        if process.parked is not None:
            self.retained += process.parked

    def pause(self, process: Process) -> None:
        """Park the process's handles from now on."""
        if process.parked is None:
            process.parked = deque()

    def resume(self, process: Process) -> None:
        """Make a paused process's parked handles ready, in the order they fell due."""
        parked, process.parked = process.parked, None
        if parked is not None:
            self._ready.extend(parked)

    def pending_tasks(self, process: Process | None = None) -> "list[asyncio.Task[Any]]":
        """Return the unfinished tasks (of one process), in the order of creation."""
        tasks = [
            (sequence, task)
            for task, (sequence, owner) in self._tasks.items()
            if not task.done() and process in (None, owner)
        ]
        return [task for _, task in sorted(tasks, key=lambda entry: entry[0])]

    def suspended(self) -> str:
        """Return the await position of every unfinished task, a line each."""
        lines = [
            f"  [{self._tasks[task][1] or 'harness'}] {task.get_name()}: {_innermost(task)}"
            for task in self.pending_tasks()
        ]
        return "suspended tasks:\n" + "\n".join(lines or ["  none"])


def _innermost(task: "asyncio.Task[Any]") -> str:
    """Return the call chain of a suspended task, from its coroutine down to the await."""
    where: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        file = frame.f_code.co_filename.rsplit("/", 2)
        where.append(f"{frame.f_code.co_name} ({'/'.join(file[-2:])}:{frame.f_lineno})")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return " > ".join(where) or "not started"


def leak(dead: list[object]) -> None:
    """Leak a list on purpose, so that none of its objects is ever finalised.

    A crashed node's coroutines must not run their `finally` blocks, neither in a garbage collection
    nor when the interpreter ends. Seeds run in processes that leave by os._exit. Inside pytest,
    where many runs share a process, an extra reference has the same effect without a module-level
    list that grows.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dead))
