"""Error numbers that only this protocol speaks of: states of an answer, which nobody raises."""

from typing import Final

LEADER_NOT_AVAILABLE: Final = 5
"""Nobody leads the partition just now; ask again."""
REPLICA_NOT_AVAILABLE: Final = 9
"""Of version 0 of Metadata, which can not tell replicas that are down from others."""
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
"""Whoever could answer is not ready; ask again."""
COORDINATOR_NOT_AVAILABLE: Final = 15
"""No broker has the group or the transactional id; ask again."""
LISTENER_NOT_FOUND: Final = 72
"""The leader is there, and not for clients of this listener."""
MISMATCHED_ENDPOINT_TYPE: Final = 114
"""Brokers were asked where controllers should have been, or the other way round."""
UNSUPPORTED_ENDPOINT_TYPE: Final = 115
"""There are no endpoints of this kind."""
