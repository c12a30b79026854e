"""The one I/O thread of a process's blocking clients; what forks and the process's end do to it.

One daemon thread with one loop serves every blocking client (several loops with grpc in one process
misbehave); it starts with the first client and ends with the last.

Forks: gRPC survives a fork only at rest. So a fork first lets the producers deliver what they have
(`FORK_WAIT_S` at most), ends the thread with its connections, and waits until gRPC's own threads
have ended (`grpc_threads`); in the parent and in the child the next use of a client makes them
anew, a consumer going on where it was. Where gRPC is kept busy by others, the child's clients
refuse to work instead of hanging.

The home of `threading` and `concurrent.futures` among the clients, with `producer`.
"""

import asyncio
import atexit
import logging
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from ...errors import InvalidRequest, Stopping
from ...runtime import Runtime
from ...runtime.files import at_fork
from ...runtime.real import run
from .grpc_threads import GrpcThreads

T = TypeVar("T")

EXIT_WAIT_S = 5.0  # how long clients that were left open may take to flush at the process's end
THREAD_CHECK_S = 1.0  # a caller that waits looks so often whether the thread still lives
FORK_WAIT_S = 5.0  # how long each client may take to flush before a fork
LOCK_WAIT_S = 1.0  # for a lock that another thread holds for a short step

_log = logging.getLogger(__name__)


def thread_id() -> int:
    """Return what tells the calling thread from the others that live."""
    return threading.get_ident()


class User(Protocol):
    """A client that the thread serves."""

    def close(self) -> None:
        """Close for good; raises what was not delivered."""

    def wind_down(self) -> None:
        """Close what this process has for a while: the next use opens it again. Raises nothing
        that a fork could not go on with."""


class IoThread:
    """The one I/O thread of a process."""

    def __init__(self) -> None:
        self.runtime: Runtime
        self.loop: asyncio.AbstractEventLoop
        self.is_ended = False  # or about to end: whoever used it makes everything anew
        self.users: dict[User, None] = {}
        self._stop: asyncio.Event
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="quorumlog-io", daemon=True)
        self._closer = _Closer()

    @classmethod
    def hold(cls, user: User) -> "IoThread":
        """Return the process's thread, starting it if need be; it lives until `release`."""
        with STATE.lock:
            STATE.refuse_broken_fork()
            if STATE.io is None:
                STATE.install()
                STATE.grpc_threads.expect_ours()
                io = cls()
                io._thread.start()
                io._ready.result()
                io._closer.start()
                STATE.io = io
            STATE.io.users[user] = None
            return STATE.io

    def release(self, user: User) -> None:
        """A client is closed; the thread ends with the last one."""
        with STATE.lock:
            self.users.pop(user, None)
            if not self.users and not self.is_ended:
                self.end()

    def end(self) -> None:
        """End the thread, under the state's lock; its clients are closed."""
        self.is_ended = True
        STATE.io = None
        self.loop.call_soon_threadsafe(self._stop.set)
        self._closer.close([])
        if not self.is_current():
            self._thread.join(EXIT_WAIT_S)

    def close_users(self) -> None:
        """Close the clients that were left open; returns after `EXIT_WAIT_S` at the latest."""
        self._closer.close(list(self.users))

    def is_current(self) -> bool:
        """Whether the caller runs on this thread, in a callback."""
        return threading.current_thread() is self._thread

    def refuse_callbacks(self) -> None:
        """Raise InvalidRequest when the caller runs on this thread."""
        if self.is_current():
            raise InvalidRequest(
                "a blocking call inside a callback would wait for itself: hand the work to "
                "another thread"
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
                    if future.done():  # by its own time-out, or just now
                        return future.result()
                    if not self._thread.is_alive():
                        if getcoroutinestate(work) == CORO_CREATED:
                            work.close()  # its turn never came
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
            else:  # whoever wanted the thread hears of it
                self._ready.set_exception(error)

    async def _live(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set_result(None)
        await self._stop.wait()


def _ended() -> Stopping:
    return Stopping("the client's I/O thread has ended")


def _ignore(reason: str) -> None:
    """A client never ends its process."""


class ProcessState:
    """What a process has of this module."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # around opening and ending, and held across a fork
        self.delivery_lock = (
            threading.Lock()
        )  # around making a delivery's state; never while waiting
        self.io: IoThread | None = None
        self.is_exiting = False  # the process ends; clients were left open
        self._fork_safe: WeakSet[threading.Lock] = WeakSet()
        self._held: list[threading.Lock] = []  # across a fork
        self.grpc_threads = GrpcThreads()
        self._was_busy = False  # gRPC, at the last fork
        self._is_broken = False  # this process was forked while gRPC was busy
        self._is_installed = False

    def install(self) -> None:
        """Hear of forks and of the process's end; once."""
        if not self._is_installed:
            self._is_installed = True
            at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork_in_parent,
                after_in_child=self._after_fork_in_child,
            )
            atexit.register(self._on_exit)

    def fork_safe_lock(self) -> threading.Lock:
        """Return a lock that nobody else holds in the child of a fork; it is for short steps."""
        lock = threading.Lock()
        with self.lock:
            self._fork_safe.add(lock)
        return lock

    def refuse_broken_fork(self) -> None:
        """Raise InvalidRequest in a child that cannot use gRPC."""
        if self._is_broken:
            raise InvalidRequest(
                "this process was forked while gRPC was in use elsewhere in its parent, and gRPC "
                "does not survive that: use the start method 'spawn', or fork before connecting"
            )

    def _before_fork(self) -> None:
        self.lock.acquire()
        io = self.io
        if io is not None and not io.is_current():  # a callback cannot wait for its own thread
            io.is_ended = True  # from here on other threads wait for the lock
            for user in list(io.users):
                user.wind_down()
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
        """Flush what was left open; a daemon thread must not run into the interpreter's end."""
        self.is_exiting = True
        if self.io is not None:
            self.io.close_users()


class _Closer:
    """A thread that waits to close clients, since Python 3.12 starts none at the process's end."""

    def __init__(self) -> None:
        self._is_wanted = threading.Event()
        self._users: Sequence[User] = ()
        self._thread = threading.Thread(target=self._main, name="quorumlog-closer", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def close(self, users: Sequence[User]) -> None:
        """Close these, then end; waits for that as long as a process may wait at its end."""
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
            except Exception as error:  # the others are closed all the same
                _log.error("clients.left_open error=%s", error)


STATE = ProcessState()


def refuse_callbacks() -> None:
    """Raise InvalidRequest when the caller runs on this process's I/O thread."""
    io = STATE.io
    if io is not None:
        io.refuse_callbacks()
