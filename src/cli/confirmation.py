"""The confirmation prompt of destructive commands."""

import sys

from ..errors import InvalidRequest
from .output import echo


def is_terminal() -> bool:
    """Return True if stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirmed(question: str) -> bool:
    """Return True if the user confirms, or if stdin is not a terminal (a script). Raise
    InvalidRequest if stderr, where the question is printed, is not a terminal. Ctrl-C raises
    KeyboardInterrupt."""
    if not is_terminal():
        return True
    if not sys.stderr.isatty():
        raise InvalidRequest("cannot ask for confirmation: stderr is not a terminal; give --yes")
    while True:
        echo(f"{question} [y/N] ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            echo("", err=True)
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False
