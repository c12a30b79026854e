"""Entry point: the command's tree, and what every command does with an error.

An operational error is one sentence on stderr and exit code 1, a usage error exit code 2, Ctrl-C
exit code 130, a closed pipe 141 (128 + the signal's number, as shells count).
"""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import QuorumlogError
from . import consume, log_files, nodes, produce, topics

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class Commands(TyperGroup):
    """A command group that turns typed errors into a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except QuorumlogError as error:
            typer.echo(f"quorumlog: {error}", err=True)
            raise typer.Exit(EXIT_ERROR) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # The reader is gone; the interpreter's last flush must not fail on the same pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_BROKEN_PIPE) from None


app = typer.Typer(
    cls=Commands,
    name="quorumlog",
    help="A replicated commit log with a Raft metadata quorum.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: rich is loaded for tables and progress only
    pretty_exceptions_enable=False,
)
app.command("dev")(nodes.dev)
app.command("server")(nodes.server)
app.add_typer(nodes.storage_app, name="storage")
app.add_typer(topics.app, name="topics")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(log_files.app, name="log")


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"quorumlog {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print and exit."),
    ] = False,
) -> None:
    """A replicated commit log with a Raft metadata quorum."""


def main() -> None:
    """Run the command line of this process."""
    app()
