"""Process entry point: `quorumlog`, or `python -m quorumlog.cli`.

Imports almost nothing, so that Ctrl-C never prints a traceback: before the command is loaded, and
after it has ended, the process exits with code 130.
"""

import gc
import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130
COLLECTED_AT = (50_000, 20, 100)
"""Thresholds of the garbage collector. With Python's defaults, collections during imports take a
sixth of a node's start. A running node sets its own thresholds (`runtime.memory`)."""


def main() -> None:
    """Run the command line and exit."""
    gc.set_threshold(*COLLECTED_AT)
    _open_missing_streams()
    handles_sigint = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_sigint:  # a shell's background job ignores SIGINT; keep that
        signal.signal(signal.SIGINT, _exit_interrupted)
    from .main import main as run

    try:
        try:
            if handles_sigint:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            run()
        finally:
            if handles_sigint:
                signal.signal(signal.SIGINT, _exit_interrupted)
    except KeyboardInterrupt:  # outside of any command's work
        os._exit(EXIT_INTERRUPTED)
    except SystemExit as ending:
        if ending.code == EXIT_INTERRUPTED:
            # Everything is closed. An interpreter that was interrupted while it compiled code
            # (a dataclass of an import) would end by the signal instead of with this code.
            os._exit(EXIT_INTERRUPTED)
        raise


def _open_missing_streams() -> None:
    """Open /dev/null in place of each closed standard stream (`>&-`). Otherwise the next file that
    is opened gets its number, and the event loop aborts the process on such a file."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _exit_interrupted(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
