"""What a local cluster is, kept in one file of its folder: nodes, ports, processes.

`cluster.json` is replaced as a whole and its folder synced, so that a command which is killed
leaves the old state or the new one. A lock keeps two commands from changing it at once.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...errors import DirectoryInUse, DirectoryUnusable, InvalidRequest
from ...runtime.files import RealFiles
from .processes import ProcessName

FILE = "cluster.json"
LOCK = ".cluster.lock"
VERSION = 1
NODES_MAX = 99
BOTH, CONTROLLER, BROKER = ("controller", "broker"), ("controller",), ("broker",)
"""The roles that a node may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """One node of the cluster."""

    id: int
    roles: tuple[str, ...]
    grpc: str | None  # "host:port" for clients; None: it serves none
    kafka: str | None  # "host:port" for clients of the Kafka protocol; None: as grpc, or as http
    controller: str  # "host:port" for the other nodes
    http: str | None  # "host:port" of metrics and health; None: made before there was one
    rack: str  # its failure zone; empty: none
    process: ProcessName | None  # the newest one that was started; it may have gone

    @property
    def is_controller(self) -> bool:
        """Whether it has a part in the decisions of the quorum."""
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        """Whether it holds partitions."""
        return "broker" in self.roles


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """All nodes, by ascending id."""

    folder: str
    cluster_id: str
    settings: tuple[str, ...]  # "name=value" that every node is started with
    voters: tuple[str, ...]  # with which it is formed, as in controller.voters
    is_formed: bool  # every node of the first `up` has its voters on its disk
    racks: tuple[str, ...]  # that its brokers get in turn; empty: none
    replication: int  # replicas of a topic that is created without a number
    nodes: tuple[LocalNode, ...]

    def node(self, node_id: int) -> LocalNode:
        """Return a node; raises InvalidRequest when there is none of this id."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise InvalidRequest(f"the cluster has no node {node_id}: it has {ids}")

    def having(self, node: LocalNode) -> "LocalCluster":
        """This cluster with a node in place of the one of its id."""
        nodes = (node if each.id == node.id else each for each in self.nodes)
        return replace(self, nodes=tuple(nodes))

    def node_folder(self, node_id: int) -> str:
        """Where a node has its files."""
        return os.path.join(self.folder, f"node-{node_id}")

    def data_dir(self, node_id: int) -> str:
        """A node's data directory."""
        return os.path.join(self.node_folder(node_id), "data")

    def config_file(self, node_id: int) -> str:
        """What a node is told."""
        return os.path.join(self.node_folder(node_id), "node.toml")

    def log_file(self, node_id: int) -> str:
        """What a node has printed in all its lives."""
        return os.path.join(self.node_folder(node_id), "node.log")


def load(folder: str) -> LocalCluster:
    """Read the state; raises InvalidRequest when the folder holds no cluster."""
    cluster = load_if_any(folder)
    if cluster is None:
        raise InvalidRequest(
            f"{folder} holds no cluster; `quorumlog cluster up` makes one, --data-dir names another"
        )
    return cluster


def load_if_any(folder: str) -> LocalCluster | None:
    """Read the state; None when the folder holds no cluster. Raises DirectoryUnusable."""
    path = os.path.join(folder, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            row = json.load(file)
        if row["version"] != VERSION:
            raise DirectoryUnusable(
                f"{path} has version {row['version']}, this command knows {VERSION}: use the "
                "release that wrote it"
            )
        return LocalCluster(
            folder=folder,
            cluster_id=row["cluster_id"],
            settings=tuple(row["settings"]),
            voters=tuple(row["voters"]),
            is_formed=bool(row["is_formed"]),
            racks=tuple(row.get("racks", ())),
            replication=int(row.get("replication", 1)),
            nodes=tuple(_node(each) for each in row["nodes"]),
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryUnusable(
            f"{path} is not what `quorumlog cluster` writes ({error!r}): mend it, or name another "
            "folder with --data-dir"
        ) from None


def store(cluster: LocalCluster) -> None:
    """Replace the file; durable when this returns. Raises DirectoryUnusable."""
    path = os.path.join(cluster.folder, FILE)
    row = {
        "version": VERSION,
        "cluster_id": cluster.cluster_id,
        "settings": list(cluster.settings),
        "voters": list(cluster.voters),
        "is_formed": cluster.is_formed,
        "racks": list(cluster.racks),
        "replication": cluster.replication,
        "nodes": [asdict(node) for node in cluster.nodes],
    }
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(row, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)
        RealFiles().sync_folder(cluster.folder)
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def locked(folder: str, *, make: bool = False) -> Iterator[None]:
    """Keep other commands from changing the cluster; raises DirectoryInUse when one does."""
    files = RealFiles()
    try:
        if make:
            os.makedirs(folder, exist_ok=True)
        elif not os.path.isdir(folder):
            load(folder)  # says that there is none
        lock = files.lock(os.path.join(folder, LOCK))
    except BlockingIOError:
        raise DirectoryInUse(
            f"another `quorumlog cluster` command works on {folder}: let it end, then repeat"
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
        process=None if process is None else ProcessName(int(process["pid"]), process["start"]),
    )
