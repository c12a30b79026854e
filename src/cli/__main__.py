"""The process's entry: `quorumlog`, or `python -m quorumlog.cli`.

Imports next to nothing, so that Ctrl-C is quiet from the first moment on: until the command is
loaded, and again once it has ended, the process just goes with exit code 130.
"""

import gc
import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130
COLLECTED_AT = (50_000, 20, 100)
"""New containers before Python looks for cycles. By its defaults it looks again and again at what
is being loaded, a sixth of a node's start. A node goes over to its own (`runtime.garbage`)."""


def main() -> None:
    """Run the command line of this process."""
    gc.set_threshold(*COLLECTED_AT)
    _open_missing_streams()
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:  # not where a shell started it in the background, deaf to Ctrl-C
        signal.signal(signal.SIGINT, _go)
    from .main import main as run

    try:
        try:
            if is_heard:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            run()
        finally:
            if is_heard:
                signal.signal(signal.SIGINT, _go)
    except KeyboardInterrupt:  # outside of any command's work
        os._exit(EXIT_INTERRUPTED)
    except SystemExit as ending:
        if ending.code == EXIT_INTERRUPTED:
            # Everything is closed. An interpreter that was interrupted while it compiled a text
            # (a dataclass of an import) would end by the signal instead of with this code.
            os._exit(EXIT_INTERRUPTED)
        raise


def _open_missing_streams() -> None:
    """Let nothing stand where a standard stream is closed (`>&-`): another file would take its
    number, and the event loop ends the process when it meets one there."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _go(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
