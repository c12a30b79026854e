"""`quorumlog cluster up|down|status|kill|start|pause|resume|bootstrap|describe`."""

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
from ...settings import variable_of
from ..brokers import describe_cluster
from ..nodes import SetOption
from ..options import Output, OutputOption
from ..output import count_text, print_json, print_table
from .processes import Life, ProcessName, life_of, send, spawn, wait_gone, wait_paused
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
    from .forming import Shape
    from .watching import NodeHealth

DATA_DIR = "quorumlog-cluster"
STOP_S = 30.0  # an orderly stop that takes longer is ended by SIGKILL
KILL_S = 10.0
_LEFT_RUNNING = (
    "Interrupted: nodes that were started run on. `quorumlog cluster up` waits for them again, "
    "`quorumlog cluster down` stops them."
)

app = typer.Typer(
    help="The cluster; and clusters of processes on this machine, to try things on.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("describe", short_help="Show the cluster's id, controller and sizes.")(describe_cluster)

FolderOption = Annotated[
    str,
    typer.Option("--data-dir", metavar="DIR", help="Where the cluster keeps all its files."),
]
TimeoutOption = Annotated[
    int,
    typer.Option("--timeout", metavar="SECONDS", min=1, max=3_600, help="How long nodes may take."),
]
NodesOption = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        metavar="N",
        min=1,
        max=NODES_MAX,
        help="Nodes that are controller and broker.  [default for a new cluster: 3]",
    ),
]
ControllersOption = Annotated[
    int | None,
    typer.Option(
        "--controllers",
        metavar="N",
        min=1,
        max=NODES_MAX,
        help="Nodes that are controllers alone, in place of --nodes.",
    ),
]
BrokersOption = Annotated[
    int | None,
    typer.Option(
        "--brokers", metavar="N", min=1, max=NODES_MAX, help="Nodes that are brokers alone."
    ),
]
RacksOption = Annotated[
    str | None,
    typer.Option(
        "--racks", metavar="NAMES", help="Failure zones, by commas, that brokers get in turn."
    ),
]
IdArgument = Annotated[int, typer.Argument(metavar="ID", min=0, help="The node's id.")]


@app.command(short_help="Start a cluster of processes on this machine.")
def up(
    nodes: NodesOption = None,
    controllers: ControllersOption = None,
    brokers: BrokersOption = None,
    racks: RacksOption = None,
    data_dir: FolderOption = DATA_DIR,
    timeout: TimeoutOption = 60,
    assignments: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Start every node of a cluster that is not running, and return once all of them serve.

    The first time the cluster is formed, with ports that it keeps; topics then have 3 replicas
    unless they are told otherwise, or as many as there are brokers. Again with more nodes, it gets
    further ones: controllers follow without a vote until `quorumlog quorum add-voter`. A node whose
    data directory was deleted comes back as such a one too. --set is kept for later starts.
    """
    from .forming import Shape, check_settings, form
    from .watching import look, wait_serving

    if nodes is not None and controllers is not None:
        raise InvalidRequest(
            "--nodes are controllers and brokers in one, --controllers are controllers alone: "
            "give one of the two"
        )
    shape = Shape(nodes=nodes, controllers=controllers, brokers=brokers)
    folder = os.path.abspath(data_dir)
    if shape != Shape() and load_if_any(folder) is None:
        shape.check_new()
    if assignments is not None:
        check_settings(assignments, _environment())
    names = _names(racks)
    with locked(folder, make=True):
        cluster = _drawn_up(folder, shape, names)
        if assignments is not None:
            cluster = replace(cluster, settings=tuple(assignments))
        cluster = form(cluster)
        try:
            for node in cluster.nodes:
                cluster = _started(cluster, node)
            wait_serving(cluster, [node.id for node in cluster.nodes], timeout)
        except KeyboardInterrupt:
            typer.echo(_LEFT_RUNNING, err=True)
            raise
    if output is Output.JSON:
        print_json(_json(cluster, look(cluster)))
        return
    doors = {
        "grpc": [node.grpc for node in cluster.nodes if node.grpc],
        "kafka": [node.kafka for node in cluster.nodes if node.kafka],
        "controller": [node.controller for node in cluster.nodes],
    }
    places = [f"{name} {','.join(found)}" for name, found in doors.items() if found]
    typer.echo(
        f"quorumlog is ready: {count_text(len(cluster.nodes), 'node')}, {', '.join(places)}; "
        f"data in {folder}"
    )


@app.command(short_help="Stop every node in order.")
def down(data_dir: FolderOption = DATA_DIR, output: OutputOption = None) -> None:
    """Stop every node in order, and return once all have ended. Their data stay."""
    folder = os.path.abspath(data_dir)
    with locked(folder):
        cluster = load(folder)
        killed = _stop(cluster.nodes)
    are_down = "Its node is" if len(cluster.nodes) == 1 else f"All {len(cluster.nodes)} nodes are"
    _tell(cluster, f"{are_down} down; the data stay in {folder}.", output)
    for node_id in killed:
        typer.echo(f"Node {node_id} took longer than {STOP_S:.0f} s and was killed.", err=True)


@app.command(short_help="Print the cluster's addresses, for QUORUMLOG_BOOTSTRAP.")
def bootstrap(
    kafka: Annotated[
        bool, typer.Option("--kafka", help="As clients of the Kafka protocol take them.")
    ] = False,
    data_dir: FolderOption = DATA_DIR,
    output: OutputOption = None,
) -> None:
    """Print the cluster's addresses as --bootstrap takes them: of its brokers, or of its
    controllers where it has none.

    export QUORUMLOG_BOOTSTRAP=$(quorumlog cluster bootstrap)
    """
    cluster = load(os.path.abspath(data_dir))
    addresses = _kafka_bootstrap(cluster) if kafka else _bootstrap(cluster)
    if output is Output.JSON:
        print_json({"bootstrap": addresses})
    else:
        typer.echo(addresses)


@app.command(short_help="Show each node's process, ports and state.")
def status(data_dir: FolderOption = DATA_DIR, output: OutputOption = None) -> None:
    """Show each node's process, ports and state.

    running: it answers. silent: the process lives and does not answer. paused, down: as it says.
    """
    from .watching import look

    cluster = load(os.path.abspath(data_dir))
    health = look(cluster)
    if output is Output.JSON:
        print_json(_json(cluster, health))
        return
    typer.echo(f"cluster {cluster.cluster_id} in {cluster.folder}\n")
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
        empty="It has no nodes.",
    )


@app.command(short_help="End a node at once, as a crash would (SIGKILL).")
def kill(
    node_id: IdArgument, data_dir: FolderOption = DATA_DIR, output: OutputOption = None
) -> None:
    """End a node at once, as a crash would (SIGKILL)."""
    folder = os.path.abspath(data_dir)
    with locked(folder):
        cluster = load(folder)
        process = _living(cluster, node_id)
        if send(process, signal.SIGKILL):
            wait_gone(process, KILL_S)
    _tell(cluster, f"Node {node_id} is down.", output)


@app.command(short_help="Start a node that is down.")
def start(
    node_id: IdArgument,
    data_dir: FolderOption = DATA_DIR,
    timeout: TimeoutOption = 60,
    output: OutputOption = None,
) -> None:
    """Start a node that is down, and return once it serves; a paused one goes on.

    Where no majority of the voters is up it returns once the node answers. A node whose data
    directory was deleted gets a new one, with a new directory id and without a vote.
    """
    from .forming import form
    from .watching import wait_serving

    folder = os.path.abspath(data_dir)
    with locked(folder):
        cluster = load(folder)
        cluster.node(node_id)
        cluster = form(cluster)
        cluster = _started(cluster, cluster.node(node_id))
        wait_serving(cluster, [node_id], timeout)
    _tell(cluster, f"Node {node_id} runs.", output)


@app.command(short_help="Stop a node's time (SIGSTOP): it lives and answers nothing.")
def pause(
    node_id: IdArgument, data_dir: FolderOption = DATA_DIR, output: OutputOption = None
) -> None:
    """Stop a node's time (SIGSTOP): it lives and answers nothing."""
    cluster = _signal(node_id, data_dir, signal.SIGSTOP)
    _tell(cluster, f"Node {node_id} is paused.", output)


@app.command(short_help="Let a paused node go on (SIGCONT).")
def resume(
    node_id: IdArgument, data_dir: FolderOption = DATA_DIR, output: OutputOption = None
) -> None:
    """Let a paused node go on (SIGCONT)."""
    cluster = _signal(node_id, data_dir, signal.SIGCONT)
    _tell(cluster, f"Node {node_id} goes on.", output)


def _drawn_up(folder: str, shape: "Shape", racks: tuple[str, ...]) -> LocalCluster:
    """Return the cluster of a folder with the nodes that it shall have."""
    from .forming import Shape, grown, new_cluster

    found = load_if_any(folder)
    if found is None:
        return new_cluster(folder, Shape(nodes=3) if shape == Shape() else shape, racks)
    if racks not in ((), found.racks):
        has = ",".join(found.racks) or "none"
        raise InvalidRequest(
            f"{folder} holds a cluster whose racks are {has}: they are given when it is formed; "
            "--data-dir makes another cluster"
        )
    return grown(found, shape)


def _names(racks: str | None) -> tuple[str, ...]:
    """Return the names of racks; raises InvalidRequest."""
    names = tuple(name.strip() for name in racks.split(",")) if racks is not None else ()
    if not all(names):
        raise InvalidRequest(f"--racks is {racks!r}; give names separated by commas, such as a,b,c")
    return names


def _started(cluster: LocalCluster, node: LocalNode) -> LocalCluster:
    """Start a node unless it runs, and write down which process it is; a paused one goes on."""
    if node.process is not None and life_of(node.process) is not Life.DOWN:
        send(node.process, signal.SIGCONT)
        return cluster
    command = [sys.executable, "-m", "quorumlog.cli", "server"]
    command += ["--config", cluster.config_file(node.id), "--output", "json"]
    for assignment in cluster.settings:
        command += ["--set", assignment]
    with _undisturbed():
        process = spawn(
            command,
            output=cluster.log_file(node.id),
            folder=cluster.node_folder(node.id),
            environment=_environment(),
        )
        started = cluster.having(replace(node, process=process))
        store(started)
    return started


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold a Ctrl-C back: a process that was started and not written down would be nobody's."""
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
    """This command's environment, without what would make all nodes one and the same."""
    from .forming import OWN_SETTINGS

    variables = {variable_of(name) for name in OWN_SETTINGS}
    return {name: text for name, text in os.environ.items() if name not in variables}


def _stop(nodes: Iterable[LocalNode]) -> list[int]:
    """Stop processes, all at once; return the nodes that had to be killed."""
    asked = [node for node in nodes if node.process is not None]
    for node in asked:
        assert node.process is not None
        if send(node.process, signal.SIGTERM):
            send(node.process, signal.SIGCONT)  # a paused one hears of it only then
    killed = []
    for node in asked:
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
            f"no node of the cluster in {cluster.folder} has a Kafka listener: it was formed "
            "without brokers, or by a release that had none"
        )
    return ",".join(addresses)


def _living(cluster: LocalCluster, node_id: int) -> ProcessName:
    process = cluster.node(node_id).process
    if process is None or life_of(process) is Life.DOWN:
        raise InvalidRequest(
            f"node {node_id} is down; `quorumlog cluster start {node_id}` starts it"
        )
    return process


def _signal(node_id: int, data_dir: str, number: signal.Signals) -> LocalCluster:
    folder = os.path.abspath(data_dir)
    with locked(folder):
        cluster = load(folder)
        process = _living(cluster, node_id)
        if send(process, number) and number == signal.SIGSTOP:
            wait_paused(process, KILL_S)  # the signal takes effect a moment later
    return cluster


def _tell(cluster: LocalCluster, sentence: str, output: Output | None) -> None:
    """Say what was done; for programs the cluster as `status` shows it."""
    if output is not Output.JSON:
        typer.echo(sentence)
        return
    from .watching import look

    print_json(_json(cluster, look(cluster)))


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
