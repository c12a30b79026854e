"""Asking before something is destroyed."""

import sys

import typer

from ..errors import InvalidRequest


def confirmed(question: str) -> bool:
    """Return whether whoever sits at the terminal says yes; True where there is no terminal, since
    a script has made up its mind. Ctrl-C is KeyboardInterrupt, as everywhere. Raises InvalidRequest
    where somebody types who would not see the question."""
    if sys.stdin is None or not sys.stdin.isatty():
        return True
    if not sys.stderr.isatty():
        raise InvalidRequest("stderr is no terminal, so that nobody can be asked: say --yes")
    while True:
        typer.echo(f"{question} [y/N] ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            typer.echo("", err=True)
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False
