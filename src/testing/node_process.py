"""A node as a process of this machine: start, stop, kill, pause, and its log."""

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
from ..runtime.child_environment import child_environment
from .node_arguments import NodeArguments
from .node_folder import NodeFolder
from .node_settings import encode_toml

STOP_S: Final = 30.0  # a clean stop that takes longer ends with SIGKILL
TAIL_LINES: Final = 30  # of the log, in an error
PASSED_ON: Final = ("QUORUMLOG_DEBUG", "QUORUMLOG_LOG", "QUORUMLOG_LOOP", "QUORUMLOG_PLAIN_CODEC")
"""Variables that choose how a node runs. Others, which are settings, are not passed on: a test
must not depend on its environment."""


class NodeProcess:
    """One node, across all its processes. `start_nowait`, then `wait_ready`, start one."""

    def __init__(
        self,
        home: NodeFolder,
        number: int,
        name: str,
        rows: Mapping[str, object],
        *,
        routes: Mapping[str, str] | None = None,
        secure: bool = False,
        password_file: str = "",
    ) -> None:
        """Create the node's folder and configuration file.

        Errors refer to the node by `name`; `rows` are its settings; `routes` are those of
        `node_program.routed`. `password_file` has the password of the administrator, a user of a
        new cluster; "": there is none.
        """
        if os.name != "posix":
            raise NotImplementedHere(
                "quorumlog.testing needs the processes of Linux or macOS; run the tests "
                "there, or start `quorumlog dev` before them"
            )
        self.number = number
        self.name = name
        self.folder = home.folder / name.replace(" ", "-")
        self.folder.mkdir()
        self.log_file = self.folder / "node.log"  # of all its processes
        self._config_file = self.folder / "node.toml"
        self._config_file.write_text(encode_toml(rows), encoding="utf-8")
        self._home = home
        self._routes = dict(routes or {})
        self._secure = secure
        self._password_file = password_file
        self.is_paused = False
        self._process: subprocess.Popen[str] | None = None
        self._first_line: Future[str] = Future()

    @property
    def is_up(self) -> bool:
        """True if it was started, and not killed or stopped since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id; raises InvalidRequest if it is down."""
        return self._living().pid

    # --- start and stop ---------------------------------------------------------------------

    def start_nowait(self) -> None:
        """Start the process unless it is up."""
        if self._process is not None:
            return
        task = NodeArguments(
            config=str(self._config_file),
            parent=os.getpid(),
            routes=self._routes,
            secure=self._secure,
            password_file=self._password_file,
        )
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "quorumlog.testing.node_program", task.encode()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                env=_environment(os.environ),
                start_new_session=True,  # a Ctrl-C reaches the test only
            )
        self._home.started(process.pid)
        self._process = process
        self._first_line = _first_line_of(process)

    def wait_ready(self, timeout_s: float) -> None:
        """Return once the node serves.

        Raises its error if it ends instead, and TimedOut, each with the end of the log; the node is
        down then.
        """
        try:
            line = self._first_line.result(timeout_s)
            fields: dict[str, Any] = json.loads(line) if line else {}
        except TimeoutError:
            self.kill()
            raise TimedOut(
                f"{self.name} does not serve within {timeout_s:.0f} s{self._tail()}"
            ) from None
        if fields.get("ready"):
            return
        self.kill()
        kind = ERROR_BY_NAME.get(fields.get("error", ""), UnknownServerError)
        why = fields.get("message", "its process ended without a message")
        raise kind(f"{self.name} does not start: {why}{self._tail()}")

    def stop(self) -> None:
        """Stop the node cleanly; without effect if it is down. Raises TimedOut if it had to be
        killed."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)  # a paused process receives SIGTERM only then
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise TimedOut(
                f"{self.name} took longer than {STOP_S:.0f} s to stop, and was killed{self._tail()}"
            ) from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process, like a crash; without effect if it is down."""
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
        """Pause the process: connections stay open without answers. Raises InvalidRequest if it
        is down."""
        self._living().send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Resume a paused process; without effect otherwise."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self.is_paused = False

    def check_alive(self) -> None:
        """Raise UnknownServerError if the process ended unexpectedly."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            raise UnknownServerError(
                f"{self.name} ended unexpectedly, with exit code {code}{self._tail()}"
            )

    # --- log --------------------------------------------------------------------------------

    def log(self, start: int = 0) -> str:
        """Return the log of all its processes, from a byte position on."""
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
    """Read a line in a thread; "" if the process ends first."""
    found: Future[str] = Future()
    assert process.stdout is not None, "a process without a pipe"
    stdout = process.stdout

    def read() -> None:
        try:
            found.set_result(stdout.readline())
        except ValueError:  # closed while reading
            found.set_result("")

    threading.Thread(target=read, name="first-line", daemon=True).start()
    return found


def _close_read(stdout: IO[str], reading: Future[str]) -> None:
    """Close a pipe that a thread may still read; the read ends soon, since the writer has ended."""
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
    return child_environment({"QUORUMLOG_LOG": "INFO", **kept})
