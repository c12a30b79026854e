"""`quorumlog dev`, `server` and `storage`: nodes and their directories."""

import os
from collections.abc import Callable
from typing import Annotated

import typer

from ..errors import QuorumlogError
from . import settings
from .failures import is_debugging, tell
from .options import Output, OutputOption
from .output import print_json

storage_app = typer.Typer(
    help="A node's data directory.", no_args_is_help=True, rich_markup_mode=None
)


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A node's setting, e.g. fetch.bytes.max=8MiB; repeatable. `quorumlog config show` "
        "lists them.",
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="The node's configuration, TOML."),
]
KafkaPortOption = Annotated[
    int | None,
    typer.Option(
        "--kafka-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port of clients of the Kafka protocol; 0 picks one.  [default: 9092; any free "
        "one where --grpc-port is not the usual one]",
    ),
]
HttpPortOption = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port of metrics and health; 0 picks one.  [default: 9095; any free one where "
        "--grpc-port is not the usual one]",
    ),
]


def dev(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Where the node keeps its data.  "
            "[env var: QUORUMLOG_DATA_DIR; default: quorumlog-data]",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="HOST", help="The address to listen on.  [default: 127.0.0.1]"
        ),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            "--grpc-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Port of our own clients; 0 picks one.  [default: 9094]",
        ),
    ] = None,
    kafka_port: KafkaPortOption = None,
    controller_port: Annotated[
        int | None,
        typer.Option(
            "--controller-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Nodes' port; 0 picks one.  [default: 9093]",
        ),
    ] = None,
    http_port: HttpPortOption = None,
    assignments: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Run one node with both roles: no configuration, formatted on first use.

    Prints one ready line with every address when it can serve, and runs until Ctrl-C. Flags win
    over environment variables (QUORUMLOG_..., one for each setting), these over the defaults.
    """
    from ..server import main as server_main

    settings.warn_of_unknown_variables(os.environ)
    options = server_main.DevOptions(
        data_dir=data_dir,
        host=host,
        grpc_port=grpc_port,
        kafka_port=kafka_port,
        controller_port=controller_port,
        http_port=http_port,
        assignments=assignments or (),
    )
    as_json = output is Output.JSON
    raise typer.Exit(server_main.dev(options, as_json=as_json, tell=_teller(as_json=as_json)))


def server(
    config: ConfigOption = None,
    assignments: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Run the node that a configuration describes, until it is told to stop.

    --set wins over environment variables (QUORUMLOG_..., one for each setting), these over the
    file, and the file over the defaults. `quorumlog config show --config FILE` tells what comes of
    it, and from where.
    """
    from ..server import main as server_main

    settings.warn_of_unknown_variables(os.environ)
    as_json = output is Output.JSON
    raise typer.Exit(
        server_main.serve(
            config,
            assignments=assignments or (),
            as_json=as_json,
            tell=_teller(as_json=as_json),
        )
    )


def _teller(*, as_json: bool) -> Callable[[QuorumlogError], None]:
    """Return what a node does with a refusal: it is told as those of other commands."""

    def tell_or_raise(error: QuorumlogError) -> None:
        if is_debugging():
            raise error
        tell(error, as_json=as_json)

    return tell_or_raise


@storage_app.command("format", short_help="Prepare a node's data directory.")
def format_storage(
    config: ConfigOption = None,
    cluster_id: Annotated[
        str,
        typer.Option("--cluster-id", metavar="ID", help="The cluster to join; default: a new one."),
    ] = "",
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone", help="Form a quorum of this node alone; add-voter adds others."
        ),
    ] = False,
    no_initial_voters: Annotated[
        bool,
        typer.Option(
            "--no-initial-voters",
            help="Join the quorum that controller.bootstrap leads to; add-voter gives it a vote.",
        ),
    ] = False,
    assignments: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Prepare a node's data directory: cluster id, node id, directory id, and who votes at first.

    Without a flag that is whom controller.voters names, each with a directory id from `quorumlog
    storage random-id`, the same list and --cluster-id on every one of them; without a list it is
    this node alone.

    Repeating it for the same cluster and node changes nothing; a directory of another one is
    refused. A voter that lost its disk must not get its old directory id again, or it could vote
    twice: format the new disk with --no-initial-voters, remove the old voter, add the new one.
    """
    from ..server import main as server_main
    from .output import id_text

    settings.warn_of_unknown_variables(os.environ)
    node = server_main.load_config(config, assignments or ())
    meta = server_main.format_storage(
        node,
        cluster_id=cluster_id,
        standalone=standalone,
        no_initial_voters=no_initial_voters,
    )
    row = {
        "data_dir": node.data_dir,
        "cluster_id": meta.cluster_id,
        "node_id": meta.node_id,
        "directory_id": id_text(meta.directory_id),
    }
    if output is Output.JSON:
        print_json(row)
    else:
        typer.echo(
            f"{node.data_dir} is formatted for node {meta.node_id} of cluster {meta.cluster_id};"
            f" its directory id is {row['directory_id']}."
        )


@storage_app.command("random-id", short_help="Draw an id for a cluster or a disk.")
def random_id(output: OutputOption = None) -> None:
    """Draw an id for a cluster (--cluster-id) or a disk (controller.voters)."""
    from .output import id_text

    drawn = ""
    while not drawn or drawn.startswith("-"):  # it would be taken for a flag
        drawn = id_text(os.urandom(16))
    if output is Output.JSON:
        print_json({"id": drawn})
    else:
        typer.echo(drawn)
