"""The command's tree: every command by name, in the sections that `--help` shows.

What a command does with an error, and with which code it exits: `failures`.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import (
    bench,
    brokers,
    completion,
    config_show,
    configs,
    consume,
    log_files,
    nodes,
    produce,
    topics,
)
from .failures import DEBUG_VARIABLE, ending_well, is_debugging, unexpected

PROGRAM = "quorumlog"
NODES, RECORDS, CLUSTER, TOOLS = "Nodes", "Records", "Topics and cluster", "Tools"
OTHERS = "Commands"  # the section of commands that name none
SECTIONS = (NODES, RECORDS, CLUSTER, TOOLS, OTHERS)  # in the order of --help


class Commands(TyperGroup):
    """A command group that turns errors into a sentence and an exit code, and lists its commands
    in sections."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; this is where a process ends."""
        try:
            return super().main(
                args, PROGRAM, complete_var, standalone_mode, windows_expand_args, **extra
            )
        except Exception as error:  # the outermost place: whatever no command foresaw
            if is_debugging():
                raise
            sys.exit(unexpected(error))

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the command line; options such as --help print here already."""
        with ending_well(None):
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        with ending_well(ctx):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, a section after the other."""
        sections: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                section = getattr(command, "rich_help_panel", None)
                title = section if section in SECTIONS else OTHERS
                sections.setdefault(title, []).append((name, command))
        width = max(len(name) for rows in sections.values() for name, _ in rows)
        for title in sorted(sections, key=SECTIONS.index):
            rows = sections[title]
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), command.get_short_help_str(formatter.width - width - 6))
                        for name, command in rows
                    ]
                )


app = typer.Typer(
    cls=Commands,
    name=PROGRAM,
    no_args_is_help=True,
    add_completion=False,  # `quorumlog completion` knows command lines with colons, and no rich
    rich_markup_mode=None,  # plain help: rich is loaded for tables and progress only
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

app.command(
    "dev",
    rich_help_panel=NODES,
    short_help="Run one node, ready to use: no configuration needed.",
)(nodes.dev)
app.command(
    "server", rich_help_panel=NODES, short_help="Run the node that a configuration file describes."
)(nodes.server)
app.add_typer(
    nodes.storage_app,
    name="storage",
    rich_help_panel=NODES,
    short_help="Prepare a node's data directory.",
)
app.command(
    "produce",
    rich_help_panel=RECORDS,
    epilog=produce.EXAMPLES,
    short_help="Send lines, JSON, CSV or bytes as records.",
)(produce.produce)
app.command(
    "consume",
    rich_help_panel=RECORDS,
    epilog=consume.EXAMPLES,
    short_help="Print records, or write them to a file.",
)(consume.consume)
app.add_typer(
    topics.app,
    name="topics",
    rich_help_panel=CLUSTER,
    short_help="Create, list, describe and delete topics.",
)
app.add_typer(
    configs.app,
    name="configs",
    rich_help_panel=CLUSTER,
    short_help="See and change configs of topics, see settings of brokers.",
)
app.add_typer(
    brokers.brokers_app,
    name="brokers",
    rich_help_panel=CLUSTER,
    short_help="List brokers, and see what is on their disks.",
)
app.add_typer(
    brokers.cluster_app,
    name="cluster",
    rich_help_panel=CLUSTER,
    short_help="See the cluster as a whole.",
)
app.add_typer(
    config_show.app,
    name="config",
    rich_help_panel=NODES,
    short_help="See what settings come to here, and where each comes from.",
)
app.add_typer(
    log_files.app,
    name="log",
    rich_help_panel=TOOLS,
    short_help="Look into the files of a data directory.",
)
app.add_typer(
    bench.app,
    name="bench",
    rich_help_panel=TOOLS,
    short_help="Measure producing, fetching and latency.",
)
app.command(
    "completion",
    rich_help_panel=TOOLS,
    epilog=completion.EXAMPLES,
    short_help="Complete commands and topic names in your shell.",
)(completion.completion)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback(
    epilog="\b\nA first try:\n"
    "  quorumlog dev                              a node, in a terminal of its own\n"
    "  quorumlog topics create flights -p 4\n"
    "  quorumlog produce flights --file flights.jsonl --key-field carrier\n"
    "  quorumlog consume flights --until-end\n"
    "\n\b\n"
    "Exit codes: 0 done, 1 an error or a part of the work failed, 2 wrong arguments,\n"
    "130 Ctrl-C, 141 the reader of the output has gone."
)
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print and exit."),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help=f"Show tracebacks of errors; {DEBUG_VARIABLE}=1 does too."),
    ] = False,
) -> None:
    """A replicated commit log with a Raft metadata quorum.

    Every command has --help. Where it takes --output json, what it prints is meant for programs:
    results on stdout, an error as one JSON object on stderr.
    """
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def main() -> None:
    """Run the command line of this process."""
    line = os.environ.get(completion.LINE_VARIABLE)
    if line is not None:
        completion.answer(app, line)
        return
    app()
