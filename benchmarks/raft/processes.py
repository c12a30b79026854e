"""The processes of a system under test: started, called, killed, and their CPU time."""

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
ANSWER_S = 60.0
PORTS = range(20_000, 32_000)


class Refused(Exception):
    """A member does not do the requested work; the message has its output."""


def free_ports(count: int) -> list[int]:
    """Return distinct free ports of the loopback.

    They are below the range of outgoing connections, one of which could otherwise take a port
    before its member does.
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise Refused(f"{count} free ports are not to be had among {PORTS}")


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds of these processes so far, all threads, user and system."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


class Member:
    """A process with its own folder; its output goes to a file there.

    With `talks` it reads JSON lines from its standard input and responds to each with one.
    """

    def __init__(
        self, command: list[str], folder: Path, *, talks: bool, ends_by_signal: bool = False
    ) -> None:
        """`ends_by_signal`: SIGTERM ends the process itself after its clean-up."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._log = folder / "member.log"
        pipe = subprocess.PIPE if talks else subprocess.DEVNULL
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe if talks else log, stderr=log
            )
        self._unread = b""
        self._ends_by_signal = ends_by_signal

    def __enter__(self) -> "Member":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def tell(self, **request: Any) -> None:
        """Send it a line of work."""
        assert self._process.stdin is not None, "this member has no standard input"
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Refused(f"a member is gone: {self.complaints()}") from None

    def answer(self, within_s: float = ANSWER_S) -> dict[str, Any]:
        """Return its next line. Raise Refused if it exits, or prints nothing for so long."""
        assert self._process.stdout is not None, "this member has no standard output"
        deadline_s = time.monotonic() + within_s
        while b"\n" not in self._unread:
            left_s = max(0.0, deadline_s - time.monotonic())
            seen, _, _ = select.select([self._process.stdout], [], [], left_s)
            chunk = os.read(self._process.stdout.fileno(), 1 << 16) if seen else b""
            if not chunk:
                raise Refused(f"no answer within {within_s:.0f} s: {self.complaints()}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send it a request and return its response."""
        self.tell(**request)
        return self.answer()

    def stop(self) -> None:
        """Send SIGTERM without waiting."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait for its end. Do nothing if it has exited."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def is_stopped(self, within_s: float) -> bool:
        """Wait for its end after stop(); return True if it was orderly."""
        code = self._process.wait(within_s)
        return code == 0 or (code == -signal.SIGTERM and self._ends_by_signal)

    def complaints(self) -> str:
        """Return the end of its output."""
        return self._log.read_text(errors="replace")[-2000:] or "it wrote nothing"


def python(module: str, *arguments: str) -> list[str]:
    """Return the command of a module of this package."""
    return [sys.executable, "-m", f"benchmarks.raft.{module}", *arguments]
