"""Asking before something is destroyed."""

import sys

import typer


def confirmed(question: str) -> bool:
    """Return whether whoever sits at the terminal says yes; True where there is no terminal, since
    a script has made up its mind. Ctrl-C is KeyboardInterrupt, as everywhere."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return True
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
