"""Where the nodes of a test live: a folder, and who clears up if this process is killed."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from . import guard

LEAVE_S: Final = 10.0  # the guard only has to read one line


class Home:
    """A folder of this process until `close`; made at once."""

    def __init__(self) -> None:
        self.owner = os.getpid()  # a fork of it has no say
        self.folder = Path(tempfile.mkdtemp(prefix="quorumlog-"))
        # Nothing of this process reaches it, least of all what a Ctrl-C sends.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(self.folder)],
            stdin=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    def started(self, pid: int) -> None:
        """Have a process killed when this one dies; it leads a session of its own."""
        self._say(guard.CHILD, pid)

    def ended(self, pid: int) -> None:
        """Let its id be anybody's. Said before its end is waited for, which gives the id away."""
        self._say(guard.GONE, pid)

    def close(self) -> None:
        """Remove the folder. Every process has ended."""
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
        with suppress(BrokenPipeError):  # somebody killed the guard: the tests can go on
            self._guard.stdin.write(b"%s %d\n" % (word, pid))
            self._guard.stdin.flush()
