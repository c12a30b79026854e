"""`quorumlog dev`, `server` and `storage`: nodes and their data directories."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ..errors import QuorumlogError
from . import settings
from .failures import is_debugging, print_error
from .options import Output, OutputOption
from .output import echo, print_json

storage_app = typer.Typer(
    help="Format a node's data directory.", no_args_is_help=True, rich_markup_mode=None
)


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a node setting, such as fetch.bytes.max=8MiB; repeatable; `quorumlog config "
        "show` lists all",
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="TOML configuration file of the node"),
]
KafkaPortOption = Annotated[
    int | None,
    typer.Option(
        "--kafka-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port for Kafka clients; 0 picks a free one  [default: 9092; a free one if "
        "--grpc-port is not 9094]",
    ),
]
HttpPortOption = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port for metrics and health; 0 picks a free one  [default: 9095; a free one if "
        "--grpc-port is not 9094]",
    ),
]


SecureOption = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Use TLS, passwords and ACLs; the certificate, the administrator's password and"
        " client profiles are in DIR-security",
    ),
]
ConsoleOption = Annotated[
    bool,
    typer.Option(
        "--console",
        help="Serve web pages about the node, too; needs the extra quorumlog[console]",
    ),
]
InitialUserOption = Annotated[
    str | None,
    typer.Option(
        "--add-scram",
        metavar="USER",
        help="User that exists when the cluster first starts; super.users=User:USER makes it an"
        " administrator",
    ),
]
InitialPasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File with the user's password in one line, - for standard input",
    ),
]


def dev(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Data directory of the node  "
            "[env var: QUORUMLOG_DATA_DIR; default: quorumlog-data]",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Address to listen on  [default: 127.0.0.1]"),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            "--grpc-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Port for gRPC clients; 0 picks a free one  [default: 9094]",
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
            help="Port for other nodes; 0 picks a free one  [default: 9093; a free one if "
            "--grpc-port is not 9094]",
        ),
    ] = None,
    http_port: HttpPortOption = None,
    secure: SecureOption = False,
    with_console: ConsoleOption = False,
    assignments: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Run a single node that is controller and broker. The first run formats the data directory.

    Prints one line with every address once the node serves, and runs until Ctrl-C. Flags override
    environment variables (QUORUMLOG_..., one per setting), which override the defaults.
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
        secure=secure,
        assignments=assignments or (),
    )
    as_json = output is Output.JSON
    tell = _error_printer(as_json=as_json)
    if not with_console:
        raise typer.Exit(server_main.dev(options, as_json=as_json, tell=tell))
    from .console import console_beside, require_packages

    require_packages()
    beside = console_beside(as_json=as_json)
    raise typer.Exit(server_main.dev(options, as_json=as_json, tell=tell, beside=beside))


def server(
    config: ConfigOption = None,
    assignments: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Run a node from a configuration file, until SIGTERM or Ctrl-C.

    --set overrides environment variables (QUORUMLOG_..., one per setting), which override the file,
    which overrides the defaults. `quorumlog config show --config FILE` shows the effective values.
    """
    from ..server import main as server_main

    settings.warn_of_unknown_variables(os.environ)
    as_json = output is Output.JSON
    raise typer.Exit(
        server_main.serve(
            config,
            assignments=assignments or (),
            as_json=as_json,
            tell=_error_printer(as_json=as_json),
        )
    )


def _error_printer(*, as_json: bool) -> Callable[[QuorumlogError], None]:
    """Return the function that prints a node's start error, or raises it with --debug."""

    def print_or_raise(error: QuorumlogError) -> None:
        if is_debugging():
            raise error
        print_error(error, as_json=as_json)

    return print_or_raise


@storage_app.command("format", short_help="Format a node's data directory")
def format_storage(
    config: ConfigOption = None,
    cluster_id: Annotated[
        str,
        typer.Option(
            "--cluster-id", metavar="ID", help="Id of the cluster to join  [default: a new one]"
        ),
    ] = "",
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone", help="Form a quorum of this node alone; `add-voter` adds others"
        ),
    ] = False,
    no_initial_voters: Annotated[
        bool,
        typer.Option(
            "--no-initial-voters",
            help="Join the quorum of controller.bootstrap as an observer; `add-voter` makes it a "
            "voter",
        ),
    ] = False,
    user: InitialUserOption = None,
    password_file: InitialPasswordOption = None,
    assignments: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Format a node's data directory: cluster id, node id, directory id, and initial voters.

    The initial voters are those of controller.voters, each with a directory id from `quorumlog
    storage random-id`. Give every voter the same list and the same --cluster-id. Without a list
    this node is the only voter.

    A directory of the same cluster and node stays unchanged; one of another cluster or node is an
    error. Never reuse the directory id of a lost disk: the voter could vote twice in one epoch.
    Format the new disk with --no-initial-voters, remove the old voter, and add the new one.
    """
    from ..server import main as server_main
    from .output import id_text
    from .users import read_password

    settings.warn_of_unknown_variables(os.environ)
    node = server_main.load_config(config, assignments or ())
    meta = server_main.format_storage(
        node,
        cluster_id=cluster_id,
        standalone=standalone,
        no_initial_voters=no_initial_voters,
        users={} if user is None else {user: read_password(password_file)},
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
        echo(
            f"{node.data_dir} is formatted for node {meta.node_id} of cluster {meta.cluster_id};"
            f" its directory id is {row['directory_id']}."
        )


@storage_app.command("random-id", short_help="Print a random id for a cluster or a disk")
def random_id(output: OutputOption = None) -> None:
    """Print a random id for a cluster (--cluster-id) or a disk (controller.voters)."""
    from .output import id_text

    drawn = ""
    while not drawn or drawn.startswith("-"):  # would be parsed as a flag
        drawn = id_text(os.urandom(16))
    if output is Output.JSON:
        print_json({"id": drawn})
    else:
        echo(drawn)
