"""`quorumlog cluster up|down|status|kill|start|restart|pause|resume|bootstrap|describe`."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InvalidRequest, TimedOut
from ...runtime.child_environment import child_environment
from ...settings import variable_of
from ..brokers import describe_cluster
from ..nodes import SetOption
from ..options import Output, OutputOption
from ..output import count_text, echo, print_json, print_table
from .processes import Life, ProcessIdentity, life_of, send, spawn, wait_gone, wait_paused
from .state import (
    NODES_MAX,
    LocalCluster,
    LocalNode,
    load,
    load_if_any,
    locked,
    store,
)

if TYPE_CHECKING:
    from .formation import Shape
    from .probe import NodeHealth

DATA_DIR = "quorumlog-cluster"
STOP_S = 30.0  # an orderly stop that takes longer is ended by SIGKILL
KILL_S = 10.0
_LEFT_RUNNING = (
    "Interrupted; started nodes keep running. `quorumlog cluster up` waits for them again, "
    "`quorumlog cluster down` stops them."
)

app = typer.Typer(
    help="Describe a cluster, or run a local one with one process per node.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("describe", short_help="Show the cluster id, the controller and sizes")(
    describe_cluster
)

FolderOption = Annotated[
    str,
    typer.Option("--data-dir", metavar="DIR", help="Folder of the cluster's files"),
]
TimeoutOption = Annotated[
    int,
    typer.Option(
        "--timeout", metavar="SECONDS", min=1, max=3_600, help="Maximum time to wait for nodes"
    ),
]
NodesOption = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        metavar="N",
        min=1,
        max=NODES_MAX,
        help="Nodes that are both controller and broker  [default for a new cluster: 3]",
    ),
]
ControllersOption = Annotated[
    int | None,
    typer.Option(
        "--controllers",
        metavar="N",
        min=1,
        max=NODES_MAX,
        help="Controller-only nodes, instead of --nodes",
    ),
]
BrokersOption = Annotated[
    int | None,
    typer.Option("--brokers", metavar="N", min=1, max=NODES_MAX, help="Broker-only nodes"),
]
RacksOption = Annotated[
    str | None,
    typer.Option(
        "--racks", metavar="NAMES", help="Comma-separated racks, assigned to brokers in turn"
    ),
]
SecureOption = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Use TLS, passwords and ACLs; the certificates, the administrator's password and"
        " client profiles are in DIR/security",
    ),
]
IdArgument = Annotated[int, typer.Argument(metavar="ID", min=0, help="Node id")]


@app.command(short_help="Start a local cluster")
def up(
    nodes: NodesOption = None,
    controllers: ControllersOption = None,
    brokers: BrokersOption = None,
    racks: RacksOption = None,
    secure: SecureOption = False,
    data_dir: FolderOption = DATA_DIR,
    timeout: TimeoutOption = 60,
    assignments: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Start every node of a local cluster, and wait until all of them serve.

    The first run forms the cluster and assigns its ports. Topics get 3 replicas by default, or as
    many as there are brokers. A later run with more nodes adds nodes; new controllers are observers
    until `quorumlog quorum add-voter`, as is a node whose data directory was deleted. Later starts
    keep the settings of --set; a running node gets them by `quorumlog cluster restart ID`.
    """
    from .formation import Shape, check_settings, form
    from .probe import check_nodes, wait_serving

    if nodes is not None and controllers is not None:
        raise InvalidRequest(
            "--nodes (controller and broker) and --controllers (controller only) are exclusive; "
            "give one of them"
        )
    shape = Shape(nodes=nodes, controllers=controllers, brokers=brokers)
    folder = os.path.abspath(data_dir)
    found = load_if_any(folder)
    if shape != Shape() and found is None:
        shape.check_new()
    old, files = ((), []) if found is None else (found.settings, found.config_files)
    check_settings(old if assignments is None else assignments, _environment(), files)
    names = _rack_names(racks)
    with locked(folder, make=True):
        cluster = _planned(folder, shape, names, is_secure=secure)
        if assignments is not None:
            cluster = replace(cluster, settings=tuple(assignments))
        cluster = form(cluster)
        unchanged = [node.id for node in cluster.nodes if assignments and _is_up(node)]
        try:
            for node in cluster.nodes:
                cluster = _start(cluster, node)
            wait_serving(cluster, [node.id for node in cluster.nodes], timeout)
        except KeyboardInterrupt:
            echo(_LEFT_RUNNING, err=True)
            raise
    if unchanged:
        ids = ", ".join(map(str, unchanged))
        echo(
            f"Running nodes get changed settings by `quorumlog cluster restart ID`: {ids}.",
            err=True,
        )
    if output is Output.JSON:
        print_json(_json(cluster, check_nodes(cluster)))
        return
    addresses = {
        "grpc": [node.grpc for node in cluster.nodes if node.grpc],
        "kafka": [node.kafka for node in cluster.nodes if node.kafka],
        "controller": [node.controller for node in cluster.nodes],
    }
    listed = [f"{name} {','.join(found)}" for name, found in addresses.items() if found]
    echo(
        f"quorumlog is ready: {count_text(len(cluster.nodes), 'node')}, {', '.join(listed)}; "
        f"data in {folder}"
        + (f"; QUORUMLOG_CONFIG={_profile(cluster)}" if cluster.is_secure else "")
    )


@app.command(short_help="Stop every node")
def down(data_dir: FolderOption = DATA_DIR, output: OutputOption = None) -> None:
    """Stop every node with SIGTERM, and wait until all have exited. Their data remains."""
    folder = os.path.abspath(data_dir)
    with locked(folder):
        cluster = load(folder)
        killed = _stop(cluster.nodes)
    are_down = "The node is" if len(cluster.nodes) == 1 else f"All {len(cluster.nodes)} nodes are"
    _print_result(cluster, f"{are_down} down; the data remains in {folder}.", output)
    for node_id in killed:
        echo(f"Node {node_id} did not stop within {STOP_S:.0f} s; killed.", err=True)


@app.command(short_help="Print the bootstrap addresses")
def bootstrap(
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Print the addresses for Kafka clients")
    ] = False,
    data_dir: FolderOption = DATA_DIR,
    output: OutputOption = None,
) -> None:
    """Print the addresses of the brokers for --bootstrap, or of the controllers if there are no
    brokers.

    export QUORUMLOG_BOOTSTRAP=$(quorumlog cluster bootstrap)
    """
    cluster = load(os.path.abspath(data_dir))
    addresses = _kafka_bootstrap(cluster) if kafka else _bootstrap(cluster)
    if output is Output.JSON:
        print_json({"bootstrap": addresses})
    else:
        echo(addresses)


@app.command(short_help="Show the process, ports and state of each node")
def status(data_dir: FolderOption = DATA_DIR, output: OutputOption = None) -> None:
    """Show the process, ports and state of each node.

    States: running (the node answers), silent (the process runs but does not answer), paused
    (SIGSTOP), down.
    """
    from .probe import check_nodes

    cluster = load(os.path.abspath(data_dir))
    health = check_nodes(cluster)
    if output is Output.JSON:
        print_json(_json(cluster, health))
        return
    echo(f"cluster {cluster.cluster_id} in {cluster.folder}")
    echo()
    print_table(
        ("node", "roles", "state", "leader", "pid", "grpc", "kafka", "controller", "http"),
        [
            (
                row["id"],
                row["roles"],
                row["state"],
                health[row["id"]].leader,
                "-" if row["pid"] is None else str(row["pid"]),
                row["grpc"],
                row["kafka"],
                row["controller"],
                row["http"],
            )
            for row in _json(cluster, health)["nodes"]
        ],
        empty="No nodes.",
    )


@app.command(short_help="Kill a node (SIGKILL), to simulate a crash")
def kill(
    node_id: IdArgument, data_dir: FolderOption = DATA_DIR, output: OutputOption = None
) -> None:
    """Kill a node (SIGKILL), to simulate a crash."""
    folder = os.path.abspath(data_dir)
    with locked(folder):
        cluster = load(folder)
        process = _running_process(cluster, node_id)
        if send(process, signal.SIGKILL):
            wait_gone(process, KILL_S)
    _print_result(cluster, f"Node {node_id} is down.", output)


@app.command(short_help="Start a node that is down")
def start(
    node_id: IdArgument,
    data_dir: FolderOption = DATA_DIR,
    timeout: TimeoutOption = 60,
    output: OutputOption = None,
) -> None:
    """Start a node that is down, or resume a paused one, and wait until it serves.

    Without a majority of the voters, the command waits only until the node answers. A node whose
    data directory was deleted gets a new directory id and is an observer.
    """
    cluster = _bring_up(node_id, data_dir, timeout, is_restart=False)
    _print_result(cluster, f"Node {node_id} is running.", output)


@app.command(short_help="Stop a node in order and start it")
def restart(
    node_id: IdArgument,
    data_dir: FolderOption = DATA_DIR,
    timeout: TimeoutOption = 60,
    output: OutputOption = None,
) -> None:
    """Stop a node with SIGTERM, start it with its present settings, and wait until it serves."""
    cluster = _bring_up(node_id, data_dir, timeout, is_restart=True)
    _print_result(cluster, f"Node {node_id} is running.", output)


@app.command(short_help="Pause a node (SIGSTOP)")
def pause(
    node_id: IdArgument, data_dir: FolderOption = DATA_DIR, output: OutputOption = None
) -> None:
    """Pause a node (SIGSTOP): the process stays but does not answer."""
    cluster = _signal(node_id, data_dir, signal.SIGSTOP)
    _print_result(cluster, f"Node {node_id} is paused.", output)


@app.command(short_help="Resume a paused node (SIGCONT)")
def resume(
    node_id: IdArgument, data_dir: FolderOption = DATA_DIR, output: OutputOption = None
) -> None:
    """Resume a paused node (SIGCONT)."""
    cluster = _signal(node_id, data_dir, signal.SIGCONT)
    _print_result(cluster, f"Node {node_id} is resumed.", output)


def _bring_up(node_id: int, data_dir: str, timeout: int, *, is_restart: bool) -> LocalCluster:
    """Start a node, for a restart after stopping it; return the cluster once the node serves."""
    from .formation import form
    from .probe import wait_serving

    folder = os.path.abspath(data_dir)
    with locked(folder):
        cluster = load(folder)
        node = cluster.node(node_id)
        if is_restart:
            _stop([node])
        cluster = form(cluster)
        cluster = _start(cluster, cluster.node(node_id))
        wait_serving(cluster, [node_id], timeout)
    return cluster


def _profile(cluster: LocalCluster) -> str:
    """Return the file with which the administrator of a secure cluster connects."""
    from ...server.secure_defaults import SecurityFolder

    return str(SecurityFolder(path=cluster.security_folder).client_profile)


def _planned(
    folder: str, shape: "Shape", racks: tuple[str, ...], *, is_secure: bool
) -> LocalCluster:
    """Return the cluster of a folder with the wanted nodes; nothing is written or started."""
    from .formation import Shape, grown, new_cluster

    found = load_if_any(folder)
    if found is None:
        wanted = Shape(nodes=3) if shape == Shape() else shape
        return new_cluster(folder, wanted, racks, is_secure=is_secure)
    if is_secure and not found.is_secure:
        raise InvalidRequest(
            f"{folder} has a cluster without --secure; docs/secure_cluster.md has the steps that"
            " change a running cluster, or use another --data-dir for another cluster"
        )
    if racks not in ((), found.racks):
        has = ",".join(found.racks) or "none"
        raise InvalidRequest(
            f"{folder} has a cluster with racks {has}, which cannot change; use another --data-dir "
            "for another cluster"
        )
    return grown(found, shape)


def _rack_names(racks: str | None) -> tuple[str, ...]:
    """Return the names of --racks; raise InvalidRequest for an empty name."""
    names = tuple(name.strip() for name in racks.split(",")) if racks is not None else ()
    if not all(names):
        raise InvalidRequest(f"--racks is {racks!r}; give a comma-separated list, such as a,b,c")
    return names


def _is_up(node: LocalNode) -> bool:
    return node.process is not None and life_of(node.process) is not Life.DOWN


def _start(cluster: LocalCluster, node: LocalNode) -> LocalCluster:
    """Start a node that is down and store its process; resume a paused one."""
    if node.process is not None and _is_up(node):
        send(node.process, signal.SIGCONT)
        return cluster
    command = [sys.executable, "-m", "quorumlog.cli", "server"]
    command += ["--config", cluster.config_file(node.id), "--output", "json"]
    for assignment in cluster.settings:
        command += ["--set", assignment]
    with _sigint_deferred():
        process = spawn(
            command,
            output=cluster.log_file(node.id),
            folder=cluster.node_folder(node.id),
            environment=child_environment(_environment()),
        )
        started = cluster.with_node(replace(node, process=process))
        store(started)
    return started


@contextmanager
def _sigint_deferred() -> Iterator[None]:
    """Defer Ctrl-C: a process that is started but not stored could not be found again."""
    held: list[int] = []

    def hold(number: int, _: FrameType | None) -> None:
        held.append(number)

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def _environment() -> dict[str, str]:
    """Return this process's environment, without variables that differ from node to node."""
    from .formation import OWN_SETTINGS

    variables = {variable_of(name) for name in OWN_SETTINGS}
    return {name: text for name, text in os.environ.items() if name not in variables}


def _stop(nodes: Iterable[LocalNode]) -> list[int]:
    """Stop processes concurrently; return the ids of the nodes that had to be killed."""
    stopping = [node for node in nodes if node.process is not None]
    for node in stopping:
        assert node.process is not None
        if send(node.process, signal.SIGTERM):
            send(node.process, signal.SIGCONT)  # a paused process receives SIGTERM only then
    killed = []
    for node in stopping:
        assert node.process is not None
        try:
            wait_gone(node.process, STOP_S)
        except TimedOut:
            send(node.process, signal.SIGKILL)
            wait_gone(node.process, KILL_S)
            killed.append(node.id)
    return killed


def _bootstrap(cluster: LocalCluster) -> str:
    brokers = [node.grpc for node in cluster.nodes if node.grpc]
    return ",".join(brokers or [node.controller for node in cluster.nodes])


def _kafka_bootstrap(cluster: LocalCluster) -> str:
    addresses = [node.kafka for node in cluster.nodes if node.kafka]
    if not addresses:
        raise InvalidRequest(
            f"the cluster in {cluster.folder} has no Kafka listener; it was formed without brokers"
            " or by an older release"
        )
    return ",".join(addresses)


def _running_process(cluster: LocalCluster, node_id: int) -> ProcessIdentity:
    process = cluster.node(node_id).process
    if process is None or life_of(process) is Life.DOWN:
        raise InvalidRequest(
            f"node {node_id} is down; start it with `quorumlog cluster start {node_id}`"
        )
    return process


def _signal(node_id: int, data_dir: str, number: signal.Signals) -> LocalCluster:
    folder = os.path.abspath(data_dir)
    with locked(folder):
        cluster = load(folder)
        process = _running_process(cluster, node_id)
        if send(process, number) and number == signal.SIGSTOP:
            wait_paused(process, KILL_S)  # the signal takes effect a moment later
    return cluster


def _print_result(cluster: LocalCluster, sentence: str, output: Output | None) -> None:
    """Print a sentence, or the cluster as JSON, as `status` does."""
    if output is not Output.JSON:
        echo(sentence)
        return
    from .probe import check_nodes

    print_json(_json(cluster, check_nodes(cluster)))


def _json(cluster: LocalCluster, health: "dict[int, NodeHealth]") -> dict[str, Any]:
    return {
        "cluster_id": cluster.cluster_id,
        "data_dir": cluster.folder,
        "nodes": [_node_json(node, health[node.id]) for node in cluster.nodes],
    }


def _node_json(node: LocalNode, health: "NodeHealth") -> dict[str, Any]:
    is_down = node.process is None or health.life is Life.DOWN
    return {
        "id": node.id,
        "pid": None if is_down or node.process is None else node.process.pid,
        "roles": list(node.roles),
        "rack": node.rack or None,
        "kafka": node.kafka,
        "grpc": node.grpc,
        "controller": node.controller,
        "http": node.http,
        "state": health.state,
    }
