"""Clean-up after a test process, however it ends: kills its nodes and removes its folder.

It runs as a separate program in its own session (`python -I -S guard.py FOLDER`), since a killed
process cannot clean up, and imports only the standard library. Its stdin is a pipe from the test
process, a line each:

    child PID   a started process, the leader of its own session
    gone PID    a process that has ended
    done        the clean-up is complete

At the end of the pipe without `done` it cleans up what is left.
"""

import os
import signal
import sys
from contextlib import suppress

CHILD, GONE, DONE = b"child", b"gone", b"done"


def main() -> None:
    """Guard until the pipe ends."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    folder = os.fsencode(sys.argv[1])
    children: dict[int, int | None] = {}  # process id -> pidfd, if the system has them
    for line in sys.stdin.buffer:
        word, _, number = line.strip().partition(b" ")
        if word == DONE:
            return
        if word == CHILD:
            children[int(number)] = _name(int(number))
        elif word == GONE:
            _forget(children.pop(int(number), None))
    for pid, name in children.items():
        _kill(pid, name)
    _remove(folder)


def _name(pid: int) -> int | None:
    """Return a pidfd of the process, since its id may be reused."""
    if not hasattr(os, "pidfd_open"):
        return None
    with suppress(OSError):
        return os.pidfd_open(pid)
    return None


def _forget(name: int | None) -> None:
    if name is not None:
        os.close(name)


def _kill(pid: int, name: int | None) -> None:
    with suppress(OSError):
        if name is None:
            os.killpg(pid, signal.SIGKILL)  # fails if the process leads no group
        else:
            signal.pidfd_send_signal(name, signal.SIGKILL)


def _remove(folder: bytes) -> None:
    """Remove the folder; a dying process may still write to it."""
    import shutil
    import time

    end = time.monotonic() + 10
    while os.path.lexists(folder) and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
