"""Kafka error codes that no error class of ours has: states within a response."""

from typing import Final

LEADER_NOT_AVAILABLE: Final = 5
"""The partition has no leader now; retriable."""
REPLICA_NOT_AVAILABLE: Final = 9
"""For version 0 of Metadata, which has no field for offline replicas."""
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
"""The coordinator is loading; retriable."""
COORDINATOR_NOT_AVAILABLE: Final = 15
"""No coordinator for the group or transactional id; retriable."""
LISTENER_NOT_FOUND: Final = 72
"""The leader has no listener of the client's listener name."""
MISMATCHED_ENDPOINT_TYPE: Final = 114
"""The request asks for brokers at a controller, or for controllers at a broker."""
UNSUPPORTED_ENDPOINT_TYPE: Final = 115
"""The endpoint type is unknown."""
