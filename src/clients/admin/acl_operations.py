"""The operations that ACLs allow or deny, by resource type."""

from collections.abc import Mapping
from typing import Final

OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Topic": (
        *("Read", "Write", "Create", "Delete", "Alter", "Describe"),
        *("DescribeConfigs", "AlterConfigs"),
    ),
    "Group": ("Read", "Delete", "Describe", "DescribeConfigs", "AlterConfigs"),
    "TransactionalId": ("Write", "Describe"),
    "Cluster": (
        *("Create", "Alter", "Describe", "ClusterAction", "DescribeConfigs", "AlterConfigs"),
        "IdempotentWrite",
    ),
}
"""The operations that each resource type supports besides All, as in Apache Kafka's AclCommand."""
