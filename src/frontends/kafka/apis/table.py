"""The table of supported API keys. A key without a row is not advertised."""

from typing import Final

from ..api import KafkaApi
from .add_raft_voter import API as ADD_RAFT_VOTER
from .alter_client_quotas import API as ALTER_CLIENT_QUOTAS
from .alter_configs import API as ALTER_CONFIGS
from .alter_partition_reassignments import API as ALTER_PARTITION_REASSIGNMENTS
from .api_versions import API as API_VERSIONS
from .create_partitions import API as CREATE_PARTITIONS
from .create_topics import API as CREATE_TOPICS
from .deferred_table import GROUP_APIS, SECURITY_APIS, TRANSACTION_APIS
from .delete_records import API as DELETE_RECORDS
from .delete_topics import API as DELETE_TOPICS
from .describe_client_quotas import API as DESCRIBE_CLIENT_QUOTAS
from .describe_cluster import API as DESCRIBE_CLUSTER
from .describe_configs import API as DESCRIBE_CONFIGS
from .describe_log_dirs import API as DESCRIBE_LOG_DIRS
from .describe_producers import API as DESCRIBE_PRODUCERS
from .describe_quorum import API as DESCRIBE_QUORUM
from .describe_topic_partitions import API as DESCRIBE_TOPIC_PARTITIONS
from .elect_leaders import API as ELECT_LEADERS
from .fetch import API as FETCH
from .find_coordinator import API as FIND_COORDINATOR
from .incremental_alter_configs import API as INCREMENTAL_ALTER_CONFIGS
from .init_producer_id import API as INIT_PRODUCER_ID
from .list_config_resources import API as LIST_CONFIG_RESOURCES
from .list_offsets import API as LIST_OFFSETS
from .list_partition_reassignments import API as LIST_PARTITION_REASSIGNMENTS
from .metadata import API as METADATA
from .offset_for_leader_epoch import API as OFFSET_FOR_LEADER_EPOCH
from .produce import API as PRODUCE
from .remove_raft_voter import API as REMOVE_RAFT_VOTER
from .unregister_broker import API as UNREGISTER_BROKER
from .update_features import API as UPDATE_FEATURES

_PLAIN: Final[tuple[KafkaApi, ...]] = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    FIND_COORDINATOR,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DELETE_RECORDS,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    DESCRIBE_LOG_DIRS,
    CREATE_PARTITIONS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLIENT_QUOTAS,
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_QUORUM,
    UPDATE_FEATURES,
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    UNREGISTER_BROKER,
    LIST_CONFIG_RESOURCES,
    DESCRIBE_TOPIC_PARTITIONS,
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
)

OFFERS_TRANSACTIONS: Final = True
"""False: no request of transactions is advertised."""

APIS: Final[tuple[KafkaApi, ...]] = tuple(
    sorted(
        (*_PLAIN, *GROUP_APIS, *SECURITY_APIS, *(TRANSACTION_APIS if OFFERS_TRANSACTIONS else ())),
        key=lambda api: api.key,
    )
)
"""By ascending key."""
