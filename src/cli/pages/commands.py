"""The page of commands (docs/cli.md), rendered from the command's tree.

Pure text: `make docs` writes the page, a test holds the page against the tree.
"""

from collections.abc import Iterator
from typing import Any

import typer

from ..main import app

WIDTH = 100  # columns of a help text on the page

_HEAD = """\
# Command line

Generated from the commands themselves (`make docs`): this is what `--help` prints. `quorumlog dev`
starts a node to try them on; [the quick start](quickstart.md) goes through the usual ones.
"""


def cli_page() -> str:
    """Return the whole page: the command itself, then every other one by its full name."""
    root: Any = typer.main.get_command(app)
    sections = [_HEAD]
    for name, text in _helps(root, _context(root, "quorumlog", None)):
        sections.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(sections)


def _helps(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Give (full name, help) of a command and of all below it, in the tree's order."""
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield context.command_path, text.strip("\n")
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        below = command.get_command(context, name)
        if not below.hidden:
            yield from _helps(below, _context(below, name, context))


def _context(command: Any, name: str, parent: Any) -> Any:
    """Return what a command is asked for its help with, on a page of WIDTH columns."""
    settings = command.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}
    return command.context_class(command, info_name=name, parent=parent, **settings)
