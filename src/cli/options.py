"""Options that several commands share.

Their defaults are not here: an option that is not given takes its value from the environment, the
configuration file or the table of `settings`, in this order.
"""

from enum import StrEnum
from typing import Annotated, Any

import typer

from .completion import topic_names
from .failures import IS_JSON


class Output(StrEnum):
    """The output formats of results."""

    HUMAN = "human"
    JSON = "json"


def resolve_output(ctx: typer.Context, value: Output | None) -> Any:
    """Return the output format from the flag or the settings, and store it for errors."""
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
        help="gRPC address of a broker, or a comma-separated list  "
        "[env var: QUORUMLOG_BOOTSTRAP; default: 127.0.0.1:9094]",
    ),
]
OutputOption = Annotated[
    Output | None,
    typer.Option(
        "--output",
        "-o",
        callback=resolve_output,
        help="Output format: human, or json (one object or array per line)  "
        "[env var: QUORUMLOG_OUTPUT; default: human]",
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic", autocompletion=topic_names)
]
