"""Authorization of topics, and authorized operations in responses (KIP-430)."""

from typing import Final

from ...errors import QuorumlogError
from ...metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from .api import BrokerContext, Call

UNASKED: Final = -(2**31)
"""The value if the request does not ask for the operations."""

_TOPIC: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_CLUSTER: Final = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
_GROUP: Final = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_DESCRIBE_TOPIC: Final = (AclOperation.DESCRIBE, AclResourceType.TOPIC)


def describes(broker: BrokerContext, call: Call, topic: str) -> bool:
    """Return True if the client may describe the topic of a name."""
    return broker.api.authorizer.allows(call.client.identity, *_DESCRIBE_TOPIC, topic)


def describe_denial(broker: BrokerContext, call: Call, topic: str) -> QuorumlogError | None:
    """Return the error of a topic that the client may not describe, None if it may."""
    return broker.api.authorizer.denial(call.client.identity, *_DESCRIBE_TOPIC, topic)


def topic_operations(broker: BrokerContext, call: Call, name: str, *, is_asked: bool = True) -> int:
    """Return the bit set of the client's operations on a topic."""
    if not is_asked:
        return UNASKED
    return broker.api.authorizer.authorized_operations(
        call.client.identity, AclResourceType.TOPIC, name, _TOPIC
    )


def cluster_operations(broker: BrokerContext, call: Call, *, is_asked: bool) -> int:
    """Return the bit set of the client's operations on the cluster, empty without Describe."""
    if not is_asked:
        return UNASKED
    authorizer, client = broker.api.authorizer, call.client.identity
    if not authorizer.allows(client, AclOperation.DESCRIBE, AclResourceType.CLUSTER):
        return 0
    return authorizer.authorized_operations(client, AclResourceType.CLUSTER, CLUSTER_NAME, _CLUSTER)


def group_operations(broker: BrokerContext, call: Call, name: str, *, is_asked: bool) -> int:
    """Return the bit set of the client's operations on a group."""
    if not is_asked:
        return UNASKED
    return broker.api.authorizer.authorized_operations(
        call.client.identity, AclResourceType.GROUP, name, _GROUP
    )
