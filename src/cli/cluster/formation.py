"""Formation of a local cluster: ids, ports, configuration files, formatted directories."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import AddressInUse, DirectoryUnusable, InvalidRequest
from ...runtime import Listener, Runtime
from ...runtime.private_files import FILE_MODE, FOLDER_MODE, check_private, replace_file
from ...runtime.real import run
from ...server.addresses import id_text
from ...server.config import (
    node_config,
    node_environment,
    resolve_node,
    settings,
    toml_source,
)
from ...server.main import (
    ADMINISTRATOR,
    AUDIT_FILE,
    format_storage,
    is_formatted_storage,
    load_config,
)
from ...settings import DEFAULT, SettingSource, flag_source, read_settings, split_assignments
from .state import BOTH, BROKER, CONTROLLER, LocalCluster, LocalNode, store

if TYPE_CHECKING:
    from ...server.secure_defaults import SecurityFolder

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below the ephemeral ports of outgoing connections
PORT_TRIES = 200
PORTS_A_NODE = 4  # gRPC clients, Kafka clients, other nodes, metrics
REPLICATION = 3  # the cluster's default.replication.factor, if there are as many brokers
OWN_SETTINGS = (
    "data.dir",
    "node.id",
    "node.roles",
    "cluster.id",
    "listeners.grpc",
    "listeners.controller",
    "listeners.http",
    "listeners.kafka",
    "listeners.raft",
    "advertised.grpc",
    "advertised.kafka",
    "advertised.controller",
    "node.rack",
    "controller.voters",
    "controller.bootstrap",
)
"""Settings that differ from node to node, and so must not come from the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The wanted number of nodes by roles. None: unchanged, or none for a new cluster."""

    nodes: int | None = None  # controller and broker
    controllers: int | None = None  # controller only
    brokers: int | None = None  # broker only

    @property
    def counts(self) -> dict[tuple[str, ...], int | None]:
        """The number of nodes by roles, in the order of their ids. The controllers of a cluster are
        either all brokers or none is."""
        nodes, controllers = self.nodes, self.controllers
        if nodes is not None or controllers is not None:
            nodes, controllers = nodes or 0, controllers or 0
        return {BOTH: nodes, CONTROLLER: controllers, BROKER: self.brokers}

    def check_new(self) -> None:
        """Raise InvalidRequest for a cluster without controllers."""
        if not (self.nodes or self.controllers):
            raise InvalidRequest(
                "a cluster needs controllers; add --controllers 3, or give --nodes 3 for nodes "
                "with both roles"
            )


def new_cluster(
    folder: str, shape: Shape, racks: Sequence[str] = (), *, is_secure: bool = False
) -> LocalCluster:
    """Return a cluster of nodes 1, 2, ..., with the brokers in these racks in turn; nothing is
    written. Raise InvalidRequest for a cluster without controllers."""
    shape.check_new()
    roles = [kind for kind, count in shape.counts.items() for _ in range(count or 0)]
    brokers = sum("broker" in kind for kind in roles)
    empty = LocalCluster(
        folder=folder,
        cluster_id=_new_id(),
        settings=(),
        voters=(),
        is_formed=False,
        racks=tuple(racks),
        replication=max(1, min(REPLICATION, brokers)),
        is_secure=is_secure,
        nodes=(),
    )
    cluster = _with_more(empty, roles)
    voters = (node for node in cluster.nodes if node.is_controller)
    return replace(
        cluster, voters=tuple(f"{node.id}@{node.controller}:{_new_id()}" for node in voters)
    )


def check_settings(
    assignments: Sequence[str], environment: Mapping[str, str], config_files: Sequence[str] = ()
) -> None:
    """Raise InvalidConfig or InvalidRequest for settings with which a node could not start, given
    the `environment` and the configuration files of the nodes."""
    flags = split_assignments(assignments, flag="--set")
    for name, _, flag in flags:
        if name in OWN_SETTINGS:
            raise InvalidRequest(
                f"{flag}: this setting differs from node to node; `quorumlog cluster up` sets it"
            )
    above = [flag_source(tuple(settings()), flags), node_environment(environment)]
    for path in config_files:
        node_config(resolve_node([*above, toml_source(read_settings(path), path=path)]))
    if not config_files:
        place = SettingSource(values={"data.dir": ("node", DEFAULT)})
        node_config(resolve_node([*above, place]))


def grown(cluster: LocalCluster, shape: Shape) -> LocalCluster:
    """Return the cluster with nodes added up to these numbers. Raise InvalidRequest if existing
    nodes would be removed or change their roles."""
    have = Counter(node.roles for node in cluster.nodes)
    wanted = {kind: have[kind] if n is None else n for kind, n in shape.counts.items()}
    if any(wanted[kind] < have[kind] for kind in wanted):
        raise InvalidRequest(
            f"{cluster.folder} has {describe_roles(have)}, not {describe_roles(wanted)}; nodes can "
            "be added but not removed or changed; use another --data-dir for another cluster"
        )
    return _with_more(cluster, [kind for kind in wanted for _ in range(wanted[kind] - have[kind])])


def describe_roles(counts: Mapping[tuple[str, ...], int]) -> str:
    """Return the number of nodes by roles as text."""
    words = {BOTH: "node{} with both roles", CONTROLLER: "controller{}", BROKER: "broker{}"}
    parts = [
        f"{counts[kind]} {word.format('s' * (counts[kind] != 1))}"
        for kind, word in words.items()
        if counts.get(kind)
    ]
    return " and ".join(parts) or "no nodes"


def _with_more(cluster: LocalCluster, roles: Sequence[tuple[str, ...]]) -> LocalCluster:
    """Return the cluster with added nodes of these roles, with the next ids and free ports."""
    addresses = (
        address
        for node in cluster.nodes
        for address in (node.grpc, node.kafka, node.controller, node.http)
    )
    ports = free_ports(PORTS_A_NODE * len(roles), taken=(port_of(a) for a in addresses if a))
    for kind in roles:
        share, ports = ports[:PORTS_A_NODE], ports[PORTS_A_NODE:]
        is_broker, racks = "broker" in kind, cluster.racks
        turn = sum(node.is_broker for node in cluster.nodes)
        node = LocalNode(
            id=len(cluster.nodes) + 1,
            roles=kind,
            grpc=f"{HOST}:{share[0]}" if is_broker else None,
            controller=f"{HOST}:{share[1]}",
            http=f"{HOST}:{share[2]}",
            kafka=f"{HOST}:{share[3]}" if is_broker else None,
            rack=racks[turn % len(racks)] if racks and is_broker else "",
            process=None,
        )
        cluster = replace(cluster, nodes=(*cluster.nodes, node))
    return cluster


def form(cluster: LocalCluster) -> LocalCluster:
    """Write the configuration of every node, and format directories that are not formatted.

    The controllers of a new cluster are its voters. A node that is added later, or whose data
    directory was deleted, is an observer until `quorum add-voter`.
    """
    security = _security_of(cluster)  # before a change is stored: it may fail
    _store_with_folders(cluster)
    users = {} if security is None else {ADMINISTRATOR: security.password}
    for node in cluster.nodes:
        path = cluster.config_file(node.id)
        if not cluster.is_formed or not os.path.exists(path):
            _write(path, _toml(cluster, node, security))
        config = load_config(path)
        if not cluster.is_formed or not is_formatted_storage(config):
            initial = users if config.is_controller and not cluster.is_formed else {}
            format_storage(config, no_initial_voters=cluster.is_formed, users=initial)
    formed = replace(cluster, is_formed=True)
    store(formed)
    return formed


def _security_of(cluster: LocalCluster) -> "SecurityFolder | None":
    """Return the folder of a secure cluster, with a certificate for each node and the files with
    which the administrator connects. Raise InvalidConfig."""
    if not cluster.is_secure:
        return None
    from ...server.secure_defaults import open_security_folder

    security = open_security_folder(cluster.security_folder)
    for node in cluster.nodes:
        security.issue_node(cluster.cluster_id, node.id, node.roles, [HOST])
    brokers = [node for node in cluster.nodes if node.grpc]
    security.write_profiles(
        grpc=",".join(node.grpc for node in brokers if node.grpc),
        kafka=",".join(node.kafka for node in brokers if node.kafka) or None,
    )
    return security


def _store_with_folders(cluster: LocalCluster) -> None:
    """Create missing node folders, and store the state. Raise DirectoryUnusable if another user can
    write to a node folder."""
    try:
        for node in cluster.nodes:
            folder = cluster.node_folder(node.id)
            os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
            check_private(folder)
    except OSError as error:
        raise DirectoryUnusable(
            f"{error.filename} cannot be created: {error.strerror or error}"
        ) from None
    store(cluster)


def free_ports(count: int, *, taken: Iterable[int]) -> list[int]:
    """Return local ports that are free now; raise InvalidRequest if there are too few."""
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
        raise InvalidRequest(
            f"{count} free ports are needed; found {len(ports)} in"
            f" {PORTS.start} to {PORTS.stop - 1}"
        )
    return ports


def port_of(address: str) -> int:
    """Return the port of "host:port"."""
    return int(address.rpartition(":")[2])


def _toml(cluster: LocalCluster, node: LocalNode, security: "SecurityFolder | None") -> str:
    others = [
        each.controller for each in cluster.nodes if each.id != node.id and each.is_controller
    ]
    forms = node.is_controller and not cluster.is_formed
    rows: dict[str, object] = {
        "node.id": node.id,
        "node.roles": list(node.roles),
        "cluster.id": cluster.cluster_id,
        "data.dir": cluster.data_dir(node.id),
        "listeners.controller": node.controller,
        "controller.voters": list(cluster.voters) if forms else [],
        "controller.bootstrap": others,
        "default.replication.factor": cluster.replication,
    }
    if node.rack:
        rows["node.rack"] = node.rack
    if node.grpc is not None:
        rows["listeners.grpc"] = node.grpc
    if node.kafka is not None:
        rows["listeners.kafka"] = [node.kafka if security is None else f"SASL_SSL://{node.kafka}"]
    if security is not None:
        rows.update(security.settings(node.id))
        rows["audit.log.file"] = os.path.join(cluster.node_folder(node.id), AUDIT_FILE)
    if node.http is not None:
        rows["listeners.http"] = node.http
    head = f"# Node {node.id} of the cluster in {cluster.folder}; by `quorumlog cluster up`.\n"
    return head + "".join(f"{name} = {json.dumps(value)}\n" for name, value in rows.items())


def _write(path: str, text: str) -> None:
    try:
        replace_file(Path(path), text.encode(), FILE_MODE)
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be written: {error.strerror or error}") from None


def _new_id() -> str:
    """Return a random id of a cluster or a disk."""
    return id_text(os.urandom(16))
