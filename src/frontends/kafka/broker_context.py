"""The parts of the broker that Kafka handlers use.

Handlers call `BrokerApi`; those of the data path use the replica manager and the group coordinator
themselves.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...api.broker_api import BrokerApi
from ...broker.config import RequestConfig
from ...broker.groups.shell import GroupCoordinator
from ...broker.quotas import ClientQuotaManager
from ...broker.shell.hosted_replicas import HostedReplicas
from ...broker.shell.log_admin import LogAdmin
from ...broker.shell.produce import ReplicaWriter
from ...broker.shell.reads import ReplicaReader
from ...metadata import MetadataImage
from ...metadata.shell.publisher import MetadataPublisher
from ...runtime import Runtime
from ...runtime.steps import step_counter
from .config import KafkaConfig
from .deadlines import RequestDeadlines

PLACED_A_STEP: Final = 50
"""Partitions of Produce requests that are queued in their logs between two turns of other tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The parts of the broker that handlers use."""

    runtime: Runtime
    hosted: HostedReplicas
    writer: ReplicaWriter
    reader: ReplicaReader
    log_admin: LogAdmin
    metadata: MetadataPublisher
    api: BrokerApi
    groups: GroupCoordinator
    settings: KafkaConfig
    requests: RequestConfig
    throttling: ClientQuotaManager = field(
        default_factory=ClientQuotaManager
    )  # debts of clients; see `quota_charge`
    deadlines: RequestDeadlines = field(default_factory=RequestDeadlines)  # of waiting requests
    take_produce_turn: Callable[..., Awaitable[None]] = field(
        default_factory=partial(step_counter, PLACED_A_STEP)
    )

    @property
    def image(self) -> MetadataImage:
        """The newest applied image."""
        return self.metadata.image
