"""The command's tree: every command by name, in the sections that `--help` shows.

A command's module is imported when the command is looked up: `quorumlog --help` shows the table
below and imports none. What a command does with an error, and with which code it exits: `failures`.
"""

import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .failures import DEBUG_VARIABLE, ending_well, is_debugging, unexpected
from .plain_values import take_plain_values, taking_plain_values

PROGRAM = "quorumlog"
LINE_VARIABLE = "_QUORUMLOG_COMPLETE"  # a shell asks for completions; see `completion`
NODES, RECORDS, CLUSTER, TOOLS = "Nodes", "Records", "Topics and cluster", "Tools"
SECTIONS = (NODES, RECORDS, CLUSTER, TOOLS)  # in the order of --help


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, or a group of them, as `--help` shows it, and where it is."""

    section: str
    module: str  # of this package; its EXAMPLES, if any, end the help of a command
    attribute: str  # a function, or the Typer of a group
    line: str


ENTRIES = {
    "dev": Entry(NODES, "nodes", "dev", "Run one node, ready to use: no configuration needed."),
    "server": Entry(NODES, "nodes", "server", "Run the node that a configuration file describes."),
    "produce": Entry(
        RECORDS, "producing.command", "produce", "Send lines, JSON, CSV or bytes as records."
    ),
    "consume": Entry(
        RECORDS, "consuming.command", "consume", "Print records, or write them to a file."
    ),
    "completion": Entry(
        TOOLS,
        "completion",
        "completion",
        "Complete commands and topic names in your shell.",
    ),
    "storage": Entry(NODES, "nodes", "storage_app", "Prepare a node's data directory."),
    "topics": Entry(CLUSTER, "topics", "app", "Create, list, describe, grow and delete topics."),
    "partitions": Entry(
        CLUSTER, "partitions.command", "app", "See how partitions are, move them, elect leaders."
    ),
    "groups": Entry(
        CLUSTER, "groups.command", "app", "See consumer groups and their lag, set them back."
    ),
    "configs": Entry(CLUSTER, "configs", "app", "See and change configs, see settings of brokers."),
    "quotas": Entry(CLUSTER, "quotas", "app", "See and change what clients may use."),
    "brokers": Entry(
        CLUSTER, "brokers", "brokers_app", "See brokers and their disks; give one up."
    ),
    "features": Entry(CLUSTER, "features", "app", "See and change what all nodes agree on."),
    "explain": Entry(
        CLUSTER, "explaining.command", "app", "Why a replica, broker or group is not as it should."
    ),
    "cluster": Entry(
        NODES, "cluster.command", "app", "Run a cluster on this machine; see one as a whole."
    ),
    "mirror": Entry(
        CLUSTER, "mirroring.command", "app", "Copy topics of another cluster, offset by offset."
    ),
    "quorum": Entry(
        CLUSTER, "quorum", "app", "See who leads, votes and follows; change who votes."
    ),
    "config": Entry(
        NODES,
        "config_show",
        "app",
        "See what settings come to here, and where each comes from.",
    ),
    "log": Entry(TOOLS, "log_files", "app", "Look into the files of a data directory."),
    "check": Entry(TOOLS, "checking", "check", "Prove a data directory, and mend it."),
    "diff": Entry(TOOLS, "comparing", "diff", "Compare two copies of a log record by record."),
    "bench": Entry(TOOLS, "bench.command", "app", "Measure producing, fetching and latency."),
}


def load(name: str) -> Any:
    """Import a command of `ENTRIES` and return it as the group wants it."""
    entry = ENTRIES[name]
    module = import_module(f".{entry.module}", __package__)
    found = getattr(module, entry.attribute)
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    holder.callback()(lambda: None)  # or one command alone would be no group
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name, short_help=entry.line)
    else:
        epilog = getattr(module, "EXAMPLES", None)
        holder.command(name, short_help=entry.line, epilog=epilog)(found)
    command = typer.main.get_group(holder).commands[name]
    take_plain_values(command)
    return command


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name, in the order of `ENTRIES`; each is loaded when it is taken out."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = dict.fromkeys(ENTRIES)

    def __getitem__(self, name: str) -> Any:
        if self._loaded[name] is None:
            self._loaded[name] = load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)


class Commands(TyperGroup):
    """A command group that turns errors into a sentence and an exit code, and lists its commands
    in sections."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()

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

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters before a command's name."""
        return taking_plain_values(super().get_params(ctx))

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
        width = max(map(len, ENTRIES))
        for section in SECTIONS:
            rows = [
                (name.ljust(width), entry.line)
                for name, entry in ENTRIES.items()
                if entry.section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)


app = typer.Typer(
    cls=Commands,
    name=PROGRAM,
    no_args_is_help=True,
    add_completion=False,  # `quorumlog completion` knows command lines with colons, and no rich
    rich_markup_mode=None,  # plain help: rich is loaded for tables and progress only
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


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
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print and exit."
        ),
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
    line = os.environ.get(LINE_VARIABLE)
    if line is not None:
        from . import completion

        completion.answer(app, line)
        return
    app()
