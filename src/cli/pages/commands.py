"""The page of commands (docs/cli.md), rendered from the command tree.

`make docs` writes the page; a test compares it with the tree.
"""

from collections.abc import Iterator
from typing import Any

import typer

from ..main import app

WIDTH = 100  # columns of a help text on the page

_HEAD = """\
# Command line

Generated from the commands (`make docs`): the output of `--help`. `quorumlog dev` starts a node to
try them on; the [quick start](quickstart.md) shows the most common ones.
"""


def cli_page() -> str:
    """Return the whole page: the root command, then every other one by its full name."""
    root: Any = typer.main.get_command(app)
    sections = [_HEAD]
    for name, text in _helps(root, _context(root, "quorumlog", None)):
        sections.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(sections)


def _helps(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield (full name, help) of a command and its subcommands, in the order of the tree."""
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield context.command_path, text.strip("\n")
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        subcommand = command.get_command(context, name)
        if not subcommand.hidden:
            yield from _helps(subcommand, _context(subcommand, name, context))


def _context(command: Any, name: str, parent: Any) -> Any:
    """Return the click context that renders a command's help in WIDTH columns."""
    settings = command.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}
    return command.context_class(command, info_name=name, parent=parent, **settings)
