"""The state of a local cluster in one file of its folder: nodes, ports, processes.

Writes replace `cluster.json` atomically and sync its folder, so that a killed command leaves the
old or the new state. A lock prevents concurrent changes by two commands.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import DirectoryInUse, DirectoryUnusable, InvalidRequest
from ...runtime.files import RealFiles
from ...runtime.private_files import FILE_MODE, FOLDER_MODE, check_private, replace_file
from .processes import ProcessIdentity

FILE = "cluster.json"
LOCK = ".cluster.lock"
VERSION = 1
NODES_MAX = 99
BOTH, CONTROLLER, BROKER = ("controller", "broker"), ("controller",), ("broker",)
"""The combinations of roles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """One node of the cluster."""

    id: int
    roles: tuple[str, ...]
    grpc: str | None  # "host:port" for gRPC clients; None: not a broker
    kafka: str | None  # "host:port" for Kafka clients; None: not a broker, or an older release
    controller: str  # "host:port" for other nodes
    http: str | None  # "host:port" of metrics and health; None: formed by an older release
    rack: str  # failure zone; empty: none
    process: ProcessIdentity | None  # the last one started; it may have exited

    @property
    def is_controller(self) -> bool:
        """True for a member of the metadata quorum."""
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        """True for a node that holds replicas."""
        return "broker" in self.roles


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """A local cluster and its nodes, by ascending id."""

    folder: str
    cluster_id: str
    settings: tuple[str, ...]  # "name=value" flags of every node
    voters: tuple[str, ...]  # initial voters, in the form of controller.voters
    is_formed: bool  # every node of the first `up` is formatted with the voters
    racks: tuple[str, ...]  # assigned to brokers in turn; empty: none
    replication: int  # default.replication.factor
    is_secure: bool  # TLS, passwords and ACLs
    nodes: tuple[LocalNode, ...]

    def node(self, node_id: int) -> LocalNode:
        """Return the node of an id; raise InvalidRequest if it does not exist."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise InvalidRequest(f"the cluster has no node {node_id}; its nodes are {ids}")

    def with_node(self, node: LocalNode) -> "LocalCluster":
        """Return the cluster with the node of this id replaced."""
        nodes = (node if each.id == node.id else each for each in self.nodes)
        return replace(self, nodes=tuple(nodes))

    @property
    def security_folder(self) -> Path:
        """The folder of a secure cluster's certificates and profiles."""
        return Path(self.folder) / "security"

    def node_folder(self, node_id: int) -> str:
        """Return the folder of a node's files."""
        return os.path.join(self.folder, f"node-{node_id}")

    def data_dir(self, node_id: int) -> str:
        """Return a node's data directory."""
        return os.path.join(self.node_folder(node_id), "data")

    def config_file(self, node_id: int) -> str:
        """Return the path of a node's configuration file."""
        return os.path.join(self.node_folder(node_id), "node.toml")

    @property
    def config_files(self) -> list[str]:
        """The configuration files that exist."""
        files = (self.config_file(node.id) for node in self.nodes)
        return [path for path in files if os.path.exists(path)]

    def log_file(self, node_id: int) -> str:
        """Return the path of a node's output, of all its runs."""
        return os.path.join(self.node_folder(node_id), "node.log")


def load(folder: str) -> LocalCluster:
    """Read the state; raise InvalidRequest if the folder has no cluster."""
    cluster = load_if_any(folder)
    if cluster is None:
        raise InvalidRequest(
            f"{folder} has no cluster; form one with `quorumlog cluster up`, or give its --data-dir"
        )
    return cluster


def load_if_any(folder: str) -> LocalCluster | None:
    """Read the state; None if the folder has no cluster.

    Raises DirectoryUnusable if the file cannot be read, or if another user can write to it, to its
    folder, or to the folder or the configuration file of a node.
    """
    path = os.path.join(folder, FILE)
    try:
        check_private(folder)
        with open(path, encoding="utf-8") as file:
            check_private(path, os.fstat(file.fileno()))
            row = json.load(file)
        if row["version"] != VERSION:
            raise DirectoryUnusable(
                f"{path} has version {row['version']}; this release reads version {VERSION}; use "
                "the release that wrote it"
            )
        cluster = LocalCluster(
            folder=folder,
            cluster_id=row["cluster_id"],
            settings=tuple(row["settings"]),
            voters=tuple(row["voters"]),
            is_formed=bool(row["is_formed"]),
            racks=tuple(row.get("racks", ())),
            replication=int(row.get("replication", 1)),
            is_secure=bool(row.get("is_secure")),
            nodes=tuple(_node(each) for each in row["nodes"]),
        )
        _check_nodes(cluster)
        return cluster
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryUnusable(
            f"{path} is malformed ({error!r}); repair it, or use another --data-dir"
        ) from None


def _check_nodes(cluster: LocalCluster) -> None:
    """Raise DirectoryUnusable if another user can write to the folder or the configuration file of
    a node; a missing one is accepted."""
    for node in cluster.nodes:
        for path in (cluster.node_folder(node.id), cluster.config_file(node.id)):
            with suppress(FileNotFoundError):
                check_private(path)


def store(cluster: LocalCluster) -> None:
    """Replace the file durably; raise DirectoryUnusable if it cannot be written."""
    path = os.path.join(cluster.folder, FILE)
    row = {
        "version": VERSION,
        "cluster_id": cluster.cluster_id,
        "settings": list(cluster.settings),
        "voters": list(cluster.voters),
        "is_formed": cluster.is_formed,
        "racks": list(cluster.racks),
        "replication": cluster.replication,
        "is_secure": cluster.is_secure,
        "nodes": [asdict(node) for node in cluster.nodes],
    }
    try:
        replace_file(Path(path), json.dumps(row, indent=1).encode(), FILE_MODE)
        RealFiles().sync_folder(cluster.folder)
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def locked(folder: str, *, make: bool = False) -> Iterator[None]:
    """Hold the lock of the cluster; raise DirectoryInUse if another command holds it, and
    DirectoryUnusable if another user can write to the folder."""
    files = RealFiles()
    try:
        if make:
            os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
        elif not os.path.isdir(folder):
            load(folder)  # raises InvalidRequest
        check_private(folder)
        lock = files.lock(os.path.join(folder, LOCK))
    except BlockingIOError:
        raise DirectoryInUse(
            f"{folder} is locked by another `quorumlog cluster` command; retry when it has ended"
        ) from None
    except OSError as error:
        raise DirectoryUnusable(f"{folder} cannot be used: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()


def _node(row: dict[str, Any]) -> LocalNode:
    process = row["process"]
    return LocalNode(
        id=int(row["id"]),
        roles=tuple(row["roles"]),
        grpc=row["grpc"],
        kafka=row.get("kafka"),
        controller=row["controller"],
        http=row.get("http"),
        rack=row.get("rack", ""),
        process=None if process is None else ProcessIdentity(int(process["pid"]), process["start"]),
    )
