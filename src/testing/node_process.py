"""A node as a process of this machine: started, told to go, killed, paused, and what it said."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import IO, Any, Final

from ..errors import ERROR_BY_NAME, InvalidRequest, NotImplementedHere, TimedOut, UnknownServerError
from .home import Home
from .node_settings import encode_toml
from .task import Task

STOP_S: Final = 30.0  # an orderly stop that takes longer is ended by SIGKILL
TAIL_LINES: Final = 30  # of what a node said, in an error
PASSED_ON: Final = ("QUORUMLOG_DEBUG", "QUORUMLOG_LOG", "QUORUMLOG_LOOP", "QUORUMLOG_PLAIN_CODEC")
"""Variables that say how a node runs; those that are settings of a node are not passed on: what a
test finds must not depend on who runs it."""


class NodeProcess:
    """One node in all its lives. `start_nowait` and then `wait_ready` begin one of them."""

    def __init__(
        self,
        home: Home,
        number: int,
        name: str,
        rows: Mapping[str, object],
        *,
        routes: Mapping[str, str] | None = None,
    ) -> None:
        """`name` is what errors call it, `rows` is what it is told by the settings' names; `routes`
        are as in `routes.routed`."""
        if os.name != "posix":
            raise NotImplementedHere(
                "nodes of a test are looked after as Linux and macOS have processes: run the tests "
                "there, or start `quorumlog dev` before them"
            )
        self.number = number
        self.name = name
        self.folder = home.folder / name.replace(" ", "-")
        self.folder.mkdir()
        self.log_file = self.folder / "node.log"  # what it has said in all its lives
        self._config_file = self.folder / "node.toml"
        self._config_file.write_text(encode_toml(rows), encoding="utf-8")
        self._home = home
        self._routes = dict(routes or {})
        self.is_paused = False
        self._process: subprocess.Popen[str] | None = None
        self._first_line: Future[str] = Future()

    @property
    def is_up(self) -> bool:
        """Whether it was started, and not killed or stopped since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Its process; raises InvalidRequest when it is down."""
        return self._living().pid

    # --- lives -------------------------------------------------------------------------------

    def start_nowait(self) -> None:
        """Start it unless it is up."""
        if self._process is not None:
            return
        task = Task(config=str(self._config_file), parent=os.getpid(), routes=self._routes)
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "quorumlog.testing.node_program", task.encode()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                env=_environment(os.environ),
                start_new_session=True,  # a Ctrl-C is the test's alone
            )
        self._home.started(process.pid)
        self._process = process
        self._first_line = _first_line_of(process)

    def wait_ready(self, timeout_s: float) -> None:
        """Return once it serves; raises what it says when it ends instead, and TimedOut, with the
        end of its log. It is down then."""
        try:
            line = self._first_line.result(timeout_s)
            told: dict[str, Any] = json.loads(line) if line else {}
        except TimeoutError:
            self.kill()
            raise TimedOut(
                f"{self.name} does not serve within {timeout_s:.0f} s{self._tail()}"
            ) from None
        if told.get("ready"):
            return
        self.kill()
        kind = ERROR_BY_NAME.get(told.get("error", ""), UnknownServerError)
        why = told.get("message", "its process ended without a word")
        raise kind(f"{self.name} does not start: {why}{self._tail()}")

    def stop(self) -> None:
        """End it in order; without effect when it is down. Raises TimedOut when it had to be
        killed."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)  # a paused one hears of it only then
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise TimedOut(
                f"{self.name} took longer than {STOP_S:.0f} s to stop, and was killed{self._tail()}"
            ) from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would; without effect when it is down."""
        process, self._process = self._process, None
        self.is_paused = False
        if process is None or os.getpid() != self._home.owner:
            return
        process.kill()
        self._home.ended(process.pid)
        process.wait()
        if process.stdout is not None:
            _close_read(process.stdout, self._first_line)

    def pause(self) -> None:
        """Stop its time: its connections live, and nothing answers. Raises InvalidRequest when it
        is down."""
        self._living().send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on after a pause; without effect when there was none."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self.is_paused = False

    def check_alive(self) -> None:
        """Raise UnknownServerError when it ended by itself."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            raise UnknownServerError(f"{self.name} ended by itself, with {code}{self._tail()}")

    # --- what it said ------------------------------------------------------------------------

    def log(self, start: int = 0) -> str:
        """What it has written in all its lives, from a position in bytes on."""
        try:
            with self.log_file.open("rb") as file:
                file.seek(start)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _tail(self) -> str:
        lines = self.log().splitlines()[-TAIL_LINES:]
        return "".join(f"\n  | {line}" for line in lines)

    def _living(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise InvalidRequest(f"{self.name} is down: start it first")
        return self._process


def _first_line_of(process: "subprocess.Popen[str]") -> Future[str]:
    """Read a line in a thread of its own: "" when the process ends before one."""
    found: Future[str] = Future()
    assert process.stdout is not None, "a process without a pipe"
    stdout = process.stdout

    def read() -> None:
        try:
            found.set_result(stdout.readline())
        except ValueError:  # closed meanwhile
            found.set_result("")

    threading.Thread(target=read, name="first-line", daemon=True).start()
    return found


def _close_read(stdout: IO[str], reading: Future[str]) -> None:
    """Close a pipe that a thread may still read: its other end has gone, so that it ends soon."""
    with suppress(TimeoutError):
        reading.result(STOP_S)
    stdout.close()


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return a node's environment."""
    kept = {
        name: text
        for name, text in variables.items()
        if not name.startswith("QUORUMLOG_") or name in PASSED_ON
    }
    return {"QUORUMLOG_LOG": "INFO", **kept}
