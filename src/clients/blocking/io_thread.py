"""The I/O thread of a process's blocking clients; handling of forks and process exit.

One daemon thread with one loop serves every blocking client (several loops with grpc in one
process misbehave). It starts with the first client and ends with the last.

Forks: gRPC survives a fork only without open channels. Before a fork producers flush
(`FORK_WAIT_S` at most), the thread ends with its connections, and the fork waits until gRPC's own
threads have ended (`GrpcThreads`). The next use of a client, in the parent or the child, creates
thread and connections again; a consumer continues at its position. If other code keeps gRPC busy,
the child's clients raise an error instead of hanging.

Of the client modules only this package imports `threading` and `concurrent.futures`.
"""

import asyncio
import atexit
import gc
import logging
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from ...errors import ClientClosed, InvalidRequest
from ...runtime import Runtime
from ...runtime.files import at_fork
from ...runtime.real import run
from ...runtime.system import threads

T = TypeVar("T")

EXIT_WAIT_S = 5.0  # time limit of flushing open clients at process exit
THREAD_CHECK_S = 1.0  # interval at which a waiting caller checks that the thread is alive
FORK_WAIT_S = 5.0  # time limit of flushing one client before a fork
LOCK_WAIT_S = 1.0  # time limit for a lock that another thread holds for a short step

REST_S = 1.0  # time limit for gRPC to end its threads, Python and native ones each
OTHERS_S = 0.1  # threads that slept this long, without an ending thread, belong to other code
LOOK_S = 0.001  # polling interval
POLLER = "_poll_wrapper"  # part of the name of the Python thread that runs while a channel is open
ENDING = "grpc_shutdown"  # the native thread that ends the others and holds the lock
NATIVE = frozenset({"event_engine", "lifeguard"})  # names besides those that start with the prefix
NATIVE_START = "grpc_"

_log = logging.getLogger(__name__)


def thread_id() -> int:
    """Return an identifier of the calling thread, unique among live threads."""
    return threading.get_ident()


class IoThreadUser(Protocol):
    """A client that the thread serves."""

    def close(self) -> None:
        """Close for good; raise the first delivery failure."""

    def suspend(self) -> None:
        """Close the connections before a fork; the next use opens them again.

        Must not raise an error that would prevent the fork.
        """


class IoThread:
    """The I/O thread of a process."""

    def __init__(self) -> None:
        self.runtime: Runtime
        self.loop: asyncio.AbstractEventLoop
        self.is_ended = False  # ended or ending: clients must create a new thread
        self.users: dict[IoThreadUser, None] = {}
        self._stop: asyncio.Event
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="quorumlog-io", daemon=True)
        self._closer: _Closer

    @classmethod
    def hold(cls, user: IoThreadUser) -> "IoThread":
        """Return the process's thread, starting it if necessary; it runs until `release`."""
        with STATE.lock:
            STATE.refuse_broken_fork()
            if STATE.io is None:
                STATE.install()
                STATE.grpc_threads.expect_own()
                io = cls()
                io._thread.start()
                io._ready.result()
                io._closer = _Closer()
                STATE.io = io
            STATE.io.users[user] = None
            return STATE.io

    def release(self, user: IoThreadUser) -> None:
        """Remove a closed client; the thread ends with the last one."""
        with STATE.lock:
            self.users.pop(user, None)
            if not self.users and not self.is_ended:
                self.end()

    def end(self) -> None:
        """End the thread; call it with the state's lock held, after closing the clients."""
        self.is_ended = True
        STATE.io = None
        self.loop.call_soon_threadsafe(self._stop.set)
        self._closer.close([])
        if not self.is_current():
            self._thread.join(EXIT_WAIT_S)

    def close_users(self) -> None:
        """Close the open clients; returns within `EXIT_WAIT_S`."""
        self._closer.close(list(self.users))

    def is_current(self) -> bool:
        """Return True if the caller runs on this thread, in a callback."""
        return threading.current_thread() is self._thread

    def refuse_callbacks(self) -> None:
        """Raise InvalidRequest if the caller runs on this thread."""
        if self.is_current():
            raise InvalidRequest(
                "a blocking call inside a callback would wait for itself: do the work on another "
                "thread"
            )

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; an interrupted wait cancels it."""
        if self.is_current():
            work.close()
            self.refuse_callbacks()
        if self.loop.is_closed():
            work.close()
            raise _ended()
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:  # the loop was closed since
            work.close()
            raise _ended() from None
        try:
            while True:
                try:
                    return future.result(THREAD_CHECK_S)
                except TimeoutError:
                    if future.done():  # with its own TimeoutError, or just now
                        return future.result()
                    if not self._thread.is_alive():
                        if getcoroutinestate(work) == CORO_CREATED:
                            work.close()  # it was never started
                        raise _ended() from None
                except CancelledError:
                    raise _ended() from None
        finally:
            future.cancel()  # of no effect unless the wait was interrupted

    def _main(self) -> None:
        try:
            run(self._live, name="quorumlog-client", on_stop=_ignore)
        except Exception as error:
            if self._ready.done():
                _log.exception("clients.io_thread_failed")
            else:  # `hold` raises it
                self._ready.set_exception(error)

    async def _live(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set_result(None)
        await self._stop.wait()


def _ended() -> ClientClosed:
    return ClientClosed("the client's I/O thread has ended")


def _ignore(reason: str) -> None:
    """Ignore the request to stop: a client does not end its process."""


# --- gRPC's threads -------------------------------------------------------------------------


class GrpcThreads:
    """State of gRPC's threads from one fork of this process to the next.

    When its last channel closes, gRPC ends its threads in the background and holds a lock until
    then. A child forked in between inherits the held lock, with no thread to release it: its first
    channel would wait forever, inside a call without a timeout. Python threads can be joined;
    native threads are identified by their names, where the system lists them
    (`runtime.system.threads`).
    """

    def __init__(self) -> None:
        self._are_foreign = False  # the remaining threads belong to other code

    def expect_own(self) -> None:
        """Record that a client opens channels: remaining threads may be its own again."""
        self._are_foreign = False

    def have_ended(self) -> bool:
        """Wait until the threads of closed channels have ended; return True if a fork is safe.

        Threads of other users of gRPC do not end; they cost `OTHERS_S` once, or `REST_S` while
        they work. Takes slightly more than `REST_S` per kind of thread at most, and no time
        without such threads.
        """
        if _pollers():
            gc.collect()  # gRPC ends its threads when its last channel is freed
        for thread in _pollers():
            thread.join(REST_S)
        return not _pollers() and self._natives_have_ended()

    def _natives_have_ended(self) -> bool:
        began = same_since = time.monotonic()
        before = found = natives()
        while found:
            now = time.monotonic()
            if found != before or not all(sleeps for _, sleeps in found):
                same_since = now
            is_late = now - began > REST_S
            if any(name == ENDING for name, _ in found):
                if is_late:
                    return False
            elif self._are_foreign or is_late or now - same_since > OTHERS_S:
                self._are_foreign = True
                return True
            time.sleep(LOOK_S)
            before, found = found, natives()
        return True


def _pollers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if POLLER in thread.name]


def natives() -> list[tuple[str, bool]]:
    """Return name and sleep state of each native gRPC thread; none if the system cannot list
    them."""
    return sorted(thread for thread in threads() if is_native(thread[0]))


def is_native(name: str) -> bool:
    """Return True if a native gRPC thread has this name."""
    return name in NATIVE or name.startswith(NATIVE_START)


# --- the process ------------------------------------------------------------------------------


class ProcessState:
    """The state of this module in a process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # guards opening and ending; held across a fork
        self.delivery_lock = threading.Lock()  # guards the creation of a delivery's state
        self.io: IoThread | None = None
        self.is_exiting = False  # the process exits with open clients
        self._fork_safe: WeakSet[threading.Lock] = WeakSet()
        self._held: list[threading.Lock] = []  # held across a fork
        self.grpc_threads = GrpcThreads()
        self._was_busy = False  # gRPC was busy at the last fork
        self._is_broken = False  # this process was forked while gRPC was busy
        self._is_installed = False

    def install(self) -> None:
        """Register the handlers of forks and process exit; once."""
        if not self._is_installed:
            self._is_installed = True
            at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork_in_parent,
                after_in_child=self._after_fork_in_child,
            )
            atexit.register(self._on_exit)

    def fork_safe_lock(self) -> threading.Lock:
        """Return a lock that is free in the child of a fork; hold it for short steps only."""
        lock = threading.Lock()
        with self.lock:
            self._fork_safe.add(lock)
        return lock

    def refuse_broken_fork(self) -> None:
        """Raise InvalidRequest in a child that cannot use gRPC."""
        if self._is_broken:
            raise InvalidRequest(
                "this process was forked while other code of its parent used gRPC, which gRPC does "
                "not support: use the start method 'spawn', or fork before connecting"
            )

    def _before_fork(self) -> None:
        self.lock.acquire()
        io = self.io
        if io is not None and not io.is_current():  # a callback cannot wait for its own thread
            io.is_ended = True  # from now on other threads wait for the lock
            for user in list(io.users):
                user.suspend()
            io.end()
        self._held = [each for each in self._fork_safe if each.acquire(timeout=LOCK_WAIT_S)]
        self._was_busy = not self.grpc_threads.have_ended()

    def _after_fork_in_parent(self) -> None:
        self._release_held()
        self.lock.release()

    def _release_held(self) -> None:
        held, self._held = self._held, []
        for lock in held:
            lock.release()

    def _after_fork_in_child(self) -> None:
        self._release_held()
        self.lock = threading.RLock()
        self.delivery_lock = threading.Lock()
        self._is_broken = self._is_broken or self._was_busy
        if self.io is not None:
            self.io.is_ended = True
            self.io = None

    def _on_exit(self) -> None:
        """Flush the open clients; the daemon thread must end before the interpreter does."""
        self.is_exiting = True
        if self.io is not None:
            self.io.close_users()


class _Closer:
    """A thread that closes clients at exit; started early, as Python 3.12 starts none at exit."""

    def __init__(self) -> None:
        self._is_wanted = threading.Event()
        self._users: Sequence[IoThreadUser] = ()
        self._thread = threading.Thread(target=self._main, name="quorumlog-closer", daemon=True)
        self._thread.start()

    def close(self, users: Sequence[IoThreadUser]) -> None:
        """Close these clients, then end; wait for that up to `EXIT_WAIT_S`."""
        if not self._is_wanted.is_set():
            self._users = users
            self._is_wanted.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(EXIT_WAIT_S)

    def _main(self) -> None:
        self._is_wanted.wait()
        for user in self._users:
            try:
                user.close()
            except Exception as error:  # close the others too
                _log.error("clients.left_open error=%s", error)


STATE = ProcessState()


def refuse_callbacks() -> None:
    """Raise InvalidRequest if the caller runs on this process's I/O thread."""
    io = STATE.io
    if io is not None:
        io.refuse_callbacks()
