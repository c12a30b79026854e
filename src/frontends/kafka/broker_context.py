"""The parts of the broker that Kafka handlers use, and the bounds of the listeners.

A module of its own that is never compiled: a test of one handler passes only the parts it needs.
"""

from dataclasses import dataclass, field

from ...broker.groups.shell import GroupCoordinator
from ...broker.quotas import ClientQuotaManager
from ...broker.shell.replica_manager import ReplicaManager
from ...metadata import MetadataImage
from ...metadata.shell.publisher import MetadataPublisher
from ...runtime import Runtime
from ..grpc import AdminService, QuorumService, TransactionsService
from .deadlines import RequestDeadlines


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The bounds of the Kafka listeners; docs/configuration.md describes each."""

    request_bytes_max: int  # a larger frame ends its connection before it is stored
    connections_max: int  # of all listeners together; a further one is closed at once
    listener_connections_max: int  # of each listener
    connections_idle_ms_max: int  # without a request, until the connection is closed
    frame_ms_max: int  # from a request's first byte to its last; longer for a large one
    requests_bytes_max: int  # of pending requests of all connections; above it, none is read
    inflight_max: int  # pending requests of one connection; above it, it is not read
    unsent_bytes_max: int  # of unread responses of one connection; above it, it is not read
    fetch_bytes_max: int  # of one fetch response
    # a lookup of an unknown topic by name creates it, if the request permits
    auto_create_topics: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The parts of the broker that handlers use."""

    runtime: Runtime
    replicas: ReplicaManager
    metadata: MetadataPublisher
    admin: AdminService
    quorum: QuorumService
    transactions: TransactionsService
    groups: GroupCoordinator
    settings: KafkaSettings
    throttling: ClientQuotaManager = field(
        default_factory=ClientQuotaManager
    )  # debts of clients; see `quota_charge`
    deadlines: RequestDeadlines = field(default_factory=RequestDeadlines)  # of waiting requests

    @property
    def image(self) -> MetadataImage:
        """The newest applied image."""
        return self.metadata.image
