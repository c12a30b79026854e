"""A cluster's nodes before they run: ids, ports, configuration files, formatted directories."""

import json
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ...errors import AddressInUse, DirectoryUnusable, InvalidRequest
from ...runtime import Listener, Runtime
from ...runtime.real import run
from ...server.addresses import id_text
from ...server.config import node_config, node_environment, resolve_node, settings
from ...server.main import format_storage, is_formatted_storage, load_config
from ...settings import DEFAULT, Source, flag_source, split_assignments
from .state import BOTH, CONTROLLER, LocalCluster, LocalNode, store

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
PORT_TRIES = 200
PORTS_A_NODE = 3  # for clients, for other nodes, for metrics and health
OWN_SETTINGS = (
    "data.dir",
    "node.id",
    "node.roles",
    "cluster.id",
    "listeners.grpc",
    "listeners.controller",
    "listeners.http",
    "advertised.grpc",
    "advertised.controller",
    "controller.voters",
    "controller.bootstrap",
)
"""What differs from node to node: variables of the environment must not say it for all of them."""


def new_cluster(folder: str, roles: Sequence[tuple[str, ...]]) -> LocalCluster:
    """Draw up a cluster whose nodes 1, 2, ... have these roles; nothing is written."""
    ports = free_ports(PORTS_A_NODE * len(roles), taken=())
    nodes = tuple(
        _node(number, each, _share(ports, number)) for number, each in enumerate(roles, 1)
    )
    return LocalCluster(
        folder=folder,
        cluster_id=_new_id(),
        settings=(),
        voters=tuple(f"{node.id}@{node.controller}:{_new_id()}" for node in nodes),
        is_formed=False,
        nodes=nodes,
    )


def check_settings(assignments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Refuse what no node could start with, before it is kept for all of them; raises InvalidConfig
    and InvalidRequest. `environment` is what nodes get, and what the settings must agree with."""
    flags = split_assignments(assignments, flag="--set")
    for name, _, flag in flags:
        if name in OWN_SETTINGS:
            raise InvalidRequest(
                f"{flag}: every node has its own, which `quorumlog cluster up` gives it"
            )
    table = tuple(settings())
    place = Source(values={"data.dir": ("node", DEFAULT)})
    node_config(resolve_node([flag_source(table, flags), node_environment(environment), place]))


def grown(cluster: LocalCluster, roles: Sequence[tuple[str, ...]]) -> LocalCluster:
    """Return the cluster with further nodes up to these roles; raises InvalidRequest where that
    would take away or change nodes that are there."""
    have = [node.roles for node in cluster.nodes]
    if list(roles[: len(have)]) != have:
        raise InvalidRequest(
            f"{cluster.folder} holds {describe_roles(have)}, not {describe_roles(roles)}: nodes "
            "can be added, not taken away or changed; --data-dir makes another cluster"
        )
    addresses = (a for node in cluster.nodes for a in (node.grpc, node.controller, node.http))
    taken = [port_of(address) for address in addresses if address]
    more = roles[len(have) :]
    ports = free_ports(PORTS_A_NODE * len(more), taken=taken)
    added = [
        _node(len(have) + number, each, _share(ports, number))
        for number, each in enumerate(more, 1)
    ]
    return replace(cluster, nodes=(*cluster.nodes, *added))


def describe_roles(roles: Iterable[tuple[str, ...]]) -> str:
    """Return what kinds of nodes these are, in words."""
    listed = list(roles)
    both, alone = listed.count(BOTH), listed.count(CONTROLLER)
    words = [f"{both} node{'s' * (both != 1)} with both roles"] if both else []
    words += [f"{alone} controller{'s' * (alone != 1)}"] if alone else []
    return " and ".join(words)


def form(cluster: LocalCluster) -> LocalCluster:
    """Write the configuration of every node and format what was never formatted.

    The nodes of a new cluster get its voters. A node that is added later, or whose data directory
    is gone, gets a new disk without a vote: `quorum add-voter` gives it one.
    """
    _store_with_folders(cluster)
    for node in cluster.nodes:
        path = cluster.config_file(node.id)
        if not cluster.is_formed or not os.path.exists(path):
            _write(path, _toml(cluster, node))
        config = load_config(path)
        if not cluster.is_formed or not is_formatted_storage(config):
            format_storage(config, no_initial_voters=cluster.is_formed)
    formed = replace(cluster, is_formed=True)
    store(formed)
    return formed


def _store_with_folders(cluster: LocalCluster) -> None:
    """Write the state, and the folders of nodes that have none."""
    try:
        for node in cluster.nodes:
            os.makedirs(cluster.node_folder(node.id), exist_ok=True)
    except OSError as error:
        raise DirectoryUnusable(
            f"{error.filename} cannot be made: {error.strerror or error}"
        ) from None
    store(cluster)


def free_ports(count: int, *, taken: Iterable[int]) -> list[int]:
    """Return ports of this machine that nobody listens on now."""
    used = set(taken)
    candidates = [port for port in random.sample(PORTS, count + PORT_TRIES) if port not in used]

    async def main(runtime: Runtime) -> list[int]:
        found: dict[int, Listener] = {}
        for port in candidates:
            if len(found) == count:
                break
            with suppress(AddressInUse, OSError):
                found[port] = await runtime.network.serve(f"{HOST}:{port}", {}, is_ready=False)
        for listener in found.values():  # held until all are found
            await listener.close(0)
        return list(found)

    ports = run(main, name="ports")
    if len(ports) < count:
        raise InvalidRequest(f"{count} free ports of {PORTS.start} to {PORTS.stop - 1} were sought")
    return ports


def port_of(address: str) -> int:
    """Return the port of "host:port"."""
    return int(address.rpartition(":")[2])


def _share(ports: Sequence[int], number: int) -> Sequence[int]:
    """The ports of the first, second ... node of those that they were found for."""
    return ports[PORTS_A_NODE * (number - 1) : PORTS_A_NODE * number]


def _node(number: int, roles: tuple[str, ...], ports: Sequence[int]) -> LocalNode:
    return LocalNode(
        id=number,
        roles=roles,
        grpc=f"{HOST}:{ports[0]}" if "broker" in roles else None,
        controller=f"{HOST}:{ports[1]}",
        http=f"{HOST}:{ports[2]}",
        process=None,
    )


def _toml(cluster: LocalCluster, node: LocalNode) -> str:
    others = [each.controller for each in cluster.nodes if each.id != node.id]
    rows: dict[str, object] = {
        "node.id": node.id,
        "node.roles": list(node.roles),
        "cluster.id": cluster.cluster_id,
        "data.dir": cluster.data_dir(node.id),
        "listeners.controller": node.controller,
        "controller.voters": [] if cluster.is_formed else list(cluster.voters),
        "controller.bootstrap": others,
    }
    if node.grpc is not None:
        rows["listeners.grpc"] = node.grpc
    if node.http is not None:
        rows["listeners.http"] = node.http
    head = f"# Node {node.id} of the cluster in {cluster.folder}; by `quorumlog cluster up`.\n"
    return head + "".join(f"{name} = {json.dumps(value)}\n" for name, value in rows.items())


def _write(path: str, text: str) -> None:
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be written: {error.strerror or error}") from None


def _new_id() -> str:
    """Return a new id of a cluster or a disk."""
    return id_text(os.urandom(16))
