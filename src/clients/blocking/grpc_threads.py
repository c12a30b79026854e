"""gRPC's threads: wait until they have ended, before a fork.

When its last channel closes, gRPC ends its threads in the background and holds a lock until then.
A child forked in between inherits the held lock, with no thread to release it: its first channel
would wait forever, inside a call without a timeout. Python threads can be joined; native threads
are identified by their names, where the system lists them (`runtime.system.threads`).
"""

import gc
import threading
import time

from ...runtime.system import threads

REST_S = 1.0  # time limit for gRPC to end its threads, Python and native ones each
OTHERS_S = 0.1  # threads that slept this long, without an ending thread, belong to other code
LOOK_S = 0.001  # polling interval
POLLER = "_poll_wrapper"  # part of the name of the Python thread that runs while a channel is open
ENDING = "grpc_shutdown"  # the native thread that ends the others and holds the lock
NATIVE = frozenset({"event_engine", "lifeguard"})  # names besides those that start with the prefix
NATIVE_START = "grpc_"


class GrpcThreads:
    """State of gRPC's threads from one fork of this process to the next."""

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
