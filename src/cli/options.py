"""The options that several commands share, each said once.

Their defaults are not here: what is not typed comes from the environment, the file or the table
of `settings`, in this order.
"""

from enum import StrEnum
from typing import Annotated, Any

import typer

from .completion import topic_names
from .failures import IS_JSON


class Output(StrEnum):
    """How results are printed."""

    HUMAN = "human"
    JSON = "json"


def resolve_output(ctx: typer.Context, value: Output | None) -> Any:
    """Return how to print, from the flag or the settings, and remember it for errors."""
    if ctx.resilient_parsing:
        return value
    if value is Output.JSON:
        ctx.meta[IS_JSON] = True  # also for an error in the settings themselves
    from . import settings

    found = Output(settings.load(output=value, warn=False).output)
    ctx.meta[IS_JSON] = found is Output.JSON
    return found


BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="A broker's gRPC address, or several by commas.  "
        "[env var: QUORUMLOG_BOOTSTRAP; default: 127.0.0.1:9094]",
    ),
]
OutputOption = Annotated[
    Output | None,
    typer.Option(
        "--output",
        "-o",
        callback=resolve_output,
        help="human: tables and sentences; json: for programs, one object or array a line.  "
        "[env var: QUORUMLOG_OUTPUT; default: human]",
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=topic_names)
]
