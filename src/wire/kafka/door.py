"""What the handlers of the Kafka protocol reach of their node.

A module of its own, which is never compiled: a test of one handler gives it nothing else.
"""

from dataclasses import dataclass, field

from ...broker.groups.shell import GroupCoordinator
from ...broker.quotas import Throttling
from ...broker.shell.replicas import ReplicaManager
from ...metadata import MetadataImage
from ...metadata.shell.publisher import MetadataPublisher
from ...runtime import Runtime
from ..grpc import AdminService, QuorumService, TransactionsService
from .deadlines import Deadlines
from .settings import KafkaSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What handlers reach of the node."""

    runtime: Runtime
    replicas: ReplicaManager
    metadata: MetadataPublisher
    admin: AdminService
    quorum: QuorumService
    transactions: TransactionsService
    groups: GroupCoordinator
    settings: KafkaSettings
    throttling: Throttling = field(default_factory=Throttling)  # what clients owe; see `charging`
    deadlines: Deadlines = field(default_factory=Deadlines)  # of requests that wait

    @property
    def image(self) -> MetadataImage:
        """What this broker has applied."""
        return self.metadata.image
