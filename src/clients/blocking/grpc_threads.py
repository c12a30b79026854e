"""gRPC's threads: waiting until they have ended, as a process must before it forks.

With its last channel gRPC ends them in the background, and holds a lock until it has. A child that
was forked in between has the lock and nobody who opens it: its first channel would wait for ever,
inside a call that no time-out of ours can end. Threads of Python can be joined; the others are
known by their names alone, where the system tells them (`runtime.system.threads`).
"""

import gc
import threading
import time

from ...runtime.system import threads

REST_S = 1.0  # how long gRPC may take to end its threads, those of Python and the others each
OTHERS_S = 0.1  # threads that slept so long, and none ended, belong to other users of gRPC
LOOK_S = 0.001  # between two looks at the names
POLLER = "_poll_wrapper"  # in the name of the Python thread that there is while a channel is open
ENDING = "grpc_shutdown"  # the native thread that ends the others, and holds the lock
NATIVE = frozenset({"event_engine", "lifeguard"})  # beside those that begin with
NATIVE_START = "grpc_"


class GrpcThreads:
    """What is known of the threads from one fork of this process to the next."""

    def __init__(self) -> None:
        self._are_of_others = False  # those that are left

    def expect_ours(self) -> None:
        """A client is about to open channels: whatever is left was not waited for."""
        self._are_of_others = False

    def have_ended(self) -> bool:
        """Wait until the threads of closed channels have ended; returns whether a process may fork
        now. Those of other users of gRPC do not end and cost `OTHERS_S` once, `REST_S` while they
        work. Takes a bit more than `REST_S` for each kind of thread at most, and no time where
        there are none."""
        if _pollers():
            gc.collect()  # gRPC ends when its last channel is freed
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
            elif self._are_of_others or is_late or now - same_since > OTHERS_S:
                self._are_of_others = True
                return True
            time.sleep(LOOK_S)
            before, found = found, natives()
        return True


def _pollers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if POLLER in thread.name]


def natives() -> list[tuple[str, bool]]:
    """Return the name of each thread that gRPC has started in C, and whether it sleeps; none where
    the system does not tell."""
    return sorted(thread for thread in threads() if is_native(thread[0]))


def is_native(name: str) -> bool:
    """Whether it is the name of such a thread."""
    return name in NATIVE or name.startswith(NATIVE_START)
