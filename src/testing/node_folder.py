"""The folder of a test's nodes, and a guard process that cleans up if the test process is
killed."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from . import guard

LEAVE_S: Final = 10.0  # the guard only reads one line


class NodeFolder:
    """A folder of this process, created at once and removed by `close`."""

    def __init__(self) -> None:
        self.owner = os.getpid()  # forked children do not own it
        self.folder = Path(tempfile.mkdtemp(prefix="quorumlog-"))
        # A session of its own: signals of this process, such as Ctrl-C, do not reach it.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(self.folder)],
            stdin=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    def started(self, pid: int) -> None:
        """Register a session leader to be killed when this process dies."""
        self._say(guard.CHILD, pid)

    def ended(self, pid: int) -> None:
        """Unregister a process. Call it before waiting for the process, which frees its id."""
        self._say(guard.GONE, pid)

    def close(self) -> None:
        """Remove the folder; all processes must have ended."""
        if os.getpid() != self.owner or self._guard.stdin is None or self._guard.stdin.closed:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self._guard.stdin.write(guard.DONE + b"\n")
        with suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait(LEAVE_S)

    def _say(self, word: bytes, pid: int) -> None:
        assert self._guard.stdin is not None, "a guard without a pipe"
        with suppress(BrokenPipeError):  # the guard was killed: tests can continue
            self._guard.stdin.write(b"%s %d\n" % (word, pid))
            self._guard.stdin.flush()
