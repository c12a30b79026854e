"""The options that several commands share, each said once."""

from enum import StrEnum
from typing import Annotated

import typer

DEFAULT_BOOTSTRAP = "127.0.0.1:9094"
CONNECT_TIMEOUT_MS = 3_000  # a person waits; a wrong address should be told soon


class Output(StrEnum):
    """How results are printed."""

    HUMAN = "human"
    JSON = "json"


BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        envvar="QUORUMLOG_BOOTSTRAP",
        metavar="HOST:PORT",
        help="A broker's gRPC address, or several separated by commas.",
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="human: tables and sentences; json: a contract.")
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
