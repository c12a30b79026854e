"""Clears up behind a test process, however that one ends: its nodes are killed, its folder removed.

Run as a program of its own (`python -I -S guard.py FOLDER`) in its own session, since nothing
within a process that is killed can do it; imports nothing but what Python brings along. Its stdin
is a pipe whose other end only the test process holds, a line each:

    child PID   a process that was started, the leader of its own session
    gone PID    one that has ended
    done        everything was cleared up in order

At the end of the pipe without `done` it does what is left to do.
"""

import os
import signal
import sys
from contextlib import suppress

CHILD, GONE, DONE = b"child", b"gone", b"done"


def main() -> None:
    """Guard until the pipe ends."""
    for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(deaf, signal.SIG_IGN)
    folder = os.fsencode(sys.argv[1])
    children: dict[int, int | None] = {}  # by process id: what names it for good, where there is
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
    """Return a descriptor of the process: its id may be another one's some day."""
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
            os.killpg(pid, signal.SIGKILL)  # nobody's who leads no group of processes
        else:
            signal.pidfd_send_signal(name, signal.SIGKILL)


def _remove(folder: bytes) -> None:
    """Remove the folder; a process that dies may write to it for a moment longer."""
    import shutil
    import time

    end = time.monotonic() + 10
    while os.path.lexists(folder) and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
