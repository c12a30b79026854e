"""Processes that outlive the command which started them, and are known again by later ones.

A process is named by its id and its start: the system gives an id to another process once the first
one has gone, so an id alone may be anybody's. Nothing here signals a process whose start is another
one.
"""

import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from ...errors import NotImplementedHere, TimedOut

_PROC = "/proc"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_STATE, _START = 0, 19  # fields of /proc/PID/stat behind the name
_LOOK_S = 0.02  # between two looks, where the system tells nobody of an end


class Life(StrEnum):
    """What a process is doing."""

    RUNNING = "running"
    PAUSED = "paused"  # by SIGSTOP
    DOWN = "down"  # there is none, or it has ended


@dataclass(frozen=True, slots=True)
class ProcessName:
    """One process, told from all others there were and will be."""

    pid: int
    start: str  # the boot of the machine, and when in it the process began


def spawn(
    command: Sequence[str], *, output: str, folder: str, environment: Mapping[str, str]
) -> ProcessName:
    """Start a process in a session of its own, which no Ctrl-C of this terminal reaches; what it
    prints is appended to the file `output`."""
    if os.name != "posix":
        raise NotImplementedHere(
            "this command looks after processes as Linux and macOS have them: run each node with "
            "`quorumlog server` in a terminal of its own"
        )
    with open(output, "ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    found = _look(process.pid)
    process.returncode = 0  # nobody waits for it here: it is meant to stay
    return ProcessName(process.pid, "" if found is None else found[1])


def life_of(name: ProcessName) -> Life:
    """Look whether the process is alive; another one under its id does not count."""
    _reap(name.pid)
    found = _look(name.pid)
    if found is None or found[1] != name.start or found[0] in "ZX":
        return Life.DOWN
    return Life.PAUSED if found[0] in "Tt" else Life.RUNNING


def send(name: ProcessName, number: signal.Signals) -> bool:
    """Signal the process; False when it has gone."""
    if life_of(name) is Life.DOWN:
        return False
    with suppress(ProcessLookupError):
        if hasattr(os, "pidfd_open"):  # from here on the id cannot become another's
            descriptor = os.pidfd_open(name.pid)
            try:
                if life_of(name) is not Life.DOWN:
                    signal.pidfd_send_signal(descriptor, number)
                    return True
            finally:
                os.close(descriptor)
        elif life_of(name) is not Life.DOWN:
            os.kill(name.pid, number)
            return True
    return False


def wait_gone(name: ProcessName, seconds: float) -> None:
    """Return once the process has ended; raises TimedOut."""
    _wait(name, (Life.DOWN,), seconds, "ended")


def wait_paused(name: ProcessName, seconds: float) -> None:
    """Return once the process stands still, or has ended; raises TimedOut."""
    _wait(name, (Life.PAUSED, Life.DOWN), seconds, "stopped")


def _wait(name: ProcessName, lives: Collection[Life], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while life_of(name) not in lives:
        if time.monotonic() >= end:
            raise TimedOut(f"process {name.pid} has not {what} within {seconds:.0f} s")
        time.sleep(_LOOK_S)


def _look(pid: int) -> tuple[str, str] | None:
    """Return a process's state letter and its start, None when there is none."""
    if pid <= 0:
        return None
    if not os.path.isdir(f"{_PROC}/self"):
        return _ask_ps(pid)
    try:
        with open(f"{_PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(_BOOT_ID, encoding="ascii") as file:
            boot = file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[_STATE], f"{boot}/{fields[_START]}"


def _ask_ps(pid: int) -> tuple[str, str] | None:
    """The same where there is no /proc: to the second, which a reused id does not meet."""
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    state, _, start = done.stdout.strip().partition(" ")
    return (state[:1], start.strip()) if state else None


def _reap(pid: int) -> None:
    """Take the end of a child of this process; those of earlier commands are not its children."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
