"""`quorumlog dev`, `server` and `storage format`: nodes and their directories."""

from typing import Annotated

import typer

from .options import Output, OutputOption
from .output import print_json

storage_app = typer.Typer(
    help="A node's data directory.", no_args_is_help=True, rich_markup_mode=None
)


def dev(
    data_dir: Annotated[
        str,
        typer.Option("--data-dir", metavar="DIR", help="Where the node keeps its data."),
    ] = "quorumlog-data",
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; the default is this machine.")
    ] = "127.0.0.1",
    grpc_port: Annotated[
        int, typer.Option("--grpc-port", min=0, max=65535, help="Clients' port; 0 picks one.")
    ] = 9094,
    controller_port: Annotated[
        int,
        typer.Option("--controller-port", min=0, max=65535, help="Nodes' port; 0 picks one."),
    ] = 9093,
    output: OutputOption = Output.HUMAN,
) -> None:
    """Run one node with both roles: no configuration, formatted on first use.

    Prints one ready line with every address when it can serve, and runs until Ctrl-C.
    """
    from ..server import main as server_main

    options = server_main.DevOptions(
        data_dir=data_dir, host=host, grpc_port=grpc_port, controller_port=controller_port
    )
    raise typer.Exit(server_main.dev(options, as_json=output is Output.JSON))


def server(
    config: Annotated[
        str, typer.Option("--config", metavar="FILE", help="The node's configuration, TOML.")
    ],
    output: OutputOption = Output.HUMAN,
) -> None:
    """Run the node that a configuration file describes, until it is told to stop."""
    from ..server import main as server_main

    raise typer.Exit(server_main.serve(config, as_json=output is Output.JSON))


@storage_app.command("format")
def format_storage(
    config: Annotated[
        str, typer.Option("--config", metavar="FILE", help="The node's configuration, TOML.")
    ],
    cluster_id: Annotated[
        str,
        typer.Option("--cluster-id", metavar="ID", help="The cluster to join; default: a new one."),
    ] = "",
    output: OutputOption = Output.HUMAN,
) -> None:
    """Prepare a node's data directory: cluster id, node id, directory id.

    Repeating it for the same cluster and node changes nothing; a directory of another one is
    refused.
    """
    from ..server import main as server_main
    from .output import id_text

    node = server_main.load_config(config)
    meta = server_main.format_storage(node, cluster_id=cluster_id)
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
            f"{node.data_dir} is formatted for node {meta.node_id} of cluster {meta.cluster_id}."
        )
