"""The command tree: every command by name, in the sections of `--help`.

A command's module is imported when the command is looked up; `quorumlog --help` imports none of
them. `failures` maps errors to messages and exit codes.
"""

import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .failures import DEBUG_VARIABLE, exit_on_errors, is_debugging, print_unexpected
from .output import echo
from .plain_values import convert_plain_values, with_plain_values

PROGRAM = "quorumlog"
LINE_VARIABLE = "_QUORUMLOG_COMPLETE"  # a shell asks for completions; see `completion`
NODES, RECORDS, CLUSTER, TOOLS = "Nodes", "Records", "Topics and cluster", "Tools"
SECTIONS = (NODES, RECORDS, CLUSTER, TOOLS)  # in the order of --help


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of `--help`: a command or a group of commands, and the module that defines it."""

    section: str
    module: str  # relative to this package; its EXAMPLES, if any, end the command's help
    attribute: str  # a function, or a group's Typer
    line: str


ENTRIES = {
    "dev": Entry(NODES, "nodes", "dev", "Run a single node for development, without configuration"),
    "server": Entry(NODES, "nodes", "server", "Run a node from a configuration file"),
    "produce": Entry(
        RECORDS,
        "produce.command",
        "produce",
        "Produce records from lines, JSON, CSV or raw bytes",
    ),
    "consume": Entry(
        RECORDS, "consume.command", "consume", "Consume records, to the terminal or to a file"
    ),
    "completion": Entry(
        TOOLS,
        "completion",
        "completion",
        "Print a shell completion script",
    ),
    "storage": Entry(NODES, "nodes", "storage_app", "Format a node's data directory"),
    "topics": Entry(CLUSTER, "topics", "app", "Create, list, describe, alter and delete topics"),
    "partitions": Entry(
        CLUSTER,
        "partitions.command",
        "app",
        "Show partition health, reassign replicas, elect leaders",
    ),
    "groups": Entry(
        CLUSTER, "groups", "app", "List and describe consumer groups, reset their offsets"
    ),
    "transactions": Entry(CLUSTER, "transactions", "app", "List, describe and abort transactions"),
    "commits": Entry(CLUSTER, "commits", "app", "List, describe and reset staged commits"),
    "configs": Entry(
        CLUSTER, "configs", "app", "Describe and alter configs, describe broker settings"
    ),
    "quotas": Entry(CLUSTER, "quotas", "app", "Describe and alter client quotas"),
    "brokers": Entry(CLUSTER, "brokers", "brokers_app", "List, describe and unregister brokers"),
    "features": Entry(CLUSTER, "features", "app", "List and update feature levels"),
    "doctor": Entry(
        CLUSTER, "doctor", "doctor", "Check a whole cluster, and say what needs attention"
    ),
    "explain": Entry(
        CLUSTER, "explain", "app", "Explain why a replica, broker or group is unhealthy"
    ),
    "cluster": Entry(NODES, "cluster.command", "app", "Run a local cluster; describe a cluster"),
    "mirror": Entry(
        CLUSTER, "mirror", "app", "Mirror topics from another cluster, offset for offset"
    ),
    "backup": Entry(CLUSTER, "backup", "app", "Back up a cluster, and restore it"),
    "quorum": Entry(CLUSTER, "quorum", "app", "Show the metadata quorum, change its voters"),
    "config": Entry(
        NODES,
        "config_show",
        "app",
        "Show effective settings and the source of each value",
    ),
    "tls": Entry(NODES, "tls", "app", "Create certificates for nodes and clients"),
    "users": Entry(CLUSTER, "users", "app", "Set passwords of users, list and delete them"),
    "acls": Entry(CLUSTER, "acls", "app", "Add, list, remove and explain access control lists"),
    "console": Entry(TOOLS, "console", "console", "Serve web pages about a cluster"),
    "metrics": Entry(
        TOOLS, "metrics", "app", "Print a Grafana dashboard and Prometheus alert rules"
    ),
    "log": Entry(TOOLS, "log_dump", "app", "Dump files of a data directory"),
    "check": Entry(TOOLS, "check", "check", "Check a data directory, and repair it"),
    "diff": Entry(TOOLS, "diff", "diff", "Compare two copies of a log, record by record"),
    "bench": Entry(TOOLS, "bench", "app", "Benchmark produce, fetch and latency"),
}


def load(name: str) -> Any:
    """Import a command of `ENTRIES` and return it as a click command."""
    entry = ENTRIES[name]
    module = import_module(f".{entry.module}", __package__)
    found = getattr(module, entry.attribute)
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    holder.callback()(lambda: None)  # a Typer with a single command and no callback is not a group
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name, short_help=entry.line)
    else:
        epilog = getattr(module, "EXAMPLES", None)
        holder.command(name, short_help=entry.line, epilog=epilog)(found)
    command = typer.main.get_group(holder).commands[name]
    convert_plain_values(command)
    return command


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name, in the order of `ENTRIES`; each is imported on first access."""

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
    """The root command group, with error handling and a help page in sections."""

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
        """Run the command line and exit the process."""
        try:
            return super().main(
                args, PROGRAM, complete_var, standalone_mode, windows_expand_args, **extra
            )
        except Exception as error:  # the last handler: errors that no command expects
            if is_debugging():
                raise
            sys.exit(print_unexpected(error))

    def get_params(self, ctx: Any) -> Any:
        """Return the global parameters, those before a command's name."""
        return with_plain_values(super().get_params(ctx))

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the command line; eager options such as --help print and exit here."""
        with exit_on_errors(None):
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the parsed command."""
        with exit_on_errors(ctx):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands, section by section."""
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
    add_completion=False,  # `quorumlog completion` handles words with colons and does not load rich
    rich_markup_mode=None,  # plain help; rich is loaded only for tables and progress bars
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _set_config(path: str) -> None:
    if path:
        os.environ["QUORUMLOG_CONFIG"] = path


def _set_context(name: str) -> None:
    if name:
        os.environ["QUORUMLOG_CONTEXT"] = name


@app.callback(
    epilog="\b\nGet started:\n"
    "  quorumlog dev                              # in another terminal\n"
    "  quorumlog topics create flights -p 4\n"
    "  quorumlog produce flights --file flights.jsonl --key-field carrier\n"
    "  quorumlog consume flights --until-end\n"
    "\n\b\n"
    "Exit codes: 0 success, 1 an error or a partial failure, 2 invalid arguments,\n"
    "130 Ctrl-C, 141 broken pipe (the reader of the output has exited)."
)
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit",
        ),
    ] = False,
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar="FILE",
            callback=_set_config,
            help="TOML file with client settings  [env var: QUORUMLOG_CONFIG; default: "
            "./quorumlog.toml, ~/.config/quorumlog/config.toml]",
        ),
    ] = "",
    context: Annotated[
        str,
        typer.Option(
            "--context",
            metavar="NAME",
            callback=_set_context,
            help="Context of the file  [env var: QUORUMLOG_CONTEXT; default: its current-context]",
        ),
    ] = "",
    debug: Annotated[
        bool,
        typer.Option("--debug", help=f"Print tracebacks of errors  [env var: {DEBUG_VARIABLE}]"),
    ] = False,
) -> None:
    """A replicated commit log with a Raft metadata quorum.

    Every command has --help. With --output json a command prints its results on stdout and an error
    as one JSON object on stderr.
    """
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def main() -> None:
    """Run the command line, or answer a shell's completion request."""
    line = os.environ.get(LINE_VARIABLE)
    if line is not None:
        from . import completion

        completion.answer(app, line)
        return
    app()
