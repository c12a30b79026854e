"""The open parts of a node, for readers in the same process."""

from dataclasses import dataclass

from ..broker.groups.shell import GroupCoordinator
from ..broker.shell.replica_manager import ReplicaManager
from ..frontends.grpc import LogService
from ..frontends.kafka import KafkaServer
from ..metadata.shell import BrokerSession, ControllerShell, MetadataPublisher
from ..raftlog.shell import RaftNode
from ..storage.shell.data_directory import DataDirectory


@dataclass(slots=True)
class NodeParts:
    """The open parts of a node. None: not open yet, or not a part of this node."""

    directory: DataDirectory | None = None
    publisher: MetadataPublisher | None = None
    replicas: ReplicaManager | None = None
    groups: GroupCoordinator | None = None
    raft: RaftNode | None = None
    controller: ControllerShell | None = None
    log: LogService | None = None
    kafka: KafkaServer | None = None
    session: BrokerSession | None = None
    is_ready: bool = False  # the start has completed
    is_stopping: bool = False
