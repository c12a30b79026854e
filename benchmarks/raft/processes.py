"""The processes of a system under test: started, asked, killed, and the CPU time they took."""

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
    """A member does not do what it was asked; says what it wrote about that."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now, each another one.

    They lie below those that the system gives to outgoing connections, one of which might else take
    a port before its member does.
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
    """Seconds of processor that these processes took so far, all threads, user and system."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


class Member:
    """A process in a folder of its own; what it says goes to a file there.

    With `talks` it takes a JSON line on its standard input and answers each with one.
    """

    def __init__(
        self, command: list[str], folder: Path, *, talks: bool, ends_by_signal: bool = False
    ) -> None:
        """`ends_by_signal`: that is how SIGTERM ends it when it has put everything in order."""
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
        """Its process id."""
        return self._process.pid

    def tell(self, **request: Any) -> None:
        """Give it a line of work."""
        assert self._process.stdin is not None, "this member does not listen"
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Refused(f"a member is gone: {self.complaints()}") from None

    def answer(self, within_s: float = ANSWER_S) -> dict[str, Any]:
        """Wait for its next line; raises Refused when it ends or says nothing for so long."""
        assert self._process.stdout is not None, "this member says nothing"
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
        """Tell it something and wait for what it says to that."""
        self.tell(**request)
        return self.answer()

    def stop(self) -> None:
        """SIGTERM, without waiting."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; one that is gone stays so."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def is_stopped(self, within_s: float) -> bool:
        """Wait for its end after stop(); whether that was in order."""
        code = self._process.wait(within_s)
        return code == 0 or (code == -signal.SIGTERM and self._ends_by_signal)

    def complaints(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-2000:] or "it wrote nothing"


def python(module: str, *arguments: str) -> list[str]:
    """The command of a module of this room."""
    return [sys.executable, "-m", f"benchmarks.raft.{module}", *arguments]
