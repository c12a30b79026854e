"""The operations of one broker, as its front ends get them."""

from dataclasses import dataclass

from .authorizer import Authorizer
from .cluster import ClusterAdmin
from .configs import ConfigAdmin
from .metadata_access import MetadataAccess
from .partitions import PartitionAdmin
from .quorum import QuorumAdmin
from .quotas import QuotaAdmin
from .security import AclAdmin, ScramAdmin
from .topics import TopicAdmin
from .transactions import TransactionAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerApi:
    """The operations of one broker, by subject."""

    metadata: MetadataAccess
    authorizer: Authorizer
    topics: TopicAdmin
    configs: ConfigAdmin
    partitions: PartitionAdmin
    quotas: QuotaAdmin
    acls: AclAdmin
    scram: ScramAdmin
    cluster: ClusterAdmin
    quorum: QuorumAdmin
    transactions: TransactionAdmin
