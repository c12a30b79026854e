"""Processes that outlive the command that started them, and that later commands find again.

The identity of a process is its id and its start time: the operating system reuses ids. No function
here signals a process with a different start time.
"""

import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from ...errors import DirectoryUnusable, NotImplementedHere, TimedOut

_PROC = "/proc"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_STATE, _START = 0, 19  # fields of /proc/PID/stat behind the name
OUTPUT_MODE = 0o640
_POLL_S = 0.02  # between two checks: a process that is not a child sends no SIGCHLD


class Life(StrEnum):
    """The state of a process."""

    RUNNING = "running"
    PAUSED = "paused"  # by SIGSTOP
    DOWN = "down"  # it does not exist, or has exited


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The identity of one process, unique over reboots and reused ids."""

    pid: int
    start: str  # boot id of the machine, and start time since that boot


def spawn(
    command: Sequence[str], *, output: str, folder: str, environment: Mapping[str, str]
) -> ProcessIdentity:
    """Start a process in its own session, so that Ctrl-C in this terminal does not reach it. Its
    output is appended to the file `output`; raise DirectoryUnusable if this is a link."""
    if os.name != "posix":
        raise NotImplementedHere(
            "`quorumlog cluster` runs on Linux and macOS only; run each node with "
            "`quorumlog server` in its own terminal"
        )
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(output, flags, OUTPUT_MODE)
    except OSError as error:
        raise DirectoryUnusable(
            f"{output} cannot be opened ({error.strerror}); remove it if it is a link, or give this"
            " user the rights to write to it"
        ) from None
    with os.fdopen(descriptor, "ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    found = _inspect(process.pid)
    process.returncode = 0  # suppresses Popen's warning: the process outlives this command
    return ProcessIdentity(process.pid, "" if found is None else found[1])


def life_of(name: ProcessIdentity) -> Life:
    """Return the state of the process; DOWN if its id belongs to another process now."""
    _reap(name.pid)
    found = _inspect(name.pid)
    if found is None or found[1] != name.start or found[0] in "ZX":
        return Life.DOWN
    return Life.PAUSED if found[0] in "Tt" else Life.RUNNING


def send(name: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to the process; return False if it is down."""
    if life_of(name) is Life.DOWN:
        return False
    with suppress(ProcessLookupError):
        if hasattr(os, "pidfd_open"):  # pins the id: from here on it cannot be reused
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


def wait_gone(name: ProcessIdentity, seconds: float) -> None:
    """Wait until the process has exited; raise TimedOut."""
    _wait(name, (Life.DOWN,), seconds, "exited")


def wait_paused(name: ProcessIdentity, seconds: float) -> None:
    """Wait until the process is paused or has exited; raise TimedOut."""
    _wait(name, (Life.PAUSED, Life.DOWN), seconds, "stopped")


def _wait(name: ProcessIdentity, lives: Collection[Life], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while life_of(name) not in lives:
        if time.monotonic() >= end:
            raise TimedOut(f"process {name.pid} has not {what} within {seconds:.0f} s")
        time.sleep(_POLL_S)


def _inspect(pid: int) -> tuple[str, str] | None:
    """Return the state letter and the start of a process, None if it does not exist."""
    if pid <= 0:
        return None
    if not os.path.isdir(f"{_PROC}/self"):
        return _inspect_with_ps(pid)
    try:
        with open(f"{_PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(_BOOT_ID, encoding="ascii") as file:
            boot = file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[_STATE], f"{boot}/{fields[_START]}"


def _inspect_with_ps(pid: int) -> tuple[str, str] | None:
    """Return the same by `ps`, on systems without /proc. Start times are in seconds, which is
    enough to recognise a reused id."""
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
    """Reap a child that has exited; processes of earlier commands are not children."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
